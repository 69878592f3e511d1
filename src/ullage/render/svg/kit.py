"""What charts are made of: words beside marks, lines across a scale, a legend, curves, names that do not run into each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from ullage.views.draw import SMALL, Scale, box, caption, extent, line, text, wrap
from ullage.views.markup import Markup, element, number

Marker = Callable[[float, float], Markup]  # draws a sign at x, in a line whose middle is at y
DASHES = "5 4"
ROW = 18.0  # from a line of small words to the next
SWATCH = 12.0
BAR = 17.0


def captions(words: str, top: float, width: float, step: float = 17.0, first: float = 12.0) -> tuple[list[Markup], float]:
    """Return words that explain in as many lines as they need, and where the next thing stands."""
    rows = wrap(words, width, SMALL)
    return [caption(0, top + first + step * place, row) for place, row in enumerate(rows)], top + step * len(rows)


def filled(x: float, y: float, width: float, height: float, colour: str, hatching: str = "", *children: Markup) -> Markup:
    """Return a rectangle in a colour, or hatched by the pattern of that name: a second sign for what is not known."""
    fill = {"fill": f"url(#{hatching})"} if hatching else {"class_": f"f-{colour}"}
    return element("rect", *children, x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), **fill)


def levels(up: Callable[[float], float], left: float, right: float, ticks: Sequence[float], write: Callable[[float], str]) -> list[Markup]:
    """Return lines across a chart at the ticks of its height, the lowest stronger, each with its value at the left."""
    marks = []
    for place, tick in enumerate(ticks):
        y = up(tick)
        marks += [line(left, y, right, y, "rule" if place else "muted"), caption(left - 8, y + 4, write(tick), "end")]
    return marks


def polyline(points: Iterable[tuple[float, float]], colour: str, thick: float, dashes: str | None = None, **more: object) -> Markup:
    """Return a line through points."""
    path = Markup("M" + " L".join(f"{number(x)} {number(y)}" for x, y in points))
    return element("path", d=path, fill="none", stroke_width=thick, stroke_dasharray=dashes, class_=f"s-{colour}", **more)


def stroke(colour: str, thick: float, dashes: str | None = None) -> Marker:
    """Return what draws a short line for a legend."""
    return lambda x, y: line(x, y, x + 22, y, colour, stroke_width=thick, stroke_dasharray=dashes)


def square(colour: str, hatching: str = "") -> Marker:
    """Return what draws a small square for a legend."""
    return lambda x, y: filled(x, y - SWATCH / 2, SWATCH, SWATCH, colour, hatching)


def legend(
    entries: Iterable[tuple[Marker, str]],
    top: float,
    width: float,
    *,
    left: float = 0.0,
    indent: float = 28.0,
    gap: float = 18.0,
    step: float = ROW,
    colour: str = "ink",
) -> tuple[list[Markup], float]:
    """Return signs and what they mean, one after the other in as many lines as they need, and the middle of the last line."""
    marks: list[Markup] = []
    x, y = left, top
    for mark, words in entries:
        wide = indent + extent(words, SMALL) + gap
        if x > left and x + wide > width:
            x, y = left, y + step
        marks += [mark(x, y), text(x + indent, y + 4, words, colour=colour, size=SMALL)]
        x += wide
    return marks, y


def spaced(places: Iterable[tuple[float, str]], floor: float, width: float, *, gap: float = 6.0, ticked: bool = False) -> list[Markup]:
    """Return names below an axis, held within the picture; those that would run into the one before are left out."""
    marks, free = [], -math.inf
    for x, words in places:
        half = extent(words, SMALL) / 2
        at = x if ticked else min(max(x, half), width - half)
        if at - half > free:
            marks += [*([line(x, floor, x, floor + 4, "muted")] if ticked else []), caption(at, floor + 18, words, "middle")]
            free = at + half + gap
    return marks


def bar_parts(length: Scale, parts: Iterable[tuple[float, str]], top: float) -> list[Markup]:
    """Return the parts of a bar, each from the end of the one before to its own (in values of the scale) in its colour."""
    drawn, at = [], 0.0
    for end, colour in parts:
        drawn.append(box(length(at), top, length(end) - length(at), BAR, colour))
        at = max(at, end)
    return drawn
