"""A flame graph of stalls: each box as wide as its samples; kernels below, lines of source on them, what was waited for on top."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ullage.cupti.stalls import GROUPS
from ullage.reports.stalls.frames import Frame, frames
from ullage.reports.stalls.shares import StallReport
from ullage.views.draw import SMALL, WIDE, box, caption, extent, fit, picture, text
from ullage.views.markup import Markup, element
from ullage.views.numbers import percent

ROW, GAP = 24.0, 1.0
THINNEST = 0.75  # pixels: what is thinner is left out, and drawn as one pale box with its neighbours
KEY = 20.0  # height of a line of the key
# Each with the colour of a label on it, at a contrast of 4.5 to 1 on light and dark paper. Ready recedes: nothing is lost there.
_FILLS = {
    "issued": ("gain", "paper"),
    "ready": ("full", "ink"),
    "memory": ("loss", "paper"),
    "synchronisation": ("doubt", "paper"),
    "execution": ("kernel", "paper"),
    "instructions": ("muted", "paper"),
    "other": ("rule", "ink"),
}
_GROUNDS = ("idle", "full", "idle")  # of the root, kernels and lines


@dataclass(frozen=True)
class _Box:
    """A frame where it is drawn: its left edge and width in pixels, its depth from the root; None for neighbours too thin to draw."""

    frame: Frame | None
    x: float
    width: float
    depth: int


def flame(report: StallReport, *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the flame graph as an SVG picture: the root at the bottom, stall reasons in colour on top, most samples to the left.

    Boxes tell their whole name, samples and share when pointed at; each label is cut to fit. A frame under three quarters of a pixel is
    not drawn by itself.
    """
    root = frames(report)
    boxes = list(_boxes(root, 0.0, float(width), 0))
    depth = max(one.depth for one in boxes) + 1
    groups = [group for group in GROUPS if any(one.reason.group == group for one in report.shares)]
    key = _key(groups, float(width), ROW * depth + 12)
    return picture(
        "stalls",
        "Where warps were, and what they waited for",
        _described(root),
        (width, ROW * depth + 12 + KEY * max((row for row, _ in key), default=0) + KEY),
        [_drawn(one, ROW * (depth - 1 - one.depth), root.samples) for one in boxes],
        [mark for _, mark in key],
        standalone=standalone,
    )


def _boxes(frame: Frame, x: float, width: float, depth: int) -> Iterator[_Box]:
    """Yield the boxes of a frame and of all that stands on it."""
    yield _Box(frame, x, width, depth)
    thin = 0.0
    for child in frame.children:
        wide = width * child.samples / frame.samples
        if wide >= THINNEST:
            yield from _boxes(child, x, wide, depth + 1)
            x += wide
        else:  # children are sorted: all that follow are as thin
            thin += wide
    if thin >= THINNEST:
        yield _Box(None, x, thin, depth + 1)


def _drawn(one: _Box, y: float, samples: int) -> Markup:
    drawn = max(one.width - GAP, THINNEST) if one.width > 3 * GAP else one.width
    frame = one.frame
    if frame is None:
        return element("g", element("title", "more, each too thin to draw"), box(one.x, y, drawn, ROW - GAP, "rule"))
    fill, colour = _FILLS[frame.group] if frame.group else (_GROUNDS[min(one.depth, 2)], "ink")
    room = drawn - 10
    label = fit(frame.name, room, SMALL) if room >= 24 else ""
    if len(label) < 3 <= len(frame.name) or extent(label, SMALL) > room:
        label = ""
    title = f"{frame.name}: {frame.samples:,} samples, {percent(frame.samples / samples, 1)}"
    return element(
        "g",
        element("title", title),
        box(one.x, y, drawn, ROW - GAP, fill),
        text(one.x + 5, y + ROW - 9, label, colour=colour, size=SMALL) if label else None,
    )


def _key(groups: list[str], width: float, top: float) -> list[tuple[int, Markup]]:
    """Return the key's entries with the line that each stands on, counted from 0."""
    marks, x, row = [], 0.0, 0
    for group in groups:
        wide = 18 + extent(GROUPS[group], SMALL) + 14
        if x and x + wide > width:
            x, row = 0.0, row + 1
        y = top + KEY * row
        entry = element("g", box(x, y, 12, 12, _FILLS[group][0]), caption(x + 18, y + 10, GROUPS[group]))
        marks.append((row, entry))
        x += wide
    return marks


def _described(root: Frame) -> str:
    told = "; ".join(f"{one.name} {percent(one.samples / root.samples)}" for one in root.children[:5])
    more = f", and {len(root.children) - 5} more" if len(root.children) > 5 else ""
    return f"{root.samples:,} samples: {told}{more}."
