"""The spans of time that a run's waits consist of: durations, gaps, latencies, and the switches that turn waits on and off."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ullage.sums.lanes.spans import Times
from ullage.sums.wait_graph import NEVER

# What a span is. The first four are of every run: 0, NEVER, and the switches of waits that are possible, and likely.
SORTS = ("zero", "off", "possible", "likely", "operation", "call", "gap", "talk", "handover", "latency", "slack", "delay", "release")
ZERO, OFF, POSSIBLE, LIKELY = range(4)


@dataclass
class SpanTable:
    """Blocks of spans, one after another: `first` says where each sort begins, `values` has the ns of each sort as recorded."""

    first: dict[str, int] = field(default_factory=lambda: {sort: place for place, sort in enumerate(SORTS[:4])})
    values: dict[str, Times] = field(
        default_factory=lambda: {sort: np.array([ns], np.int64) for sort, ns in zip(SORTS[:4], (0, NEVER, NEVER, NEVER), strict=True)}
    )

    def add(self, sort: str, values: Times) -> Times:
        """Add a block, and return the numbers of its spans."""
        low = sum(len(some) for some in self.values.values())
        self.first[sort], self.values[sort] = low, values
        return np.arange(low, low + len(values))

    def joined(self, **changed: Times | int) -> Times:
        """Return the ns of all spans, those of some sorts changed."""
        return np.concatenate([np.broadcast_to(np.asarray(changed.get(sort, v), np.int64), v.shape) for sort, v in self.values.items()])

    def sorts(self, spans: Times) -> tuple[Times, Times]:
        """Return of which sort (its place in `SORTS`) each of some spans is, and which one of that sort."""
        begins = np.array(list(self.first.values()), np.int64)
        at = np.searchsorted(begins, spans, side="right") - 1
        return np.array([SORTS.index(sort) for sort in self.first], np.int64)[at], spans - begins[at]
