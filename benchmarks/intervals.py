"""The union of intervals, on one core: random ones, ones in the order of their start, and ones that all overlap.

    python benchmarks/intervals.py [--millions 20] [--quick] [--json FILE]

Every time of a trace rests on it. The peers do what a user would write: sort the intervals by start, and break where a start lies
after the running maximum of the ends; in NumPy (argsort) and in pandas (sort_values, cummax). All must find the same spans.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pandas as pd

from measure import Figure, Figures, parser, seconds
from ullage.sums.lanes.spans import Spans, Times, intersect, subtract, union

PROMISE = 20e6  # intervals a second
DAY = 86_400_000_000_000  # ns


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--millions", type=float, default=20)
    asked = options.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core
    count = 20_000 if asked.quick else int(asked.millions * 1e6)
    figures = Figures(asked.json)
    for name, start, end in recordings(count):
        figures.add(beside(name, start, end, None if asked.quick else PROMISE))
    figures.add(*algebra(count))


def recordings(count: int) -> list[tuple[str, Times, Times]]:
    """Return intervals within a day: of up to twice their mean distance, about half of them touching another."""
    chance = np.random.default_rng(1)
    start = chance.integers(0, DAY, count)
    end = start + chance.integers(1, 2 * DAY // count, count)
    order = np.argsort(start)
    return [
        ("random", start, end),
        ("in order of start", start[order], end[order]),
        ("all overlapping", start, start + DAY // 100),
    ]


def beside(name: str, start: Times, end: Times, promise: float | None) -> Figure:
    """Return the intervals united a second, beside the peers'."""
    ours = union(start, end)
    taken: dict[str, float] = {}
    peers: dict[str, Callable[[Times, Times], Spans]] = {"NumPy argsort": with_argsort, "pandas": with_pandas}
    for peer, work in peers.items():
        theirs = work(start, end)
        assert np.array_equal(ours.start, theirs.start), peer
        assert np.array_equal(ours.end, theirs.end), peer
        taken[peer] = len(start) / seconds(lambda work=work: work(start, end), 3)
    rate = len(start) / seconds(lambda: union(start, end), 7)
    print(f"{name}: {len(start):,} intervals, {ours.pieces:,} spans")
    return Figure(f"union, {name}", rate, "intervals/s", taken, promise)


def with_argsort(start: Times, end: Times) -> Spans:
    """Return the union by one sort of the pairs."""
    order = np.argsort(start, kind="stable")
    start, latest = start[order], np.maximum.accumulate(end[order])
    breaks = start[1:] > latest[:-1]
    return Spans(start[np.concatenate(([True], breaks))], latest[np.concatenate((breaks, [True]))])


def with_pandas(start: Times, end: Times) -> Spans:
    """Return the union as a data frame's user finds it: groups that the running maximum of the ends parts."""
    rows = pd.DataFrame({"start": start, "end": end}).sort_values("start")
    group = (rows["start"] > rows["end"].cummax().shift(fill_value=0)).cumsum()
    merged = rows.groupby(group).agg(start=("start", "first"), end=("end", "max"))
    return Spans(merged["start"].to_numpy(), merged["end"].to_numpy())


def algebra(count: int) -> tuple[Figure, ...]:
    """Return how fast two disjoint sets are intersected and subtracted; nobody beside us."""
    chance = np.random.default_rng(2)
    a, b = (Spans(edges[0::2], edges[1::2]) for edges in (np.unique(chance.integers(0, DAY, count))[: count // 2 * 2] for _ in "ab"))
    both = a.pieces + b.pieces
    return tuple(
        Figure(name, both / seconds(lambda work=work: work(a, b), 3), "spans/s")
        for name, work in (("intersect", intersect), ("subtract", subtract))
    )


if __name__ == "__main__":
    main()
