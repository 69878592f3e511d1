"""What HTML reports share: a document that loads nothing, sections, and pictures laid out for a page and for a phone."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

from ullage.views.draw import NARROW, WIDE
from ullage.views.html_style import SCRIPT, style
from ullage.views.markup import Child, Markup, element


def document(title: str, *body: Child) -> Markup:
    """Return one self-contained HTML document, light or dark as the reader's screen asks.

    A security policy allows only our own style sheet and script, by their hashes, and no connection at all; without the script
    tables just don't sort.
    """
    sheet = style()
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(sheet)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{title} – Ullage"),
        element("style", Markup(sheet)),
    )
    whole = element("html", head, element("body", element("main", *body), element("script", Markup(SCRIPT))), lang="en")
    return Markup(f"<!doctype html>\n{whole}\n")


def policy(sheet: str) -> str:
    """Return the Content-Security-Policy of a report with this style sheet and our script: nothing else runs, nothing is fetched."""
    return f"default-src 'none'; style-src '{_hash(sheet)}'; script-src '{_hash(SCRIPT)}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def figure(draw: Callable[[int], Markup]) -> Markup:
    """Return a picture twice, laid out for a page and for a phone; the style sheet shows the one that fits."""
    return element("figure", element("div", draw(WIDE), class_="page"), element("div", draw(NARROW), class_="phone"))
