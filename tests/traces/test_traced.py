"""Traces from Python and in notebooks: what a run and its trees answer, print, draw and write."""

from __future__ import annotations

import json
import pickle

import pytest

import ullage
from tests.traces.kineto_events import on_host, written
from ullage.errors import UllageError
from ullage.simulate.traces import kineto, talp
from ullage.simulate.traces.pils import load, pils

FACTORS = ["device_load_balance", "device_communication_efficiency", "orchestration_efficiency"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two ranks: each computes 10 ms on its CPU, after a kernel of 20 and 10 ms; twice."""
    place = tmp_path_factory.mktemp("run")
    kineto.write(pils(load("run", cpu="10000", gpu="20000,10000", rounds=2, clock_mhz=1000)), place)
    return place


@pytest.fixture(scope="module")
def run(folder):
    return ullage.read_trace(folder)


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    path = tmp_path_factory.mktemp("sums") / "talp.json"
    return ullage.read_trace(talp.write(pils(load("run", cpu="10000", gpu="20000")), path))


# --- the tree ---


def test_an_efficiency_is_asked_for_by_its_name(run):
    tree = run.tree("talp")
    # kernels of 40 and 20 ms: the mean is 30, the longest 40
    assert tree["device_load_balance"] == 0.75 == tree.device.find("device_load_balance").value
    assert tree["host_parallel_efficiency"] == tree.host.value


def test_an_unknown_name_is_a_key_error_that_lists_the_names(run):
    with pytest.raises(KeyError, match=r"no efficiency is called 'speed'; there are host_parallel_efficiency, .*orchestration_efficiency"):
        run.tree()["speed"]


def test_a_tree_is_a_mapping_of_its_efficiencies(run):
    tree = run.tree("talp")
    assert list(tree) == tree.keys() == list(dict(tree)) and len(tree) == len(list(tree))
    assert [name for name in tree if name in FACTORS] == FACTORS and "collective_efficiency" in run.tree("ai")
    product = 1.0
    for name in FACTORS:
        product *= tree[name]
    assert product == pytest.approx(tree["device_parallel_efficiency"])


def test_its_rows_are_what_a_data_frame_takes(run):
    rows = run.tree("talp").rows()
    assert {len(row) for row in rows} == {7} and [row["metric"] for row in rows] == list(run.tree("talp"))
    assert rows[0] == {
        "tree": "host", "depth": 0, "metric": "host_parallel_efficiency", "label": "Parallel efficiency",
        **dict.fromkeys(("value", "low", "high"), run.tree("talp")["host_parallel_efficiency"]),
    }  # fmt: skip


def test_it_prints_as_text_and_so_does_its_representation(run):
    tree = run.tree("talp")
    assert str(tree) == repr(tree) and str(tree).startswith("Host    Parallel efficiency")
    assert "├─ Load balance                 0.75" in str(tree)


def test_a_notebook_shows_a_tree_and_a_run_as_pictures(run):
    for shown in (run.tree(), run):
        assert shown._repr_svg_() == shown.svg() and shown.svg().startswith("<svg") and shown.svg().rstrip().endswith("</svg>")
    assert run.svg() != run.tree().svg()


def test_its_json_is_plain_data(run):
    assert json.loads(json.dumps(run.tree("talp").json()))["mode"] == "talp"


def test_a_tree_survives_pickling(run):
    assert pickle.loads(pickle.dumps(run.tree())).rows() == run.tree().rows()


# --- the run ---


def test_a_run_tells_its_rows_by_rank_device_region_and_step(run):
    ranks = run.rows()
    assert [row["name"] for row in ranks] == ["rank 0", "rank 1"] and ranks[0]["elapsed_s"] == pytest.approx(0.185, rel=0.01)
    assert [row["name"] for row in run.rows("region")] == ["setup", "gpu", "cpu"] and len(run.rows("device")) == 2
    assert run.rows("step") == []
    with pytest.raises(UllageError, match="no rows by 'week'"):
        run.rows("week")


def test_the_window_of_steps_begins_with_the_wait_for_input_that_no_operator_shows(tmp_path):
    # a step of 100 us whose only operator runs from 60 to 90; from first to last it is the operator's 30 us
    path = written(tmp_path, on_host(0, 100, "ProfilerStep#0"), on_host(60, 30, "aten::mm", cat="cpu_op"))
    (step,) = ullage.read_trace(path, window="steps").rows("step")
    assert (step["name"], step["elapsed_s"]) == ("ProfilerStep#0", 100e-6)
    assert ullage.read_trace(path).report().whole.elapsed == 30_000


def test_a_region_has_its_own_tree(run):
    # the host computes in it, and its device has nothing to do
    assert run.tree("talp", region="cpu")["device_parallel_efficiency"] == 0 < run.tree("talp", region="gpu")["device_parallel_efficiency"]
    with pytest.raises(UllageError, match="no region is called 'gpus'"):
        run.tree(region="gpus")


def test_a_notebook_shows_a_report_as_printed(run):
    report = run.report()
    answer = str(report).partition(" (")[0]
    assert (
        answer.startswith("Device parallel efficiency ") and answer in report._repr_html_() and f"**{answer}**" in report._repr_markdown_()
    )


def test_a_run_prints_the_report_and_is_named_by_its_files(run):
    assert str(run).startswith("Device parallel efficiency ") and "why devices idled" in str(run)
    assert repr(run).startswith("<Traced ") and repr(run).endswith("and 1 more (kineto): 2 processes, 2 devices>")


@pytest.mark.parametrize("form", [".html", ".md", ".csv", ".svg", ".json", ".txt", ".parquet", ".pftrace"])
def test_a_run_is_written_in_the_form_of_the_name(run, tmp_path, form):
    run.write(tmp_path / f"out{form}")
    assert (tmp_path / f"out{form}").stat().st_size > 800


def test_files_may_be_paths_or_text_one_or_several(folder):
    paths = sorted(folder.iterdir())
    found = [ullage.read_trace(files).tree().rows() for files in (folder, str(folder), paths, f"{folder}/*.json")]
    assert all(rows == found[0] for rows in found) and ullage.read_trace(paths[0]).tree().rows() != found[0]


# --- a file of sums ---


def test_of_sums_there_is_no_timeline_and_a_notebook_shows_the_tree(sums):
    assert sums._repr_svg_() == sums.tree().svg() and repr(sums).endswith("talp.json (TALP 3.7.0): 4 regions>")
    with pytest.raises(UllageError, match="no timeline"):
        sums.svg()
