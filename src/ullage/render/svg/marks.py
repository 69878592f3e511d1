"""Steps and regions above the lanes of a timeline: brackets with their names, nested ones below one another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ullage.errors import harmless
from ullage.sums.lanes.run import Run
from ullage.sums.lanes.states import ProcessState, RegionOccurrences
from ullage.sums.lanes.timeline import TimelineLane, beginnings
from ullage.views.draw import SMALL, Scale, box, caption, extent, fit, line, text
from ullage.views.markup import Markup, element
from ullage.views.times import seconds

ROW, MOST_ROWS, MOST_MARKS = 18.0, 3, 60
SHORTEST = 3.0  # pixels: a shorter region is not drawn
ALONG = "along"  # what lies along the axis of time, and is drawn wider where a page looks closer
LEGIBLE = 60.0  # pixels: what is left of a name in less says nothing


def marks(run: Run, shown: Sequence[TimelineLane], x: Scale, y: float, beside: bool) -> tuple[list[Markup], float]:
    """Return the brackets of the first process shown that has any, from `y` down, and how high they are together."""
    keys = [lane.owners[0] for lane in shown if lane.kind == "process"]
    found = [p for p in run.processes if p.key in keys]
    process = next((p for p in found if p.steps is not None or p.occurrences), None)
    if process is None:
        return [], 0.0
    shift = beginnings(run)(process.key[0])
    drawn: list[Markup] = []
    height = 0.0
    if process.steps is not None:
        rows = _rows(_placed(process.steps, x, shift))[:1]
        height += _draw(drawn, "steps", rows, y, beside)
    height += _draw(drawn, "regions", _rows(_regions(process, x, shift)), y + height, beside)
    return drawn, height + (6 if height else 0)


_Mark = tuple[float, float, str, int]  # left and right in pixels, name, length in ns


def _placed(step: RegionOccurrences, x: Scale, shift: int) -> list[_Mark]:
    """Return the occurrences within sight that are wide enough to be seen."""
    start, end = step.start - shift, step.end - shift
    wide = (x.end - x.start) / max(x.high - x.low, 1)
    seen = (end > x.low) & (start < x.high) & ((np.minimum(end, x.high) - np.maximum(start, x.low)) * wide >= SHORTEST)
    return [(x(int(start[n])), x(int(end[n])), step.names[n], int(end[n] - start[n])) for n in np.flatnonzero(seen)[: 10 * MOST_MARKS]]


def _regions(process: ProcessState, x: Scale, shift: int) -> list[_Mark]:
    """Return the widest occurrences of regions."""
    found = [mark for step in process.occurrences.values() for mark in _placed(step, x, shift)]
    return sorted(found, key=lambda m: (m[0] - m[1], m[0], m[2]))[:MOST_MARKS]


def _rows(found: list[_Mark]) -> list[list[_Mark]]:
    """Return marks in rows in which none overlaps another: a region inside another comes a row below it."""
    rows: list[list[_Mark]] = []
    ends: list[float] = []
    for mark in sorted(found, key=lambda m: (m[0], -m[1])):
        row = next((n for n, end in enumerate(ends) if end <= mark[0] + 0.01), None)
        if row is None:
            row = len(rows)
            rows.append([])
            ends.append(0.0)
        rows[row].append(mark)
        ends[row] = mark[1]
    return rows[:MOST_ROWS]


def _draw(drawn: list[Markup], title: str, rows: list[list[_Mark]], y: float, beside: bool) -> float:
    if not rows:
        return 0.0
    if beside:
        drawn.append(caption(0, y + 12, title))
    for number, row in enumerate(rows):
        top = y + number * ROW
        for left, right, name, long in row:
            drawn.append(_bracket(left, right, name, long, top))
    return len(rows) * ROW


def _bracket(left: float, right: float, name: str, long: int, top: float) -> Markup:
    room = right - left - 8
    words = fit(name, room, SMALL)
    fits = extent(words, SMALL) <= room and (room >= LEGIBLE or words == harmless(name, 400))
    return element(
        "g",
        element("title", f"{harmless(name, 200)}, {seconds(long)}"),
        box(left, top, max(right - left - 1, 1.0), ROW - 3, "full"),
        line(left + 0.5, top, left + 0.5, top + ROW - 3, "muted"),
        text(left + 5, top + 11.5, words, size=SMALL - 1) if fits else None,
        class_=ALONG,
    )
