"""What HTML reports share: a document that loads nothing, sections, and pictures laid out for a page and for a phone."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from ullage.views.draw import NARROW, WIDE
from ullage.views.html_style import SITE, style
from ullage.views.markup import Child, Markup, element
from ullage.views.page_script import SCRIPT


@dataclass(frozen=True)
class PageFrame:
    """What stands around a report on a site of pages: `top` before it, and where a name leads (`address_of("job", "4711")`).

    `script` is one that the site's pages run beside our own, and that may ask the server that they came from.
    Pages with `forms` may ask the server that they come from.
    """

    top: Markup
    address_of: Callable[[str, str], str | None] = lambda *_: None
    script: str = ""
    forms: bool = True


def document(title: str, *body: Child, frame: PageFrame | None = None) -> Markup:
    """Return one self-contained HTML document, light or dark as the reader's screen asks.

    A security policy allows only our own style sheet and script, by their hashes, and no connection at all; without the script
    tables just don't sort. What stands around the report on a site of pages is its `frame`, whose forms the policy then allows.
    """
    sheet = style() + (SITE if frame else "")
    top, script, asks = (None, "", False) if frame is None else (frame.top, frame.script, frame.forms)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(sheet, forms=asks, script=script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{title} – Ullage"),
        element("style", Markup(sheet)),
    )
    whole = element(
        "html",
        head,
        element(
            "body",
            top,
            element("main", *body, id="report" if frame else None),
            element("script", Markup(SCRIPT)),
            element("script", Markup(script)) if script else None,
        ),
        lang="en",
    )
    return Markup(f"<!doctype html>\n{whole}\n")


def policy(sheet: str, *, forms: bool = False, script: str = "") -> str:
    """Return the Content-Security-Policy of a report with this style sheet and our script: nothing else runs, nothing is fetched.

    With `forms` a form may ask the server that the page came from, and so may a further `script`.
    """
    allowed = "'self'" if forms else "'none'"
    scripts = " ".join(f"'{_hash(one)}'" for one in (SCRIPT, script) if one)
    asked = "; connect-src 'self'" if script else ""
    return f"default-src 'none'; style-src '{_hash(sheet)}'; script-src {scripts}{asked}; base-uri 'none'; form-action {allowed}"


def site_policy(script: str = "") -> str:
    """Return the policy of the pages of a site, for the header that comes with them: as the pages say it, and nobody may frame them."""
    return f"{policy(style() + SITE, forms=True, script=script)}; frame-ancestors 'none'"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def figure(draw: Callable[[int], Markup]) -> Markup:
    """Return a picture twice, laid out for a page and for a phone; the style sheet shows the one that fits."""
    return element("figure", element("div", draw(WIDE), class_="page"), element("div", draw(NARROW), class_="phone"))
