"""Idle time of a device by the code of the host thread that launches next: what it is in until its launching call returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.code.levels import CodeLevel, LevelLane
from ullage.sums.lanes.code.times import CodeTimes, code_times
from ullage.sums.lanes.gather import Codes
from ullage.sums.lanes.spans import Spans, Times, clip

MOSTLY = (9, 10)  # of a gap: a function that lasts so much of it holds it


class Charge(NamedTuple):
    """Idle time of one device for which one host thread answers: spans in order, which may touch, and the number of the `gap` of each."""

    process: int
    thread: int
    spans: Spans
    gap: npt.NDArray[np.intp]


class NamedIdle(NamedTuple):
    """A name, and for how long of a gap it was innermost, ns."""

    name: str
    time: int


def idle_by_code(charges: Sequence[Charge], level: CodeLevel) -> CodeTimes:
    """Return the idle time of one device by what is innermost at a level; a row counts the gaps in which it had a part."""
    parts = [_shares(charge, level) for charge in charges]
    code, gap, time = (
        np.concatenate([*(part[n] for part in parts), np.zeros(0, kind)]) for n, kind in enumerate((np.int32, np.int64, np.int64))
    )
    whole = sum(int((charge.spans.end - charge.spans.start).sum()) for charge in charges)
    return code_times(level.names, code, gap, time, whole - int(time.sum()))


def _shares(charge: Charge, level: CodeLevel) -> tuple[Codes, Times, Times]:
    """Return pieces of a charge's time in which something is innermost: what (a code), in which gap, how long."""
    lane = level.lane(charge.process, charge.thread)
    if lane is None:
        return np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64)
    place, code, time = lane.shares(charge.spans)
    return code, charge.gap[place], time


def name_gap(start: int, end: int, charges: Sequence[Charge], levels: Mapping[str, CodeLevel]) -> dict[str, NamedIdle]:
    """Return what had the most of one gap's time at each level, and, as "around", the innermost function that lasts through most of it."""
    within = [charge._replace(spans=part, gap=np.zeros(part.pieces, np.intp)) for charge, part in _parts(start, end, charges)]
    found = {name: idle_by_code(within, level).rows[:1] for name, level in levels.items()}
    named = {name: NamedIdle(rows[0].name, rows[0].time) for name, rows in found.items() if rows}
    if len(within) == 1 and (around := _around(within[0], levels["function"])) is not None:
        named["around"] = around
    return named


def _parts(start: int, end: int, charges: Sequence[Charge]) -> list[tuple[Charge, Spans]]:
    found = []
    for charge in charges:
        first, last = np.searchsorted(charge.spans.end, start, side="right"), np.searchsorted(charge.spans.start, end)
        part = clip(Spans(charge.spans.start[first:last], charge.spans.end[first:last]), start, end)
        if part.pieces:
            found.append((charge, part))
    return found


def _around(charge: Charge, level: CodeLevel) -> NamedIdle | None:
    whole = level.lane(charge.process, charge.thread)
    low, high = int(charge.spans.start[0]), int(charge.spans.end[-1])
    if whole is None:
        return None
    lane = whole.during(low, high)
    lasts = np.minimum(lane.end, high) - np.maximum(lane.start, low)
    place = _last_begun(lane, np.flatnonzero(MOSTLY[1] * lasts >= MOSTLY[0] * (high - low)))
    return None if place is None else NamedIdle(level.names[int(lane.code[place])], int(lasts[place]))


def _last_begun(lane: LevelLane, places: npt.NDArray[np.intp]) -> int | None:
    named = places[lane.code[places] >= 0]
    return int(named[np.lexsort((-lane.end[named], lane.start[named]))[-1]]) if len(named) else None
