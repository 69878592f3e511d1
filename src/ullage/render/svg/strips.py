"""A lane of a timeline: spans as rectangles while they can be told apart, else each column's shares stacked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ullage.render.svg.kit import filled
from ullage.sums.lanes.spans import Spans, Times
from ullage.sums.lanes.timeline import TimelineLane, columns, moved, part
from ullage.views.draw import Scale
from ullage.views.markup import Markup, element, number
from ullage.views.numbers import percent
from ullage.views.times import seconds

THINNEST = 0.75  # pixels: a call of a microsecond is still seen, unless there are many, which would hide the rest
FEW = 40
FINEST = 0.5  # pixels of a column's height that are told apart

WORDS = {
    "useful": "useful",
    "offload": "offload",
    "communication": "communication",
    "kernel": "kernel",
    "collective": "collective",
    "memory": "memory operation",
    "off": "off the CPU",
    "unknown": "not known",
    "idle": "idle",
}
_GROUNDS = ("useful", "idle")  # what is drawn beneath the rest


def strip(lane: TimelineLane, x: Scale, y: float, height: float, *, exact: bool, column: float, key: str) -> list[Markup]:
    """Return the marks of a lane: one for each span (`exact`), or its states stacked in columns of `column` pixels.

    Stacked too where spans lie closer than four pixels on average.
    """
    low, high = int(x.low), int(x.high)
    if exact and pieces(lane, low, high) * 4 <= x.end - x.start:
        return _spans(lane, x, y, height, key)
    pixels = max(1, int((x.end - x.start) / column))
    covered = {name: columns(s, low + lane.shift, high + lane.shift, pixels) for name, s in lane.states.items()}
    return stacked(covered, (high - low) / pixels, x.start, (x.end - x.start) / pixels, y, height, key)


def _spans(lane: TimelineLane, x: Scale, y: float, height: float, key: str) -> list[Markup]:
    low, high = int(x.low), int(x.high)
    thinnest = THINNEST if pieces(lane, low, high) <= FEW else 0.0
    marks = []
    for state in sorted(lane.states, key=lambda name: name not in _GROUNDS):
        seen = moved(part(lane.states[state], low + lane.shift, high + lane.shift), -lane.shift)
        for start, end in zip(seen.start.tolist(), seen.end.tolist(), strict=True):
            told = element("title", f"{WORDS[state]}, {seconds(end - start)}")
            left = x(start)
            marks.append(filled(left, y, max(x(end) - left, thinnest), height, state, key if state == "unknown" else "", told))
    return marks


def stacked(covered: Mapping[str, Times], full: float, left: float, column: float, y: float, height: float, key: str) -> list[Markup]:
    """Return states stacked in columns: `covered` ns of each, of `full` ns a column that is `column` pixels wide.

    One outline a state, drawn from the top of the stack down, so that each hides what lies below its own.
    """
    level: npt.NDArray[np.float64] = np.zeros(len(next(iter(covered.values()))))
    outlines = []
    for state, times in covered.items():
        if times.any():
            level = level + times * (height / full)
            told = element("title", WORDS[state])
            shape = _outline(np.minimum(np.round(level / FINEST) * FINEST, height), left, column, y + height)
            fill = {"fill": f"url(#{key})"} if state == "unknown" else {"class_": f"f-{state}"}
            outlines.append(element("path", told, d=shape, **fill))
    return outlines[::-1]


def _outline(level: npt.NDArray[np.float64], left: float, column: float, ground: float) -> Markup:
    """Return the path of a stack's upper edge, column by column, closed along the ground; equal neighbours are one step."""
    changes = np.flatnonzero(np.diff(level)) + 1
    tops = level[np.concatenate(([0], changes))]
    ends = np.concatenate((changes, [len(level)]))
    words, height = [f"M{number(left)} {number(ground)}"], 0.0
    for end, top in zip(ends.tolist(), tops.tolist(), strict=True):
        words.append(f"v{number(height - top)}H{number(left + end * column)}")
        height = top
    return Markup("".join((*words, f"v{number(height)}z")))


def shares(lane: TimelineLane, low: int, high: int) -> dict[str, float]:
    """Return each state's share of what was looked at of a lane between two moments; empty when that is nothing."""
    low, high = low + lane.shift, high + lane.shift
    seen = part(lane.seen, low, high).total
    return {name: part(s, low, high).total / seen for name, s in lane.states.items()} if seen else {}


def described(lane: TimelineLane, of: Mapping[str, float]) -> str:
    """Return a lane in words: its name and each state's share."""
    told = ", ".join(f"{WORDS[state]} {percent(share)}" for state, share in of.items() if share > 0)
    return f"{lane.name}: {told or 'nothing was recorded'}"


def pieces(lane: TimelineLane, low: int, high: int) -> int:
    """Return how many spans a lane has between two moments, those drawn beneath the rest left out."""
    found: list[Spans] = [part(s, low + lane.shift, high + lane.shift) for name, s in lane.states.items() if name not in _GROUNDS]
    return sum(s.pieces for s in found)
