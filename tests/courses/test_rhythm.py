"""A daily rhythm is taken out of a course that has one; a change in it is found as in any other, and noise is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from ullage.courses.changes import level_changes
from ullage.courses.course import Array, TimeCourse
from ullage.courses.rhythm import daily_rhythm
from ullage.units import HOUR_MS

BUCKET = HOUR_MS // 12
DAY = 288  # buckets


def course(values: Array) -> TimeCourse:
    times = 1_786_320_000_000 + BUCKET * np.arange(len(values))
    return TimeCourse(BUCKET, times, values, np.ones(len(values)))


def rhythmic(days: float, swing: float, seed: int) -> Array:
    random = np.random.default_rng(seed)
    count = int(days * DAY)
    at = 2 * np.pi * (np.arange(count) / DAY + random.random())
    return np.asarray(0.4 * (1 + swing * (np.sin(at) + 0.3 * np.sin(2 * at + 1))) * (1 + 0.01 * random.standard_normal(count)))


@pytest.mark.parametrize("swing", [0.1, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_a_daily_rhythm_is_no_change(swing: float, seed: int) -> None:
    assert level_changes(course(rhythmic(4, swing, seed))) == []


@pytest.mark.parametrize("kept", [0.9, 0.8, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_a_drop_in_a_daily_rhythm_is_found_once_and_measured(kept: float, seed: int) -> None:
    values, at = rhythmic(4, 0.3, seed), int(2.3 * DAY)
    values[at:] *= kept
    whole = course(values)
    (one,) = level_changes(whole)
    assert abs(one.start - int(whole.times[at])) <= 6 * BUCKET
    assert one.ratio == pytest.approx(kept, rel=0.04)


def test_of_less_than_two_days_no_rhythm_is_known() -> None:
    # a night that is lower than the only day before it: nobody can say that it comes back
    values = rhythmic(1.9, 0.5, 0)
    assert level_changes(course(values)) != []


@pytest.mark.parametrize("seed", range(20))
def test_noise_has_no_rhythm(seed: int) -> None:
    random = np.random.default_rng(seed)
    noise = 1 + 0.03 * random.standard_normal(5 * DAY)
    assert daily_rhythm(course(noise), np.ones(len(noise))) is None


def test_a_step_is_no_rhythm() -> None:
    values = np.repeat([1.0, 0.7], 2 * DAY) * (1 + 0.01 * np.random.default_rng(1).standard_normal(4 * DAY))
    (one,) = level_changes(course(values))
    assert one.ratio == pytest.approx(0.7, rel=0.01)
