"""The benchmarks run, in their quick form, and print how we stand beside a peer. Nothing here holds a time to anything."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


measure = load("measure")


def run(name: str, *words: str) -> str:
    done = subprocess.run([sys.executable, str(FOLDER / f"{name}.py"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["exposition", "prometheus_json", "store", "cupti_decode"])
def test_a_benchmark_prints_ratios_and_keeps_its_numbers(name, tmp_path):
    assert " times)" in run(name, "--quick", "--json", str(tmp_path / "numbers.json"))
    figures = json.loads((tmp_path / "numbers.json").read_text())
    assert any(figure["ratios"] for figure in figures)
    assert all(figure["ours"] > 0 for figure in figures)


@pytest.mark.skipif(sys.platform != "linux", reason="the recorder runs on Linux")
def test_what_the_recorder_costs_is_measured_in_every_way(tmp_path):
    run("recorder_cost", "--quick", "--json", str(tmp_path / "numbers.json"))
    figures = {figure["what"]: figure["ours"] for figure in json.loads((tmp_path / "numbers.json").read_text())}
    assert {"a call of MPI, summed up", "a region, begun and ended from Python", "ullage run -- true, CPU"} <= set(figures)
    assert all(value > 0 for value in figures.values())


@pytest.mark.full
def test_a_small_fleet_day_gives_the_same_answer_in_every_way(tmp_path):
    pytest.importorskip("polars", reason="a peer of the benchmarks (pip install 'ullage[bench]')")
    told = run("fleet_day", "--quick", "--json", str(tmp_path / "numbers.json"))
    assert "seconds for a fleet of" in told and "pandas" in told
    measured = {figure["what"] for figure in json.loads((tmp_path / "numbers.json").read_text())}
    assert {"fleet OFU, 8 GPUs", "tree of every job, 16 GPUs", "whole report, 16 GPUs, peak memory"} <= measured


@pytest.mark.full
def test_the_service_is_measured_over_a_small_store(tmp_path):
    pytest.importorskip("uvicorn", reason="the service needs ullage[serve]")
    run("serve", "--quick", "--json", str(tmp_path / "numbers.json"))
    figures = {figure["what"]: figure["ours"] for figure in json.loads((tmp_path / "numbers.json").read_text())}
    assert {"first page after the start, 8 GPUs", "/, 4 browsers, p50, 8 GPUs", "memory, at most, 8 GPUs"} <= set(figures)
    assert all(value > 0 for value in figures.values())


@pytest.mark.full
def test_memory_and_cpu_time_of_whole_reports_are_measured(tmp_path):
    run("trace_resources", "--quick", "--json", str(tmp_path / "numbers.json"))
    figures = json.loads((tmp_path / "numbers.json").read_text())
    assert [figure["unit"] for figure in figures] == ["MB", "s"] * 3
    assert all(figure["ours"] > 0 for figure in figures)


def test_all_of_them_are_run_from_one_place(tmp_path):
    told = run("run", "--quick", "--json", str(tmp_path / "numbers.json"), "prometheus_json")
    assert "== API JSON beside json.loads" in told and "cores, load" in told
    assert list(json.loads((tmp_path / "numbers.json").read_text())["figures"]) == ["prometheus_json"]


def test_a_benchmark_that_does_not_exist_is_named():
    done = subprocess.run([sys.executable, str(FOLDER / "run.py"), "speed"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no benchmark is called speed; there are exposition," in done.stderr


def test_every_benchmark_is_run_by_make_bench():
    not_measured = {"acmetrace", "asked", "audit_labelled", "audit_seeds", "day", "finding_faults", "measure", "prometheus_day", "run"}
    # how right an answer is, not how fast
    not_measured |= {"blind_changes", "blind_fleets", "blind_stragglers", "fleet_stragglers", "straggler_fleets", "straggler_oracle"}
    not_measured |= {"tile_prediction", "tile_prediction_real", "trust_faults", "watch_changes", "waterfall_errors"}
    not_measured |= {"top_idle", "spark_growth"}  # the last needs Java, and takes all of a machine for long
    assert set(load("run").BENCHMARKS) == {path.stem for path in FOLDER.glob("*.py")} - not_measured


def test_whatever_plants_faults_is_run_by_make_faults():
    done = subprocess.run(["make", "--dry-run", "faults", "SEEDS=7"], cwd=FOLDER.parent, capture_output=True, text=True, check=True)
    said = [line.partition("benchmarks/")[2] for line in done.stdout.splitlines() if "benchmarks/" in line]
    plants = {path.stem for path in FOLDER.glob("*.py") if "recall" in (ast.get_docstring(ast.parse(path.read_text())) or "")}
    asked_apart = {"blind_changes"}  # thousands of hours: it is right for long runs alone
    assert {line.partition(".py")[0] for line in said} == (plants | {"audit_labelled", "blind_stragglers"}) - asked_apart
    assert all("7" in line.split() for line in said if "labelled" not in line)


def test_less_time_and_more_speed_are_both_better():
    # 2 s beside 6 s is 3 times; 3 a second beside 6 a second is half
    assert measure.Figure("a question", 2, "s", {"peer": 6}).ratios == {"peer": 3}
    assert measure.Figure("a stream", 3, "lines/s", {"peer": 6}).ratios == {"peer": 0.5}


def test_a_promise_is_kept_or_missed():
    assert measure.Figure("a question", 2, "s", target=1.5).met is False
    assert measure.Figure("a stream", 3, "lines/s", target=2).met is True
    assert measure.Figure("a factor", 21, "times", target=20).met is True
    assert measure.Figure("a question", 2, "s").met is None


def test_a_figure_reads_as_one_line():
    figure = measure.Figure("fleet OFU, 100 GPUs", 0.51234, "s", {"pandas": 1.53702, "Polars": 0.25617}, 1.5)
    assert figure.line() == "fleet OFU, 100 GPUs: 0.512 s; pandas 1.54 (3 times), Polars 0.256 (0.5 times); target 1.5 met"
