"""A replay at its edges: which gap of the host a graph would save, and in which order the critical path is told."""

from __future__ import annotations

import pytest

from tests.traces.test_trace_what_if import BASE, _calls, _operations, answered
from ullage.recording import Recording
from ullage.reports.trace.what_if import what_if
from ullage.sums.lanes.collectives.matching import match
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import merge


@pytest.mark.parametrize(("gap", "likely"), [(1_000_000, 2_000), (1_000_001, 1_001_001)])
def test_a_graph_would_likely_save_up_to_a_millisecond_between_two_launches(gap: int, likely: int):
    # each launch takes 2 µs and its kernel of 1 µs begins 3 µs after it began. In a graph launching costs nothing: the second kernel
    # begins when the first ends, or, where the host is taken to have done other work between them, after that
    begins = 2_000 + gap
    calls = _calls(
        [
            {"sort": "launch", "start": start, "end": start + 2_000, "thread": 0, "correlation": number + 1}
            for number, start in enumerate((0, begins))
        ],
        0,
        BASE,
    )
    kernels = _operations(
        [
            {"start": start + 3_000, "end": start + 4_000, "key": None, "name": 0, "stream": 7, "call": number}
            for number, start in enumerate((0, begins))
        ],
        0,
        1,
        BASE,
    )
    run = merge([reduce(gather([calls, kernels], Recording("rank0.json", clock="utc")), replay=True)])
    found = what_if(run, match(run.captures))
    assert found is not None
    graphs = next(one for one in found.speedups if one.change == "launches_in_graphs")
    assert (found.elapsed, graphs.time.likely) == (begins + 4_000, likely)
    assert graphs.time.least == 2_000


def test_what_takes_longest_on_the_critical_path_stands_first():
    items = [
        ("call", 1_000),
        ("launch", 2_000, 1, 100_000, 0, 5_000, 0, []),
        ("launch", 2_000, 0, 50_000, 1, 5_000, None, [0]),
        ("sync", 1_500, [0, 1]),
    ]
    found = answered([[items], [items]])
    assert [row.time for row in found.path.rows] == [100_000, 50_000, 5_000, 1_500, 1_000]
    assert sum(row.time for row in found.path.rows) == sum(rank.time for rank in found.path.ranks) == found.elapsed
