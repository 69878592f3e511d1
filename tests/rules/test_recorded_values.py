"""What the rules record of fleets drawn at random, by Prometheus' own engine: beside a slow reference, and beside Ullage's own engine."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tests.rules.drawn_fleet import A100, H100, SCRAPE, STEP, DrawnFleet, FleetTraits, drawn_fleet
from tests.rules.evaluation import GivenSeries, Labels, PromtoolInput
from tests.rules.reference import expected
from ullage.intake import opened
from ullage.metrics.telemetry import chain
from ullage.questions.rules import rules
from ullage.reports.fleet.groups import state_sums
from ullage.reports.fleet.rated import losses, rate
from ullage.sums.ledger import OWNERS

START = 1_786_320_000  # s, a multiple of the interval
LEVELS = ("job", "host", "model", "cluster", "fleet")
SUMS = (
    *("owned_gpus", "measured_gpus", "ofu_gpus", "loss_gpus", "roof_gpus"),
    *("roof_measured_gpus", "power_watts", "limited_gpus"),
)
COMPARED = SUMS[:4]
FACTOR = "job:ullage_factor:ratio"
# in which of them the whole of what is lost until the SMs are full stands, however the rest of it is split
BEFORE_FILL = {"load_balance", "activity", "activity_x_sm_fill", "load_balance_x_activity_x_sm_fill"}
UNSPLIT = {"activity_x_sm_fill_x_tensor_issue", "load_balance_x_activity_x_sm_fill_x_tensor_issue"}


def seeds(few: int, many: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("seed", [*range(few), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(few, many))])


@pytest.fixture(scope="module")
def rule_text() -> str:
    return str(rules(gpus=(H100, A100)))


@seeds(2, 400)
def test_every_sum_is_what_a_slow_walk_over_devices_gives(seed: int, rule_text: str, tmp_path: Path) -> None:
    fleet = drawn_fleet(seed)
    names = [f"{level}:ullage_{what}:sum" for level in LEVELS for what in SUMS]
    moments = [SCRAPE * int(at) for at in np.random.default_rng(seed).choice(range(fleet.scrapes), 4, replace=False)]
    found = PromtoolInput(tmp_path, rule_text, fleet.series(), step=STEP).evaluate([*names, FACTOR], moments)
    for now in moments:
        answer = expected(fleet, now)
        factors = factors_of_jobs({what: answer.get(f"job:ullage_{what}:sum", {}) for what in COMPARED})
        assert {labels: found[FACTOR, now].get(labels) for labels in factors} == pytest.approx(factors, rel=1e-6, abs=1e-9), now
        for name in names:
            assert found[name, now] == pytest.approx(answer.get(name, {}), rel=1e-9, abs=1e-9), (name, now)


def summed(rule_text: str, fleet: DrawnFleet, folder: Path) -> dict[str, dict[Labels, float]]:
    """Return the sums of jobs over all the time of a fleet, in GPU-seconds."""
    end = (fleet.scrapes - 1) * SCRAPE
    over = {what: f"sum_over_time(job:ullage_{what}:sum[{end + 1}s]) * {SCRAPE}" for what in COMPARED}
    found = PromtoolInput(folder, rule_text, fleet.series(), step=STEP).evaluate([*over.values()], [end])
    return {what: found[expression, end] for what, expression in over.items()}


def own_sums(page: str, folder: Path) -> dict[str, dict[Labels, float]]:
    """Return the same by what Ullage's reports add up, in GPU-seconds."""
    (folder / "scrapes.prom").write_text(page)
    with opened([str(folder / "scrapes.prom")]) as taken:
        rated = rate(state_sums(taken.samples, []))
        lost = losses(rated)
    found: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
    for row, job in enumerate(rated.words("job")):
        owner = OWNERS[int(rated.column("owner")[row])]
        labels = {("job_id", "shared" if owner == "shared" else job)} if job else set()
        weight = rated.weight[row] / 1000
        found["owned_gpus"][frozenset(labels | {("owner", owner)})] += rated.column("span_ms")[row] * weight
        if rated.ofu_time[row] > 0:
            found["measured_gpus"][frozenset(labels)] += rated.ofu_time[row] * weight
            found["ofu_gpus"][frozenset(labels)] += rated.ofu_part[row] * weight
            for step, values in lost.items():
                if not np.isnan(values[row]):
                    found["loss_gpus"][frozenset(labels | {("step", step)})] += values[row] / 1000
    return found


def factors_of_jobs(sums: dict[str, dict[Labels, float]]) -> dict[Labels, float]:
    """Return the factors of each job by the chain of the reports; those of steps before which nothing was left have no value."""
    found: dict[Labels, float] = {}
    for job, measured in sums.get("measured_gpus", {}).items():
        steps = ((dict(labels)["step"], labels, value) for labels, value in sums["loss_gpus"].items())
        lost = {step: value for step, labels, value in steps if labels - {("step", step)} == job}
        left = measured
        for factor in chain(measured, sums["ofu_gpus"][job], lost).factors:
            if left > 1e-6 * measured and factor.value is not None:
                found[job | {("step", factor.name)}] = factor.value
            left -= lost[factor.name]
    return found


def by_what_both_tell(lost: dict[Labels, float]) -> dict[Labels, float]:
    """Return losses with those joined that a moment splits otherwise than a window: a maximum of means is no mean of maxima."""
    found: dict[Labels, float] = defaultdict(float)
    for labels, value in lost.items():
        step = dict(labels)["step"]
        step = "before" if step in BEFORE_FILL | UNSPLIT else step
        found[frozenset({*(pair for pair in labels if pair[0] != "step"), ("step", step)})] += value
    return found


@seeds(1, 300)
def test_over_a_window_the_rules_give_what_ullage_itself_gives(seed: int, rule_text: str, tmp_path: Path) -> None:
    # evaluated once a scrape, each scrape counts once in both; GPUs whose cycles are counted keep their holder
    fleet = drawn_fleet(seed, FleetTraits(gaps=False, phases=False, steady=True))
    own, recorded = own_sums(fleet.pages(START), tmp_path), summed(rule_text, fleet, tmp_path)
    for what in ("owned_gpus", "measured_gpus", "ofu_gpus"):
        assert recorded[what] == pytest.approx(dict(own[what]), rel=1e-9, abs=1e-9), what
    found, told = (by_what_both_tell(lost) for lost in (recorded["loss_gpus"], own["loss_gpus"]))
    for labels in found.keys() | told.keys():  # a step that loses nothing may be there or not
        assert found.get(labels, 0.0) == pytest.approx(told.get(labels, 0.0), rel=1e-9, abs=1e-7), labels


@seeds(1, 300)
def test_a_failed_scrape_costs_no_more_than_the_time_until_the_next(seed: int, rule_text: str, tmp_path: Path) -> None:
    # Ullage lets the scrape after a gap stand for up to 60 s of it; rules leave those moments out. And at the window's end each device
    # may have one scrape that no moment sees.
    fleet = drawn_fleet(seed, FleetTraits(counters=False))
    own, recorded = own_sums(fleet.pages(START), tmp_path), summed(rule_text, fleet, tmp_path)
    most = SCRAPE * sum(1 + len(fleet.failed[device.labels["Hostname"]]) for device in fleet.devices)
    for what in ("owned_gpus", "measured_gpus"):
        found, told = sum(recorded[what].values()), sum(own[what].values())
        assert told - most <= found <= told + 1e-6, what


def test_factors_of_a_job_are_those_of_its_report_and_their_product_is_ofu(rule_text: str, tmp_path: Path) -> None:
    # engines 0.75 and 0.375 of the time, on average 0.75 of the busier one; half of the SMs, half of their time; 1830 and 915 of 1830 MHz
    names = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_SM_CLOCK")
    readings = [(0.75, 0.375, 0.1875, 1830), (0.375, 0.1875, 0.09375, 915)]
    labelled = [{"gpu": str(at), "UUID": f"GPU-{at}", "Hostname": "n1", "modelName": H100, "hpc_job": "7"} for at in range(2)]
    given = [
        GivenSeries(name, labels, [str(value)] * 20)
        for labels, values in zip(labelled, readings, strict=True)
        for name, value in zip(names, values, strict=True)
    ]
    page = "".join(f"{one.selector} {one.values[at]} {(START + 30 * at) * 1000}\n" for at in range(20) for one in given)
    own = factors_of_jobs(own_sums(page, tmp_path))
    assert {dict(labels)["step"]: round(value, 9) for labels, value in own.items()} == {
        "load_balance": 0.75,
        "activity": 0.75,
        "sm_fill": 0.5,
        "tensor_issue": 0.5,
        "clock": round(5 / 6, 9),  # 2 x 1 and 1 x 1/2 over 3
    }
    found = PromtoolInput(tmp_path, rule_text, given).evaluate([FACTOR, "job:ullage_ofu:ratio"], [570])
    assert found[FACTOR, 570] == pytest.approx(own, rel=1e-9)
    ofu = found["job:ullage_ofu:ratio", 570][frozenset({("job_id", "7")})]
    assert np.prod([*found[FACTOR, 570].values()]) == pytest.approx(ofu, rel=1e-12)
