"""What changed in simulated fleets whose changes are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import T0
from ullage.courses.changes import LEAST_CHANGE
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.watch.job_courses import bucket_for, job_courses
from ullage.reports.watch.watch import WatchReport, watch
from ullage.simulate.fleet import Simulation, Specification
from ullage.simulate.fleet import fleet as simulated
from ullage.simulate.schedule import slowed
from ullage.sums.windows import settle
from ullage.tables import JOBS

MINUTE = 60_000
Table = Callable[[pa.Table], Any]


@cache
def samples_of(simulation: Simulation) -> pa.Table:
    return settle(pa.Table.from_batches([*simulation.batches()]))


@cache
def with_regression() -> Simulation:
    return simulated(Specification(gpus=16, hours=2, interval=30, seed=4, faults=("regression",)))


@cache
def with_drop(share: float) -> Simulation:
    """A fleet one of whose jobs does less from the middle on, on the same GPUs and under the same name."""
    simulation = simulated(Specification(gpus=24, hours=3, interval=30, seed=2))
    start, end = simulation.specification.window
    middle = (start + end) // 2
    number = next(n for n, job in enumerate(simulation.records) if job.start < middle - 60 * MINUTE and job.end > middle + 60 * MINUTE)
    job = simulation.records[number]
    simulation.records[number] = replace(job, end=middle)
    simulation.records.append(replace(job, start=middle, startup=0, loads=slowed(job.loads, 1 / (1 - share))))
    for which, gpu in enumerate(job.gpus):
        simulation.holds[int(gpu)].append((len(simulation.records) - 1, which))
    return simulation


def report_on(simulation: Simulation, table: Table, until: int | None = None, **words: Any) -> WatchReport:
    request = FleetRequest(until=until)
    return watch(table(samples_of(simulation)), simulation.jobs(), request, least_change=LEAST_CHANGE, **words)


def test_the_regression_of_the_ofu_paper_is_found_and_measured(in_engine: Table) -> None:
    simulation = with_regression()
    (planted,) = simulation.plan.of("regression")
    (one,) = report_on(simulation, in_engine, sources=["store", "http://me:pa55@prometheus:9090/?token=hunter2"]).changes
    assert "pa55" not in one.command and "hunter2" not in one.command and "prometheus:9090" in one.command
    assert (one.scope, one.where.job, one.owner, one.measure) == ("run", planted.job, "grace", "ofu")
    assert one.factor == pytest.approx(2.5, rel=0.03)
    assert one.mover == "activity"
    assert one.moved["activity"] == pytest.approx(0.4, rel=0.03)
    # 8 GPUs do in an hour what they did in 1 / 2.5 of it: 3/5 of their hours are lost, less three minutes of start and of rim
    hours = 8 * (planted.end - planted.start - 3 * MINUTE) / 3_600_000
    assert 0.55 * hours < one.gpu_hours < 0.6 * hours
    assert one.until is not None
    assert not one.goes_on
    assert one.command.startswith(f"ullage job {planted.job} store ") and " --since 2026-08-10T" in one.command


def test_it_is_found_within_ten_minutes_of_telemetry(in_engine: Table) -> None:
    simulation = with_regression()
    (planted,) = simulation.plan.of("regression")
    job = next(job for job in simulation.records if job.name == planted.job)
    (one,) = report_on(simulation, in_engine, until=planted.start + job.startup + 10 * MINUTE).changes
    assert one.where.job == planted.job
    assert one.goes_on
    assert one.worse


def test_a_job_that_does_less_from_a_time_on_is_dated(in_engine: Table) -> None:
    simulation = with_drop(0.2)
    middle = sum(simulation.specification.window) // 2
    report = report_on(simulation, in_engine)
    (one,) = report.changes
    assert (one.scope, one.where.job) == ("job", simulation.records[-1].name)
    assert abs(one.start - middle) <= 3 * MINUTE
    assert one.after / one.before == pytest.approx(0.8, rel=0.02)
    assert one.low < one.after - one.before < one.high < 0
    assert one.beside == ()
    assert report.going_on == (one,)


def test_nothing_is_found_where_nothing_changed(in_engine: Table) -> None:
    report = report_on(simulated(Specification(gpus=48, hours=3, interval=30, seed=11)), in_engine, least_hours=0.0)
    assert report.changes == ()
    assert report.smaller == 0
    assert report.job_hours > 8


def test_all_jobs_that_fall_at_once_are_one_change(in_engine: Table) -> None:
    simulation = simulated(Specification(gpus=48, hours=3, interval=30, seed=5, sizes=((8, 1.0),)))
    table = samples_of(simulation)
    middle = sum(simulation.specification.window) // 2
    late = table["time"].cast(pa.int64()).to_numpy() > middle
    slower = table["tensor_active"].to_numpy() * np.where(late, 0.8, 1.0)
    table = table.set_column(table.column_names.index("tensor_active"), "tensor_active", pa.array(slower, pa.float32()))
    report = watch(in_engine(table), simulation.jobs(), FleetRequest(), least_change=LEAST_CHANGE)
    whole = report.changes[0]
    assert (whole.scope, whole.where.cluster) == ("fleet", "simulated")
    assert whole.after / whole.before == pytest.approx(0.8, rel=0.05)
    assert len(whole.jobs) >= 4
    assert not any(set(one.jobs) & set(whole.jobs) and abs(one.start - whole.start) < 5 * MINUTE for one in report.changes[1:])


def test_a_smaller_change_is_counted_and_not_told(in_engine: Table) -> None:
    report = report_on(with_drop(0.2), in_engine, least_hours=1000.0)
    assert report.changes == ()
    assert report.smaller == 1
    assert report.going_on == ()


def test_courses_are_means_of_the_samples_weighted_by_time(in_engine: Table) -> None:
    simulation = simulated(Specification(gpus=16, hours=1, interval=30, seed=3, sizes=((8, 1.0),)))
    table = samples_of(simulation)
    rows = table.select(["time", "job", "tensor_active", "sm_clock", "span_ms", "gr_active", "model"]).to_pylist()
    tensor_clock = {"NVIDIA H100 80GB HBM3": 1830e6, "NVIDIA A100-SXM4-80GB": 1410e6}
    checked = 0
    for one in job_courses(in_engine(table), simulation.jobs(), MINUTE, None, []):
        for at, ofu, engine in zip(one.ofu.times[::9], one.ofu.values[::9], one.courses["activity"].values[::9], strict=True):
            done = due = busy = 0.0
            for row in rows:
                end = row["time"].timestamp() * 1000
                inside = min(end, at + MINUTE) - max(end - row["span_ms"], at)
                if row["job"] == one.job and inside > 0:
                    done += inside * row["tensor_active"] * row["sm_clock"] / tensor_clock[row["model"]]
                    busy += inside * row["gr_active"]
                    due += inside
            assert (ofu, engine) == (pytest.approx(done / due, rel=1e-6), pytest.approx(busy / due, rel=1e-6))
            checked += 1
    assert checked > 8


def test_a_course_begins_after_the_first_work_of_a_job(settled: Callable[[list[dict[str, Any]]], Any]) -> None:
    # ten minutes held and idle, then twenty at work
    level = [0.0] * 20 + [0.5] * 40
    rows = [{"job": "7", "tensor_active": v, "gr_active": v, "sm_active": v, "sm_clock": 1.83e9} for v in level]
    (one,) = job_courses(settled(rows), None, MINUTE, None, [])
    assert len(one.ofu) == 19  # the first bucket at work is its start
    assert one.ofu.values == pytest.approx(np.full(19, 0.5))


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([("east", "7", "alpha", 8), ("west", "7", "beta", 4)], {"east": ("alpha", 8), "west": ("beta", 4), None: ("alpha", 8)}),
        ([("west", "7", "beta", 4)], {"east": (None, 1), "west": ("beta", 4), None: ("beta", 4)}),
        ([(None, "7", "any", 2), ("west", "7", "beta", None)], {"east": ("any", 2), "west": ("beta", 2), None: ("any", 2)}),
        ([("east", "7", None, 8), ("east", "7", "late", 2)], {"east": ("late", 8), "west": (None, 1), None: ("late", 8)}),
    ],
)
def test_a_record_names_the_job_of_its_own_cluster(
    settled: Callable[[list[dict[str, Any]]], Any], records: list[tuple[Any, ...]], told: dict[str | None, tuple[str | None, int]]
) -> None:
    """One that names no cluster is of each; samples that name none take the first."""
    level = {"job": "7", "tensor_active": 0.5, "gr_active": 0.5, "sm_active": 0.5, "sm_clock": 1.83e9}
    jobs = pa.Table.from_pylist([dict(zip(("cluster", "job", "name", "gpus"), record, strict=True)) for record in records], JOBS)
    rows = [level | {"cluster": cluster, "gpu": f"GPU-{cluster}", "time": T0 + 30_000 * n} for cluster in told for n in range(20)]
    courses = job_courses(settled(rows), jobs, MINUTE, None, [])
    assert {one.cluster: (one.name, one.gpus) for one in courses} == told


def test_idle_time_after_that_counts(settled: Callable[[list[dict[str, Any]]], Any]) -> None:
    level = [0.5] * 40 + [0.0] * 20
    rows = [{"job": "7", "tensor_active": v, "gr_active": v, "sm_active": v, "sm_clock": 1.83e9} for v in level]
    (one,) = job_courses(settled(rows), None, MINUTE, None, [])
    assert one.ofu.values[-10:] == pytest.approx(np.zeros(10))
    assert one.courses["at_work"].values[-10:] == pytest.approx(np.zeros(10))


@pytest.mark.parametrize(
    ("hours", "interval", "bucket"),
    [(1, 30, 1), (24, 30, 1), (34, 30, 2), (1, 31, 2), (1, 60, 2), (1, 61, 5), (168, 30, 15), (9000, 30, 360)],
)
def test_buckets_hold_two_scrapes_and_are_not_too_many(hours: int, interval: int, bucket: int) -> None:
    assert bucket_for((0, hours * 60 * MINUTE), interval * 1000) == bucket * MINUTE
