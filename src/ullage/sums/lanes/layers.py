"""In which layer of its program a call was made: the regions that the user named and the modules that were open around it.

A module's running number is left out ("Linear_17" is "Linear"), so that layers that repeat are one layer.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.gather import KIND, NOT_KNOWN, Codes, Rows
from ullage.sums.lanes.spans import Times

DEEPEST = 8  # innermost names kept of a layer's path
BETWEEN = "/"
_NUMBER = re.compile(r"_\d+$")
_HOPS = 1000  # ranges left again on the way out from the one that began last; more are given up


def layers(host: Rows, words: list[str], calls: Rows) -> tuple[Codes, list[str]]:
    """Return the layer of each call, `NOT_KNOWN` outside of any, as a code into a list of paths.

    A call on a thread without names of its own (autograd's) belongs to what is open on the thread with the most, which waits for it.
    """
    named = host.of("region", "module")
    paths: dict[str, int] = {}
    nests: dict[int, dict[int, _Nest]] = {}
    for process, thread, rows in _lanes(named):
        nests.setdefault(process, {})[thread] = _Nest(named.where(rows), words, paths)
    found = np.full(len(calls), NOT_KNOWN, np.int32)
    for process, thread, rows in _lanes(calls) if nests else ():
        own = nests.get(process, {})
        if own:
            chosen = own[thread] if thread in own else max(own.values(), key=len)
            found[rows] = chosen.at(calls.start[rows])
    return found, list(paths)


def _lanes(rows: Rows) -> list[tuple[int, int, npt.NDArray[np.intp]]]:
    """Return the rows of each thread, in the order of their starts, what encloses others first."""
    order = np.lexsort((-rows.end, rows.start, rows.thread, rows.process))
    process, thread = rows.process[order], rows.thread[order]
    edges = np.flatnonzero((np.diff(process, prepend=-2, append=-2) != 0) | (np.diff(thread, prepend=-2, append=-2) != 0))
    return [(int(process[low]), int(thread[low]), order[low:high]) for low, high in pairwise(edges.tolist())]


class _Nest:
    """The named ranges of one thread, each with the range that encloses it and its path."""

    def __init__(self, rows: Rows, words: list[str], paths: dict[str, int]) -> None:
        self._start, self._end = rows.start, rows.end
        self._parent, self._path = np.full(len(rows), NOT_KNOWN, np.int64), np.zeros(len(rows), np.int32)
        names = [_label(words[name] if name >= 0 else "", kind) for name, kind in zip(rows.name.tolist(), rows.kind.tolist(), strict=True)]
        open_: list[tuple[int, int, tuple[str, ...]]] = []  # place, end, path
        for place, (start, end) in enumerate(zip(rows.start.tolist(), rows.end.tolist(), strict=True)):
            while open_ and open_[-1][1] <= start:
                open_.pop()
            outer = open_[-1] if open_ else (NOT_KNOWN, 0, ())
            path = (*outer[2], names[place])[-DEEPEST:]
            self._parent[place], self._path[place] = outer[0], paths.setdefault(BETWEEN.join(path), len(paths))
            open_.append((place, end, path))

    def __len__(self) -> int:
        return len(self._start)

    def at(self, moments: Times) -> Codes:
        """Return the path of the innermost range that is open at each moment."""
        place = np.searchsorted(self._start, moments, side="right") - 1
        for _ in range(_HOPS):
            left = np.flatnonzero((place >= 0) & (self._end[place] < moments))
            if not len(left):
                break
            place[left] = self._parent[place[left]]
        else:
            place[self._end[place] < moments] = NOT_KNOWN
        return np.where(place >= 0, self._path[place], NOT_KNOWN).astype(np.int32)


def _label(name: str, kind: int) -> str:
    """Return what a range is called.

    >>> _label("Linear_17", KIND["module"]), _label("stage_2", KIND["region"])
    ('Linear', 'stage_2')
    """
    return (_NUMBER.sub("", name) if kind == KIND["module"] else name) or "(unnamed)"
