"""`ullage demo --serve`: a simulated fleet whose time runs, stored as it comes to pass."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.command_line import ask
from ullage.service import demonstration
from ullage.service.demonstration import MovingDemonstration, MovingPlan, first_moment, jobs_until
from ullage.simulate.fleet import Specification
from ullage.simulate.fleet import fleet as simulated
from ullage.store.store import Store

PLAN = MovingPlan(gpus=24, hours=2, speed=10_000)


def milliseconds(column: pa.ChunkedArray) -> list[int | None]:
    return column.cast(pa.int64()).to_pylist()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[demonstration.FollowedSource], list[tuple]]:
    """A demonstration at its end: its store, what it said of itself, and what was logged."""
    folder, said, logged = tmp_path_factory.mktemp("moving") / "store", [], []
    Store.open(folder, create=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demonstration, "TURN", 0.15)
        moving = MovingDemonstration(PLAN, folder, lambda *words: logged.append(words), said.append)
        moving.start()
        moving._thread.join(120)
    assert moving.stop()
    return Store.open(folder), said, logged


def test_when_it_is_over_the_store_holds_the_whole_fleet_as_if_it_had_been_stored_at_once(ran, tmp_path: Path) -> None:
    store, said, logged = ran
    simulation = simulated(Specification(gpus=PLAN.gpus, hours=PLAN.hours, faults=demonstration.FAULTS))
    whole = Store.open(tmp_path / "store", create=True)
    whole.append(simulation.batches())
    order = ["gpu", "mig", "time"]
    one, other = (some.samples().to_pyarrow().sort_by([(name, "ascending") for name in order]) for some in (store, whole))
    assert one.select([*order, "tensor_active"]).equals(other.select([*order, "tensor_active"]))
    kept, jobs = store.jobs(), simulation.jobs()
    assert kept.num_rows == jobs.num_rows and sorted(milliseconds(kept["end"]), key=str) == sorted(milliseconds(jobs["end"]), key=str)
    assert [words[0] for words in logged] == ["simulated"] and said[-1].problem == "" and said[-1].last_read is None


def test_it_begins_an_hour_before_the_regression_and_its_time_runs_on(ran) -> None:
    _, said, _ = ran
    simulation = simulated(Specification(gpus=PLAN.gpus, hours=PLAN.hours, faults=demonstration.FAULTS))
    (planted,) = simulation.plan.of("regression")
    start, end = simulation.specification.window
    assert first_moment(simulation) == max(planted.start - 3_600_000, start + (end - start) // 100)
    without = simulated(Specification(gpus=8, hours=3))
    assert first_moment(without) == without.specification.start + 3_600_000 // 2
    read = [state for state in said if state.last_read is not None]
    assert len(read) > 1 and [state.rows for state in read] == sorted(state.rows for state in read)
    assert all(state.source.startswith("a simulated fleet, at 2026-08-10 ") and state.source.endswith(" UTC") for state in read)


def test_job_records_at_a_moment_tell_nothing_of_what_lies_ahead() -> None:
    jobs = simulated(Specification(gpus=32, hours=6, seed=5)).jobs()
    starts, ends = (np.array([-1 if time is None else time for time in milliseconds(jobs[name])]) for name in ("start", "end"))
    for moment in (*starts[:5], *(ends[ends > 0][:5] - 1), *ends[ends > 0][:5]):
        seen = jobs_until(jobs, int(moment))
        assert seen.num_rows == (starts <= moment).sum() and seen.schema == jobs.schema
        assert sum(time is not None for time in milliseconds(seen["end"])) == ((starts <= moment) & (ends > 0) & (ends <= moment)).sum()


def test_it_can_be_stopped_at_any_time(tmp_path: Path) -> None:
    Store.open(tmp_path / "store", create=True)
    said: list[demonstration.FollowedSource] = []
    moving = MovingDemonstration(MovingPlan(gpus=8, hours=2, speed=1), tmp_path / "store", lambda *_: None, said.append)
    moving.start()
    before = time.monotonic()
    while not any(state.last_read for state in said) and time.monotonic() - before < 60:
        time.sleep(0.02)
    assert said[-1].last_read and moving.stop(30)


@pytest.mark.parametrize(("words", "problem"), [(["--out", "x"], "leave --out out"), (["--speed", "0"], "--speed"), (["70000"], "--serve")])
def test_what_does_not_go_with_serving_is_refused(words: list[str], problem: str) -> None:
    said = ask("demo", "--serve", *words)
    assert said.code == 2 and problem in said.err
