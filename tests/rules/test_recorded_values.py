"""What the rules record of fleets drawn at random, by Prometheus' own engine: beside a slow reference, and beside Ullage's own engine."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tests.rules.drawn_fleet import A100, H100, SCRAPE, STEP, DrawnFleet, FleetTraits, drawn_fleet
from tests.rules.evaluation import Labels, PromtoolInput
from tests.rules.reference import expected
from ullage.intake import opened
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
    found = PromtoolInput(tmp_path, rule_text, fleet.series(), step=STEP).evaluate(names, moments)
    for now in moments:
        answer = expected(fleet, now)
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
