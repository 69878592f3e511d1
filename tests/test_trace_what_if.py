"""What if: a profile replayed with other durations, held to an independent simulation of random jobs."""

from __future__ import annotations

import random

import pytest

from tests import whatif_reference as reference
from tests.seeds import some
from tests.whatif_plans import draw
from ullage.recording import Process, Recording
from ullage.reports.what_if import WhatIf, what_if
from ullage.sums.lanes.common import with_common
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.matching import match
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import merge
from ullage.tables import intervals

BASE = 1_700_000_000_000_000_000
NAMES = {"call": "cudaMalloc", "launch": "cudaLaunchKernel", "sync": "cudaStreamSynchronize"}
SORTS = {"call": "other", "launch": "launch", "sync": "sync"}
ROUNDING = 100  # ns: durations are whole, and a mean of them is not


def captured(plan):
    """Yield a capture of each rank of a plan, as its profiler would have written it."""
    calls, ops = reference.simulate(plan)
    calls = [call | {"correlation": number + 1} for number, call in enumerate(calls)]
    for rank in range(len(plan)):
        recording = Recording(f"rank{rank}.json", rank=rank, clock="utc")
        recording.saw(rank, BASE, BASE + max(row["end"] for row in calls + ops))  # profilers run until the job has ended
        recording.processes[rank] = Process(rank=rank, host="node")
        mine = [row for row in calls if row["rank"] == rank], [row for row in ops if row["rank"] == rank]
        yield gather([_calls(mine[0], rank), _operations(mine[1], rank, len(plan))], recording)


def _calls(rows, rank):
    return intervals(
        {
            "start": [BASE + row["start"] for row in rows],
            "end": [BASE + row["end"] for row in rows],
            "kind": ["api"] * len(rows),
            "name": [NAMES[row["sort"]] for row in rows],
            "call": [SORTS[row["sort"]] for row in rows],
            "process": [rank] * len(rows),
            "thread": [row["thread"] for row in rows],
            "correlation": [row["correlation"] for row in rows],
        }
    )


def _operations(rows, rank, ranks):
    together = [row["key"] is not None for row in rows]
    return intervals(
        {
            "start": [BASE + row["start"] for row in rows],
            "end": [BASE + row["end"] for row in rows],
            "kind": ["collective" if joint else "kernel" for joint in together],
            "name": [f"kernel {row['name']}" for row in rows],
            "process": [rank] * len(rows),
            "device": [0] * len(rows),
            "stream": [row["stream"] for row in rows],
            "correlation": [row["call"] + 1 for row in rows],
            "operation": ["allreduce" if joint else None for joint in together],
            "group": ["all" if joint else None for joint in together],
            "sequence": [row["key"] for row in rows],
            "members": [ranks if joint else None for joint in together],
        }
    )


def answered(plan) -> WhatIf:
    """What is said of a plan."""
    kept = [reduce(capture, replay=True) for capture in captured(plan)]
    run = merge(kept)
    matched = match(run.captures)
    found = what_if(with_common(run, matched.clocks), matched)
    assert found is not None
    return found


def holds(found: WhatIf, change: str, *truths: int, slack: int = 0) -> None:
    """See that the true times lie between the bounds."""
    time = next(s.time for s in found.speedups if s.change == change)
    assert time.least - slack <= min(truths) and max(truths) <= time.most + slack, (change, truths, time)
    assert time.likely is None or time.least <= time.likely <= time.most


@pytest.mark.parametrize("seed", some(range(300), 12))
def test_what_a_job_would_have_taken_lies_between_the_bounds(seed: int):
    plan = draw(seed, threads=1 + seed % 3 // 2, streams=1 + seed % 4)
    found, recorded = answered(plan), reference.elapsed(plan)
    assert found.elapsed == found.path.time == recorded
    assert sum(row.time for row in found.path.rows) == sum(rank.time for rank in found.path.ranks) == recorded
    holds(found, "communication", reference.elapsed(reference.changed(plan, reference.without_communication)))
    free, bare = (reference.elapsed(reference.changed(plan, change)) for change in (reference.launched_free, reference.without_host))
    holds(found, "launches", bare, free)


@pytest.mark.parametrize("seed", some(range(1000, 1150), 6))
def test_without_late_ranks_lies_between_the_bounds(seed: int):
    known = {"streams": 1 + seed % 3, "ranks": 2 + seed % 3}
    found = answered(draw(seed, **known))
    holds(found, "even", reference.elapsed(draw(seed, **known, even=True)), slack=ROUNDING)


@pytest.mark.parametrize("seed", some(range(2000, 2150), 6))
def test_where_the_trace_tells_all_waits_the_likely_time_is_the_true_one(seed: int):
    # one stream a rank: each synchronisation waits for all that was submitted, and there is nothing else to wait for
    known = {"streams": 1, "events": False, "ranks": 1 + seed % 4}
    plan = draw(seed, **known)
    found = answered(plan)
    times = {s.change: s.time.likely for s in found.speedups}
    assert times["communication"] == reference.elapsed(reference.changed(plan, reference.without_communication))
    assert found.off == 0 and found.inferred == 0
    if len(plan) > 1:
        assert abs(times["even"] - reference.elapsed(draw(seed, **known, even=True))) <= ROUNDING


@pytest.mark.parametrize("seed", some(range(3000, 3100), 4))
def test_longer_work_on_the_critical_path_makes_the_job_longer_by_as_much(seed: int):
    plan = draw(seed, streams=1 + seed % 3)
    before, found = reference.elapsed(plan), answered(plan)
    on_path = {row.name for row in found.path.rows if row.kind == "kernel"}
    chosen = random.Random(seed).choice(sorted(on_path)) if on_path else None
    longer = reference.changed(plan, lambda item: _longer(item, chosen))
    if chosen is not None:
        assert reference.elapsed(longer) >= before + 700


def _longer(item, name):
    return (*item[:3], item[3] + 700, *item[4:]) if item[0] == "launch" and f"kernel {item[4]}" == name else item
