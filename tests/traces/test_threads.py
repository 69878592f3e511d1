"""Processes with OpenMP-like threads: the hybrid tree from the threads' lanes."""

from __future__ import annotations

import pytest

from ullage.reports.trace.part import view
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import Run, host_parts, host_totals, merge


def run(*events: ScenarioEvent, ranks: int = 1) -> Run:
    scenario = Scenario("threads", events, {rank: rank for rank in range(ranks)})
    return merge([reduce(gather(scenario.batches(), scenario.recording()))])


def waits(process: int, thread: int, start: int, end: int, name: str) -> ScenarioEvent:
    return ScenarioEvent(start, end, "parallel", name, process, thread=thread)


def alive(process: int, end: int = 100) -> ScenarioEvent:
    return ScenarioEvent(0, end, "host", "work", process, thread=0)


def test_what_threads_lose_is_told_by_its_reason():
    # 100 ns, two workers: one idles 0-40 (nothing is parallel) and waits 90-100 (others have more), the other is handed work 40-45
    found = run(
        alive(0), waits(0, 1, 0, 40, "Idle"), waits(0, 1, 90, 100, "Synchronization"), waits(0, 2, 40, 45, "Scheduling and Fork/Join"),
        ScenarioEvent(99, 100, "mpi", "MPI_Barrier", 0, thread=0),
    )  # fmt: skip
    [part] = host_parts(found)
    assert (part.threads, part.serialisation, part.scheduling) == (3, 40, 5)
    # the last nanosecond is communication of the main thread, and of the worker that waits meanwhile
    assert (part.imbalance, part.communication) == (9, 2)
    assert part.useful == 300 - 40 - 5 - 9 - 2
    # what threads lose keeps them busy: 298 ns of three threads
    assert (part.parallel, part.busy) == (54, 100)


def test_the_hybrid_tree_multiplies():
    found = run(
        alive(0), alive(1), waits(0, 1, 0, 50, "Idle"), waits(1, 1, 0, 20, "Idle"), waits(1, 1, 60, 100, "Synchronization"),
        ScenarioEvent(60, 100, "mpi", "MPI_Allreduce", 1, thread=0),
        ScenarioEvent(99, 100, "mpi", "MPI_Allreduce", 0, thread=0),
    )  # fmt: skip
    tree = view("run", 100, host_totals(host_parts(found), 100), None, "talp").host
    assert tree is not None
    product = 1.0
    for leaf in tree.leaves():
        assert leaf.value is not None
        product *= leaf.value
    assert product == pytest.approx(tree.value, abs=1e-12)
    # useful: process 0: main 99, worker 50; process 1: main 60, worker 40 (its 40 in the all-reduce are communication)
    assert tree.value == pytest.approx((99 + 50 + 60 + 40) / 400)
    # outside communication process 0 has 199 of 200 CPU-ns, process 1 has 120: 319 / (4 × 100), 199 / 2 being 100 per CPU, rounded up
    balance = tree.find("hybrid_load_balance")
    assert balance is not None and balance.value == pytest.approx(319 / (4 * 100))


def test_without_worker_threads_the_tree_is_plain():
    found = run(alive(0), ScenarioEvent(50, 100, "mpi", "MPI_Barrier", 0, thread=0))
    totals = host_totals(host_parts(found), 100)
    assert totals is not None and totals.openmp_imbalance_time is None
    tree = view("run", 100, totals, None, "talp").host
    assert tree is not None and tree.value == 0.5 and tree.find("openmp_parallel_efficiency") is None
