"""The trees of efficiencies as a picture: a box a factor, its value as a bar, and how the boxes multiply (TALP paper, figures 2 and 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.metrics.tree import Node
from ullage.render.svg.kit import captions
from ullage.views.draw import SIZE, SMALL, WIDE, Scale, box, caption, extent, fit, hatch, line, picture, text
from ullage.views.markup import Markup, element, known
from ullage.views.numbers import UNKNOWN, percent

BOX, GAP, INDENT, BAR = 42.0, 8.0, 26.0, 8.0
GOOD, POOR = 0.8, 0.5
CAPTION = "Each box is the product (=, ×) of those that hang from it. Green: 80 % or more; orange: less than 50 %."
HATCHED = "Hatched: somewhere in there."


@dataclass(frozen=True)
class _Column:
    """Where a tree stands: its left edge, its width, and the pattern for what is in doubt."""

    left: float
    width: float
    key: str
    shares: Mapping[str, float]


def tree(
    host: Node | None,
    device: Node | None,
    *,
    title: str = "Efficiency",
    shares: Mapping[str, float] | None = None,
    width: int = WIDE,
    standalone: bool = True,
) -> Markup:
    """Return the picture of the host's and the device's tree, side by side on a page, one above the other on a phone.

    A value whose bounds lie far apart is not stated: its box says "cannot tell" and between what. `shares` has the factors'
    shares of the loss, by metric.
    """
    found = [(name, node) for name, node in (("Host", host), ("Device", device)) if node is not None]
    beside = width > 600 and len(found) > 1
    gutter = 36.0
    wide = (width - gutter) / 2 if width > 600 else float(width)
    parts: list[Markup] = []
    y, bottom = 0.0, 0.0
    key = f"tree-{width}-doubt"
    for place, (name, node) in enumerate(found):
        left = place * (wide + gutter) if beside else 0.0
        end = _tree(parts, name, node, _Column(left, wide, key, shares or {}), 0.0 if beside else y)
        y, bottom = end + 14, max(bottom, end)
    if not found:
        parts.append(text(0, 14, "no efficiency can be computed", colour="muted"))
        bottom = 24
    doubt = any(not n.exact for _, root in found for _, n in root.walk())
    y = bottom + 8
    if found:
        drawn, y = captions(f"{CAPTION} {HATCHED}" if doubt else CAPTION, y, width)
        parts += drawn
    told = " ".join(f"{name}: {'; '.join(_told(n) for _, n in node.walk())}." for name, node in found)
    defs = element("defs", hatch(key, "unknown"))
    return picture("tree", title, told or "No efficiency can be computed.", (width, y + 4), defs, parts, standalone=standalone)


def _tree(parts: list[Markup], name: str, root: Node, column: _Column, y: float) -> float:
    """Add a tree from `y` down and return where it ends."""
    parts.append(text(column.left, y + 13, name, bold=True, size=SIZE + 1))
    return _node(parts, root, column, 0, y + 24)


def _node(parts: list[Markup], node: Node, column: _Column, depth: int, y: float) -> float:
    """Add a node and what hangs from it, and return where it ends."""
    x = column.left + depth * INDENT
    parts.append(_box(node, x, y, column, depth == 0))
    stem, middle = x + INDENT / 2, y + BOX
    end = y + BOX
    signs: list[Markup] = []
    for place, child in enumerate(node.children):
        middle = end + GAP + BOX / 2
        signs += _sign("×" if place else "=", stem, middle, x + INDENT)
        end = _node(parts, child, column, depth + 1, end + GAP)
    if node.children:
        parts += [line(stem, y + BOX, stem, middle, "muted"), *signs]
    return end


def _sign(sign: str, x: float, y: float, right: float) -> list[Markup]:
    circle = element("circle", cx=x, cy=y, r=7.0, class_="f-paper s-paper")
    return [line(x, y, right, y, "muted"), circle, text(x, y + 4.5, sign, anchor="middle", colour="muted", size=SIZE)]


def _box(node: Node, x: float, y: float, column: _Column, root: bool) -> Markup:
    right = column.left + column.width
    narrow = column.width < 400
    said, below = stated(node), _below(node, column.shares)
    bar = Scale(0.0, 1.0, right - (134 if narrow else 170), right - 84)
    base = y + (18 if below else BOX / 2 + 4.5)
    room = bar.start - x - 18
    size = next((size for size in (SIZE, SMALL) if extent(node.label, size) <= room), SMALL - 1)
    return element(
        "g",
        element("title", _told(node)),
        element("rect", x=x + 0.5, y=y + 0.5, width=right - x - 1, height=BOX - 1, rx=3, fill="none", class_="s-rule"),
        text(x + 10, base, fit(node.label, room, size), bold=root, size=size),
        text(x + 10, base + 15, fit(below, room, SMALL - 1), colour="muted", size=SMALL - 1) if below else None,
        _bar(node, bar, y + BOX / 2 - BAR / 2, column.key),
        text(right - 10, y + BOX / 2 + 4.5, said, anchor="end", bold=root or known(node.value) is not None, size=SIZE + (1 if root else 0))
        if node.certain
        else caption(right - 10, y + BOX / 2 + 4.5, said, "end"),
    )


def _bar(node: Node, bar: Scale, y: float, key: str) -> list[Markup]:
    value, low, high = known(node.value), known(node.low), known(node.high)
    marks = [box(bar.start, y, bar.end - bar.start, BAR, "full")]
    if value is None:
        return marks
    if low is None or high is None or low == high:
        return [*marks, box(bar.start, y, bar(value) - bar.start, BAR, _colour(value))]
    marks.append(box(bar.start, y, bar(low) - bar.start, BAR, _colour(value) if node.certain else "unknown"))
    between = max(bar(high) - bar(low), 2.0)
    return [*marks, element("rect", x=bar(low), y=y, width=between, height=BAR, fill=f"url(#{key})")]


def _colour(value: float) -> str:
    return "gain" if value >= GOOD else "loss" if value < POOR else "pale"


def stated(node: Node) -> str:
    """Return an efficiency as its box says it.

    >>> stated(Node("a", "A", 0.5, 0.5, 0.5)), stated(Node("a", "A", 0.5, 0.02, 0.99)), stated(Node("a", "A", None, None, None))
    ('50 %', 'cannot tell', '–')
    """
    value = known(node.value)
    if value is None:
        return UNKNOWN
    return percent(value) if node.certain else "cannot tell"


def bounds(node: Node) -> str:
    """Return between what an efficiency lies, empty when nothing is in doubt.

    >>> bounds(Node("a", "A", 0.5, 0.02, 0.99)), bounds(Node("a", "A", 0.5, 0.4991, 0.5009)), bounds(Node("a", "A", 0.5, 0.5, 0.5))
    ('2–99 %', '49.9–50.1 %', '')
    """
    low, high = known(node.low), known(node.high)
    if node.exact or low is None or high is None:
        return ""
    digits = next((n for n in range(3) if f"{low * 100:.{n}f}" != f"{high * 100:.{n}f}"), 3)
    return f"{low * 100:.{digits}f}–{high * 100:.{digits}f} %"


def _below(node: Node, shares: Mapping[str, float]) -> str:
    share = known(shares.get(node.metric))
    said = [bounds(node), f"{percent(share)} of the loss" if share is not None and not node.children else ""]
    return ", ".join(word for word in said if word)


def _told(node: Node) -> str:
    doubt = bounds(node)
    return f"{node.label} {stated(node)}" + (f" ({doubt})" if doubt else "")
