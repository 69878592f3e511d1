"""What a fix brought: the sum by hand, its error over random fleets, and when it is measured."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from tests.alerts.test_book import problem
from ullage.alerts.book import AlertBook
from ullage.alerts.measured_fix import DAY_S, MeasuredFix, measured_fix, windows_of_fix

DAY = 86_400.0


def hours(values: list[float | None], gpu_hours: float = 8.0, day: int = 1) -> list[dict[str, Any]]:
    """Rows of a fleet's report by hour."""
    return [
        {"key": f"2026-08-{day + at // 24:02} {at % 24:02}:00", "ofu": value, "gpu_hours": gpu_hours} for at, value in enumerate(values)
    ]


def test_what_is_won_is_the_rise_of_ofu_times_the_gpu_hours_of_a_week() -> None:
    # 0.2 → 0.3 on 8 GPUs: 0.1 × 8 × 168 = 134.4 a week; every hour alike: no error
    found = measured_fix("host n1", hours([0.2] * 24), hours([0.3] * 48, day=3))
    assert found is not None
    assert found.gpu_hours_a_week == pytest.approx(134.4)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert (found.hours_before, found.hours_after, found.certain) == (24, 48, True)


def test_a_loss_is_negative_and_what_is_no_more_than_its_error_says_so() -> None:
    worse = measured_fix("x", hours([0.3] * 24), hours([0.2] * 24))
    assert worse is not None and worse.gpu_hours_a_week == pytest.approx(-134.4)
    swinging = [0.1] * 6 + [0.5] * 6
    unsure = measured_fix("x", hours(swinging * 2), hours([one + 0.01 for one in swinging * 2]))
    assert unsure is not None and not unsure.certain


def test_the_error_is_that_of_blocks_by_the_book() -> None:
    # blocks of equal weight: standard error s / √n on each side, Student's quantile at 4 + 4 − 2 = 6 degrees is 2.447
    before, after = [0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.6, 0.6]
    found = measured_fix("x", hours([b for b in before for _ in range(6)]), hours([a for a in after for _ in range(6)]))
    error = 2.447 * (stdev(before) ** 2 / 4 + stdev(after) ** 2 / 4) ** 0.5 * 8 * 168
    assert found is not None
    assert found.error == pytest.approx(error, rel=0.01)
    assert found.gpu_hours_a_week == pytest.approx((fmean(after) - fmean(before)) * 8 * 168)


@pytest.mark.parametrize(("blocks", "known"), [(2, False), (3, True)])
def test_too_few_hours_say_nothing(blocks: int, known: bool) -> None:
    assert (measured_fix("x", hours([0.2] * 6 * blocks), hours([0.3] * 48)) is not None) == known
    assert (measured_fix("x", hours([0.2] * 48), hours([0.3] * 6 * blocks)) is not None) == known


def test_hours_of_which_nothing_is_known_do_not_count() -> None:
    found = measured_fix(
        "x", hours([0.2, None] * 24), [*hours([0.3] * 48, gpu_hours=8.0), {"key": "2026-08-09 00:00", "ofu": 0.9, "gpu_hours": 0}]
    )
    assert found is not None and found.ofu_before == pytest.approx(0.2) and found.hours_before == 24


def covered(seed: int, memory: float) -> bool:
    """Whether the interval of a random fix has the truth, of hours that remember the hour before."""
    chance, truth = random.Random(seed), 0.1 * 8 * 168
    sides = []
    for level, days in ((0.3, chance.randint(1, 7)), (0.4, chance.randint(1, 7))):
        at, series = chance.gauss(0, 0.05), []
        for _ in range(24 * days):
            at = memory * at + (1 - memory**2) ** 0.5 * chance.gauss(0, 0.05)
            series.append(level + at)
        sides.append(series)
    found = measured_fix("x", hours(list(sides[0])), hours(list(sides[1]), day=10))
    assert found is not None
    return abs(found.gpu_hours_a_week - truth) <= found.error


@pytest.mark.parametrize(("memory", "least", "most"), [(0.0, 0.88, 0.99), (0.7, 0.75, 0.95)])
def test_its_error_holds_the_truth_as_often_as_it_says(memory: float, least: float, most: float) -> None:
    share = fmean(covered(seed, memory) for seed in range(100))
    assert least <= share <= most


@pytest.mark.full
@pytest.mark.parametrize(("memory", "least", "most"), [(0.0, 0.93, 0.96), (0.7, 0.83, 0.88)])
def test_its_error_holds_the_truth_over_thousands_of_seeds(memory: float, least: float, most: float) -> None:
    assert least <= fmean(covered(seed, memory) for seed in range(5000)) <= most


def test_the_day_in_which_a_finding_outlives_its_cause_is_left_out() -> None:
    # open for two days, over at day 10: findings look back a day, so it lasted until day 9. Of the day before it opened, some was sound.
    assert windows_of_fix(8 * DAY, 10 * DAY, 12 * DAY) == ((8 * DAY, 9 * DAY), (10 * DAY, 12 * DAY))
    assert windows_of_fix(0, 100 * DAY, 200 * DAY) == ((92 * DAY, 99 * DAY), (100 * DAY, 107 * DAY))


@pytest.mark.parametrize(("after_h", "known"), [(17.9, False), (18.0, True)])
def test_it_is_measured_once_three_blocks_have_passed(after_h: float, known: bool) -> None:
    assert (windows_of_fix(8 * DAY, 10 * DAY, 10 * DAY + 3600 * after_h) is not None) == known
    assert (windows_of_fix(9 * DAY - 3600 * after_h, 10 * DAY, 20 * DAY) is not None) == known


def test_a_fix_is_kept_until_the_problem_comes_back(tmp_path: Path) -> None:
    book, fix = AlertBook(tmp_path / "a"), measured_fix("x", hours([0.2] * 24), hours([0.3] * 24))
    assert isinstance(fix, MeasuredFix)
    book.look([problem()], 0.0)
    for at in (1.0, 2.0, 3.0):
        book.look([], at)
    book.keep_fix("straggler/job=7", fix, 4.0)
    book.look([], 5.0)
    assert book.fixes() == {"straggler/job=7": (fix, 4.0)}
    book.look([problem()], 6.0)
    assert book.fixes() == {}
    assert DAY_S == DAY
