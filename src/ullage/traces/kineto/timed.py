"""The events of a chunk that matter, by category, with their times as exact integers and what they have in common as columns."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.traces.json.array import ArrayChunk
from ullage.traces.kineto.category import META, OTHER
from ullage.traces.kineto.event import Event, arguments, categories, exact_times
from ullage.traces.kineto.part import CodedWords, Times, from_memory, numbers, words

LONGEST = 10 * 365 * 86_400 * 10**9  # ns; nothing that was profiled lasted ten years
_FURTHEST = 8e15  # microseconds: what a profile can't reach, and int64 nanoseconds still hold twice over
_EXACT = 2.0**43  # microseconds from which on a float no longer tells nanoseconds apart

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TimedEvents:
    """Events of one category, their `start` and how long they `lasted` in ns; `known` and `fits` say which of these are.

    The columns of what they have in common are made when they are first asked for.
    """

    category: int
    events: list[Any]
    start: Times
    lasted: Times
    known: Mask
    fits: Mask

    def __len__(self) -> int:
        return len(self.events)

    @property
    def end(self) -> Times:
        """When they ended."""
        return self.start + self.lasted

    @cached_property
    def name(self) -> CodedWords:
        """What they are called."""
        return words([event.name for event in self.events], {})

    @cached_property
    def process(self) -> Times:
        """The numbers of their processes."""
        return numbers([event.pid for event in self.events])

    @cached_property
    def thread(self) -> Times:
        """The numbers of their threads."""
        return numbers([event.tid for event in self.events])

    @cached_property
    def args(self) -> list[Any]:
        """Their arguments, decoded as those of their category."""
        return arguments(self.category, self.events)

    def where(self, mask: Mask) -> TimedEvents:
        """Return the events where `mask`."""
        at = np.flatnonzero(mask)
        events = [self.events[i] for i in at.tolist()]
        return TimedEvents(self.category, events, self.start[at], self.lasted[at], self.known[at], self.fits[at])

    def fair(self) -> TimedEvents:
        """Return the events whose times may be true."""
        mask = self.known & self.fits & (self.lasted >= 0) & (self.lasted < LONGEST)
        return self if mask.all() else self.where(mask)


@dataclass(frozen=True)
class ChunkEvents:
    """What a chunk holds: its events that matter by category, those without one (which name processes), and whether all starts are
    `whole` microseconds."""

    rows: dict[int, TimedEvents]
    nameless: list[Event]
    whole: bool

    def of(self, category: int) -> TimedEvents:
        """Return the events of a category."""
        found = self.rows.get(category)
        return _none(category) if found is None else found


def timed(chunk: ArrayChunk[Event]) -> ChunkEvents:
    """Return the events of a chunk by category; within one they stay in the order of the file."""
    codes = categories(chunk.elements)
    unnamed = codes == META
    nameless = list(compress(chunk.elements, unnamed.tolist())) if unnamed.any() else []
    mask = ~unnamed & (codes != OTHER)
    kept = np.flatnonzero(mask)
    order = np.argsort(codes[kept], kind="stable")
    events: list[Any] = [chunk.elements[i] for i in kept[order].tolist()]
    start, known, whole = _scaled([event.ts for event in events])
    if not whole and len(start) and int(np.abs(start).max()) >= _EXACT * 1000:
        start = np.where(known, exact_times(chunk.text, mask.tolist())[order], 0)
    lasted, fits, _ = _scaled([event.dur for event in events])
    present, begin = np.unique(codes[kept][order], return_index=True)
    cuts = zip(present.tolist(), pairwise([*begin.tolist(), len(events)]), strict=True)
    rows = {code: TimedEvents(code, events[a:b], start[a:b], lasted[a:b], known[a:b], fits[a:b]) for code, (a, b) in cuts}
    return ChunkEvents(rows, nameless, whole)


def _none(category: int) -> TimedEvents:
    return TimedEvents(category, [], np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0, bool))


def _float(value: int | float | None) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf


def _scaled(values: Sequence[int | float | None]) -> tuple[Times, Mask, bool]:
    """Return microseconds as ns, which of them are times at all, and whether all are whole."""
    found = _numbers(values)
    known = np.abs(found) < _FURTHEST
    if not known.all():
        found = np.where(known, found, found.dtype.type(0))
    if found.dtype.kind == "f":
        below = np.floor(found)  # apart, for the product of a large number would round once more
        return below.astype(np.int64) * 1000 + np.rint((found - below) * 1000).astype(np.int64), known, not len(found)
    return found.astype(np.int64) * 1000, known, True


def _numbers(values: Sequence[int | float | None]) -> npt.NDArray[Any]:
    """Return numbers as an array, of floats unless all are whole; what is none becomes one that nothing is equal to."""
    for kind in ("q", "d") if len(values) else ():
        try:
            return from_memory(array(kind, values))  # in half the time that NumPy takes for a list
        except TypeError:
            continue
        except OverflowError:
            break
    found = np.array(values)
    return found if found.dtype.kind in "iuf" else np.array([_float(value) for value in values], np.float64)
