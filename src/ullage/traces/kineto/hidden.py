"""Operators that computed while a collective of the host's own ran beside them: that much of the collective cost nothing.

Gloo runs collectives on threads of its own. The thread that started one goes on (DDP's backward pass) or waits, and only its operators
tell which: ATen's, which compute, and others that enclose nothing. One that encloses others (autograd's) may be waiting in between.
Where no operator of a process says who starts its collectives (PyTorch before 1.13), any thread with operators may have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ullage.traces.kineto.part import KinetoPart, Times
from ullage.traces.kineto.timed import Mask, TimedEvents

_STARTERS = ("c10d::", "_c10d_functional::", "record_param_comms")
_OTHER, _STARTS, _COMPUTES = range(3)  # what an operator does; a collective is started, or waited for


@dataclass
class Operators:
    """The operators of a file, kept only if its hosts may run collectives (`wanted`): start, end, process, thread, sort."""

    wanted: bool = False
    columns: list[tuple[Times, Times, Times, Times, npt.NDArray[np.int8]]] = field(default_factory=list)

    def add(self, rows: TimedEvents) -> None:
        """Take in a chunk's operators."""
        if self.wanted and rows:
            sort = np.array([*(_sort(name) for name in rows.name.words), _sort("")], np.int8)[rows.name.codes]
            self.columns.append((rows.start, rows.end, rows.process, rows.thread, sort))

    def beside(self, parts: Sequence[KinetoPart]) -> list[KinetoPart]:
        """Return what threads that start collectives compute while one runs on a thread of its own."""
        talks = [part for part in parts if part.kind == "mpi" and len(part)]
        if not self.columns or not talks:
            return []
        start, end, process, thread, sort = (np.concatenate(column) for column in zip(*self.columns, strict=True))
        self.columns = []
        order = np.lexsort((-end, start, thread, process))
        start, end, process, thread, sort = (column[order] for column in (start, end, process, thread, sort))
        lane = np.cumsum((np.diff(process, prepend=process[:1]) != 0) | (np.diff(thread, prepend=thread[:1]) != 0))
        place = np.arange(len(start))
        alone = np.ones(len(start), np.bool_)
        alone[:-1] = (lane[1:] != lane[:-1]) | (start[1:] >= end[:-1])
        begins = np.append(np.flatnonzero(sort == _STARTS), 0)
        after = begins[np.searchsorted(begins[:-1], place, side="right")]  # the next that starts a collective; 0 if none does
        holds = (after > place) & (lane[after] == lane) & (start[after] < end)
        named = np.isin(process, process[sort == _STARTS])
        starter = np.isin(lane, lane[sort == _STARTS]) | ~named
        chosen = (sort != _STARTS) & ~holds & ((sort == _COMPUTES) | alone) & starter
        found = KinetoPart("computing", start[chosen], end[chosen], {"process": process[chosen], "thread": thread[chosen]})
        pairs = set(zip(process.tolist(), thread.tolist(), strict=True))
        return [part for number in np.unique(process) if len(part := found.where(_overlap(found, talks, int(number), pairs)))]


def _sort(name: str) -> int:
    if name.startswith("aten::"):
        return _COMPUTES
    return _STARTS if name.startswith(_STARTERS) else _OTHER


def _overlap(found: KinetoPart, talks: Sequence[KinetoPart], process: int, busy: set[tuple[int, int]]) -> Mask:
    """Return which operators of a process run while one of its collectives does, on a thread without any operators."""
    starts, ends = [], []
    for part in talks:
        threads = part.numbers["thread"].tolist()
        own = part.where((part.numbers["process"] == process) & np.array([(process, thread) not in busy for thread in threads], bool))
        starts.append(own.start)
        ends.append(own.end)
    start, end = np.concatenate(starts), np.concatenate(ends)
    order = np.argsort(start, kind="stable")
    reach = np.concatenate((np.full(1, np.iinfo(np.int64).min), np.maximum.accumulate(end[order])))
    before = np.searchsorted(start[order], found.end)
    overlaps: Mask = (found.numbers["process"] == process) & (reach[before] > found.start)
    return overlaps
