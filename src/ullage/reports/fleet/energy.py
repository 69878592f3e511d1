"""Where the energy goes: joules of the accelerators, from the energy counter, else from samples of power, with their error.

The boundary is the accelerator board: host, network, cooling and losses of supply are outside, and are not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ullage.metrics.metric import ratio
from ullage.metrics.roofs import flops_per_joule
from ullage.reports.fleet.rated import Array, Codes, Rated
from ullage.sums.ledger import CODES, OWNERS
from ullage.units import HOUR_MS

SENSOR_ERROR: Final = 0.05  # of a steady load, counter and samples alike: arXiv 2312.02741, over 70 GPUs
CONFIDENT: Final = 2.0  # standard errors of the mean of samples: 95 %
KWH: Final = 3.6e6  # J
PRECISIONS: Final = ("bf16", "fp16")  # whose peak FLOPs are counted by


@dataclass(frozen=True)
class Energy:
    """Joules of some devices' time. `joules` is None where no meter said anything; `error` is how far they may be off (95 %).

    `counted` came from the energy counter, `sampled` from samples of power; `metered_hours` are the GPU-hours with either and `dark_hours`
    those without. `idle` is what was spent while held and idle, in `idle_hours`. `flops_per_joule` takes all tensor work for BF16;
    `best` is what the chip would reach at its peak within its power limit.
    """

    joules: float | None = None
    error: float | None = None
    counted: float = 0.0
    sampled: float = 0.0
    metered_hours: float = 0.0
    dark_hours: float = 0.0
    idle: float = 0.0
    idle_hours: float = 0.0
    flops_per_joule: float | None = None
    best: float | None = None

    @property
    def kwh(self) -> float | None:
        """Kilowatt-hours."""
        return None if self.joules is None else self.joules / KWH

    @property
    def error_kwh(self) -> float | None:
        """How far the kilowatt-hours may be off."""
        return None if self.error is None else self.error / KWH

    @property
    def idle_kwh(self) -> float | None:
        """Kilowatt-hours spent while held and idle."""
        return None if self.joules is None else self.idle / KWH

    @property
    def counted_kwh(self) -> float | None:
        """Kilowatt-hours by the energy counter; the others are by samples of power."""
        return None if self.joules is None else self.counted / KWH

    @property
    def power(self) -> float | None:
        """Mean power of a GPU (W) in the time with a meter."""
        return None if self.joules is None or not self.metered_hours else self.joules / (self.metered_hours * 3600)

    @property
    def idle_power(self) -> float | None:
        """Mean power of a GPU (W) while it was held and idle; None where it never was."""
        return self.idle / (self.idle_hours * 3600) if self.idle_hours else None


def energies_of(rated: Rated, codes: Codes, count: int) -> list[Energy]:
    """Return the energy of each of `count` groups of rows; `codes` is each row's group. All of them together are what the meters saw."""
    sums = {name: _column(rated, name) for name in ("energy_ms", "energy_sum", "sampled_ms", "sampled_sum", "span_ms")}
    metered = sums["energy_ms"] + sums["sampled_ms"]
    joules = (sums["energy_sum"] + sums["sampled_sum"]) / 1000 * rated.weight
    idle = (rated.column("owner") == CODES["held_idle"]) if "owner" in rated.sums.column_names else np.zeros(len(rated), np.bool_)

    def total(values: Array) -> Array:
        return np.bincount(codes, values, count).astype(np.float64)

    hours = rated.weight / HOUR_MS
    parts = {
        "joules": total(joules),
        "counted": total(sums["energy_sum"] / 1000 * rated.weight),
        "sampled": total(sums["sampled_sum"] / 1000 * rated.weight),
        "metered_hours": total(metered * hours),
        "dark_hours": total(np.maximum(sums["span_ms"] - metered, 0.0) * hours),
        "idle": total(joules * idle),
        "idle_hours": total(metered * idle * hours),
    }
    deviation = np.sqrt(total(_sampling_variance(rated, sums)))
    worked = _flops_per_joule(rated, total, parts)
    return [_energy({name: float(values[n]) for name, values in (parts | worked).items()}, float(deviation[n])) for n in range(count)]


def _energy(parts: Mapping[str, float], deviation: float) -> Energy:
    known = parts["metered_hours"] > 0
    return Energy(
        joules=parts["joules"] if known else None,
        error=SENSOR_ERROR * parts["joules"] + CONFIDENT * deviation if known else None,
        flops_per_joule=None if np.isnan(parts["flops_per_joule"]) else parts["flops_per_joule"],
        best=None if np.isnan(parts["best"]) else parts["best"],
        **{name: parts[name] for name in ("counted", "sampled", "metered_hours", "dark_hours", "idle", "idle_hours")},
    )


def _column(rated: Rated, name: str) -> Array:
    if name not in rated.sums.column_names:
        return np.zeros(len(rated))
    return np.nan_to_num(rated.column(name))


def _sampling_variance(rated: Rated, sums: Mapping[str, Array]) -> Array:
    """Return the variance (J²) of each row's sampled energy: that of a mean of so many samples, spread as they are."""
    time = sums["sampled_ms"]
    mean = np.nan_to_num(np.asarray(ratio(sums["sampled_sum"], time), dtype=float))
    spread = np.maximum(np.nan_to_num(np.asarray(ratio(_column(rated, "sampled_squares"), time), dtype=float)) - mean**2, 0.0)
    share = np.nan_to_num(np.asarray(ratio(time, sums["span_ms"]), dtype=float))
    samples = np.maximum(_column(rated, "rows") * share, 1.0)
    variance: Array = spread * (time / 1000 * rated.weight) ** 2 / samples
    return variance


def _flops_per_joule(rated: Rated, total: Callable[[Array], Array], parts: Mapping[str, Array]) -> dict[str, Array]:
    peaks = [next((chip.peak(p) for p in PRECISIONS if p in chip.precisions), np.nan) for chip in rated.chips]
    peak, limit = (np.array([*values, np.nan])[rated.chip] for values in (peaks, [chip.power for chip in rated.chips]))
    time = np.where(np.isnan(peak), 0.0, rated.ofu_time * rated.weight)
    done = total(np.nan_to_num(rated.ofu_part * rated.weight * peak))
    rate = ratio(done, total(time))
    power = ratio(parts["joules"], parts["metered_hours"] * 3600)
    possible = ratio(total(np.nan_to_num(time * peak)), total(np.nan_to_num(time * limit)))
    return {"flops_per_joule": np.asarray(flops_per_joule(1.0, rate, power)), "best": np.asarray(possible)}


def energy_ledger(rated: Rated) -> dict[str, Energy]:
    """Return the energy of each owner of the ledger; they add up to what the meters saw."""
    whose = rated.column("owner").astype(np.int64)
    return dict(zip(OWNERS, energies_of(rated, whose, len(OWNERS)), strict=True))
