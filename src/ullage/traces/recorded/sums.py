"""Sums of what threads did, as intervals: how long each state lasted is known, when is not, so the states of a stretch stand one after
another. Each region is in one piece, so that what lies in it does; all sums over whole stretches are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ullage.cupti.chunks import NO_CALLS, OFF_CPU
from ullage.traces.nsys.names import NsysWords
from ullage.traces.recorded.rows import RecordingReading, Records, Whole

IDLE = "OpenMP idle"  # a thread in no team, as it is while its process communicates: both are laid at a stretch's end, so that they meet
State = tuple[tuple[str, ...], int, int]  # the regions that a thread is in, the outermost first; a call's number or 0; ns


@dataclass
class Pieces:
    """Intervals in the making: start and end (ns), thread, and what they are: a region's name, a call's number."""

    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    thread: list[int] = field(default_factory=list)
    what: list[Any] = field(default_factory=list)

    def add(self, start: int, end: int, thread: int, what: str | int) -> None:
        """Add one that is longer than nothing."""
        if start < end:
            self.start.append(start)
            self.end.append(end)
            self.thread.append(thread)
            self.what.append(what)

    def times(self) -> tuple[Whole, Whole]:
        """Return start and end."""
        return np.array(self.start, np.int64), np.array(self.end, np.int64)

    def threads(self) -> Whole:
        """Return the threads."""
        return np.array(self.thread, np.int64)

    def names(self, name: Callable[[Any], str]) -> NsysWords:
        """Return what they are as words."""
        place: dict[Any, int] = {}
        codes = np.array([place.setdefault(what, len(place)) for what in self.what], np.int32)
        return NsysWords(codes, [name(what) for what in place]).renamed(lambda text: text or None)


def laid_out(reading: RecordingReading, records: Records, start: Whole) -> tuple[Pieces, Pieces, Pieces]:
    """Return calls, regions, and times on no processor, of records of SUM that begin at `start`. A stretch that holds more than its length
    (its thread had looked at the clock before it was written, and said so after) goes into the next one, which holds that much less."""
    stretches: dict[tuple[int, int], list[State]] = {}
    columns = [records[name].tolist() for name in ("thread", "serial", "name", "bytes")]
    for begin, thread, node, call, time in zip(start.tolist(), *columns, strict=True):
        stretches.setdefault((begin, thread), []).append((reading.regions_of(node), call, time))
    last = {call for call in records["name"].tolist() if call not in NO_CALLS and not reading.told.is_openmp(call)}
    last |= {call for call in records["name"].tolist() if reading.told.host_names.get(call) == IDLE}
    calls, regions, absences = Pieces(), Pieces(), Pieces()
    for (begin, thread), states in stretches.items():
        reading.summed[thread] = in_turn(states, max(begin, reading.summed.get(thread, begin)), thread, calls, regions, absences, last)
    return calls, regions, absences


def in_turn(
    states: list[State], begin: int, thread: int, calls: Pieces, regions: Pieces, absences: Pieces, last: Container[int] = ()
) -> int:
    """Add the states of a thread one after another, and return where the last one ends; within the same regions `last` calls come last.

    >>> calls, regions, absences = Pieces(), Pieces(), Pieces()
    >>> in_turn([(("a", "b"), 0, 2), ((), 0, 5), (("a",), 9, 3)], 100, 7, calls, regions, absences)
    110
    >>> list(zip(regions.what, regions.start, regions.end)), list(zip(calls.what, calls.start, calls.end))
    ([('b', 108, 110), ('a', 105, 110)], [(9, 105, 108)])
    """
    inside: list[tuple[str, int]] = []  # the regions around the last state, and since when
    for path, call, time in [*sorted(states, key=lambda state: (state[0], state[1] in last, *state[1:])), ((), 0, 0)]:
        shared = 0
        while shared < min(len(inside), len(path)) and inside[shared][0] == path[shared]:
            shared += 1
        for name, since in reversed(inside[shared:]):
            regions.add(since, begin, thread, name)
        inside[shared:] = [(name, begin) for name in path[shared:]]
        if call not in NO_CALLS:
            calls.add(begin, begin + time, thread, call)
        if call == OFF_CPU:
            absences.add(begin, begin + time, thread, call)
        begin += time
    return begin
