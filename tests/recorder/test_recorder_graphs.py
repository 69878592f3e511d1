"""CUDA graphs, where CUPTI 13.0 crashes programs: a replay after cuptiFinalize, and of a graph from before whole graphs were asked for."""

from __future__ import annotations

import pytest

from tests.recorder.recorder_runs import KINDS, in_python, read
from ullage.cupti.kinds import ActivityKind

GRAPH, KERNEL = ActivityKind.GRAPH_TRACE, ActivityKind.CONCURRENT_KERNEL
WHOLE = ",".join(map(str, [*KINDS, int(GRAPH)]))
REPLAY = """
def replay(graph=7): assert cuda.cuGraphLaunch(ctypes.c_void_p(graph), None) == 0; cuda.cudaDeviceSynchronize()
def make(graph): assert cuda.cuGraphInstantiateWithFlags(ctypes.byref(ctypes.c_void_p()), ctypes.c_void_p(graph), 0) == 0
double = ctypes.CDLL(os.environ["ULLAGE_CUPTI"])
"""
WITHOUT_CONTEXT = "context = ctypes.c_void_p(); cuda.cuCtxGetCurrent(ctypes.byref(context)); assert cuda.cuCtxDestroy_v2(context) == 0; "
WITH_CONTEXT = "assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0"


def after(folder, code, **environment):
    """Return how often CUPTI was finalised by code that ends with `r.detach()`, and what its recordings hold, in their order."""
    finalized = in_python(folder, f"{REPLAY}{code}\nprint(double.cupti_double_finalized())\n", **environment)
    return finalized, sorted((read(path) for path in (folder / "rec").glob("*.ullage")), key=lambda one: one.clocks[0])


@pytest.mark.parametrize("before", ["", "replay()\n"])
@pytest.mark.parametrize("stopped", ["", "r.stop(); replay()\n"])
def test_a_program_goes_on_replaying_its_graphs_after_the_recorder_left(before, stopped, tmp_path):
    code = f"{before}r.attach({str(tmp_path / 'rec')!r})\nreplay()\n{stopped}r.detach()\nreplay(); replay()"
    finalized, (recorded,) = after(tmp_path, code)
    assert finalized == 0 and recorded.end is not None and len(recorded.records(KERNEL)) == 2
    (problem,) = recorded.info["problems"]
    assert problem["what"] == "cuptiFinalize" and "graph" in problem["detail"]


def test_without_graphs_cupti_is_given_back_and_where_it_was_not_it_comes_again(tmp_path):
    attach = f"r.attach({str(tmp_path / 'rec')!r})"
    finalized, (first, second) = after(tmp_path, f"{attach}; launch(); r.detach(); {attach}; launch(); replay(); r.detach(); replay()")
    assert (finalized, first.info.get("problems")) == (1, None)
    assert (len(first.records(KERNEL)), len(second.records(KERNEL))) == (1, 3)
    finalized, (*_, third) = after(tmp_path, f"{attach}; replay(); r.detach(); {attach}; launch(); replay(); r.detach(); replay()")
    assert finalized == 0 and len(third.records(KERNEL)) == 3 and third.end is not None


def test_a_recorder_that_comes_after_a_context_records_the_kernels_of_graphs_whatever_was_asked_for(tmp_path):
    code = f"replay(); os.environ['ULLAGE_KINDS'] = {WHOLE!r}; r.attach({str(tmp_path / 'rec')!r})\nreplay(); r.detach(); replay()"
    _, (recorded,) = after(tmp_path, code)
    assert (len(recorded.records(GRAPH)), len(recorded.records(KERNEL))) == (0, 2)
    assert recorded.info["kinds"][str(int(GRAPH))] != 0
    assert any("graphs" in problem["detail"] for problem in recorded.info["problems"] if problem["what"] == "cuptiActivityEnable")


@pytest.mark.parametrize(("paused", "whole"), [("launch()", 3), ("replay(7); replay(8)", 3), ("make(9)", 1), ("make(9); replay(9)", 1)])
def test_after_a_pause_whole_graphs_are_recorded_only_where_no_graph_was_made_in_it(paused, whole, tmp_path):
    attach = f"{WITHOUT_CONTEXT}os.environ['ULLAGE_KINDS'] = {WHOLE!r}; r.attach({str(tmp_path / 'rec')!r}); {WITH_CONTEXT}"
    last = "make(9); replay(9)" if whole == 1 else "replay(8)"
    code = f"{attach}\nmake(8); replay(7); r.stop(); {paused}; r.start(); replay(7); {last}; r.stop(); r.start(); r.detach(); {last}"
    _, (recorded,) = after(tmp_path, code)
    assert (len(recorded.records(GRAPH)), len(recorded.records(KERNEL))) == (whole, 2 * (3 - whole))
    details = [one["detail"] for one in recorded.info["problems"] if one["what"] == "cuptiActivityEnable"]
    assert len(details) == (whole == 1) and all("paused" in detail for detail in details)
    assert (recorded.info["kinds"][str(int(GRAPH))] == 0) == (whole == 3)
