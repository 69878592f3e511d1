"""Goodput, runs that did not complete and queue waits, against what is true of drawn fleets second by second."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import ibis
import pyarrow as pa
import pytest

from tests.conftest import T0, settled_table
from tests.fleet.goodput_reference import (
    STEP,
    Reading,
    TrueFleet,
    TrueRun,
    drawn_fleet,
    ending_of_a_reading,
    goodput_by_seconds,
    records_of,
    waits_by_seconds,
)
from tests.seeds import some
from ullage.problems import Problems
from ullage.render.fleet import view
from ullage.render.fleet_document import record
from ullage.reports.fleet.fleet import FleetReport, fleet
from ullage.reports.fleet.goodput import FleetGoodput, queue_waits
from ullage.reports.fleet.job_runs import JobRuns, runs_of
from ullage.reports.fleet.request import FleetRequest
from ullage.sources.jobs.job import read_jobs
from ullage.tables import JOBS
from ullage.views.text import text

MOMENTS = ("queue_start", "start", "end")


def table_of(rows: list[dict]) -> pa.Table:
    """Records with times in seconds of the fleet's clock, as `tables.JOBS`."""
    at = [
        {name: row.get(name) if name not in MOMENTS or row.get(name) is None else T0 + 1000 * row[name] for name in JOBS.names}
        for row in rows
    ]
    columns = {f.name: pa.array([row[f.name] for row in at], pa.int64() if f.name in MOMENTS else f.type).cast(f.type) for f in JOBS}
    return pa.table(columns, schema=JOBS)


def window_of(true: TrueFleet) -> tuple[int, int]:
    return T0 + 1000 * true.window[0], T0 + 1000 * true.window[1]


def asked(true: TrueFleet, jobs: pa.Table | None, **words) -> FleetReport:
    rows = [
        {
            "time": T0 + 1000 * one.time,
            "span_ms": 1000 * STEP,
            "cluster": one.cluster,
            "gpu": one.gpu,
            "mig": one.mig,
            "job": ",".join(one.jobs) or None,
            "sharers": len(one.jobs),
            "gr_active": 0.0 if one.idle else 0.9,
            "sm_active": 0.0 if one.idle else 0.8,
            "tensor_active": one.ofu or (0.0 if one.idle else 0.4),
            "sm_clock": None if one.ofu is None else 1.83e9,
        }
        for one in true.readings
    ]
    since, until = window_of(true)
    samples = ibis.memtable(settled_table(rows))
    return fleet(samples, jobs, FleetRequest(since=since, until=until, **words))


# --- runs and waits alone ---


@pytest.mark.parametrize("seed", some(range(5000), 100))
def test_runs_and_waits_are_what_is_true_second_by_second(seed: int) -> None:
    true = drawn_fleet(seed)
    window = window_of(true)
    runs = runs_of(table_of(records_of(true, seed)))
    assert len(runs) == len(true.runs)
    known = JobRuns(runs, {one.cluster for one in true.readings}, window)
    by_job = known.by_job()
    for cluster, jobs in sorted({(one.cluster, one.jobs) for one in true.readings if one.jobs}):
        spans = known.ended_spans(cluster, ",".join(jobs), by_job)
        for second in range(STEP, true.window[1] + 1, STEP):
            found = [one.ending for one in spans if one.start < T0 + 1000 * second <= one.end]
            assert found == [ending for ending in [ending_of_a_reading(true, cluster, jobs, second)] if ending]
    told, waited = queue_waits(runs, window, {}), waits_by_seconds(true)
    assert (told is None) == (waited is None)
    if told is not None and waited is not None:
        assert {name: getattr(told, name) for name in waited} == pytest.approx(waited)


# --- whole reports ---


def held_against(made: FleetGoodput, true: dict) -> None:
    assert (made.capacity, made.allocated, made.kept, made.useful) == pytest.approx(
        tuple(true[name] for name in ("capacity", "allocated", "kept", "useful")), rel=1e-5, abs=1e-9
    )
    assert {one.ending: one.gpu_hours for one in made.ended if one.gpu_hours > 1e-12} == pytest.approx(true["hours"], rel=1e-5)
    assert {one.ending: one.ofu_hours for one in made.ended if one.gpu_hours > 1e-12} == pytest.approx(true["ofu"], rel=1e-5, abs=1e-9)
    held = {key: sum(own.values()) for key, own in made.lost_by_job.items() if sum(own.values()) > 1e-12}
    assert held == pytest.approx(true["held"], rel=1e-5)
    if made.kept > 1e-9:
        assert made.goodput == pytest.approx(true["goodput"], rel=1e-4)
    assert made.bounds is None or made.bounds == pytest.approx(true["bounds"], rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("seed", some(range(400), 3))
def test_goodput_is_what_is_true_second_by_second(seed: int) -> None:
    true = drawn_fleet(seed)
    report = asked(true, table_of(records_of(true, seed)))
    if report.trusted_share < 1:
        pytest.skip("a drawn series looks faulty")
    if report.goodput is None:
        assert not any(run.state for run in true.runs)
        return
    held_against(report.goodput, goodput_by_seconds(true))


def one_run(state: str | None, **more) -> tuple[TrueFleet, pa.Table]:
    """A GPU that works for a minute at a half of its peak, in a run of this state, and is then free for half a minute."""
    true = TrueFleet((0, 90))
    busy = [Reading(STEP * n, "east", "GPU-1", None, 1.0, ("7",), False, 0.5) for n in range(1, 7)]
    true.readings = [*busy, *(replace(one, time=one.time + 60, jobs=(), idle=True, ofu=0.0) for one in busy[:3])]
    return true, table_of([{"job": "7", "host": "node-1", "start": 0, "end": 60, "state": state, "gpus": 1} | more])


@pytest.mark.parametrize(
    ("state", "ending", "goodput"),
    [
        ("COMPLETED", None, 1 / 3),
        ("RUNNING", None, 1 / 3),
        ("FAILED", "failed", 0.0),
        ("failed", "failed", 0.0),
        ("OOMKilled", "out of memory", 0.0),
        ("NODE_FAIL", "node failed", 0.0),
        ("PREEMPTED", "restarted", 0.0),
        ("TIMEOUT", "timed out", 1 / 3),
        ("CANCELLED by 1000", "cancelled", 1 / 3),
    ],
)
def test_how_a_run_ended_says_whether_its_work_was_kept(state: str, ending: str | None, goodput: float) -> None:
    # jobs held 60 of 90 s at OFU 0.5: 2/3 × 1/2 = 1/3 of the peak
    report = asked(*one_run(state))
    made = report.goodput
    assert made is not None and made.scheduling == pytest.approx(2 / 3)
    assert made.useful / made.capacity == pytest.approx(goodput, rel=1e-6)
    assert [one.ending for one in made.ended] == ([ending] if ending else [])
    assert made.bounds == pytest.approx((0.0 if ending else 1 / 3, 1 / 3), rel=1e-6)


def test_without_a_state_nobody_knows_what_was_kept() -> None:
    true, jobs = one_run(None)
    assert asked(true, jobs).goodput is None and asked(true, None).goodput is None
    assert "What came of it" not in text(view(asked(true, jobs)))


def test_the_section_shows_the_product_the_runs_and_the_waits() -> None:
    true, jobs = one_run("TIMEOUT", queue_start=-540)
    report = asked(true, jobs)
    shown = text(view(report))
    assert (
        "scheduling: jobs held GPUs    0.67               0.008" in shown
        and "= goodput                     0.33               0.017" in shown
    )
    words = " ".join(shown.split())  # wherever lines break
    assert "timed out" in words and "Goodput is 0.0 % if all their work was lost, and 33.3 % if checkpoints saved all of it" in words
    # one GPU waits 540 s and then runs 60: 0.15 GPU-hours, nine times what followed
    told = "1 run that started in the window waited in the queue for 0.150 h. GPUs × wait is 0.150 GPU-hours, 900.0 % of the 0.017 that"
    assert told in words
    document = json.loads(json.dumps(record(report), allow_nan=False))
    assert document["goodput"]["goodput"] == pytest.approx(1 / 3, rel=1e-6) and document["goodput"]["ended"][0]["lost"] is False
    assert document["queue"]["mean_seconds"] == 540 and document["queue"]["held_gpu_hours"] == pytest.approx(1 / 60)


def test_a_part_of_a_fleet_has_the_goodput_of_its_own_jobs() -> None:
    true, jobs = one_run("FAILED")
    true.readings += [replace(one, gpu="GPU-2", jobs=("8",)) for one in true.readings if one.jobs]
    more = table_of([{"job": "8", "host": "node-1", "start": 0, "end": 60, "state": "COMPLETED", "gpus": 1}])
    whole, part = asked(true, pa.concat_tables([jobs, more])), asked(true, pa.concat_tables([jobs, more]), where="job=8")
    assert whole.goodput is not None and part.goodput is not None
    assert (whole.goodput.runtime, part.goodput.runtime) == (pytest.approx(0.5), 1.0) and part.goodput.ended == ()


def test_the_name_of_a_cluster_that_no_sample_knows_may_be_the_schedulers_own() -> None:
    true, jobs = one_run("FAILED", cluster="slurm")
    assert asked(true, jobs).goodput.runtime == 0
    true.readings += [replace(true.readings[0], cluster="slurm", gpu="GPU-2", jobs=("9",))]
    assert asked(true, jobs).goodput.runtime == 1  # that cluster has samples: its job 7 is another


# --- from the scheduler's own words ---

SPRING = 1_774_745_400  # 2026-03-29T00:50:00Z: ten minutes later clocks in Berlin go from two to three


def berlin(second: int) -> str:
    return datetime.fromtimestamp(SPRING + second, UTC).astimezone(ZoneInfo("Europe/Berlin")).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize("seed", some(range(1000), 10))
def test_waits_are_those_of_local_times_over_a_change_of_the_clock(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    true = TrueFleet((0, 3600))
    lines = ["JobID|JobIDRaw|User|Cluster|JobName|NodeList|AllocTRES|Submit|Eligible|Start|End|State"]
    for number in range(draw.randint(1, 8)):
        start = draw.randint(0, 3599)
        submit, end, gpus = start - draw.choice([0, 5, 900, 7200]), start + draw.randint(1, 5000), draw.randint(1, 8)
        eligible = draw.choice([None, submit, draw.randint(submit, start)])
        told = draw.random() < 0.8
        state, ended = ("RUNNING", "Unknown") if draw.random() < 0.2 else (draw.choice(["COMPLETED", "FAILED"]), berlin(end))
        words = [
            berlin(submit) if told else "",
            berlin(eligible) if eligible is not None and told else "Unknown",
            berlin(start),
            ended,
            state,
        ]
        # an array's tasks have numbers of their own
        lines.append("|".join([f"90_{number}", str(100 + number), "ann", "east", "train", "n1", f"gres/gpu={gpus}", *words]))
        queued = (submit if eligible is None else eligible) if told else None
        true.runs.append(TrueRun(str(100 + number), "east", queued, start, None if ended == "Unknown" else end, state, gpus))
    (tmp_path / "sacct.txt").write_text("\n".join(lines) + "\n")
    jobs = read_jobs(str(tmp_path / "sacct.txt"), Problems(), ZoneInfo("Europe/Berlin"))
    found, waited = queue_waits(runs_of(jobs), (1000 * SPRING, 1000 * (SPRING + 3600)), {}), waits_by_seconds(true)
    assert (found is None) == (waited is None)
    assert found is None or {name: getattr(found, name) for name in waited} == pytest.approx(waited)


@pytest.mark.parametrize(
    ("times", "waited"),
    [
        ({"time": {"submission": 100, "eligible": 400, "start": 1000, "end": 2000}}, 600_000),
        ({"time": {"submission": 100, "eligible": 0, "start": 1000, "end": 2000}}, 900_000),
        ({"submit_time": {"set": True, "number": 100}, "eligible_time": {"set": True, "number": 900}, "start_time": 1000}, 100_000),
        ({"time": {"submission": "soon", "start": 1000, "end": 2000}}, None),
    ],
)
def test_slurms_json_says_since_when_a_job_could_run(tmp_path: Path, times: dict, waited: int | None) -> None:
    job = {"job_id": 7, "nodes": "n1", "state": {"current": ["COMPLETED"]}, "tres_alloc_str": "gres/gpu=1"} | times
    (tmp_path / "jobs.json").write_text(json.dumps({"meta": {"Slurm": {}}, "jobs": [job]}))
    assert [one.wait for one in runs_of(read_jobs(str(tmp_path / "jobs.json"), Problems()))] == [waited]


def test_records_without_a_count_of_gpus_count_the_devices_that_samples_saw() -> None:
    runs = runs_of(table_of([{"job": "7", "queue_start": 0, "start": 3600, "end": 7200, "state": "COMPLETED"}]))
    window = (T0, T0 + 7_200_000)
    assert queue_waits(runs, window, {}) is None
    assert queue_waits(runs, window, {"7": 8}).gpu_hours == 8
