"""The stragglers of a whole window: which jobs are looked at, what is waited for each, and that the choice of jobs loses none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.seeds import some
from tests.test_benchmarks import load
from ullage.findings.fleet_evidence import DeviceOfJob, JobEvidence
from ullage.reports.fleet.fleet import FleetReport, fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.job.job import job_report
from ullage.reports.stragglers import job_stragglers
from ullage.reports.stragglers.job_stragglers import MARGIN, MOST_READINGS, STEP_MS, WAITS, may_straggle, step_between_readings, unequal
from ullage.reports.stragglers.seen_stragglers import seen_stragglers, shares_waited
from ullage.simulate.fleet import Simulation, Specification
from ullage.simulate.fleet import fleet as simulated
from ullage.simulate.load import COMPUTE
from ullage.sums.windows import settle

MINUTES_MS = 60_000


def device(number: int, **more: float) -> DeviceOfJob:
    values = {"held": 10.0, "idle": 0.0, "counted": 10.0, "kept": 2.0, "tensor": 2.5, "engine": 0.8, "sm": 0.5} | more
    return DeviceOfJob(gpu=f"GPU-{number}", host="n", index=number, mig=None, model="H100", **values)


def job(*devices: DeviceOfJob) -> JobEvidence:
    return JobEvidence("1", "east", "ann", None, "llama", None, devices)


@pytest.mark.parametrize(
    ("changed", "by"),
    [
        ({"kept": 1.8}, 0.1),  # the clock is what was kept over tensor activity
        ({"sm": 0.45}, 0.1),
        ({"tensor": 2.5 / 1.1, "kept": 2.0 / 1.1}, 0.1),  # the same SM activity for less tensor work
        ({"tensor": 2.75, "kept": 2.2, "sm": 0.55}, 0.0),  # more work
        ({"engine": 0.8}, 0.2),
    ],
)
def test_gpus_are_as_unequal_as_the_sign_in_which_one_is_farthest_from_the_others(changed: dict[str, float], by: float) -> None:
    devices = [device(n, engine=1.0) for n in range(3)]
    assert unequal([*devices, replace(devices[2], gpu="GPU-3", **changed)]) == pytest.approx(by)


@pytest.mark.parametrize(("engine", "counts"), [(WAITS + 0.01, True), (WAITS - 0.01, False)])
def test_rests_count_only_where_the_others_wait(engine: float, counts: bool) -> None:
    assert (unequal([device(0, engine=engine), device(1, engine=engine), device(2, engine=0.1)]) > 0) is counts


def test_gpus_of_another_model_are_not_compared_and_what_nobody_measured_says_nothing() -> None:
    other = replace(device(2, sm=0.1), model="A100")
    assert unequal([device(0), device(1), other]) == 0.0
    assert unequal([replace(device(n), sm=None, engine=None, counted=0.0, tensor=0.0) for n in range(3)]) == 0.0
    assert unequal([]) == 0.0


@pytest.mark.parametrize(("least", "looked_at"), [(MARGIN * 0.1 * 30 - 1e-6, True), (MARGIN * 0.1 * 30 + 1e-6, False)])
def test_a_job_is_looked_at_where_its_gpus_differ_by_a_quarter_of_what_a_finding_is_worth(least: float, looked_at: bool) -> None:
    assert may_straggle(job(device(0), device(1), device(2, sm=0.45)), least) is looked_at


@pytest.mark.parametrize(("readings", "step"), [(MOST_READINGS - 1, None), (MOST_READINGS + 1, STEP_MS)])
def test_more_readings_than_can_be_looked_at_are_means_over_minutes(readings: int, step: int | None) -> None:
    assert step_between_readings(readings * 30_000 / 3_600_000, 30_000) == step


@pytest.mark.parametrize("seed", range(10))
def test_what_is_waited_for_each_is_what_would_be_saved_if_the_slowest_went_first(seed: int) -> None:
    draw = np.random.default_rng(seed)
    waited = np.where(draw.random((4, 30)) < 0.4, draw.random((4, 30)), 0.0)
    at_work = draw.integers(0, 9, 30).astype(float)
    saved = np.zeros(4)
    for window in range(30):
        left = dict(enumerate(waited[:, window].tolist()))
        while left:
            slowest = max(left, key=lambda one: left[one])
            saved[slowest] += at_work[window] * (left.pop(slowest) - max(left.values(), default=0.0))
    found = shares_waited(waited, at_work)
    assert found == pytest.approx(saved / at_work.sum())
    assert found.sum() == pytest.approx((waited.max(axis=0) * at_work).sum() / at_work.sum())


def samples_of(simulation: Simulation, folder: Path) -> ibis.Table:
    pq.write_table(settle(pa.Table.from_batches([*simulation.batches()])), folder / "samples.parquet")
    return ibis.duckdb.connect().read_parquet(folder / "samples.parquet")


def stragglers(report: FleetReport) -> list[tuple[str | None, str | None, float]]:
    return [(one.where.job, one.where.gpu, one.gpu_hours) for one in report.findings if one.kind == "straggler"]


def with_straggler(seed: int, interval: float = 60.0) -> Simulation:
    return simulated(Specification(gpus=48, hours=4, interval=interval, seed=seed, faults=("straggler",)))


@pytest.mark.parametrize("seed", some(range(8), 3))
def test_a_planted_straggler_is_found_with_what_its_job_lost(seed: int, tmp_path: Path) -> None:
    simulation = with_straggler(seed)
    (planted,) = simulation.answers["planted"]
    samples = samples_of(simulation, tmp_path)
    ((name, gpu, hours),) = stragglers(fleet(samples, simulation.jobs(), FleetRequest()))
    assert (name, gpu) == (planted["job"], planted["gpus"][0])
    record = next(one for one in simulation.records if one.name == name)
    computes, others = float(record.loads[:, COMPUTE].max()), len(record.gpus) - 1
    start, end = simulation.specification.window
    worked = (min(end, record.end) - max(start, record.start + record.startup)) / 3_600_000
    # it computes 1.6 times as long: the others wait for three eighths of its compute; that of the detector holds its communication too
    lost = computes * (1 - 1 / 1.6) * others * worked
    assert hours == pytest.approx(lost, rel=0.25)
    told = job_report(samples, simulation.jobs(), str(name), FleetRequest())
    assert [(one.where.gpu, one.gpu_hours) for one in told.stragglers] == [(gpu, pytest.approx(hours))]


def test_means_over_minutes_show_a_straggler_too(tmp_path: Path) -> None:
    simulation = with_straggler(0, interval=30.0)
    (planted,) = simulation.answers["planted"]
    samples = samples_of(simulation, tmp_path)
    ((fine,), (coarse,)) = (seen_stragglers(samples, step_ms=step) for step in (None, 10 * MINUTES_MS))
    assert (coarse.job, coarse.devices) == (fine.job, fine.devices) == (planted["job"], ((planted["hosts"][0], planted["gpus"][0], None),))
    assert coarse.waited == pytest.approx(fine.waited, rel=0.1)


@pytest.mark.parametrize("seed", some(range(1_000, 1_030), 3))
def test_the_choice_of_jobs_loses_no_finding(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = load("blind_fleets").blind_fleet(seed, 30, gpus=32, seconds=1_800.0)
    pq.write_table(settle(pa.Table.from_batches([drawn.samples])), tmp_path / "samples.parquet")
    samples = ibis.duckdb.connect().read_parquet(tmp_path / "samples.parquet")
    chosen = stragglers(fleet(samples, None, FleetRequest()))
    monkeypatch.setattr(job_stragglers, "may_straggle", lambda job, least: True)
    assert chosen == stragglers(fleet(samples, None, FleetRequest()))


def test_a_healthy_fleet_has_no_stragglers(tmp_path: Path) -> None:
    simulation = simulated(Specification(gpus=48, hours=4, interval=60.0, seed=3))
    assert stragglers(fleet(samples_of(simulation, tmp_path), simulation.jobs(), FleetRequest())) == []
