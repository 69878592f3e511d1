"""Goodput of kinds of jobs: how runs ended within a window and before, and which kinds are told because they lose more than they did."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from ullage.alerts.problem import problems_of_fleet
from ullage.findings.fleet.goodput_fell import CHANCE, LEAST_BEFORE, LEAST_DROP, LEAST_HOURS, SURE, chance
from ullage.findings.fleet_evidence import FamilyRuns, FleetEvidence, LostRuns
from ullage.findings.kind import fleet_findings
from ullage.reports.fleet.family_runs import MOST_BEFORE, family_runs
from ullage.reports.fleet.job_runs import EVER, JobRun
from ullage.views.findings import finding_record
from ullage.views.view import Finding

HOUR_MS = 3_600_000
WINDOW = (1_000 * HOUR_MS, 1_024 * HOUR_MS)
LOST_STATES = ("FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "REQUEUED", "PREEMPTED")
OTHER_STATES = ("COMPLETED", "TIMEOUT", "CANCELLED by 7", "RUNNING", None)


def run(number: int, end: float, state: str | None = "COMPLETED", hours: float = 2.0, **more: object) -> JobRun:
    values: dict[str, object] = {"name": "llama", "user": "ann", "cluster": "east", "gpus": 8} | more
    start, last = round((end - hours) * HOUR_MS), round(end * HOUR_MS)
    return JobRun(job=str(number), queue_start=None, start=start, end=last, state=state, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
def test_runs_of_each_kind_are_counted_as_one_by_one(seed: int) -> None:
    draw = np.random.default_rng(seed)
    runs = [
        run(
            number,
            float(draw.uniform(900, 1_050)),
            str(draw.choice(LOST_STATES)) if draw.random() < 0.4 else OTHER_STATES[draw.integers(len(OTHER_STATES))],
            float(draw.uniform(0.1, 30)),
            name=[None, "llama", "bert"][draw.integers(3)],
            user=["ann", "bob"][draw.integers(2)],
            gpus=[None, 8, 64][draw.integers(3)],
        )
        for number in range(300)
    ]
    true: dict[tuple[object, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in runs:
        if one.state in (None, "RUNNING") or one.name is None or one.gpus is None or one.end >= WINDOW[1]:
            continue
        side = "now" if one.end >= WINDOW[0] else "before"
        hours = one.gpus * (one.end - one.start) / HOUR_MS
        true[one.cluster, one.user, one.name, one.gpus][side].append(-hours if one.state in LOST_STATES else hours)
    found = {(one.cluster, one.user, one.name, one.gpus): one for one in family_runs(runs, WINDOW)}
    assert found.keys() == {key for key, sides in true.items() if sides["now"]}
    for key, one in found.items():
        for side, told in (("now", one.now), ("before", one.before)):
            signed = true[key][side]
            assert len(signed) <= MOST_BEFORE
            assert (told.runs, told.lost) == (len(signed), sum(hours < 0 for hours in signed))
            assert told.gpu_hours == pytest.approx(sum(map(abs, signed)))
            assert sum(told.lost_hours.values()) == pytest.approx(-sum(hours for hours in signed if hours < 0))


def test_of_the_runs_before_the_last_ones_count() -> None:
    runs = [run(n, 900 + n * 0.1, "FAILED" if n < 10 else "COMPLETED") for n in range(MOST_BEFORE + 10)]
    (one,) = family_runs([*runs, run(999, 1_001)], WINDOW)
    assert (one.before.runs, one.before.lost) == (MOST_BEFORE, 0)


def test_a_run_of_unknown_start_or_end_counts_nowhere() -> None:
    known = run(1, 1_001)
    (one,) = family_runs([known, replace(known, job="2", start=EVER[0]), replace(known, job="3", end=EVER[1])], WINDOW)
    assert one.now.runs == 1


@pytest.mark.parametrize(("runs", "lost", "before"), [(3, 3, (8, 0)), (6, 2, (20, 1)), (5, 0, (5, 5)), (10, 4, (50, 7)), (1, 1, (5, 0))])
def test_the_chance_is_that_of_all_ways_in_which_runs_may_end(runs: int, lost: int, before: tuple[int, int]) -> None:
    rate = (before[1] + 1) / (before[0] + 2)
    ways = (way for way in itertools.product((False, True), repeat=runs) if sum(way) >= lost)
    true = sum(float(np.prod([rate if one else 1 - rate for one in way])) for way in ways)
    assert chance(family((runs, lost), before)) == pytest.approx(true)


def family(now: tuple[int, int], before: tuple[int, int], hours: float = 16.0) -> FamilyRuns:
    """Return a kind of job of which some runs, of so many hours each, were lost; of how many, now and before."""
    sides = (LostRuns(runs, lost, runs * hours, {"node failed": lost * hours} if lost else {}) for runs, lost in (now, before))
    return FamilyRuns("east", "ann", "llama", 8, *sides)


def found(*families: FamilyRuns) -> list[Finding]:
    return [one for one in fleet_findings(FleetEvidence(24.0, 100.0, (), families=families)) if one.kind == "goodput_fell"]


def test_a_kind_of_job_that_loses_more_runs_than_before_is_told_with_what_it_lost_beyond_that() -> None:
    (one,) = found(family((6, 5), (18, 1)))
    assert str(one.where) == "jobs named llama on 8 GPUs, user ann"
    assert one.gpu_hours == pytest.approx(16 * (5 - 6 * 1 / 18))
    assert (one.owner, one.confidence, one.part[:7]) == ("the operators of the hosts", "high", "no part")
    facts = {fact.name: fact.value for fact in one.evidence}
    assert facts == {
        "runtime goodput": pytest.approx(1 / 6),
        "before": pytest.approx(17 / 18),
        "runs lost": 5,
        "of runs": 6,
        "lost before": 1,
        "of runs before": 18,
        "node failed": 80.0,
    }


@pytest.mark.parametrize(("before", "told"), [((LEAST_BEFORE, 0), True), ((LEAST_BEFORE - 1, 0), False)])
def test_a_kind_that_is_new_has_no_goodput_to_fall_from(before: tuple[int, int], told: bool) -> None:
    assert bool(found(family((6, 6), before))) is told


@pytest.mark.parametrize(("hours", "told"), [(LEAST_HOURS / 3 + 0.001, True), (LEAST_HOURS / 3 - 0.001, False)])
def test_runs_that_fail_at_their_start_cost_too_little(hours: float, told: bool) -> None:
    assert bool(found(family((3, 3), (20, 0), hours))) is told


@pytest.mark.parametrize("lost", range(7))
def test_a_kind_is_told_where_as_many_are_hardly_lost_by_chance(lost: int) -> None:
    one = family((6, lost), (10, 1))
    assert bool(found(one)) is (chance(one) < CHANCE)
    assert {chance(family((6, n), (10, 1))) < CHANCE for n in (3, 4)} == {False, True}


@pytest.mark.parametrize(("lost", "confidence"), [(4, "medium"), (5, "high")])
def test_it_is_sure_where_chance_does_it_once_in_a_thousand_times(lost: int, confidence: str) -> None:
    one = family((6, lost), (10, 1))
    assert (chance(one) < SURE) is (confidence == "high")
    assert found(one)[0].confidence == confidence


@pytest.mark.parametrize(("kept", "told"), [(0.89, True), (0.91, False)])
def test_goodput_must_fall_by_a_tenth(kept: float, told: bool) -> None:
    # many short runs were lost, of a kind that lost none: their share of the hours counts
    assert LEAST_DROP == 0.1
    one = family((50, 20), (50, 0))
    assert bool(found(replace(one, now=replace(one.now, gpu_hours=100.0, lost_hours={"failed": 100.0 * (1 - kept)})))) is told


def test_two_kinds_of_jobs_are_two_alerts_and_their_keys_stay() -> None:
    two = found(family((6, 5), (18, 1)), replace(family((6, 5), (18, 1)), gpus=64))
    document = {"findings": [finding_record(one) for one in two]}
    problems = {one.key: one for one in problems_of_fleet(document)}
    assert sorted(problems) == [f"goodput_fell/cluster=east/user=ann/job_name=llama/gpus={gpus}" for gpus in (64, 8)]
    assert problems["goodput_fell/cluster=east/user=ann/job_name=llama/gpus=8"].place == "cluster east, user ann, job name llama, gpus 8"
