"""The daily rhythm of a course: what each time of day does again and again, which is no change."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ullage.courses.course import Array, TimeCourse
from ullage.units import HOUR_MS

DAY_MS = 24 * HOUR_MS
BIN_MS = HOUR_MS // 2  # of the day
LEAST_DAYS = 2  # of a course: of less nobody can say what comes back
SMOOTH = 3  # bins over which a time of day is averaged
EXPLAINS = 0.7  # of what is left beside other days over what there is beside the mean: a day tells of the next one, or it is no rhythm


def daily_rhythm(course: TimeCourse, levels: Array) -> Array | None:
    """Return by how many times each known value is raised by its time of day (around 1); None where days are not alike.

    `levels` are those of the known values without the rhythm.

    >>> times = np.arange(96) * HOUR_MS
    >>> values = 10 + np.sin(2 * np.pi * np.arange(96) / 24)
    >>> bool(np.ptp(values / daily_rhythm(TimeCourse(HOUR_MS, times, values, np.ones(96)), np.full(96, 10.0))) < 0.5)
    True
    """
    times, values = course.times[course.known], course.values[course.known]
    if len(times) < 2 or times[-1] - times[0] + course.bucket_ms < LEAST_DAYS * DAY_MS:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        beside = np.where(levels > 0, values / levels, np.nan)
    bins, days = times % DAY_MS // BIN_MS, (times - times[0]) // DAY_MS
    by_day = _binned_means(beside, days, bins)
    left, there = [], []
    for day in range(len(by_day)):
        expected = _profile(np.delete(by_day, day, axis=0))
        known = np.isfinite(expected) & np.isfinite(by_day[day])
        left.append(np.abs(by_day[day] - expected)[known])
        there.append(np.abs(by_day[day] - 1)[known])
    if not sum(map(len, left)) or np.concatenate(left).mean() >= EXPLAINS * np.concatenate(there).mean():
        return None
    profile = _profile(by_day)
    profile = np.where(np.isfinite(profile) & (profile > 0), profile, 1.0)
    between = np.interp(
        (times % DAY_MS) / BIN_MS, np.arange(-1, len(profile) + 1) + 0.5, np.concatenate([profile[-1:], profile, profile[:1]])
    )
    return np.asarray(between / profile.mean())


def day_means(course: TimeCourse) -> Array:
    """Return the mean of the day around each known value; at the ends that of the first and of the last whole day."""
    times, values = course.times[course.known], course.values[course.known]
    sums = np.concatenate([[0.0], np.cumsum(values)])
    middles = np.clip(times, times[0] + DAY_MS // 2, times[-1] - DAY_MS // 2)
    first, last = np.searchsorted(times, middles - DAY_MS // 2), np.searchsorted(times, middles + DAY_MS // 2)
    return np.asarray((sums[last] - sums[first]) / np.maximum(last - first, 1))


def _binned_means(values: Array, days: npt.NDArray[np.int64], bins: npt.NDArray[np.int64]) -> Array:
    shape = (int(days.max()) + 1, DAY_MS // BIN_MS)
    known = np.isfinite(values)
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (days[known], bins[known]), values[known])
    np.add.at(counts, (days[known], bins[known]), 1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _profile(by_day: Array) -> Array:
    """Return the middle of the days for each time of day, smoothed around the clock; NaN where no day tells."""
    known = np.sort(by_day, axis=0)
    counts = np.isfinite(by_day).sum(axis=0)
    places = np.arange(by_day.shape[1])
    middle = (known[np.maximum((counts - 1) // 2, 0), places] + known[np.minimum(counts // 2, len(known) - 1), places]) / 2
    around = np.stack([np.roll(middle, shift) for shift in range(-(SMOOTH // 2), SMOOTH // 2 + 1)])
    told = np.isfinite(around)
    return np.where(told.any(axis=0), np.where(told, around, 0).sum(axis=0) / np.maximum(told.sum(axis=0), 1), np.nan)
