"""The columns of a Paraver trace into intervals, lane by lane. A lane is one thread of one process.

Events of a type hold until the next event of that type on the same lane; 0 ends them. A hardware counter's reading belongs to
the time since the lane's previous reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
RUNNING, UNSTATED = 1, -1


class Stretches(NamedTuple):
    """When an event type held a value: lane, start and end (ns), type and value, in the order of lanes and starts."""

    lane: Numbers
    start: Numbers
    end: Numbers
    kind: Numbers
    value: Numbers


@dataclass(frozen=True)
class Lanes:
    """All of a trace, sorted by lane and time: states (lane, start, end, state), events (lane, time, type, value); its `end` in ns."""

    states: Numbers
    events: Numbers
    end: int


def lanes(states: list[Numbers], events: list[Numbers], end: int) -> Lanes:
    """Return the lanes from the rows of all blocks."""
    return Lanes(_sorted(states, 4), _sorted(events, 4), end)


def _sorted(parts: list[Numbers], width: int) -> Numbers:
    whole = np.concatenate(parts) if parts else np.zeros((0, width), np.int64)
    return whole[np.lexsort((whole[:, 1], whole[:, 0]))]


def stretches(events: Numbers, kinds: list[int], end: int) -> tuple[Stretches, int]:
    """Return when events of some types held a value other than 0, and how many never ended (they last to the trace's `end`)."""
    rows = events[np.isin(events[:, 2], kinds)]
    rows = rows[np.lexsort((np.arange(len(rows)), rows[:, 2], rows[:, 0]))]
    same = np.zeros(len(rows), bool)
    same[:-1] = (rows[1:, 0] == rows[:-1, 0]) & (rows[1:, 2] == rows[:-1, 2])
    last = np.full(len(rows), end, np.int64)
    last[:-1][same[:-1]] = rows[1:, 1][same[:-1]]
    begun = rows[:, 3] != 0
    rows, last, open_ = rows[begun], np.maximum(last[begun], rows[begun, 1]), int((begun & ~same).sum())
    order = np.lexsort((rows[:, 1], rows[:, 0]))
    rows = rows[order]
    return Stretches(rows[:, 0], rows[:, 1], last[order], rows[:, 2], rows[:, 3]), open_


def unstated(states: Numbers, end: int) -> Numbers:
    """Return, as rows of a state −1, when lanes that have states were in none: before they began, after they ended, between."""
    if not len(states):
        return states
    lane, begin, until = states[:, 0], states[:, 1], states[:, 2]
    new = np.concatenate(([True], lane[1:] != lane[:-1]))
    before = np.where(new, 0, np.concatenate(([0], until[:-1])))
    final = np.concatenate((new[1:], [True]))
    starts, ends = np.concatenate((before, until[final])), np.concatenate((begin, np.full(int(final.sum()), end)))
    rows = np.column_stack((np.concatenate((lane, lane[final])), starts, ends, np.full(len(starts), UNSTATED)))
    return rows[rows[:, 1] < rows[:, 2]]


def after_calls(states: Numbers, calls: Stretches) -> Numbers:
    """Return states without what of them lies in a call that was going on when they began: that, the call tells."""
    if not len(calls.lane) or not len(states):
        return states
    reach = calls.end.copy()
    begins = np.flatnonzero(np.concatenate(([True], calls.lane[1:] != calls.lane[:-1])))
    for first, last in zip(begins, [*begins[1:], len(reach)], strict=True):
        reach[first:last] = np.maximum.accumulate(reach[first:last])
    at = _last(calls.lane, calls.start, states[:, 0], states[:, 1])
    mine = (at >= 0) & (calls.lane[at] == states[:, 0])
    states = states.copy()
    states[:, 1] = np.where(mine, np.maximum(states[:, 1], reach[at]), states[:, 1])
    return states[states[:, 1] < states[:, 2]]


def _last(lane: Numbers, start: Numbers, places: Numbers, times: Numbers) -> Numbers:
    """Return, of rows sorted by lane and start, the last that comes no later than each place and time; −1 for none."""
    asked = np.repeat([0, 1], [len(lane), len(places)])  # at one moment rows come before what is asked
    order = np.lexsort((asked, np.concatenate((start, times)), np.concatenate((lane, places))))
    rows = order < len(lane)
    last = np.empty(len(places), np.int64)
    last[order[~rows] - len(lane)] = np.cumsum(rows)[~rows] - 1
    return last


def values_at(events: Numbers, kinds: list[int], lane: Numbers, time: Numbers) -> tuple[Numbers, Numbers]:
    """Return, for each place and time, the type and value of an event of some types that stands just there; −1 where there is none."""
    rows = events[np.isin(events[:, 2], kinds) & (events[:, 3] != 0)]
    if not len(rows):
        return np.full(len(lane), -1, np.int64), np.full(len(lane), -1, np.int64)
    at = np.maximum(_last(rows[:, 0], rows[:, 1], lane, time), 0)
    hit = (rows[at, 0] == lane) & (rows[at, 1] == time)
    return np.where(hit, rows[at, 2], -1), np.where(hit, rows[at, 3], -1)


def useful_counts(lanes_: Lanes, kind: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Return, for each reading of a counter within a Running burst: lane, moment, value, and the time in ns that it was read over."""
    rows = lanes_.events[lanes_.events[:, 2] == kind]
    bursts = lanes_.states[lanes_.states[:, 3] == RUNNING]
    if not len(rows) or not len(bursts):
        none = np.zeros(0, np.int64)
        return none, none, none, none
    before = np.concatenate(([0], rows[:-1, 1]))
    before[np.concatenate(([True], rows[1:, 0] != rows[:-1, 0]))] = 0
    burst = np.maximum(_last(bursts[:, 0], bursts[:, 1], rows[:, 0], rows[:, 1] - 1), 0)
    inside = (bursts[burst, 0] == rows[:, 0]) & (bursts[burst, 1] < rows[:, 1]) & (rows[:, 1] <= bursts[burst, 2]) & (before < rows[:, 1])
    over = rows[:, 1] - np.maximum(before, bursts[burst, 1])
    return rows[inside, 0], rows[inside, 1], rows[inside, 3], over[inside]
