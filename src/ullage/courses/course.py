"""A time course: what one measure of one thing was, over equal buckets of time. Only NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TimeCourse:
    """Means of a measure over buckets of time, in order: `times` their starts (ms), `values` (NaN: not known), GPU-`hours` behind each.

    Buckets in which there is nothing to measure may be missing.
    """

    bucket_ms: int
    times: Ints
    values: Array
    hours: Array

    @cached_property
    def known(self) -> Ints:
        """The places whose value is known."""
        return np.flatnonzero(np.isfinite(self.values))

    def __len__(self) -> int:
        return len(self.times)

    def part(self, start: int, end: int) -> TimeCourse:
        """Return the buckets that start in a span (ms)."""
        inside = (self.times >= start) & (self.times < end)
        return TimeCourse(self.bucket_ms, self.times[inside], self.values[inside], self.hours[inside])

    def mean(self) -> float | None:
        """Return the mean over its time, weighted by GPU-hours; None where nothing is known."""
        weight = self.hours[self.known]
        return float(np.average(self.values[self.known], weights=weight)) if weight.sum() > 0 else None
