"""Sets of time: sorted, disjoint spans of integer nanoseconds, and the algebra on them. All functions are pure.

Everything rests on one fact: with the starts sorted and the ends sorted, each alone, the moment `starts[i + 1]` has i + 2
spans begun and, while it lies before `ends[i]`, at most i of them ended. So a union breaks exactly where `starts[i + 1] >
ends[i]`, and two disjoint sets overlap exactly from `starts[i + 1]` to `ends[i]`. Two plain sorts, no event queue, and the
order in which intervals came can't matter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
BLOCK = 1 << 14  # intervals looked at in one go: what is made of them stays in the cache of a processor, and small beside them all


class Spans(NamedTuple):
    """Spans [start, end) in ns, sorted, disjoint, none empty and no two touching: two int64 arrays of one length."""

    start: Times
    end: Times

    @property
    def pieces(self) -> int:
        """How many spans there are."""
        return len(self.start)

    @property
    def total(self) -> int:
        """The time covered, in ns: exact, whatever the size."""
        return int(self.end.sum() - self.start.sum()) if self.pieces else 0


def _times(values: npt.ArrayLike) -> Times:
    return np.asarray(values, dtype=np.int64)


NONE = Spans(_times([]), _times([]))


def spans(*pairs: tuple[int, int]) -> Spans:
    """Return the union of a few spans written out.

    >>> spans((5, 15), (0, 10), (20, 30)).total
    25
    """
    return union(_times([p[0] for p in pairs]), _times([p[1] for p in pairs]))


def union(start: Times, end: Times) -> Spans:
    """Return when at least one of the intervals runs. Intervals that are empty or end before they start count for nothing.

    >>> union(np.array([0, 5, 20]), np.array([10, 15, 20]))
    Spans(start=array([0]), end=array([15]))
    """
    start, end = _times(start), _times(end)
    real = end > start
    if not real.all():
        start, end = start[real], end[real]
    if not len(start):
        return NONE
    start, end = _sorted(start), _sorted(end)
    first, last = [start[:1]], list[Times]()
    for low in range(0, len(start) - 1, BLOCK):
        begun = start[low + 1 : low + 1 + BLOCK]
        ended = end[low : low + len(begun)]
        breaks = np.flatnonzero(begun > ended)
        first.append(begun[breaks])
        last.append(ended[breaks])
    return Spans(np.concatenate(first), np.concatenate([*last, end[-1:]]))


def _sorted(values: Times) -> Times:
    """Return the values in order; recorders mostly write them so, and to look costs a tenth of sorting."""
    return values if (values[1:] >= values[:-1]).all() else np.sort(values)


def join(*sets: Spans) -> Spans:
    """Return the union of several sets."""
    filled = [s for s in sets if s.pieces]
    if len(filled) < 2:
        return filled[0] if filled else NONE
    return union(np.concatenate([s.start for s in filled]), np.concatenate([s.end for s in filled]))


def intersect(a: Spans, b: Spans) -> Spans:
    """Return when both run.

    >>> intersect(spans((0, 10), (20, 30)), spans((5, 25)))
    Spans(start=array([ 5, 20]), end=array([10, 25]))
    """
    few, many = (a, b) if a.pieces <= b.pieces else (b, a)
    if not few.pieces:
        return NONE
    if few.pieces == 1 and few.start[0] <= many.start[0] and many.end[-1] <= few.end[0]:
        return many  # all of it: the common case, and there may be millions
    if 8 * few.pieces > many.pieces:
        start, end = np.sort(np.concatenate([a.start, b.start])), np.sort(np.concatenate([a.end, b.end]))
        both = start[1:] < end[:-1]
        return Spans(start[1:][both], end[:-1][both])
    which, place = overlaps(few, many)
    return Spans(np.maximum(many.start[place], few.start[which]), np.minimum(many.end[place], few.end[which]))


def overlaps(a: Spans, b: Spans) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the pairs of spans that overlap: places in `a` and in `b`, in their order. Spans of a set may touch here.

    >>> a, b = overlaps(spans((0, 10), (20, 30)), spans((5, 25)))
    >>> a.tolist(), b.tolist()
    ([0, 1], [0, 0])
    """
    first, last = np.searchsorted(b.end, a.start, side="right"), np.searchsorted(b.start, a.end)
    count = np.maximum(last - first, 0)
    which = np.repeat(np.arange(a.pieces), count)
    return which, np.arange(len(which)) + (first - np.cumsum(count) + count)[which]


def gaps(a: Spans, low: int, high: int) -> Spans:
    """Return when nothing runs between `low` and `high`.

    >>> gaps(spans((2, 5)), 0, 10)
    Spans(start=array([0, 5]), end=array([ 2, 10]))
    """
    if high <= low:
        return NONE
    start = np.concatenate((_times([low]), np.clip(a.end, low, high)))
    end = np.concatenate((np.clip(a.start, low, high), _times([high])))
    real = end > start
    return Spans(start[real], end[real])


def ends(a: Spans) -> tuple[int, int]:
    """Return the first and the last moment of a set; twice 0 of an empty one."""
    return (int(a.start[0]), int(a.end[-1])) if a.pieces else (0, 0)


def same_time(a: Spans, b: Spans) -> bool:
    """Return whether two sets are the same.

    >>> same_time(spans((0, 10)), spans((0, 5), (5, 10)))
    True
    """
    return np.array_equal(a.start, b.start) and np.array_equal(a.end, b.end)


def subtract(a: Spans, b: Spans) -> Spans:
    """Return when `a` runs and `b` doesn't.

    >>> subtract(spans((0, 10)), spans((2, 5)))
    Spans(start=array([0, 5]), end=array([ 2, 10]))
    """
    if not a.pieces or not b.pieces:
        return a
    return intersect(a, gaps(b, int(a.start[0]), int(a.end[-1])))


def clip(a: Spans, low: int, high: int) -> Spans:
    """Return what of `a` lies between `low` and `high`: cut at the edges, never lost."""
    return intersect(a, Spans(_times([low]), _times([high]))) if high > low else NONE


def within(a: Spans, start: Times, end: Times) -> Times:
    """Return how long `a` runs inside each of many windows (which may overlap one another), in ns.

    >>> within(spans((0, 10), (20, 30)), np.array([5, 0]), np.array([25, 100])).tolist()
    [10, 20]
    """
    start, end = _times(start), _times(end)
    found, ran = np.zeros(len(start), np.int64), np.concatenate((_times([0]), np.cumsum(a.end - a.start)))
    for low in range(0, len(start) if a.pieces else 0, BLOCK):
        block = slice(low, low + BLOCK)
        found[block] = _before(a, ran, end[block]) - _before(a, ran, start[block])
    return found


def _before(a: Spans, ran: Times, moment: Times) -> Times:
    """Return how long `a` has run before each moment; `ran` is how long before each of its spans, and in all."""
    index = np.searchsorted(a.start, moment)
    over = np.where(index > 0, a.end[np.maximum(index - 1, 0)] - moment, 0)
    return ran[index] - np.maximum(over, 0)
