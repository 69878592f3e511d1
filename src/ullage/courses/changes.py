"""Changes of level in one time course: those that noise does not make, large enough to matter, each with how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ullage.courses.course import Array, TimeCourse
from ullage.courses.rhythm import DAY_MS, LEAST_DAYS, daily_rhythm, day_means
from ullage.errors import UllageError

LEAST_LENGTH = 5  # buckets of a level: shorter ones are pauses
LEAST_CHANGE = 0.05  # of the level: less is what a fleet does by itself (steps that beat with scrapes, clocks)
PENALTY = 3.0  # times the logarithm of the number of places where a change could be, in squares of the noise
LEAST_PLACES = 1440  # a day of minutes: a short course is one of the many that are looked at
STILL = 0.005  # of the level: no gauge is finer than this over a bucket, so that a series that stands still is not without noise
WENT_AWAY = 15  # buckets: what is over sooner was a pause (a checkpoint, an evaluation)
RAMP = 60  # buckets between two changes in one direction that are one slope
SAME = 0.5  # of the change: a level this near to the one before is that level again
REFINED = 3  # times that a rhythm is estimated beside the levels found without it
NOTHING = 1e-3  # below this part of the level around it a level counts as nothing
NORMAL = 1.4826  # the standard deviation of a normal series over its median absolute deviation
BLOCKS = (1, 2, 4, 8, 16)  # lengths over which values are averaged: noise with a memory does not average out as fast
LEAST_BLOCKS = 16  # differences of fewer say little of a spread


@dataclass(frozen=True)
class LevelChange:
    """A change of level: it starts at `start` and is whole at `settled` (ms; both are the same for a step); from `before` to `after`.

    `error` is the standard error of their difference. `until` (ms) is when the level before came back; None: it has not.
    """

    start: int
    settled: int
    before: float
    after: float
    error: float
    until: int | None = None

    @property
    def ratio(self) -> float:
        """The level after over that before."""
        return self.after / self.before if self.before else math.inf

    @property
    def deviations(self) -> float:
        """How many standard errors the difference is."""
        return abs(self.after - self.before) / self.error if self.error > 0 else math.inf

    @property
    def bounds(self) -> tuple[float, float]:
        """The difference, less and more two standard errors."""
        difference = self.after - self.before
        return difference - 2 * self.error, difference + 2 * self.error


def level_changes(course: TimeCourse, least_change: float = LEAST_CHANGE) -> list[LevelChange]:
    """Return where the level of a course changed by at least a part of itself, in order of time; raises UllageError without ruptures.

    A daily rhythm is no change: where days are alike, levels are those without it.
    """
    values = course.values[course.known]
    if len(values) < 2 * LEAST_LENGTH:
        return []
    values, ends, noise = _without_rhythm(course, values, least_change)
    return _without_pauses(course, _changes_between(course, values, ends, noise), least_change) if noise > 0 else []


def _without_rhythm(course: TimeCourse, values: Array, least_change: float) -> tuple[Array, list[int], float]:
    """Return the known values without their daily rhythm, if they have one, where their levels end, and their noise."""
    if len(values) * course.bucket_ms < LEAST_DAYS * DAY_MS:
        return values, *_level_ends(values, least_change)
    # two ways to begin, as neither a rhythm nor a change is known: the mean of the day around each value, which a change blurs, and levels
    # of a day or longer, which a strong rhythm cuts; what leaves fewer levels explains more
    long_levels = _levels(values, _level_ends(values, least_change, DAY_MS // course.bucket_ms)[0])
    found = [_flattened(course, values, levels, least_change) for levels in (day_means(course), long_levels)]
    flat = min(found, key=lambda one: len(one[1]))[0]
    return flat, *_level_ends(flat, least_change)


def _flattened(course: TimeCourse, values: Array, levels: Array, least_change: float) -> tuple[Array, list[int]]:
    """Return the values without the rhythm that they have beside levels, and where their levels end: these tell the rhythm again."""
    flat, ends = values, _level_ends(values, least_change)[0]
    for _ in range(REFINED):
        rhythm = daily_rhythm(course, levels)
        if rhythm is None:
            break
        flat = values / rhythm
        ends = _level_ends(flat, least_change)[0]
        levels = _levels(flat, ends)
    return flat, ends


def _level_ends(values: Array, least_change: float, least_length: int = LEAST_LENGTH) -> tuple[list[int], float]:
    """Return where levels end, and the noise about them (0: the series stands still)."""
    noise = max(noise_of(values), STILL * float(np.median(np.abs(values))))
    if noise <= 0:
        return [len(values)], 0.0
    penalty = PENALTY * math.log(max(len(values), LEAST_PLACES))
    return _worth_telling(values, segment_ends(values / noise, penalty, least_length), least_change), noise


def _levels(values: Array, ends: Sequence[int]) -> Array:
    return np.concatenate([np.full(last - first, values[first:last].mean()) for first, last in pairwise([0, *ends])])


def noise_of(values: Array) -> float:
    """Return the standard deviation that white noise with the same spread of long means would have; 0 for a series that stands still.

    It is estimated from differences of neighbours, so that neither a step nor a slope counts for noise; and from differences of means of
    neighbouring blocks, of which the noisiest counts, so that noise with a memory is not taken for less than it is.

    >>> step = np.repeat([0.0, 100.0], 500) + np.random.default_rng(1).normal(0, 2, 1000)
    >>> 1.8 < noise_of(step) < 2.6
    True
    """
    found = 0.0
    for length in BLOCKS:
        blocks = len(values) // length
        if blocks < LEAST_BLOCKS and length > 1:
            break
        means = values[: blocks * length].reshape(blocks, length).mean(axis=1)
        steps = np.diff(means)
        if len(steps):
            found = max(found, NORMAL * float(np.median(np.abs(steps - np.median(steps)))) * float(np.sqrt(length / 2)))
    return found


def segment_ends(values: Array, penalty: float, least: int) -> list[int]:
    """Return where the segments of a series end (the last one at its length): those whose squares and penalties add up to least.

    A segmentation costs the squared deviations of all values from the means of their segments, and `penalty` for each segment but one;
    a segment has at least so many values. The library's pruning does not mind that: very rarely another segmentation costs a little
    less. Raises UllageError where ruptures is not installed.

    >>> segment_ends(np.repeat([1.0, 5.0], 10), penalty=3.0, least=3)
    [10, 20]
    """
    if len(values) < 2 * least:
        return [len(values)]
    try:
        from ruptures import KernelCPD
    except ImportError as error:
        raise UllageError("the search for changes needs ruptures", "pip install 'ullage[watch]'") from error
    # around its middle: the library adds up squares, which must not swallow what they differ by
    centred = (values - np.median(values)).reshape(-1, 1)
    return [int(end) for end in KernelCPD(kernel="linear", min_size=least).fit(centred).predict(pen=penalty)]


def logarithm(after: float, before: float) -> float:
    """Return the logarithm of a ratio of two levels, neither of which is less than nearly nothing of the other.

    >>> logarithm(2.0, 1.0) == -logarithm(1.0, 2.0), logarithm(0.0, 1.0) > -7
    (True, True)
    """
    least = NOTHING * max(abs(after), abs(before))
    return math.log(max(after, least) / max(before, least)) if least > 0 else 0.0


def _worth_telling(values: Array, ends: Sequence[int], least_change: float) -> list[int]:
    """Return the ends of segments that remain when neighbours are joined, the most alike first, until all differ by enough."""
    edges, least = [0, *ends], -math.log(1 - least_change)
    while len(edges) > 2:
        means = [float(values[a:b].mean()) for a, b in pairwise(edges)]
        apart = [abs(logarithm(after, before)) for before, after in pairwise(means)]
        weakest = int(np.argmin(apart))
        if apart[weakest] >= least:
            break
        del edges[weakest + 1]
    return edges[1:]


def _changes_between(course: TimeCourse, values: Array, ends: Sequence[int], noise: float) -> list[LevelChange]:
    edges, times = [0, *ends], course.times[course.known]
    found: list[LevelChange] = []
    for first, middle, last in zip(edges, edges[1:], edges[2:], strict=False):
        before, after = values[first:middle], values[middle:last]
        at, error = int(times[middle]), noise * math.sqrt(1 / len(before) + 1 / len(after))
        one = LevelChange(at, at, float(before.mean()), float(after.mean()), error)
        if found and (_one_slope(found[-1], one, course.bucket_ms) or _is_overshoot(found[-1], one, course.bucket_ms)):
            found[-1] = replace(found[-1], settled=at, after=one.after, error=max(found[-1].error, error))
        else:
            found.append(one)
    return found


def _one_slope(one: LevelChange, following: LevelChange, bucket_ms: int) -> bool:
    near = following.start - one.settled <= RAMP * bucket_ms
    return near and (one.after > one.before) == (following.after > following.before)


def _is_overshoot(one: LevelChange, following: LevelChange, bucket_ms: int) -> bool:
    """Return whether a level that is soon left again was the first of a change, which went a little too far."""
    soon = following.start - one.settled < WENT_AWAY * bucket_ms
    return soon and abs(logarithm(following.after, following.before)) < SAME * abs(logarithm(one.after, one.before))


def _without_pauses(course: TimeCourse, changes: Sequence[LevelChange], least_change: float) -> list[LevelChange]:
    """Return the changes; one whose level before comes back ends there, and the way back is no change; what is soon over is a pause."""
    found: list[LevelChange] = []
    left = list(changes)
    while left:
        one = left.pop(0)
        back = next((number for number, later in enumerate(left) if _comes_back(one, later, least_change)), None)
        if back is not None and all(_on_the_same_side(one, other) for other in left[:back]):
            one = replace(one, until=left[back].start)
            del left[: back + 1]
        if one.until is None or one.until - one.start >= WENT_AWAY * course.bucket_ms:
            found.append(one)
    return found


def _comes_back(one: LevelChange, later: LevelChange, least_change: float) -> bool:
    allowed = max(-math.log(1 - least_change), SAME * abs(logarithm(one.after, one.before)))
    return abs(logarithm(later.after, one.before)) < allowed


def _on_the_same_side(one: LevelChange, other: LevelChange) -> bool:
    """Return whether a later level lies on the same side of the first."""
    return (other.after > one.before) == (one.after > one.before)
