"""Ranges of one thread that enclose one another: which one is innermost when, and what encloses it.

Of the ranges that are open at a moment (start ≤ moment < end) the one that began last is innermost; of those that began together the
one that ends first; of equal ones the one that stands last. Ranges that overlap without enclosing one another need no other rule.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.spans import Times

_SWEEPS = 4  # after which ranges are looked at one by one
NOBODY = -1  # instead of the place of a range: none
Places = npt.NDArray[np.int64]


class Nest(NamedTuple):
    """From when to when (`start`, `end`, ns: sorted, disjoint) which range is innermost (`place`, as given), and each range's `parent`."""

    start: Times
    end: Times
    place: Places
    parent: Places

    def at(self, moments: Times) -> Places:
        """Return the place of the innermost range at each moment, `NOBODY` where none is open."""
        if not len(self.start):
            return np.full(len(moments), NOBODY, np.int64)
        piece = np.searchsorted(self.start, moments, side="right") - 1
        inside = (piece >= 0) & (moments < self.end[piece])
        return np.where(inside, self.place[piece], NOBODY)


def nest(start: Times, end: Times) -> Nest:
    """Return how some ranges of one thread, in any order, enclose one another; empty ones count for nothing.

    >>> found = nest(np.array([0, 2, 3]), np.array([10, 8, 5]))
    >>> found.start.tolist(), found.end.tolist(), found.place.tolist(), found.parent.tolist()
    ([0, 2, 3, 5, 8], [2, 3, 5, 8, 10], [0, 1, 2, 1, 0], [-1, 0, 1])
    """
    order = np.lexsort((-end, start))
    order = order[end[order] > start[order]]
    parent = np.full(len(start), NOBODY, np.int64)
    if not len(order):
        return Nest(start[:0], end[:0], parent[:0], parent)
    edges, inner, above = _settled(start[order], end[order])
    parent[order] = np.append(order, NOBODY)[above]
    real = (inner[:-1] != NOBODY) & (edges[1:] > edges[:-1])
    return Nest(edges[:-1][real], edges[1:][real], order[inner[:-1][real]], parent)


def _settled(begins: Times, ends: Times) -> tuple[Times, Places, Places]:
    """Return what `_swept` does of ranges that may overlap without enclosing one another.

    What began within a range is innermost while that lasts, so the range may as well last as long, and then encloses it. A few such,
    as rounded times make them, are found by the sweep itself.
    """
    for _ in range(_SWEEPS):
        edges, inner, above = _swept(begins, ends)
        outer = np.append(ends, np.iinfo(np.int64).max)[above]
        if (ends <= outer).all():
            return edges, inner, above
        beyond = (ends > outer) & (begins < outer)
        ends = ends.copy()
        np.maximum.at(ends, above[beyond], ends[beyond])
    return _swept(begins, _enclosing(begins, ends))


def _swept(begins: Times, ends: Times) -> tuple[Times, Places, Places]:
    """Return all moments at which a range begins or ends, which one is innermost from there on, and which encloses each range.

    Of ranges that enclose one another, sorted. The innermost at a depth is the one that began last at this depth: so edges are
    grouped by the depth that they lead to, and in each group the last beginning is carried on.
    """
    closing, count = np.sort(ends), len(begins)
    opened = np.arange(count) + np.searchsorted(closing, begins, side="right")
    closed = np.arange(count) + np.searchsorted(begins, closing)
    edges, change = np.empty(2 * count, np.int64), np.empty(2 * count, np.int8)
    edges[opened], edges[closed], change[opened], change[closed] = begins, closing, 1, -1
    depth = np.cumsum(change, dtype=np.int32)
    if int(depth.max()) < 2**15:
        depth = depth.astype(np.int16)  # which NumPy sorts much faster
    grouped = np.argsort(depth, kind="stable")
    place = np.full(2 * count, NOBODY, np.int64)
    place[opened] = np.arange(count)
    last = np.maximum.accumulate(np.where(change[grouped] > 0, np.arange(2 * count), 0))
    inner = np.empty(2 * count, np.int64)
    inner[grouped] = place[grouped[last]]
    inner[depth <= 0] = NOBODY
    return edges, inner, np.where(opened > 0, inner[opened - 1], NOBODY)


def _enclosing(begins: Times, ends: Times) -> Times:
    """Return the ends of ranges, each put off until all that began within it are over."""
    found = ends.tolist()
    outer: list[int] = []  # of what comes behind, the ranges that nothing encloses, the first on top
    starts = begins.tolist()
    for place in range(len(found) - 1, -1, -1):
        end = found[place]
        while outer and starts[outer[-1]] < end:
            end = max(end, found[outer.pop()])
        found[place] = end
        outer.append(place)
    return np.array(found, np.int64)
