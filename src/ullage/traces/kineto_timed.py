"""The events of a chunk that matter, with their categories as codes and their times as exact integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from ullage.traces.json_array import Chunk
from ullage.traces.kineto_category import META, OTHER
from ullage.traces.kineto_event import Event, categories, exact_times
from ullage.traces.kineto_part import Times

LONGEST = 10 * 365 * 86_400 * 10**9  # ns; nothing that was profiled lasted ten years
_FURTHEST = 8e15  # microseconds: what a profile can't reach, and int64 nanoseconds still hold twice over
_EXACT = 2.0**43  # microseconds from which on a float no longer tells nanoseconds apart

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Timed:
    """Events with their category's `codes`, their `start` and how long they `lasted` in ns; `known` and `fits` say which of these are."""

    events: list[Event]
    codes: npt.NDArray[np.int8]
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

    def where(self, mask: Mask) -> Timed:
        """Return the events where `mask`."""
        events, at = self.events, np.flatnonzero(mask)
        codes, known, fits = self.codes[at], self.known[at], self.fits[at]
        return Timed([events[i] for i in at.tolist()], codes, self.start[at], self.lasted[at], known, fits)

    def of(self, code: int) -> Timed:
        """Return the events of a category."""
        return self.where(self.codes == code)

    def fair(self) -> Timed:
        """Return the events whose times may be true."""
        mask = self.known & self.fits & (self.lasted >= 0) & (self.lasted < LONGEST)
        return self if mask.all() else self.where(mask)


def timed(chunk: Chunk[Event]) -> tuple[Timed, list[Event], bool]:
    """Return the events that matter, those without a category (which name processes), and whether all starts are whole microseconds."""
    codes = categories(chunk.elements)
    unnamed = codes == META
    mask = ~unnamed & (codes != OTHER)
    nameless = list(compress(chunk.elements, unnamed.tolist())) if unnamed.any() else []
    events = list(compress(chunk.elements, mask.tolist()))
    start, known, whole = _scaled([event.ts for event in events])
    if not whole and len(start) and int(np.abs(start).max()) >= _EXACT * 1000:
        start = np.where(known, exact_times(chunk.text, mask.tolist()), 0)
    lasted, fits, _ = _scaled([event.dur for event in events])
    return Timed(events, codes[mask], start, lasted, known, fits), nameless, whole


def _float(value: int | float | None) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf


def _scaled(values: Sequence[int | float | None]) -> tuple[Times, Mask, bool]:
    """Return microseconds as ns, which of them are times at all, and whether all are whole."""
    array = np.array(values)
    if array.dtype.kind not in "iuf":
        array = np.array([_float(value) for value in values], np.float64)
    known = np.abs(array) < _FURTHEST
    if not known.all():
        array = np.where(known, array, array.dtype.type(0))
    if array.dtype.kind == "f":
        below = np.floor(array)  # apart, for the product of a large number would round once more
        return below.astype(np.int64) * 1000 + np.rint((array - below) * 1000).astype(np.int64), known, not len(array)
    return array.astype(np.int64) * 1000, known, True
