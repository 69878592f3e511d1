"""A host's tree has the factors that the program can have: what was seen of MPI, threads and devices, and nothing else."""

from __future__ import annotations

import io
import itertools
import json
import math
import random
import re
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.traces.kineto_events import call, kernel, written
from ullage.metrics.host import host_tree
from ullage.metrics.tree import Node
from ullage.render import trace as render
from ullage.render.trace_json import record
from ullage.render.trace_parquet import parquet
from ullage.reports.trace.part import view
from ullage.reports.trace.trace import TraceReport
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import Run, merge
from ullage.totals import Factors, HostTotals
from ullage.traced import read_trace
from ullage.views.html import html

HEAD = "#Paraver (09/10/2019 at 16:09):100_ns:1({cpus}):1:1({cpus}:1)\n"
# The main thread runs 10-70, forks 0-10, waits at the end of the region 70-90, reads a file 90-100; its worker runs 20-60 of the region
# and waits 60-90; before and after, it idles.
MAIN_THREAD = "1:1:1:1:1:0:10:7\n1:1:1:1:1:10:70:1\n1:1:1:1:1:70:90:5\n1:1:1:1:1:90:100:12\n"
WORKER = "1:2:1:1:2:0:20:0\n1:2:1:1:2:20:60:1\n1:2:1:1:2:60:90:5\n1:2:1:1:2:90:100:0\n"
OPENMP = "STATES\n1    Running\n\nEVENT_TYPE\n9   60000001    Parallel (OMP)\n\n"


def paraver(folder: Path, states: str, cpus: int = 2, events: str = "") -> TraceReport:
    (folder / "run.pcf").write_text(OPENMP)
    (folder / "run.prv").write_text(HEAD.format(cpus=cpus) + states + events)
    return read_trace(folder / "run.prv").report()


def leaves(tree: Node) -> dict[str, float | None]:
    return {leaf.metric: leaf.value for leaf in tree.leaves()}


def labels(tree: Node) -> list[str]:
    return [node.label for _, node in tree.walk()]


@pytest.mark.parametrize("seen", itertools.product((False, True), repeat=4), ids=str)
@pytest.mark.parametrize("seed", range(20))
def test_the_tree_multiplies_whatever_the_program_has(seen: tuple[bool, ...], seed: int) -> None:
    # times by process as random fractions of elapsed time; what a program can't lose by is 0
    mpi, several, openmp, devices = seen
    draw = random.Random(f"{seen}{seed}")
    processes, elapsed = (draw.randint(2, 5) if several else 1), draw.randint(10**3, 10**9)
    talk = [draw.randint(0, elapsed // 3) if mpi or several else 0 for _ in range(processes)]
    lost = [[draw.randint(0, elapsed // 9) if openmp else 0 for _ in range(3)] for _ in range(processes)]
    offload = [draw.randint(0, elapsed // 4) if devices else 0 for _ in range(processes)]
    useful = [elapsed - t - sum(x) - w for t, x, w in zip(talk, lost, offload, strict=True)]
    sums = [sum(column) for column in zip(*lost, strict=True)]
    totals = HostTotals(
        processes, elapsed, sum(useful), sum(offload), max(elapsed - t for t in talk), sum(sums),
        openmp_imbalance_time=sums[0] if openmp else None,
        openmp_scheduling_time=sums[1] if openmp else None,
        openmp_serialisation_time=sums[2] if openmp else None,
    )  # fmt: skip
    tree = view("run", elapsed, totals, None, "talp", factors=Factors(mpi, several, openmp, devices)).host
    assert tree is not None and tree.value == pytest.approx(float(Fraction(sum(useful), processes * elapsed)), rel=1e-12)
    for node in (n for _, n in tree.walk() if n.children):
        assert math.prod(child.value or 0.0 for child in node.children) == pytest.approx(node.value, rel=1e-12)
    said = labels(tree)
    assert ("MPI parallel efficiency" in said) == (mpi and (openmp or devices))
    assert ("Communication efficiency" in said) == (mpi or several)
    assert ("Scheduling efficiency" in said) == openmp
    assert ("Device offload efficiency" in said) == devices


def test_a_part_of_a_run_has_the_runs_factors_and_no_product_breaks_where_it_loses_by_more() -> None:
    busy = HostTotals(1, 100, useful_time=100, offload_time=0, max_busy_time=100)
    threads = Factors(mpi=True, openmp=True, devices=True)
    found = view("region", 100, busy, None, "talp", factors=threads).host
    assert found is not None and set(leaves(found).values()) == {1.0} and len(leaves(found)) == 6
    less = HostTotals(1, 100, useful_time=60, offload_time=30, max_busy_time=90)  # 10 of communication, though none was told of
    found = view("region", 100, less, None, "talp", factors=Factors()).host
    assert found is not None and math.prod(v or 0.0 for v in leaves(found).values()) == pytest.approx(0.6)


def test_a_program_of_threads_alone_has_no_mpi_and_loses_nothing_to_communication(tmp_path: Path) -> None:
    report = paraver(tmp_path, MAIN_THREAD + WORKER)
    [part], tree = report.whole.host_parts, report.whole.host
    assert tree is not None and (part.threads, part.communication, part.useful) == (2, 0, 60 + 40)
    # forks: 10; waits in the region: 20 and 30; outside of it: 10 of the main thread, 20 and 10 of the worker
    assert (part.scheduling, part.imbalance, part.serialisation) == (10, 50, 40)
    assert labels(tree) == ["Parallel efficiency", "Load balance", "Scheduling efficiency", "Serialisation efficiency"]
    assert tree.value == 0.5 and math.prod(v or 0.0 for v in leaves(tree).values()) == pytest.approx(0.5)
    said, page, data = str(report), str(html(render.view(report))), record(report)
    assert "2 threads of 1 process" in said and "of 2 threads of 1 process" in page and "thread-seconds" in page
    assert not any("MPI PE" in form or "MPI parallel" in form or "Communication efficiency" in form for form in (said, page))
    assert data["host"]["mpi_parallel_efficiency"] is None and data["host"]["openmp_parallel_efficiency"] == 0.5
    assert data["host_totals"]["resource"] == "thread"
    assert (data["host_totals"]["resources"], data["host_totals"]["processes"]) == (2, 1)
    rows = pq.read_table(io.BytesIO(parquet(report))).to_pylist()  # the columns' metrics as in the other forms
    assert not any("mpi" in row["metric"] or row["metric"] == "processes" for row in rows)
    assert next(row["value"] for row in rows if row["metric"] == "threads") == 2


def test_one_thread_of_a_threaded_program_loses_to_openmp_too(tmp_path: Path) -> None:
    report = paraver(tmp_path, MAIN_THREAD, cpus=1)
    [part] = report.whole.host_parts
    assert (part.threads, part.communication, part.useful) == (1, 0, 60)
    assert report.whole.host is not None and "Scheduling efficiency" in labels(report.whole.host)


def test_with_mpi_the_main_thread_communicates_but_for_what_openmp_costs_it(tmp_path: Path) -> None:
    call_of_mpi = "2:1:1:1:1:10:50000002:10\n2:1:1:1:1:15:50000002:0\n"
    states = MAIN_THREAD.replace("1:1:1:1:1:10:70:1\n", "1:1:1:1:1:10:15:13\n1:1:1:1:1:15:70:1\n")
    report = paraver(tmp_path, states + WORKER, events=call_of_mpi)
    [part], tree = report.whole.host_parts, report.whole.host
    # MPI 10-15, and the file 90-100 as ever; the worker, which waits until 20 and from 60, does so too meanwhile
    assert tree is not None and part.communication == (5 + 10) + (5 + 10)
    assert (part.scheduling, part.imbalance, part.serialisation) == (10, 20 + 30, 15)
    assert labels(tree)[:2] == ["Parallel efficiency", "MPI parallel efficiency"] and "OpenMP parallel efficiency" in labels(tree)


def scenario(*events: ScenarioEvent, ranks: int = 1) -> Run:
    found = Scenario("program", events, {rank: rank for rank in range(ranks)})
    return merge([reduce(gather(found.batches(), found.recording()))])


LAUNCH, KERNEL = ScenarioEvent(0, 40, "api", "cudaLaunchKernel", 0, thread=1), ScenarioEvent(50, 90, "kernel", "k", 0, device=0, stream=7)
WORK = ScenarioEvent(0, 100, "host", "work", 0, thread=1)


@pytest.mark.parametrize(
    ("events", "ranks", "factors"),
    [
        ((WORK, LAUNCH, KERNEL), 1, Factors(devices=True)),
        ((WORK, ScenarioEvent(50, 60, "mpi", "MPI_Barrier", 0, thread=1)), 1, Factors(mpi=True, processes=True)),
        ((WORK, ScenarioEvent(50, 60, "mpi", "PMPI_Barrier", 0, thread=1)), 1, Factors(mpi=True, processes=True)),
        ((WORK, ScenarioEvent(50, 60, "mpi", "gloo:all_reduce", 0, thread=1)), 1, Factors(processes=True)),
        ((WORK, ScenarioEvent(50, 60, "mpi", "mpi4py_like", 0, thread=1)), 1, Factors(processes=True)),
        ((WORK, ScenarioEvent(0, 100, "host", "work", 1, thread=1)), 2, Factors(processes=True)),
    ],
)
def test_what_was_seen_decides(events: tuple[ScenarioEvent, ...], ranks: int, factors: Factors) -> None:
    assert scenario(*events, ranks=ranks).factors == factors


def test_a_profile_of_one_process_has_no_factor_of_several(tmp_path: Path) -> None:
    report = read_trace(written(tmp_path, call(0.0, 40.0), kernel(50.0, 40.0))).report()
    assert report.whole.host is not None and labels(report.whole.host) == ["Parallel efficiency", "Device offload efficiency"]
    assert "MPI" not in re.sub(r"in MPI or a host collective", "", str(report) + str(html(render.view(report))))
    assert record(report)["host"]["mpi_parallel_efficiency"] is None


@pytest.mark.parametrize(
    ("counts", "named"),
    [
        ({"numMpiRanks": 0, "numMpiCalls": 0}, False),
        ({"numMpiRanks": 2, "numMpiCalls": 0}, False),
        ({"numMpiRanks": 2, "numMpiCalls": 1}, True),
        ({"numMpiRanks": 1}, True),
        ({"numMpiRanks": 0}, False),
        ({}, True),  # TALP is of MPI unless it says otherwise
    ],
)
def test_talp_is_of_mpi_unless_it_counted_none(counts: dict[str, int], named: bool, tmp_path: Path) -> None:
    times = {"numCpus": 2, "elapsedTime": 100, "usefulTime": 120, "gpuRuntimeTime": 40, "mpiTime": 40}
    path = tmp_path / "talp.json"
    path.write_text(json.dumps({"dlbVersion": "3.7.0", "Application": {"Global": times | counts}}))
    report = read_trace(path).report()
    assert report.whole.host is not None and ("MPI parallel efficiency" in labels(report.whole.host)) == named
    assert math.prod(v or 0.0 for v in leaves(report.whole.host).values()) == pytest.approx(0.6)
    assert "2 CPUs" in str(report) and "of 2 CPUs" in str(html(render.view(report))) and record(report)["host_totals"]["resource"] == "CPU"


def test_every_program_has_a_tree() -> None:
    for seen in itertools.product((False, True), repeat=4):
        assert host_tree(Factors(*seen)).metric == "host_parallel_efficiency"
