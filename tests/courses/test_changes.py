"""Changes of level in one course: what is found, what is not, and what does not matter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.seeds import some
from ullage.courses.changes import LEAST_LENGTH, WENT_AWAY, level_changes
from ullage.courses.course import TimeCourse

MINUTE = 60_000


def course(values: np.ndarray, bucket_ms: int = MINUTE) -> TimeCourse:
    times = np.arange(len(values), dtype=np.int64) * bucket_ms
    return TimeCourse(bucket_ms, times, np.asarray(values, dtype=float), np.ones(len(values)))


def noisy(seed: int, *parts: tuple[float, int]) -> np.ndarray:
    """Levels, each for so many buckets, with noise of 2 %."""
    values = np.concatenate([np.full(count, level) for level, count in parts])
    return values * (1 + 0.02 * np.random.default_rng(seed).standard_normal(len(values)))


@pytest.mark.parametrize("seed", some(range(2000), 20))
def test_noise_alone_changes_nothing(seed: int) -> None:
    assert level_changes(course(noisy(seed, (0.4, 720)))) == []


@pytest.mark.parametrize("seed", some(range(2000), 20))
def test_a_drop_of_a_tenth_is_dated_and_measured(seed: int) -> None:
    (one,) = level_changes(course(noisy(seed, (0.40, 300), (0.36, 300))))
    assert abs(one.start - 300 * MINUTE) <= 3 * MINUTE
    assert (one.before, one.after) == (pytest.approx(0.40, rel=0.01), pytest.approx(0.36, rel=0.01))
    assert one.bounds[1] < 0
    assert abs(one.after - one.before + 0.04) < 4 * one.error
    assert one.until is None
    assert one.settled == one.start


@pytest.mark.parametrize("seed", some(range(500), 10))
def test_neither_unit_nor_time_matters(seed: int) -> None:
    values = noisy(seed, (0.40, 200), (0.30, 100), (0.40, 200))
    (one,), (other,) = level_changes(course(values)), level_changes(course(1e6 * values, 7 * MINUTE))
    assert other.start == 7 * one.start
    assert other.before == pytest.approx(1e6 * one.before)
    assert (one.until or 0) * 7 == other.until
    assert other.deviations == pytest.approx(one.deviations)


def test_a_change_that_is_smaller_than_what_is_asked_for_is_none() -> None:
    # two levels that stand still but for half a percent: 4 % apart, then 6 %
    assert level_changes(course(noisy(1, (0.400, 600), (0.384, 600)))) == []
    assert len(level_changes(course(noisy(1, (0.400, 600), (0.376, 600))))) == 1
    assert len(level_changes(course(noisy(1, (0.400, 600), (0.384, 600))), least_change=0.03)) == 1


def test_what_comes_back_is_over_then_and_the_way_back_is_no_change() -> None:
    (one,) = level_changes(course(noisy(2, (0.4, 300), (0.2, 60), (0.4, 300))))
    assert (one.start, one.until) == (300 * MINUTE, 360 * MINUTE)


def test_a_pause_is_no_change() -> None:
    assert level_changes(course(noisy(3, (0.4, 300), (0.05, WENT_AWAY - 1), (0.4, 300)))) == []
    assert len(level_changes(course(noisy(3, (0.4, 300), (0.05, WENT_AWAY), (0.4, 300))))) == 1


def test_a_slope_is_one_change_from_its_start_to_its_end() -> None:
    slope = np.concatenate([np.full(300, 0.4), np.linspace(0.4, 0.2, 60), np.full(300, 0.2)])
    (one,) = level_changes(course(slope * (1 + 0.01 * np.random.default_rng(4).standard_normal(660))))
    assert 290 * MINUTE < one.start < 330 * MINUTE < one.settled < 370 * MINUTE
    assert (one.before, one.after) == (pytest.approx(0.4, rel=0.02), pytest.approx(0.2, rel=0.02))


def test_a_fall_that_goes_a_little_too_far_at_first_is_one_change() -> None:
    (one,) = level_changes(course(noisy(8, (0.4, 300), (0.28, 6), (0.31, 300))))
    assert one.after == pytest.approx(0.31, rel=0.01)


def test_a_fall_to_nothing_is_a_change() -> None:
    (one,) = level_changes(course(noisy(5, (0.4, 100), (0.0, 50))))
    assert one.start == 100 * MINUTE
    assert one.ratio == 0.0


def test_buckets_that_are_not_known_are_passed_over() -> None:
    values = noisy(6, (0.4, 200), (0.3, 200))
    values[::7] = np.nan
    (one,) = level_changes(course(values))
    assert abs(one.start - 200 * MINUTE) <= 2 * MINUTE


@pytest.mark.parametrize("values", [[], [0.4], [0.4] * 30, [0.0] * 30, [np.nan] * 30, [0.4] * LEAST_LENGTH + [0.2] * (LEAST_LENGTH - 1)])
def test_little_or_nothing_changes_nothing(values: list[float]) -> None:
    assert level_changes(course(np.array(values))) == []


def test_a_change_is_found_as_soon_as_its_level_is_long_enough() -> None:
    assert len(level_changes(course(noisy(7, (0.4, 300), (0.2, LEAST_LENGTH))))) == 1
