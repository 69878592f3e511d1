"""What sampling the clock costs: the error of OFU from coarser scrape intervals (OFU paper, section IV-C, table I)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.metrics.metric import Value

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SamplingNoise:
    """The deviation of a subsampled mean from the full mean, over every phase, in the unit of the series.

    `mean_deviation` is the mean of |subsampled mean − full mean|; `bound` the value that 95 % of the phases stay below.
    """

    interval: float
    phases: int
    mean_deviation: float
    bound: float


def sampling_noise(series: npt.NDArray[np.float64], interval: float, every: int) -> SamplingNoise:
    """Return what taking only each `every`-th sample does to the mean of a series, over all `every` phases.

    `series` is evenly spaced, `interval` seconds apart, missing as NaN. Source: OFU paper, table I.

    A series that alternates between 0 and 1 has mean 0.5; every second sample sees only zeros or only ones:

    >>> sampling_noise(np.array([0.0, 1.0] * 10), interval=1.0, every=2)
    SamplingNoise(interval=2.0, phases=2, mean_deviation=0.5, bound=0.5)
    """
    full = float(np.nanmean(series))
    means = np.array([np.nanmean(series[phase::every]) for phase in range(every)])
    deviation = np.abs(means - full)
    return SamplingNoise(interval * every, every, float(deviation.mean()), float(np.quantile(deviation, 0.95)))


def sampled_ofu_bounds(
    tensor_sum: npt.NDArray[np.float64],
    time: npt.NDArray[np.float64],
    lowest: npt.NDArray[np.float64],
    highest: npt.NDArray[np.float64],
    tensor_clock: float,
) -> tuple[Value, Value]:
    """Return the least and the most that OFU can be where clock and activity move together within a scrape.

    Arrays are [levels], or [devices, levels] for the bounds of each device. An entry is a level of activity: `tensor_sum` is tensor
    activity x time at that level, `time` how long, `lowest` and `highest` the clocks seen there (Hz). Activity is a mean over the scrape
    and the clock a sample at one instant, so their product is right only where they move independently; TPA x lowest / tensor clock and
    TPA x highest / tensor clock are its bounds. They rest on the clocks that were *seen*: a scrape that always meets the same phase sees
    one clock, and its bounds are too narrow. Cycle counters have no such bias.
    Source: Ullage equations, section 6.

    Half the time at activity 0.6 and clocks from 1.2 to 1.8 GHz, half at rest; tensor clock 1.5 GHz: 0.3 x 0.8 and 0.3 x 1.2.

    >>> half, clocks = np.array([0.0, 0.6]), np.array([[1.8, 1.2], [1.8, 1.8]])
    >>> [round(float(bound), 6) for bound in sampled_ofu_bounds(half, np.array([1.0, 1.0]), *clocks, 1.5)]
    [0.24, 0.36]
    """
    total = time.sum(axis=-1) * tensor_clock
    return (tensor_sum * lowest).sum(axis=-1) / total, (tensor_sum * highest).sum(axis=-1) / total


LEVELS = 10  # of activity: tenths; the last one, beyond them, is activity of exactly 1


def clock_hulls(lowest: Array, highest: Array) -> tuple[Array, Array]:
    """Return the least and the most that a mean of activity × clock can be, at mean activities 0, 0.1, … 1: [devices, 11] each.

    `lowest` and `highest` are the clocks seen at each level of activity, [devices, 11] (0 to 0.1, 0.1 to 0.2, …, exactly 1), NaN where no
    sample lies. Any samples of a device, whichever they are, have a mean (activity, activity × clock) in the convex hull of what its levels
    allow; between these activities its edges are straight. NaN: no samples can have such a mean. In the unit of the clocks.
    Source: Ullage equations, section 6, for a part of a device's samples.

    Samples below 0.1 at clocks of 1 to 2, and from 0.9 to 1 at 1.5. Five ninths of the time at 0.1 and the rest at 1 has a mean of 0.5:
    (5 × 0.1 × 1 + 4 × 1.5) / 9 is the least that activity × clock can be, (5 × 0.1 × 2 + 4 × 1.5) / 9 the most.

    >>> clocks = np.full((2, 1, 11), np.nan); clocks[:, 0, 0] = 1.0, 2.0; clocks[:, 0, 9] = 1.5
    >>> [round(float(edge[0, 5]), 4) for edge in clock_hulls(*clocks)]
    [0.7222, 0.7778]
    """
    nodes = np.arange(LEVELS + 1) / LEVELS
    below = (
        np.concatenate([np.full((len(lowest), 1), np.nan), lowest[:, :-1]], axis=1),
        np.concatenate([np.full((len(highest), 1), np.nan), highest[:, :-1]], axis=1),
    )
    least, most = nodes * np.fmin(lowest, below[0]), nodes * np.fmax(highest, below[1])
    return _convex(least, np.fmin), _convex(most, np.fmax)


def _convex(points: Array, better: Callable[[Array, Array], Array]) -> Array:
    """Return the hull of points over evenly spaced places, at those places: the best of all chords that pass over each."""
    found = points.copy()
    for left in range(points.shape[1]):
        for right in range(left + 2, points.shape[1]):
            share = np.arange(1, right - left) / (right - left)
            chord = points[:, [left]] * (1 - share) + points[:, [right]] * share
            found[:, left + 1 : right] = better(found[:, left + 1 : right], chord)
    return found


def along_hull(hulls: Array, activity: Array) -> Array:
    """Return the edge of each row's hull ([rows, 11]) at its mean activity; NaN where no samples can have that mean.

    >>> along_hull(np.array([[0.0, 0.1] + 9 * [np.nan]]), np.array([0.05])).tolist()
    [0.05]
    """
    place = np.clip(np.asarray(activity) * LEVELS, 0, LEVELS)
    low = np.minimum(place.astype(np.int64), LEVELS - 1)
    share, rows = place - low, np.arange(len(hulls))
    begin, end = hulls[rows, low], hulls[rows, low + 1]
    inside: Array = np.where(share == 0, begin, np.where(share == 1, end, begin * (1 - share) + end * share))
    return inside
