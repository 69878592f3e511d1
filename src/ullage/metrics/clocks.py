"""What sampling the clock costs: the error of OFU from coarser scrape intervals (OFU paper, section IV-C, table I)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.metrics.metric import Value


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
