"""What names a host thread's time: the operators of the framework, the Python functions, and the user's ranges with the modules.

Each is a level of its own, for they enclose one another in any order; at each, the innermost counts (see `nests`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.code.layers import Paths
from ullage.sums.lanes.code.nests import NOBODY, Nest, nest
from ullage.sums.lanes.gather import Capture, Codes, LaneRows
from ullage.sums.lanes.launches import distinct
from ullage.sums.lanes.spans import Spans, Times, overlaps

LEVELS = ("operator", "annotation", "function")
_BLOCK = 1 << 15  # ranges whose nest is looked at in one go: a profile may have millions


class LevelLane(NamedTuple):
    """The ranges of one thread at one level, by their start, and what each is called, as a code into the level's names."""

    start: Times
    end: Times
    code: Codes

    def at(self, moments: Times) -> Codes:
        """Return what is innermost at each moment, `NOBODY` where nothing is open."""
        order = np.argsort(moments, kind="stable")
        sought = moments[order]
        asked = np.searchsorted(sought, self.end) > np.searchsorted(sought, self.start)
        found = np.full(len(moments), NOBODY, np.int32)
        for lane, low, high in self._where(asked)._blocks():
            places = order[slice(*np.searchsorted(sought, (low, high)))]
            found[places] = np.append(lane.code, np.int32(NOBODY))[lane.nest().at(moments[places])]
        return found

    def shares(self, looked: Spans) -> tuple[npt.NDArray[np.intp], Codes, Times]:
        """Return when something is innermost within spans: in which of them, what, and for how long, ns. The spans may touch."""
        parts = [lane._shares(looked, low, high) for lane, low, high in self._touching(looked)._blocks()]
        if not parts:
            return np.zeros(0, np.intp), np.zeros(0, np.int32), np.zeros(0, np.int64)
        place, code, time = (np.concatenate(column) for column in zip(*parts, strict=True))
        return place, code, time

    def during(self, low: int, high: int) -> LevelLane:
        """Return the ranges that are open at some moment from `low` until `high`."""
        return self._where(np.flatnonzero(self.end[: np.searchsorted(self.start, high)] > low))

    def nest(self) -> Nest:
        """Return how the ranges enclose one another."""
        return nest(self.start, self.end)

    def _touching(self, looked: Spans) -> LevelLane:
        """Return the ranges that share time with spans, looked for block by block."""
        found = [np.zeros(0, np.intp)]
        last = int(np.searchsorted(self.start, looked.end[-1])) if looked.pieces else 0
        for first in range(0, last, _BLOCK):
            near = first + np.flatnonzero(self.end[first : min(first + _BLOCK, last)] > looked.start[0])
            ended, begun = np.searchsorted(looked.end, self.start[near], side="right"), np.searchsorted(looked.start, self.end[near])
            found.append(near[ended < begun])
        return self._where(np.concatenate(found))

    def _shares(self, looked: Spans, low: int, high: int) -> tuple[npt.NDArray[np.intp], Codes, Times]:
        found = self.nest()
        inner = Spans(np.maximum(found.start, low), np.minimum(found.end, high))
        place, piece = overlaps(looked, inner)
        time = np.minimum(looked.end[place], inner.end[piece]) - np.maximum(looked.start[place], inner.start[piece])
        code = self.code[found.place[piece]]
        real = (time > 0) & (code >= 0)
        return place[real], code[real], time[real]

    def _where(self, mask: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> LevelLane:
        return LevelLane(self.start[mask], self.end[mask], self.code[mask])

    def _blocks(self) -> Iterator[tuple[LevelLane, int, int]]:
        """Yield the ranges a block at a time: those that are open from a moment to another, and these moments."""
        edges = [*range(0, len(self.start), _BLOCK), len(self.start)]
        for first, last in pairwise(edges):
            low = int(self.start[first])
            high = int(self.start[last]) if last < len(self.start) else int(self.end.max()) + 1
            earlier = np.flatnonzero(self.end[:first] > low)
            yield self._where(np.concatenate((earlier, np.arange(first, last)))), low, high


class CodeLevel:
    """The ranges of one level by process and thread; `names` are what the codes of its lanes mean.

    A thread without ranges takes those of the process' thread with the most, if this level `borrows`: autograd's thread has neither
    modules nor Python functions of its own, and what is open on the thread that waits for it is why it runs.
    """

    def __init__(self, rows: Mapping[tuple[int, int], LaneRows], names: list[str], borrows: bool, paths: Paths | None = None) -> None:
        self.names, self._rows, self._borrows, self._paths = names, rows, borrows, paths
        self._most: dict[int, int] = {}
        for process, thread in sorted(rows):
            if process not in self._most or len(rows[process, thread]) > len(rows[process, self._most[process]]):
                self._most[process] = thread
        self._lanes: dict[tuple[int, int], LevelLane] = {}

    def lane(self, process: int, thread: int) -> LevelLane | None:
        """Return a thread's lane, None where it has no range and takes nobody's."""
        if (process, thread) not in self._rows:
            if process not in self._most or not self._borrows:
                return None
            thread = self._most[process]
        if (process, thread) not in self._lanes:
            self._lanes[process, thread] = self._sorted(self._rows[process, thread])
        return self._lanes[process, thread]

    def _sorted(self, rows: LaneRows) -> LevelLane:
        code = rows.name if self._paths is None else self._paths.coded(rows, nest(rows.start, rows.end))
        follows = (rows.start[1:] > rows.start[:-1]) | ((rows.start[1:] == rows.start[:-1]) & (rows.end[1:] <= rows.end[:-1]))
        if follows.all():
            return LevelLane(rows.start, rows.end, code)
        order = np.lexsort((-rows.end, rows.start))
        return LevelLane(rows.start[order], rows.end[order], code[order])

    def around(self, process: Times, thread: Times, moments: Times) -> Codes:
        """Return what is innermost on threads at moments, `NOBODY` where nothing is open."""
        found = np.full(len(moments), NOBODY, np.int32)
        for (number, lane), places in by_thread(process, thread):
            if (own := self.lane(number, lane)) is not None:
                found[places] = own.at(moments[places])
        return found

    def __len__(self) -> int:
        return len(self._rows)


def levels(capture: Capture) -> dict[str, CodeLevel]:
    """Return the levels of a capture by name, in the order of `LEVELS`."""

    def of(kind: str) -> dict[tuple[int, int], LaneRows]:
        return {(process, thread): rows for (sort, process, thread), rows in capture.code.items() if sort == kind}

    return {
        "operator": CodeLevel(of("operator"), capture.words, borrows=False),
        "annotation": annotation_level(capture.host, capture.words),
        "function": CodeLevel(of("function"), capture.words, borrows=True),
    }


def annotation_level(host: LaneRows, words: list[str]) -> CodeLevel:
    """Return the level of the user's ranges and of modules: a range is called by the path of all that encloses it."""
    named, paths = host.of("region", "module"), Paths(words)
    return CodeLevel({who: named.where(places) for who, places in by_thread(named.process, named.thread)}, paths.names, True, paths)


def by_thread(process: Times, thread: Times) -> list[tuple[tuple[int, int], npt.NDArray[np.intp]]]:
    """Return the places of each process' and thread's rows, in their order."""
    found = []
    for number in distinct(process):
        mine = np.flatnonzero(process == number)
        own = thread[mine]
        found += [((number, lane), mine[own == lane]) for lane in distinct(own)]
    return found
