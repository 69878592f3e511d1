"""Regions and trees inside a running Python program that uses CUDA: on doubles of the driver and of libcupti."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cupti import cupti_double
from tests.cupti.cupti_recording import Recording
from tests.recorder.recorder_runs import library as recorder_library
from ullage import read_trace
from ullage.cupti.kinds import DEFAULT, GRAPHS, ActivityKind
from ullage.errors import UllageError
from ullage.live import session

PROGRAM = """
import ctypes, json, sys, time
from ullage.live import online, session
from ullage.live.regions import region
if sys.argv[2] == "first":
    session.start(sys.argv[1])
cuda = ctypes.CDLL("libcuda.so.1")
context, kernel = ctypes.c_void_p(), ctypes.c_void_p()
cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
cuda.cuModuleGetFunction(ctypes.byref(kernel), None, b"gemm")
if sys.argv[2] == "late":
    cuda.cudaLaunchKernel(kernel, 10, 128, None), cuda.cuCtxSynchronize()
    session.start(sys.argv[1])
told = []
every = online.every(0.02, lambda recent, whole: told.append(whole.json()))
with region("training") as training:
    for step in range(6):
        with region("step"):
            for _ in range(4):
                cuda.cudaLaunchKernel(kernel, 2000, 128, None)
            cuda.cuCtxSynchronize()
        time.sleep(0.004)
    session.stop()
    cuda.cudaLaunchKernel(kernel, 10, 128, None), cuda.cuCtxSynchronize()
    session.start()
    cuda.cudaLaunchKernel(kernel, 400000, 128, None)
    time.sleep(0.02)
    under_way = training.tree().json()
    cuda.cuCtxSynchronize()
every.stop()
step = region("step").tree().json()
path = session.detach()
cuda.cudaLaunchKernel(kernel, 10, 128, None), cuda.cuCtxSynchronize()
print(json.dumps({"path": str(path), "step": step, "under_way": under_way, "told": told, "errors": every.errors}))
"""


@cache
def ran(when: str, folder: Path) -> dict[str, Any]:
    """What the program tells; `when` says whether recording begins before CUDA does."""
    recorder_library()
    command = [sys.executable, "-c", PROGRAM, str(folder), when]
    done = subprocess.run(command, env=cupti_double.environment(), capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture(params=["first", "late"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return ran(request.param, tmp_path_factory.getbasetemp() / f"live-{request.param}")


def test_a_regions_tree_while_the_program_runs_is_that_of_the_finished_recording(told: dict[str, Any]) -> None:
    tree = read_trace(told["path"]).tree(region="step")
    assert dict(tree.items()) == told["step"]["host"] | told["step"]["device"]
    # 6 steps of 4 kernels of 2 ms, one after the other
    assert tree.report.whole.device_parts[0].kernel == pytest.approx(48_000_000, rel=0.001)
    assert tree["device_parallel_efficiency"] is not None


def test_a_kernel_under_way_leaves_the_tree_in_doubt(told: dict[str, Any]) -> None:
    low, high = told["under_way"]["bounds"]["device"]["device_parallel_efficiency"]
    assert low < high
    assert any("no device record" in note for note in told["under_way"]["notes"])


def test_what_ran_while_recording_was_stopped_or_detached_is_not_in_it(told: dict[str, Any]) -> None:
    report = read_trace(told["path"]).report()
    assert report.kernels is not None
    assert sum(part.device.launches for part in report.whole.device_parts) == 6 * 4 + 1
    assert "recording was stopped once: what happened meanwhile is not known, and counts as idle" in report.notes


def test_the_trees_of_the_run_so_far_came_again_and_again(told: dict[str, Any]) -> None:
    assert told["errors"] == 0
    lengths = [whole["elapsed_ns"] for whole in told["told"]]
    assert len(lengths) >= 2
    assert lengths == sorted(lengths)


GRAPH = """
import ctypes, sys
from ullage.live import session
if sys.argv[2] != "run":
    session.start(sys.argv[1], **({"graphs": "whole", "also": ["unified-memory"]} if sys.argv[3:] else {}))
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)
cuda.cuGraphLaunch(ctypes.c_void_p(1), None), cuda.cuCtxSynchronize()
if sys.argv[2] != "run":
    session.detach()
"""


def recorded_graph(by: str, folder: Path, *, whole: bool) -> Recording:
    """The recording of a program that launches a graph of two kernels, under `ullage run` or by `ullage.live.start`."""
    recorder_library()
    command = [sys.executable, "-c", GRAPH, str(folder), by, *(["whole"] if whole else [])]
    if by == "run":
        asked = ["--graphs", "whole", "--also", "unified-memory"] if whole else []
        command = [sys.executable, "-m", "ullage", "run", "--keep", str(folder), "--no-counters", "--quiet", *asked, "--", *command]
    done = subprocess.run(command, env=cupti_double.environment(), capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = folder.rglob("*.ullage")
    return Recording(path)


@pytest.mark.parametrize("by", ["run", "start"])
def test_either_way_the_same_kinds_are_asked_for_and_the_kernels_of_graphs_are_seen(by: str, tmp_path: Path) -> None:
    # with GRAPH_TRACE CUPTI would give one record for the graph, and none of its two kernels
    found = recorded_graph(by, tmp_path, whole=False)
    assert {int(kind) for kind in found.info["kinds"]} == DEFAULT
    assert [name for name, _, _ in found.kernels()] == ["graph_node_1", "graph_node_2"]


@pytest.mark.parametrize("by", ["run", "start"])
def test_either_way_graphs_as_a_whole_and_further_kinds_can_be_asked_for(by: str, tmp_path: Path) -> None:
    found = recorded_graph(by, tmp_path, whole=True)
    assert {int(kind) for kind in found.info["kinds"]} == DEFAULT | GRAPHS | {ActivityKind.UNIFIED_MEMORY_COUNTER}
    assert found.kernels() == []


def test_a_kind_that_nobody_knows_is_refused_when_recording_begins(tmp_path: Path) -> None:
    with pytest.raises(UllageError, match="no further kind of activity is called 'colour'"):
        session.start(tmp_path, also=["colour"])
