"""TALP's JSON and CSV: written from scenarios with known answers, and as odd as real files are."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ullage.errors import UllageError
from ullage.metrics.host import host_tree
from ullage.metrics.tree import evaluate
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.simulate.traces.answers import answer
from ullage.simulate.traces.pils import USE_CASES, pils
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.simulate.traces.talp import VERSIONS, write
from ullage.totals import Factors, HostTotals, Region, united
from ullage.traces.trace import TraceOptions, recognised

SCENARIOS = [pils(case.load) for case in USE_CASES.values()]
# Two ranks on CPUs alone: rank 0 computes 70 of 100 ns, rank 1 100 of 100 and never communicates.
UNEVEN = Scenario(
    "uneven",
    (
        ScenarioEvent(0, 100, "host", "main", 0, thread=0),
        ScenarioEvent(70, 100, "mpi", "MPI_Barrier", 0, thread=0),
        ScenarioEvent(10, 50, "region", "solve", 0, thread=0),
        ScenarioEvent(0, 100, "host", "main", 1, thread=1),
        ScenarioEvent(100, 100, "mpi", "MPI_Barrier", 1, thread=1),
    ),
    {0: 0, 1: 1},
)


def read(path: Path) -> tuple[list[Region], Recording, Problems]:
    trace, file = recognised(path)
    recording, problems = Recording(file.name), Problems()
    assert trace.name == "talp"
    assert trace.sums is not None
    return trace.sums(file, recording, TraceOptions(), problems), recording, problems


def region(tmp_path: Path, **values: Any) -> tuple[Region, Problems]:
    path = tmp_path / "talp.json"
    path.write_text(json.dumps({"dlbVersion": "3.7.0", "Application": {"Global": values}}))
    (found,), _, problems = read(path)
    return found, problems


def times(host: HostTotals | None) -> tuple[int | None, ...]:
    assert host is not None
    return host.processes, host.elapsed, host.useful_time, host.offload_time, host.max_busy_time


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_a_scenario_written_as_talp_json_gives_its_answer_to_the_nanosecond(
    scenario: Scenario, version: str, processes: bool, tmp_path: Path
) -> None:
    regions, _, _ = read(write(scenario, tmp_path / "talp.json", version=version, processes=processes))
    assert regions[0].name == "Global"
    for found in regions:
        true = answer(scenario, None if found.name == "Global" else found.name)
        assert times(found.host) == times(true.host)
        assert true.device is not None
        assert found.device == replace(true.device.counting_collectives(), launches=None, bytes=None)


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_without_gpus_comes_back_from_every_version(version: str, processes: bool, tmp_path: Path) -> None:
    regions, recording, _ = read(write(UNEVEN, tmp_path / "talp.json", version=version, processes=processes))
    # 100 + 70 of 2 × 100 ns useful, the busiest rank 100; in the region one rank for 40 ns
    assert [(r.name, *times(r.host)) for r in regions] == [("Global", 2, 100, 170, 0, 100), ("solve", 1, 40, 40, 0, 40)]
    assert regions[0].device is None
    assert recording.ranks == 2
    assert recording.source == f"TALP {version}.0"


def test_shares_of_a_run_in_one_file_a_process_make_the_run(tmp_path: Path) -> None:
    shares = [read(write(UNEVEN, tmp_path / f"{p}.json", share=p))[0][0] for p in (0, 1)]
    assert [r.share for r in shares] == ["node-1:0", "node-1:1"]
    assert times(united(shares).host) == (2, 100, 170, 0, 100)


def test_a_file_of_processes_alone_is_added_up(tmp_path: Path) -> None:
    path = write(SCENARIOS[0], tmp_path / "talp.json", processes=True)
    whole = json.loads(path.read_text())
    del whole["Application"]
    path.write_text(json.dumps(whole))
    regions, _, _ = read(path)
    assert times(regions[0].host) == times(answer(SCENARIOS[0]).host)


def test_csv_holds_the_same_regions_as_json(tmp_path: Path) -> None:
    whole = json.loads(write(SCENARIOS[3], tmp_path / "talp.json").read_text())["Application"]
    with (tmp_path / "talp.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["name", *whole["Global"]], restval="")
        table.writeheader()
        table.writerows({"name": name, **values} for name, values in whole.items())
    assert read(tmp_path / "talp.csv")[0] == read(tmp_path / "talp.json")[0]


def test_what_a_version_does_not_measure_is_missing_and_not_guessed(tmp_path: Path) -> None:
    # two ranks with GPU calls, of which one was in the region for a part only: 250 of 2 × 200 ns are accounted for
    found, _ = region(
        tmp_path, numCpus=2, numMpiRanks=2, elapsedTime=200, usefulTime=150, gpuRuntimeTime=50, mpiTime=50, minMpiNormdProc=10
    )
    assert found.host is not None
    assert found.host.max_busy_time is None
    assert found.host.instructions is None
    assert found.device is None


def test_threads_lose_time_in_three_ways_whose_factors_multiply_to_the_parallel_efficiency(tmp_path: Path) -> None:
    # four CPUs over 100 ns: 240 useful, 20 in MPI, 10 of workers idle meanwhile, 60 + 30 + 40 lost by threads
    lost = {"ompLoadImbalanceTime": 60, "ompSchedulingTime": 30, "ompOutsideParallelTime": 40, "numOmpParallels": 5}
    busy = {"numCpus": 4, "elapsedTime": 100, "usefulTime": 240, "mpiTime": 20, "mpiWorkerIdleTime": 10}
    found, _ = region(tmp_path, **busy, **lost)
    assert found.host is not None
    node = evaluate(host_tree(Factors(mpi=True, openmp=True, devices=True)), found.host.sums())
    product = 1.0
    for leaf in node.leaves():
        assert leaf.value is not None
        product *= leaf.value
    assert node.value == 0.6
    assert product == pytest.approx(0.6, rel=1e-12)
    # 240 / (240 + 40), (240 + 40) / (240 + 40 + 60), 340 / 370
    values = {n.metric: n.value for _, n in node.walk()}
    assert values["openmp_serialisation_efficiency"] == 240 / 280
    assert values["openmp_load_balance"] == 280 / 340
    assert values["openmp_scheduling_efficiency"] == 340 / 370


def test_serialisation_that_repeats_scheduling_is_taken_from_the_processes(tmp_path: Path) -> None:
    # the sum over processes says 20 as it says of scheduling; the one process, 60
    process = {"cpuset": "0-3", "elapsedTime": 100, "useful": 300, "notUsefulMPI": 0}
    process |= {"notUsefulOMPLoadBalance": 10, "notUsefulOMPScheduling": 20, "notUsefulOMPSerialization": 60}
    values = {"numCpus": 4, "numMpiRanks": 2, "elapsedTime": 100, "usefulTime": 300, "mpiTime": 0, "ompLoadImbalanceTime": 10}
    values |= {"ompSchedulingTime": 20, "ompSerializationTime": 20}
    path = tmp_path / "talp.json"
    path.write_text(
        json.dumps(
            {"dlbVersion": "3.5a", "Application": {"Application": values}, "region": [{"name": "Application", "process": [process]}]}
        )
    )
    (found,), _, problems = read(path)
    assert found.host is not None
    assert found.host.openmp_serialisation_time == 60
    assert found.host.max_busy_time == 98  # (300 + 10 + 20 + 60) / 4, rounded up
    assert problems.repaired.total() == 1


def test_counters_that_overflowed_are_left_out_and_counted(tmp_path: Path) -> None:
    found, problems = region(tmp_path, numCpus=1, elapsedTime=100, usefulTime=90, cycles=-398487332076099.0, instructions=5.0)
    assert found.host is not None
    assert (found.host.cycles, found.host.instructions) == (None, None)
    assert problems.lines() == ["1 hardware counters below zero left out (first: Global cycles)"]


def test_more_gpus_than_processes_are_noted_because_talp_adds_up_a_process_gpus(tmp_path: Path) -> None:
    gpu = {"numGpus": 2, "gpuUsefulTime": 90, "gpuCommunicationTime": 0, "maxGpuUsefulTime": 90, "maxGpuActiveTime": 90}
    _, problems = region(tmp_path, numCpus=1, numMpiRanks=1, elapsedTime=100, usefulTime=100, **gpu)
    assert "more GPUs (2) than processes" in problems.notes[0]
    _, problems = region(tmp_path, numCpus=1, numMpiRanks=1, elapsedTime=100, usefulTime=100, **gpu | {"numGpus": 1, "gpuUsefulTime": 180})
    assert "busier than time allows" in problems.notes[0]


def test_regions_never_entered_are_left_out_and_nan_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "talp.json"
    path.write_text(
        '{"dlbVersion":"3.7", "Application":{"Global":{"numCpus":1,"elapsedTime":100 ,"usefulTime":50,"mpiLoadBalance": -nan},'
        '"unused":{"numCpus":0,"elapsedTime":0,"usefulTime":0}}}'
    )
    regions, _, problems = read(path)
    assert [r.name for r in regions] == ["Global"]
    assert regions[0].stated == {}
    assert problems.dropped == {"regions that were never entered": 1}
    assert problems.repaired.total() == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"dlbVersion": "3.7.0", "Application": {"Global": {"usefulTime": 5, "elapsedTime"', "is no whole JSON at line 1"),
        ('{"dlbVersion": "3.7.0", "Application": {}}', "has no region with any time in it"),
        ('{"dlbVersion": "3.7.0", "node": [1]}', "has no region with any time in it"),
        ('{"dlbVersion": "3.7.0", "Application": [{"Global": 5}], "Process": {"Global": [7]}}', "has no region with any time in it"),
    ],
)
def test_damaged_and_empty_files_are_one_clear_error(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "talp.json").write_text(text)
    with pytest.raises(UllageError) as error:
        read(tmp_path / "talp.json")
    assert says in error.value.problem
    assert error.value.hint
