"""The page of microbenchmarks: its tables are those of what was recorded, and nothing else."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests.benches.bench_results import of_bench
from ullage.benches.bench import BENCHES
from ullage.benches.result import record
from ullage.cli import cli

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def docs():
    spec = importlib.util.spec_from_file_location("bench_tables", ROOT / "docs" / "bench_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def results(tmp_path):
    """A folder of results with two microbenchmarks of one GPU."""
    place = tmp_path / "nvidia-h200" / "benches"
    place.mkdir(parents=True)
    for name in ("memory-bandwidth", "wgmma"):
        (place / f"{name}.json").write_text(json.dumps(record(of_bench(name))))
    return tmp_path


def test_the_page_holds_the_tables_of_what_was_recorded(docs):
    assert docs.PAGE.read_text(encoding="utf-8") == docs.page(), "run docs/bench_tables.py"


def test_without_recordings_every_figure_is_a_papers(docs, tmp_path):
    text = docs.tables(tmp_path)
    assert text.startswith("## Not measured yet") and "measured  " not in text and ", paper" not in text
    assert all(name in text for name in BENCHES)
    assert docs.pictures(tmp_path) == {}


def test_with_recordings_measured_tables_come_first_and_the_others_stay_published(docs, results):
    text = docs.tables(results)
    assert text.startswith("## NVIDIA H200\n\nNVIDIA H200: ")
    measured, published = text.split("## Not measured yet")
    assert "H200, measured" in measured and "H200, measured" not in published
    assert "\nwgmma (" in measured and "\nwgmma (" not in published and "\nmma (" in published
    assert "![Roofline of NVIDIA H200](images/roofline-nvidia-h200.svg)" in measured
    assert list(docs.pictures(results)) == ["images/roofline-nvidia-h200.svg"]


def test_the_commands_of_the_page_exist(docs):
    import click

    command = cli.get_command(click.Context(cli), "bench")
    options = {name for parameter in command.params for name in parameter.opts}
    drift = {name for parameter in command.get_command(click.Context(command), "drift").params for name in parameter.opts}
    for line in docs.PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("ullage bench"):
            words = {word for word in line.split("  ")[0].split() if word.startswith("--")}
            assert words <= (drift if "bench drift" in line else options), line
