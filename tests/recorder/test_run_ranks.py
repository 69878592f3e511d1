"""`ullage run` on the ranks of an MPI program: with Open MPI where it is installed, and by what launchers say elsewhere."""

from __future__ import annotations

import ctypes.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cupti import cupti_double
from tests.recorder.recorder_runs import HERE, compiled
from tests.recorder.run_runs import ULLAGE, Ran, environment, mpirun, run
from ullage import read_trace


def ranks_program():
    """The program; skips where there is no Open MPI."""
    mpirun(1)
    mpi = ctypes.util.find_library("mpi") or pytest.skip("no library of MPI")
    try:
        return compiled(HERE / "run_ranks.c", "run_ranks", ("-l:" + mpi,))
    except AssertionError as error:
        pytest.skip(f"not Open MPI: {error}")


def told(ran: Ran) -> list[tuple[int, int]]:
    """How long each rank was there and in MPI, as it says itself, in ns."""
    lines = sorted((json.loads(line) for line in ran.out.decode().splitlines() if line.startswith('{"rank"')), key=lambda one: one["rank"])
    return [(line["elapsed"], line["mpi"]) for line in lines]


def inside(folder: Path, ranks: int, *words: object, options: tuple[object, ...] = (), **given: str) -> Ran:
    """mpirun -n RANKS ullage run -- PROGRAM"""
    ours = [*ULLAGE, "run", "--no-counters", "--json", folder / "run.json", *options, "--", ranks_program(), *words]
    command = [*mpirun(ranks), *map(str, ours)]
    done = subprocess.run(command, env=environment(folder, **given), capture_output=True, timeout=300, cwd=folder)
    return Ran(done.returncode, done.stdout, done.stderr.decode(), folder / "tmp")


def outside(folder: Path, ranks: int, *words: object) -> Ran:
    """ullage run -- mpirun -n RANKS PROGRAM"""
    return run(folder, "--json", folder / "run.json", command=[*mpirun(ranks), ranks_program(), *words])


@pytest.mark.parametrize("started", [inside, outside])
def test_the_trees_of_unequal_ranks_are_those_of_the_times_that_they_say_themselves(started, tmp_path):
    ran = started(tmp_path, 4)
    assert ran.code == 0, ran.said
    said, times = json.loads((tmp_path / "run.json").read_text()), told(ran)
    useful = [elapsed - mpi for elapsed, mpi in times]
    longest = max(elapsed for elapsed, _ in times)
    host = said["host"]
    # equations 4 to 6, from the program's own clock around each call; the recorder's is a little further in: 2 % of some 300 ms
    assert host["load_balance"] == pytest.approx(sum(useful) / (4 * max(useful)), rel=0.02)
    assert host["communication_efficiency"] == pytest.approx(max(useful) / longest, rel=0.02)
    assert host["parallel_efficiency"] == pytest.approx(sum(useful) / (4 * longest), rel=0.02)
    assert [process["rank"] for process in said["processes"]] == [0, 1, 2, 3]
    for process, mine, (_, mpi) in zip(said["processes"], useful, times, strict=True):
        assert process["useful_s"] == pytest.approx(mine / 1e9, rel=0.02, abs=0.002)
        assert process["communication_s"] == pytest.approx(mpi / 1e9, rel=0.02, abs=0.002)
    assert ran.left == [] and ran.said.count("Host parallel efficiency") == 1


def test_ranks_that_use_a_device_have_both_trees(tmp_path):
    ran = inside(tmp_path, 2, "cuda")
    assert ran.code == 0, ran.said
    said = json.loads((tmp_path / "run.json").read_text())
    # a kernel of 40 ms a rank; both ranks of the double say that they use one GPU
    assert said["device_totals"]["kernel_time"] >= 40_000_000
    assert said["host_totals"]["offload_time"] >= 2 * 40_000_000 * 0.9
    assert said["host_totals"]["processes"] == 2


def test_kept_recordings_of_all_ranks_read_as_one_run(tmp_path):
    ran = inside(tmp_path, 3, options=("--keep", tmp_path / "kept"))
    assert ran.code == 0, ran.said
    report = read_trace(tmp_path / "kept").report()
    assert [part.process.rank for part in report.whole.host_parts] == [0, 1, 2]
    again = inside(tmp_path, 3, options=("--keep", tmp_path / "kept"))
    # the program runs all the same, and the ranks agree where
    (beside,) = (tmp_path / "kept").glob("run-*-2")
    assert again.code == 0 and f"what was recorded went to {beside}" in again.said
    assert [part.process.rank for part in read_trace(beside).report().whole.host_parts] == [0, 1, 2]
    strict = inside(tmp_path, 3, options=("--strict", "--keep", tmp_path / "kept"))
    assert strict.code == 1 and "holds recordings of an earlier run" in strict.said


@pytest.mark.full
def test_a_rank_0_that_dies_is_reported_and_ended_for_while_the_others_hang(tmp_path):
    # the launcher ends the others only when this rank's `ullage run` is over: it must not wait for them to the end
    ran = inside(tmp_path, 3, "die", 0, options=("--wait", "250"))
    assert ran.code == 134
    assert "rank 0 ended with exit code 134" in ran.notes
    assert "2 ranks (1, 2) had not ended when this was written: what came later is not here" in ran.notes


@pytest.mark.full
@pytest.mark.parametrize(("deed", "code"), [("die", 134), ("exit", 5)])
def test_the_launcher_learns_of_a_rank_that_fails(deed, code, tmp_path):
    ran = inside(tmp_path, 3, deed, 1)
    assert ran.code == code and "Traceback" not in ran.said
    # it may end rank 0 before there is a report; then it was said where the recordings are
    assert "Host parallel efficiency" in ran.said or f"its recordings are in {tmp_path / 'tmp'}" in ran.said


def rank(folder, number, ranks, *options, **more):
    """One rank alone, as if the others ran elsewhere."""
    launcher = {"OMPI_COMM_WORLD_RANK": str(number), "OMPI_COMM_WORLD_SIZE": str(ranks), "PMIX_NAMESPACE": "job-7", **more}
    return run(folder, *options, given=environment(folder, **launcher), command=[cupti_double.program(), "--kernels", "3"])


def test_ranks_on_other_hosts_are_named_and_not_waited_for_where_the_launcher_says_so(tmp_path):
    ran = rank(tmp_path, 0, 4, "--wait", "250", OMPI_COMM_WORLD_LOCAL_SIZE="1")
    assert ran.code == 0 and ran.left == []
    assert "nothing came from 3 ranks (1, 2, 3): if they are on other hosts, --keep a folder that all share" in ran.notes
    assert "1 process" in ran.said


def test_ranks_of_which_nothing_comes_are_waited_for_and_named(tmp_path):
    ran = rank(tmp_path, 0, 2, "--wait", "0.2", "--keep", tmp_path / "kept")
    assert ran.code == 0
    assert "nothing came from rank 1: is the folder one that all hosts share?" in ran.notes


@pytest.mark.full
def test_a_rank_that_is_not_the_first_says_nothing_and_leaves_nothing(tmp_path):
    ran = rank(tmp_path, 1, 2, OMPI_COMM_WORLD_LOCAL_RANK="0")
    assert ran.code == 0 and ran.said == "" and ran.left == []


@pytest.mark.full
def test_two_launches_of_torchrun_at_the_same_time_each_report_their_own_ranks(tmp_path):
    # torchrun calls both "none"; each rank of the second comes while the first one's run
    def begin(port: str, number: str, seconds: str) -> subprocess.Popen[bytes]:
        torch = {"RANK": number, "WORLD_SIZE": "2", "LOCAL_RANK": number, "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
        given = environment(tmp_path, MASTER_ADDR="localhost", MASTER_PORT=port, **torch)
        code = f"import time, ullage\nwith ullage.region('of {port}'): time.sleep({seconds})"
        words = [*ULLAGE, "run", "--no-counters", "--json", tmp_path / f"{port}.json", "--by", "region", "--", sys.executable, "-c", code]
        return subprocess.Popen([*map(str, words)], env=given, cwd=tmp_path, stderr=subprocess.DEVNULL)

    launched = [begin(*one) for one in (("29601", "0", "4"), ("29601", "1", "4"), ("29602", "0", "1"), ("29602", "1", "1"))]
    assert [one.wait(timeout=120) for one in launched] == [0, 0, 0, 0]
    for port, least in (("29601", 4), ("29602", 1)):
        said = json.loads((tmp_path / f"{port}.json").read_text())
        assert [process["rank"] for process in said["processes"]] == [0, 1]
        assert least <= said["elapsed_s"] < least + 3
        assert [region["name"] for region in said["regions"]] == [f"of {port}"]
    assert list((tmp_path / "tmp").glob("ullage-run-*")) == []
