"""Stragglers scrape by scrape: who stands out from the others of its job, for how long, and who does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import T0
from tests.test_benchmarks import load
from ullage.reports.watch.seen_stragglers import CLEAR, GONE, SeenStraggler, seen_stragglers

Settled = Callable[[list[dict[str, Any]]], Any]
SCRAPE = 30_000


def job(busy: dict[str, list[float]], work: dict[str, list[float]] | None = None) -> list[dict[str, Any]]:
    """Samples of a job's GPUs: SM activity of each at each scrape, and tensor activity (0.3 where nothing is said)."""
    return [
        {
            "job": "7",
            "gpu": gpu,
            "host": f"node-{gpu[0]}",
            "time": T0 + SCRAPE * (number + 1),
            "sm_active": level,
            "gr_active": 1.0,
            "tensor_active": (work or {}).get(gpu, [0.3] * len(levels))[number],
            "sm_clock": 1.4e9,
        }
        for gpu, levels in busy.items()
        for number, level in enumerate(levels)
    ]


def found(settled: Settled, busy: dict[str, list[float]], work: dict[str, list[float]] | None = None) -> list[SeenStraggler]:
    return seen_stragglers(settled(job(busy, work)), SCRAPE)


def peers(count: int, names: str = "abc") -> dict[str, list[float]]:
    return {f"{name}0": [0.5] * count for name in names}


def test_one_that_stands_out_clearly_is_found_at_once(settled: Settled) -> None:
    (one,) = found(settled, {**peers(6), "d0": [0.5, 0.5, 0.5, 0.5 * CLEAR + 0.01, 0.7, 0.7]})
    assert (one.job, one.devices) == ("7", (("node-d", "d0", None),))
    assert (one.start, one.found, one.end) == (T0 + 3 * SCRAPE, T0 + 4 * SCRAPE, None)
    assert one.busier == pytest.approx(CLEAR, rel=0.05)


def test_one_that_stands_out_a_little_must_do_so_twice(settled: Settled) -> None:
    assert found(settled, {**peers(4), "d0": [0.5, 0.5, 0.585, 0.5]}) == []
    (one,) = found(settled, {**peers(4), "d0": [0.5, 0.585, 0.585, 0.5]})
    assert one.found == T0 + 3 * SCRAPE


def test_one_that_does_as_much_more_work_is_none(settled: Settled) -> None:
    assert found(settled, {**peers(5), "d0": [0.7] * 5}, {"d0": [0.42] * 5}) == []


def test_all_slower_together_are_none(settled: Settled) -> None:
    # longer sequences: everybody is busier, and does more
    levels = [0.5, 0.5, 0.8, 0.8, 0.8]
    assert found(settled, {f"{name}0": levels for name in "abcd"}, {f"{name}0": [0.3, 0.3, 0.48, 0.48, 0.48] for name in "abcd"}) == []


def test_it_is_over_when_it_has_not_been_seen_for_some_scrapes(settled: Settled) -> None:
    short = [0.5, 0.7, 0.7, *[0.5] * (GONE - 1), 0.7, *[0.5] * GONE]
    (one,) = found(settled, {**peers(len(short)), "d0": short})
    assert one.end == T0 + SCRAPE * len(short)


def test_a_whole_host_is_one_straggler(settled: Settled) -> None:
    busy = {f"{name}{n}": [0.5] * 4 for name in "abc" for n in range(4)} | {f"d{n}": [0.8] * 4 for n in range(4)}
    (one,) = found(settled, busy)
    assert [gpu for _, gpu, _ in one.devices] == ["d0", "d1", "d2", "d3"]


def test_of_two_nobody_says_which_is_slow(settled: Settled) -> None:
    assert found(settled, {"a0": [0.5] * 5, "b0": [0.9] * 5}) == []


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
