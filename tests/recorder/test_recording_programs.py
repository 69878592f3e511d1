"""Programs recorded by the recorder itself, on the double of libcupti: what is read is what brute force reads, and what they truly did."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.cupti import cupti_double
from tests.recorder import recorder_runs
from tests.recorder.recording_brute_force import Recording, read
from tests.recorder.recording_sums import worked_out
from tests.recorder.test_recording_brute_force import assert_rows_agree, assert_sums_agree, in_parts
from tests.traces.test_trace_sources_agree import answer, comparable, load, pils, run_of, totals, training
from ullage import read_trace
from ullage.errors import UllageError
from ullage.simulate.traces import kineto, nsys, recording
from ullage.simulate.traces.scenario import Scenario
from ullage.simulate.traces.training import TrainingPlan

FAULTS = "CUPTI_DOUBLE_FAULTS"
INEXACT = 1_000_000  # ns by which a time may be off: three clocks can't be read at once
WORK = ("kernel", "memcpy", "memset", "graph")
VERSIONS = (18, 28, 130001, 130101, 130301, 130500)

# by what is tried: the program's options, the environment, and how many operations of the device are lost
PROGRAMS: dict[str, tuple[str, dict[str, str], int]] = {
    "plain": ("--kernels 12 --names 3", {}, 0),
    "threads": ("--kernels 20 --threads 4", {}, 0),
    "two processes on one device": ("--kernels 10 --fork --threads 2", {}, 0),
    "a worker that does nothing": ("--kernels 10 --worker", {}, 0),
    "dropped": ("--kernels 10", {FAULTS: "dropped=3"}, 3),
    "disorder": ("--kernels 20 --threads 2", {FAULTS: "disorder,full=9"}, 0),
    "an error in the middle": ("--kernels 10", {FAULTS: "error-after=37"}, 0),
    "no calls recorded": ("--kernels 10", {FAULTS: "kind=5:15,kind=4:15"}, 0),
    "another epoch": ("--kernels 10", {"CUPTI_DOUBLE_SKEW": "-1700000000000000000"}, 0),
    "an hour ahead": ("--kernels 10", {"CUPTI_DOUBLE_SKEW": "3600000000000"}, 0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_read_as_brute_force_reads_it_and_as_it_was(name: str, tmp_path: Path) -> None:
    options, environment, lost = PROGRAMS[name]
    ran = recorder_runs.run_cuda(tmp_path, *options.split(), **environment)
    recordings = [assert_rows_agree(one.path) for one in ran.recordings]
    assert_sums_agree(read_trace(tmp_path / "rec").report(), recordings)
    truth = {told.pid: told for told in cupti_double.told(ran.output)}
    assert len(truth) == len(recordings) == (2 if "--fork" in options else 1)
    for one in recordings:
        assert_true(one, truth[one.info["pid"]], lost)


def assert_true(one: Recording, told: cupti_double.Told, lost: int) -> None:
    """Compare what a device did with what the program says that it did."""
    found = sorted((row.start, row.end) for row in one.rows if row.kind in WORK)
    expected = sorted((start, end) for _, _, start, end, _ in told.operations)
    assert len(found) == len(expected) - lost
    for (start, end), (truly, until) in zip(found, expected if not lost else (), strict=not lost):
        assert abs(start - truly) < INEXACT
        assert abs((end - start) - (until - truly)) < INEXACT // 1000


def test_a_record_of_a_kind_that_nobody_knows_ends_its_buffer_alone(tmp_path: Path) -> None:
    # the seventh record is followed by a strange one; a buffer has twenty: what is behind it in its buffer is not known, and said
    ran = recorder_runs.run_cuda(tmp_path, "--kernels", "20", **{FAULTS: "unknown-kind=7,full=20"})
    found = assert_rows_agree(ran.only.path)
    assert found.bad["buffers"] == 1
    report = read_trace(tmp_path / "rec").report()
    assert_sums_agree(report, [found])
    truth = sum(end - start for kind, _, start, end, _ in cupti_double.told(ran.output)[0].operations if kind == 10)
    device = report.whole.device
    assert device is not None and device.low is not None and device.high is not None
    assert device.low <= truth / report.whole.elapsed <= device.high


# while it runs

PROGRAM = """
import ctypes, json, random, sys
import ullage
import ullage.live
from tests.cupti import cupti_double
cuda = ctypes.CDLL(str(cupti_double.driver()))
ullage.live.start(sys.argv[1])
cuda.cuInit(0); cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)
function, data = ctypes.c_void_p(), ctypes.create_string_buffer(65536)
cuda.cuModuleGetFunction(ctypes.byref(function), None, b"kernel")
chance, trees = random.Random(int(sys.argv[2])), {}
def work(depth):
    for _ in range(chance.randrange(1, 4)):
        what = chance.random()
        if what < .4: cuda.cudaLaunchKernel(function, chance.randrange(10, 300), 32, None)
        elif what < .5: cuda.cudaMemcpy(data, data, chance.randrange(1, 65536), 1)
        elif what < .6: sum(range(chance.randrange(10000)))
        elif depth < 4:
            with ullage.region(chance.choice("abc")): work(depth + 1)
        else: cuda.cudaDeviceSynchronize()
for step in range(8):
    with ullage.region(f"step {step}"):
        cuda.cudaLaunchKernel(function, 5, 32, None); work(0); cuda.cudaDeviceSynchronize()
    trees[f"step {step}"] = ullage.region(f"step {step}").tree().json()
    work(1); cuda.cudaDeviceSynchronize()
print(json.dumps({"path": str(ullage.live.detach()), "trees": trees}))
"""


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 30))])
def test_a_regions_tree_while_it_runs_is_that_of_the_finished_recording(seed: int, tmp_path: Path) -> None:
    recorder_runs.library()  # skips without a compiler
    given = cupti_double.environment(PYTHONPATH=":".join(sys.path))
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), str(seed)], env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    recordings = [assert_rows_agree(Path(said["path"]))]
    for name, tree in said["trees"].items():
        whole = read_trace(said["path"]).tree(tree["mode"], region=name).report.whole
        expected = worked_out(recordings, name)
        assert expected is not None
        assert tree["elapsed_ns"] == whole.elapsed == expected.elapsed
        assert tree["host_totals"]["useful_time"] == expected.processes[0][1]
        assert tree["host_totals"]["offload_time"] == expected.processes[0][2]
        assert tree["device_totals"]["kernel_time"] == expected.devices[0][0]
        assert tree["device_totals"]["memory_time"] == expected.devices[0][2]
        nodes = dict(node for found in (whole.host, whole.device) if found for node in ((n.metric, n.value) for _, n in found.walk()))
        assert {**tree["host"], **tree["device"]} == nodes


# from every source


def scenario(seed: int) -> Scenario:
    """A run of the simulator's, of which everything is known."""
    chance = Random(seed)
    if chance.random() < 0.5:
        shape = {"ranks": chance.choice([1, 2, 3]), "steps": chance.choice([1, 2]), "layers": chance.randrange(1, 6)}
        graph = chance.choice(["", "", "kernels", "hidden", "whole"])
        sort = {"straggler": chance.choice([None, 0]), "host_bound": chance.random() < 0.3, "driver": chance.random() < 0.5}
        return training(TrainingPlan(**shape, **sort, graph=graph, bucket=chance.randrange(1, 4), seed=seed))  # type: ignore[arg-type]
    ranks = chance.choice([1, 2, 3])
    cpu, gpu, copies = (",".join(str(chance.choice([0, 10, 250.5, 7777])) for _ in range(ranks)) for _ in range(3))
    loads = load("drawn", cpu=cpu, gpu=gpu.replace("0,", "3,"), memcpy=copies, rounds=chance.choice([1, 2, 3]))
    return pils(loads)


@pytest.mark.parametrize("seeds", in_parts(5, 300))
def test_a_recording_gives_the_trees_that_every_other_source_gives(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        run, chance = scenario(seed), Random(seed)
        forms = {name: tmp_path / f"{seed} {name}" for name in ("host", "nvtx", "nsys", "kineto")}
        for folder in forms.values():
            folder.mkdir()
        recording.write(run, forms["host"], version=chance.choice(VERSIONS), per_buffer=chance.choice([3, 50, 500]))
        recording.write(run, forms["nvtx"], version=chance.choice(VERSIONS), regions="nvtx", per_buffer=37)
        nsys.write(run, forms["nsys"] / "run.sqlite")
        if not any(event.kind == "graph" for event in run.events):  # of which PyTorch's profiler tells nothing
            kineto.write(run, forms["kineto"])
            # a file for each rank says when a profiler recorded, and no more: of ranks that end apart the time that all have counts
            if read_trace(forms["kineto"]).report().run.common is not None:
                shutil.rmtree(forms["kineto"])
                forms["kineto"].mkdir()
        names = [None, *dict.fromkeys(event.name for event in run.events if event.kind == "region")]
        found = {name: [trees(folder, name) for folder in forms.values() if any(folder.iterdir())] for name in names}
        assert [name for name, several in found.items() if any(one != several[0] for one in several)] == [], seed
        assert_answered(run, forms)


def assert_answered(run: Scenario, forms: dict[str, Path]) -> None:
    """Compare a run's recordings with brute force, and with what is known of the run."""
    for form in ("host", "nvtx"):
        paths = sorted(forms[form].iterdir())
        assert_sums_agree(read_trace(forms[form]).report(), [read(path) for path in paths])
        assert comparable(totals(run_of(paths)[0], None)) == comparable(answer(run))


def trees(folder: Path, region: str | None) -> dict[str, float | None] | str:
    try:
        return dict(read_trace(folder).tree("ai", region=region).items())
    except UllageError as error:
        return error.problem
