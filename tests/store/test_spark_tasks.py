"""A run's ranks read on Spark, a task each, are those read on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.test_spark import CLUSTER, connect, needs_spark  # noqa: F401 - a fixture
from ullage.errors import UllageError
from ullage.profiles import UNUSED, Profile, ProfileRequest, profile
from ullage.render.trace_json import record
from ullage.reports.trace.trace import trace
from ullage.simulate.traces import kineto
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.store.spark_tasks import on_spark
from ullage.views.json_text import json_text

RANKS = 8


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    kineto.write(training(TrainingPlan(ranks=RANKS, steps=2, straggler=3)), folder)
    return folder


def told(found: Profile) -> str:
    return json_text(record(trace(found, "first-last")))


@pytest.mark.full
@needs_spark
@pytest.mark.parametrize("tables", ["common", "recorded"])
def test_ranks_read_on_spark_are_those_read_here(run: Path, tables: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    here, there = (profile(run.name, ProfileRequest(tables=tables, engine=engine)) for engine in (None, CLUSTER))  # type: ignore[arg-type]
    assert len(there.recordings) == RANKS
    assert told(there) == told(here)


@pytest.mark.full
@needs_spark
def test_a_damaged_file_costs_its_rank_and_a_note(run: Path, tmp_path: Path) -> None:
    for path in run.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    broken = sorted(tmp_path.iterdir())[2]
    broken.write_bytes(broken.read_bytes().replace(b'"ts"', b'"no"'))
    here, there = (profile(str(tmp_path), ProfileRequest(engine=engine)) for engine in (None, CLUSTER))
    assert there.problems.dropped == here.problems.dropped and there.problems.dropped[UNUSED] == 1
    assert told(there) == told(here)


@pytest.mark.full
@needs_spark
def test_a_task_whose_worker_ends_is_done_again_and_one_that_always_does_is_told(tmp_path: Path) -> None:
    def end_once(marker: str) -> str:  # a function of no module: the workers don't have this one
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return marker
        os._exit(1)

    def always_end(_: str) -> str:
        os._exit(1)

    markers = [str(tmp_path / str(number)) for number in range(5)]
    assert on_spark(end_once, markers, CLUSTER) == markers
    with pytest.raises(UllageError, match=r"did not read the files: .*Job aborted.*exited unexpectedly"):
        on_spark(always_end, markers[:1], CLUSTER)


@pytest.mark.full
@needs_spark
def test_through_connect_too(connect: str, run: Path) -> None:  # noqa: F811 - a fixture
    words = [sys.executable, "-m", "ullage", "trace", str(run), "--json"]
    here, there = (subprocess.run([*words, *more], capture_output=True, text=True) for more in ([], ["--engine", connect]))
    assert (there.returncode, there.stderr) == (0, here.stderr)
    assert there.stdout.replace(f" --engine {connect}", "") == here.stdout


def test_what_is_no_spark_is_refused() -> None:
    for engine in ("duckdb", "elsewhere"):
        with pytest.raises(UllageError, match=r"is no (Spark|engine)"):
            on_spark(str, [1], engine)
