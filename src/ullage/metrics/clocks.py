"""What sampling the clock costs: the error of OFU from coarser scrape intervals (OFU paper, section IV-C, table I)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


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


@dataclass(frozen=True)
class Beat:
    """A periodic component of a clock series: its period in samples, its share of the variance, and chance's odds."""

    period: float
    share: float
    odds: float


def beat(series: npt.NDArray[np.float64]) -> Beat | None:
    """Return the strongest line in the spectrum of an evenly sampled clock series, or None for a short or flat one.

    When the scrape interval nearly divides a job's step time, clock samples walk slowly through the step and the series
    shows a line that no thermal drift has. `share` is the line's part of the variance above slow drift; `odds` is the
    chance that white noise shows as strong a line (Fisher's g test, first term).

    >>> rng = np.random.default_rng(0)
    >>> wave = np.sin(np.arange(512) * 2 * np.pi / 16) + 0.1 * rng.normal(size=512)
    >>> found = beat(wave); round(found.period), found.share > 0.9
    (16, True)
    """
    values = series[~np.isnan(series)]
    if len(values) < 64 or float(values.std()) < 1e-3 * abs(float(values.mean())):
        return None
    trend = np.polynomial.Polynomial.fit(np.arange(len(values)), values, 2)(np.arange(len(values)))
    power = np.abs(np.fft.rfft((values - trend) * np.hanning(len(values)))) ** 2
    power[:4] = 0.0  # slower than a quarter of the window is drift, not a beat
    total = float(power.sum())
    peak = int(power.argmax())
    if total == 0.0 or peak == 0:
        return None
    line = float(power[max(0, peak - 2) : peak + 3].sum()) / total
    odds = min(1.0, len(power) * (1 - float(power[peak]) / total) ** (len(power) - 1))
    return Beat(len(values) / peak, line, odds)
