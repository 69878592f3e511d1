"""Stragglers scrape by scrape: which device makes its job wait, by which sign, for how long, and who does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.conftest import T0
from tests.test_benchmarks import load
from ullage.findings.fleet_evidence import SeenStraggler
from ullage.reports.stragglers.seen_stragglers import seen_stragglers
from ullage.reports.stragglers.slow_devices import GONE, LOWER_CLOCK

Settled = Callable[[list[dict[str, Any]]], Any]
SCRAPE, BEFORE = 30_000, 10
HEALTHY = {"tensor_active": 0.5, "sm_active": 0.8, "gr_active": 0.99, "sm_clock": 1.4e9, "nvlink_replays": 0.0}
GPUS = ("a0", "b0", "c0", "d0")


def step(gpu: str, slow: Sequence[str], sign: str, longer: float) -> dict[str, float]:
    """Return what a GPU shows while the slow ones need so many times as long: all do as much, in a longer step."""
    waits = {**HEALTHY, "tensor_active": 0.5 / longer, "sm_active": 0.8 / longer + 0.14 * (1 - 1 / longer)}
    if gpu not in slow:
        return waits
    return {
        "clock": {**HEALTHY, "sm_clock": 1.4e9 / longer},
        "busy": {**HEALTHY, "tensor_active": 0.5 / longer},
        "late": {**waits, "sm_active": 0.8 / longer, "gr_active": 0.99 / longer},
        "link": waits,
        "work": HEALTHY,  # it has more to do: as many tensor cycles as the longer step has room for
    }[sign]


def found(
    settled: Settled, factors: Sequence[float], sign: str, slow: Sequence[str] = ("d0",), gpus: Sequence[str] = GPUS, **fields: Any
) -> list[SeenStraggler]:
    """Return the stragglers of a job that is healthy for a while, and then as slow as `factors` say, scrape by scrape."""
    courses = [1.0] * BEFORE + list(factors)
    rows = []
    for gpu in gpus:
        replays = 0.0
        for number, longer in enumerate(courses):
            shown = step(gpu, slow, sign, longer)
            if sign == "link" and gpu in slow and longer > 1:
                replays += 40
            rows.append(
                {"job": "7", "gpu": gpu, "host": f"node-{gpu[0]}", "time": T0 + SCRAPE * (number + 1), "model": "NVIDIA H100 80GB HBM3"}
                | shown
                | {"nvlink_replays": replays}
                | fields
            )
    return seen_stragglers(settled(rows))


@pytest.mark.parametrize(("sign", "scrapes"), [("clock", 2), ("busy", 1), ("late", 2), ("link", 1)])
def test_a_slow_gpu_is_found_by_its_sign_within_two_scrapes(settled: Settled, sign: str, scrapes: int) -> None:
    (one,) = found(settled, [1.3] * 6, sign)
    assert (one.job, one.devices, one.sign) == ("7", (("node-d", "d0", None),), sign)
    assert (one.start, one.found, one.end) == (T0 + (BEFORE + scrapes - 1) * SCRAPE, T0 + (BEFORE + scrapes) * SCRAPE, None)
    assert one.longer == pytest.approx(1.3, rel=0.15)


@pytest.mark.parametrize(("longer", "scrapes"), [(1.25, 2), (1.3, 1)])
def test_kernels_that_take_much_longer_are_found_at_their_first_scrape(settled: Settled, longer: float, scrapes: int) -> None:
    # for as much tensor work its SMs are busy log(2.00 / 1.67) = 0.18 longer than the others', 2.3 times what counts; or 2.6 times:
    # from 2.5 times on one scrape is enough
    (one,) = found(settled, [longer] * 4, "busy")
    assert one.found == T0 + (BEFORE + scrapes) * SCRAPE


@pytest.mark.parametrize(("factor", "told"), [(1.0 + LOWER_CLOCK / 2, False), (1.25, True)])
def test_a_clock_must_be_lower_than_chips_differ(settled: Settled, factor: float, told: bool) -> None:
    assert bool(found(settled, [factor] * 5, "clock")) is told


@pytest.mark.parametrize("before", [0.0, 1e6])
def test_a_counter_of_replays_that_begins_anew_hides_no_link_that_fails_just_then(settled: Settled, before: float) -> None:
    # a driver that is loaded again counts from 0; from the next second on 40 replays a second, and steps that take 1.3 times as long
    begins, seconds = 120, 180
    rows = [
        {"job": "7", "gpu": gpu, "host": f"node-{gpu[0]}", "time": T0 + 1000 * (n + 1), "model": "NVIDIA H100 80GB HBM3"}
        | (step(gpu, ("d0",), "link", 1.3) if n >= begins else HEALTHY)
        | {"nvlink_replays": 0.0 if gpu != "d0" else before if n < begins - 1 else 40.0 * max(0, n - begins + 1)}
        for gpu in GPUS
        for n in range(seconds)
    ]
    (one,) = seen_stragglers(settled(rows))
    assert (one.devices, one.sign) == ((("node-d", "d0", None),), "link")
    assert one.found == T0 + 1000 * (begins + 2)


def test_one_with_more_to_do_is_none(settled: Settled) -> None:
    assert found(settled, [1.4] * 8, "work") == []


def test_all_slower_together_are_none(settled: Settled) -> None:
    # longer sequences, or a slow network: each waits as long as the others
    assert found(settled, [1.5] * 8, "busy", slow=()) == []


def test_a_single_scrape_is_none(settled: Settled) -> None:
    # a checkpoint that one rank writes for longer
    assert found(settled, [1.5, 1.0, 1.0, 1.0], "late") == []


def test_one_that_differs_from_the_start_is_found_when_it_has_lasted(settled: Settled) -> None:
    rows = [
        {"job": "7", "gpu": gpu, "host": f"node-{gpu[0]}", "time": T0 + SCRAPE * (n + 1), "model": "NVIDIA H100 80GB HBM3"}
        | step(gpu, ("d0",), "late", 1.4)
        for gpu in GPUS
        for n in range(12)
    ]
    (one,) = seen_stragglers(settled(rows))
    assert one.devices == (("node-d", "d0", None),)


def test_a_gpu_of_another_model_is_none(settled: Settled) -> None:
    rows = [
        {"job": "7", "gpu": gpu, "host": f"node-{gpu[0]}", "time": T0 + SCRAPE * (n + 1)}
        | ({**step(gpu, ("d0",), "clock", 1.4), "model": "NVIDIA A100-SXM4-80GB" if gpu == "d0" else "NVIDIA H100 80GB HBM3"})
        for gpu in GPUS
        for n in range(12)
    ]
    assert seen_stragglers(settled(rows)) == []


def test_it_is_over_when_it_has_not_been_seen_for_some_scrapes(settled: Settled) -> None:
    (one,) = found(settled, [1.4] * 3 + [1.0] * (GONE + 2), "clock")
    assert one.end == T0 + SCRAPE * (BEFORE + 3)


def test_a_whole_host_is_one_straggler(settled: Settled) -> None:
    gpus = [f"{host}{number}" for host in "abcd" for number in range(3)]
    (one,) = found(settled, [1.4] * 4, "late", slow=("d0", "d1", "d2"), gpus=gpus)
    assert [gpu for _, gpu, _ in one.devices] == ["d0", "d1", "d2"]


def test_of_two_the_one_that_changed_is_slow(settled: Settled) -> None:
    (one,) = found(settled, [1.4] * 4, "clock", slow=("b0",), gpus=("a0", "b0"))
    assert one.devices == (("node-b", "b0", None),)


def test_stragglers_that_are_drawn_step_by_step_are_found() -> None:
    fleets = load("straggler_fleets")
    score = fleets.StragglerScore()
    fleets.add_fleet(score, 2, 30.0)
    assert score.planted >= 1
    assert (score.recall, score.precision) == (1.0, 1.0)


@pytest.mark.full
def test_precision_and_recall_over_many_drawn_fleets() -> None:
    fleets = load("straggler_fleets")
    score = fleets.StragglerScore()
    for seed in range(60):
        fleets.add_fleet(score, seed, 30.0)
    assert score.precision >= 0.904
    assert score.f1 >= 0.893
    assert score.false / score.gpu_hours * 500 * 24 <= 0.84
