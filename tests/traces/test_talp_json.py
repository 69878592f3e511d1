"""A run in TALP's form: what is written of it is read back as the same trees."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recorder.recordings import Made, busy, host, kernel
from tests.traces.test_trace_sources_agree import SCENARIOS
from ullage import read_trace
from ullage.errors import UllageError
from ullage.render.talp_json import talp_json
from ullage.reports.trace.trace import TraceRequest, trace
from ullage.simulate.traces.pils import USE_CASES, Load, pils
from ullage.simulate.traces.recording import write
from ullage.simulate.traces.training import TrainingPlan, training


def of(files):
    """The report on recordings, in which collectives are work."""
    return read_trace(files).report(mode="talp")


def back(report, folder):
    """The report on what was written of another."""
    path = folder / "talp.json"
    path.write_text(talp_json(report, now=0.0))
    return read_trace(path).report()


def trees(view):
    """The efficiencies of a view by their names."""
    return {node.metric: node.value for tree in (view.host, view.device) if tree is not None for _, node in tree.walk()}


def assert_same(ours, theirs):
    """TALP's form holds the ns themselves, so that nothing is lost; what has no value has none there either."""
    assert theirs.source == "TALP 3.7.0"
    assert trees(theirs.whole) == trees(ours.whole)
    found = {view.name: view for view in theirs.regions}
    assert {name: (view.elapsed, trees(view)) for name, view in found.items()} == {v.name: (v.elapsed, trees(v)) for v in ours.regions}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_simulated_run_reads_back_as_the_same_trees(name, tmp_path):
    ours = of(write(SCENARIOS[name], tmp_path))
    assert_same(ours, back(ours, tmp_path))


times = st.lists(st.integers(0, 10**9), min_size=3, max_size=3).map(tuple)


@settings(max_examples=12)
@given(cpu=times, gpu=times, memcpy=times, rounds=st.integers(1, 2), asynchronous=st.booleans())
def test_whatever_the_ranks_do_it_reads_back_as_the_same_trees(cpu, gpu, memcpy, rounds, asynchronous, tmp_path_factory):
    folder = tmp_path_factory.mktemp("talp")
    ours = of(write(pils(Load("drawn", cpu, gpu, memcpy, rounds, asynchronous)), folder))
    assert_same(ours, back(ours, folder))


@pytest.mark.parametrize("number", USE_CASES)
def test_the_papers_use_cases_are_printed_as_the_paper_prints_them(number, tmp_path):
    case = USE_CASES[number]
    whole = json.loads(talp_json(of(write(pils(case.load), tmp_path))))["Application"]["Global"]
    printed = {"host_parallel_efficiency": "parallelEfficiency", "device_parallel_efficiency": "gpuParallelEfficiency"}
    for metric, key in printed.items():
        if metric in case.printed:
            assert whole[key] == pytest.approx(case.printed[metric], abs=0.0101)


def test_a_region_that_has_talps_name_for_the_run_does_not_take_its_place(tmp_path):
    # the region is half of the run: 0-20 of 0-40
    made = Made(tmp_path / "a.ullage").clocks(0).named({1: "Global", 2: "solve"}, flags=1)
    made.host(host(0, 20, 1), host(20, 30, 2, serial=2)).buffer(kernel(5, 10))
    application = json.loads(talp_json(of(made.clocks(40).end())))["Application"]
    assert list(application) == ["Global", "solve"]
    assert application["Global"]["elapsedTime"] == 40 and application["solve"]["elapsedTime"] == 10


def test_it_counts_ranks_devices_and_hosts(tmp_path):
    write(training(TrainingPlan(ranks=3)), tmp_path)
    assert json.loads(talp_json(of(tmp_path)))["resources"] == {"numCpus": 3, "numNodes": 1, "numMpiRanks": 3, "numGpus": 3}


def test_it_says_when_it_was_written(tmp_path):
    assert json.loads(talp_json(of(busy(tmp_path / "a.ullage")), now=0.0))["timestamp"] == "1970-01-01T00:00:00"


def test_devices_alone_have_no_form_in_talp(tmp_path):
    report = of(busy(tmp_path / "a.ullage"))
    without = replace(report, whole=replace(report.whole, host_totals=None, host=None))
    with pytest.raises(UllageError, match="no host thread"):
        talp_json(without)


def test_one_region_alone_is_the_run(tmp_path):
    made = Made(tmp_path / "a.ullage").clocks(0).named({2: "solve"}, flags=1).host(host(20, 30, 2)).clocks(40)
    run = read_trace(made.buffer(kernel(22, 27)).end())
    report = trace(run.profile, "first-last", TraceRequest(region="solve"))
    assert json.loads(talp_json(report))["Application"]["Global"]["elapsedTime"] == 10
