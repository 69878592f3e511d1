"""TALP's printed efficiencies against its raw times: in what it prints of known runs, and in real files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ullage.problems import Problems
from ullage.recording import Recording
from ullage.reports.trace.restated import Restatement, restated
from ullage.simulate.traces.pils import USE_CASES, pils
from ullage.simulate.traces.talp import write
from ullage.totals import Region
from ullage.traces.trace import TraceOptions, recognised


def regions(path: Path) -> list[Region]:
    trace, file = recognised(path)
    assert trace.sums is not None
    return trace.sums(file, Recording(file.name), TraceOptions(), Problems())


def check(path: Path) -> Restatement:
    return restated(regions(path))


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8"])
@pytest.mark.parametrize("number", USE_CASES)
def test_what_talp_prints_of_a_known_run_follows_from_its_raw_times(number: str, version: str, tmp_path: Path) -> None:
    found = check(write(pils(USE_CASES[number].load), tmp_path / "talp.json", version=version))
    assert found.rows == ()
    assert found.compared >= 15
    assert found.notes == ()


def test_an_edited_efficiency_is_a_contradiction(tmp_path: Path) -> None:
    path = write(pils(USE_CASES["4"].load), tmp_path / "talp.json")
    whole = json.loads(path.read_text())
    whole["Application"]["Global"]["gpuLoadBalance"] += 0.02
    path.write_text(json.dumps(whole))
    (row,) = check(path).contradictions
    assert (row.region, row.key) == ("Global", "gpuLoadBalance")
    assert row.recomputed == pytest.approx(row.stated - 0.02, abs=0.005)


def test_a_value_of_another_definition_is_explained_by_it(tmp_path: Path) -> None:
    # 2 CPUs over 100 ns: 80 useful, 20 lost by threads, 20 in MPI, 80 not accounted for. TALP says 80 / 120, the tree 80 / 200
    values = {"numCpus": 2, "elapsedTime": 100, "usefulTime": 80, "mpiTime": 20, "ompSchedulingTime": 20, "parallelEfficiency": 0.67}
    path = tmp_path / "talp.json"
    path.write_text(json.dumps({"dlbVersion": "3.7.0", "Application": {"Global": values}}))
    found = check(path)
    (row,) = found.rows
    assert (row.stated, row.recomputed) == (0.67, 0.4)
    assert row.why.startswith("TALP divides by the CPU time that it saw")
    assert found.contradictions == ()
    assert found.notes == ("Global: TALP's times add up to 60 % of CPUs × elapsed time",)


def test_the_real_gpu_run_agrees_in_every_value(shared_data: Path) -> None:
    found = check(shared_data / "talp" / "unit_dlb_3_6_0.json")
    assert (found.compared, found.rows, found.notes) == (15, (), ())


@pytest.mark.parametrize("name", ["unit_dlb_2gpu_0mpi", "unit_dlb_2gpu_2mpi"])
def test_the_run_with_an_edited_number_of_gpus_is_found_out(name: str, shared_data: Path) -> None:
    found = check(shared_data / "talp" / f"{name}.json")
    # 0.41 s of kernels in 2 × 6.27 s are 3.3 %, not 7 %
    assert [(r.key, r.stated, round(r.recomputed or 0, 3)) for r in found.contradictions] == [
        ("gpuParallelEfficiency", 0.07, 0.033),
        ("gpuLoadBalance", 1.0, 0.5),
    ]
    assert found.notes == ("Global: TALP's times add up to 50 % of CPUs × elapsed time",)


@pytest.mark.parametrize("name", ["talp.4x56", "talp.bigger", "talp.small"])
def test_real_hybrid_runs_follow_talps_definitions_in_every_region(name: str, shared_data: Path) -> None:
    found = check(shared_data / "talp" / f"{name}.json")
    assert found.compared >= 320
    assert found.contradictions == ()


def test_talp_3_5_alpha_hides_serialisation_that_its_processes_show(shared_data: Path) -> None:
    path = shared_data / "talp" / "talp.4x56.json"
    host = regions(path)[0].host
    assert host is not None
    # its processes wait 1027.5 + 1034.5 + 1046.3 + 1044.2 CPU seconds outside parallel regions; its sum says 37.2
    assert host.openmp_serialisation_time == 1027527488783 + 1034475072951 + 1046323359277 + 1044165350347
    row = next(r for r in check(path).rows if r.key == "parallelEfficiency")
    assert row.stated == 0.96
    assert row.recomputed == pytest.approx(8017356252792 / (224 * 56128587524))  # 0.64
    assert "repeats the scheduling time" in row.why


def test_every_real_file_is_read_and_its_whole_run_comes_first(shared_data: Path) -> None:
    for path in sorted((shared_data / "talp").glob("*.json")):
        found = regions(path)
        assert found[0].name in ("Global", "Application")
        assert found[0].host is not None
