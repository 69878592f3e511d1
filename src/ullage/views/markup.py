"""Markup, built from elements: the one place where foreign text is escaped on its way into HTML and SVG."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable

from ullage.errors import harmless

VOID = frozenset({"meta", "link", "br", "input", "rect", "line", "path", "circle", "polyline", "polygon", "use"})
_ADDRESS = re.compile(r"https://[\w.-]+(:\d+)?(/[\w.~%/+,;=:@-]*)?(\?[\w.~%/+=&-]*)?(#[\w.~%/+=-]*)?", re.ASCII)
LONGEST = 4_000  # characters of one piece of foreign text: a label of megabytes is nobody's name


class Markup(str):
    """Text that is well-formed markup already; everything else is foreign until `element` has escaped it."""

    __slots__ = ()


Child = str | None | Iterable["Child"]


def element(name: str, /, *children: Child, **attributes: object) -> Markup:
    """Return an element with its children and attributes, escaped.

    A child is markup, plain text (escaped, control characters made visible), None (nothing) or several of these. An
    attribute's `_` becomes `-` and a trailing one is dropped (`class_`); None leaves it out; floats are cut to two decimals.

    >>> print(element("text", "<b>\\x1b", x=1.005, font_size=12, class_="f-ink", id=None))
    <text x="1" font-size="12" class="f-ink">&lt;b&gt;\\x1b</text>
    >>> print(element("g", element("line", x1=0.25), None, [Markup("&amp;"), "&"]))
    <g><line x1="0.25"/>&amp;&amp;</g>
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"' for key, value in attributes.items() if value is not None
    )
    if name in VOID and not children:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Markup:
    """Return children one after the other, each escaped unless it is markup."""
    return Markup("".join(_written(child) for child in children))


def escaped(text: str, limit: int = LONGEST) -> Markup:
    """Return foreign text as markup: no control characters, at most `limit` characters, escaped for elements and attributes.

    >>> escaped('<script a="b">')
    '&lt;script a=&quot;b&quot;&gt;'
    """
    return Markup(html.escape(harmless(str(text), limit), quote=True))


def address(text: str) -> str:
    """Return an address that can be linked, "" for other text: only https, only letters that need no escape anywhere.

    >>> address("https://docs.nvidia.com/cutlass/efficient_gemm.html"), address("docs/gemm.md"), address("javascript:alert(1)")
    ('https://docs.nvidia.com/cutlass/efficient_gemm.html', '', '')
    """
    return text if _ADDRESS.fullmatch(text) else ""


def number(value: float) -> str:
    """Return a coordinate with at most two decimals.

    >>> number(12.0), number(0.126), number(-0.001)
    ('12', '0.13', '0')
    """
    written = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if written == "-0" else written


def known(value: float | None) -> float | None:
    """Return a value that can be drawn: None for what is not known, not a number, or infinite.

    >>> known(0.5), known(None), known(float("nan"))
    (0.5, None, None)
    """
    return None if value is None or not math.isfinite(value) else float(value)


def _written(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escaped(child)
    return join(child)


def _attribute(value: object) -> str:
    if isinstance(value, Markup):
        return value
    return number(value) if isinstance(value, float) else escaped(str(value))
