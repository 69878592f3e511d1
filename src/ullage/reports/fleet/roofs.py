"""Which roof a job is nearest to, and how far it is: tensor pipes, memory, other pipes, links; each over what was measured to be reachable.

A roof whose gauge nobody exports is not known: it is never 0, and a job is put under no roof before tensor pipes and memory are both known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ullage.errors import UllageError
from ullage.field import IDLE
from ullage.gpus.chip import Chip
from ullage.gpus.links import Link, Pcie
from ullage.gpus.measured import Ceilings, ceilings_of
from ullage.metrics.metric import ratio
from ullage.metrics.roofs import roof_distance
from ullage.reports.fleet.rated import Array, Codes, Rated, weighted_means

# name, what people read, its class, and which sums tell it: of several the fullest counts
ROOFS: Final = (
    ("tensor", "tensor pipes", "tensor", ("tensor",)),
    ("memory", "memory", "memory", ("memory",)),
    ("fp64", "FP64 pipe", "other pipe", ("fp64",)),
    ("fp32", "FP32 pipe", "other pipe", ("fp32",)),
    ("fp16", "FP16 pipe", "other pipe", ("fp16",)),
    ("nvlink", "NVLink", "network", ("nvlink_tx", "nvlink_rx")),
    ("pcie", "PCIe", "host", ("pcie_tx", "pcie_rx")),
)
LABELS: Final = {name: label for name, label, _, _ in ROOFS}
CLASSES: Final = ("tensor", "memory", "other pipe", "network", "host")
TENSOR: Final = ("bf16", "fp16")  # whose measured ceiling stands for the tensor pipes: telemetry does not tell the precision
NEAR: Final = 0.5  # a job that reaches half of a roof is bound by it; below, something else holds it back most of the time


@dataclass(frozen=True)
class RoofLevel:
    """How high under one roof: `utilization` of the stated peak and `height` over the measured ceiling, if any GPU's is known.

    `hours` are the GPU-hours in which it was read. None: nobody exports its gauge, or nobody states its peak.
    """

    name: str
    utilization: float | None
    height: float | None
    hours: float
    measured: bool

    @property
    def label(self) -> str:
        """What people call the roof."""
        return LABELS[self.name]


@dataclass(frozen=True)
class RoofHeights:
    """How high a job (or any set of devices) is under each roof."""

    levels: tuple[RoofLevel, ...] = ()

    def level(self, name: str) -> RoofLevel | None:
        """Return the level under one roof, None where it is not known."""
        return next((one for one in self.levels if one.name == name and one.height is not None), None)

    @property
    def nearest(self) -> RoofLevel | None:
        """The roof with the least distance; None before tensor pipes and memory are both known."""
        known = [one for one in self.levels if one.height is not None]
        if not {"tensor", "memory"} <= {one.name for one in known}:
            return None
        return max(known, key=lambda one: one.height or 0.0)

    @property
    def distance(self) -> float | None:
        """How far the nearest roof is: 0 at the roof, 1 at nothing."""
        return None if self.nearest is None or self.nearest.height is None else 1 - self.nearest.height

    @property
    def kind(self) -> str | None:
        """Which class of roof is nearest, one of `CLASSES`."""
        near = self.nearest
        return None if near is None else next(kind for name, _, kind, _ in ROOFS if name == near.name)

    @property
    def bound(self) -> str | None:
        """The class whose roof is within reach; None where the nearest is far, or not known."""
        return self.kind if self.nearest is not None and (self.nearest.height or 0.0) >= NEAR else None

    @property
    def at_rest(self) -> bool:
        """Whether nothing ran: every roof that is known is further than an idle GPU's noise."""
        return self.nearest is not None and (self.nearest.height or 0.0) < IDLE

    @property
    def unknown(self) -> tuple[str, ...]:
        """The roofs that are not known."""
        return tuple(one.name for one in self.levels if one.height is None)


def roofs_of(rated: Rated, codes: Codes, count: int, place: Path | None = None) -> list[RoofHeights]:
    """Return how high each of `count` groups of rows is under each roof; `codes` is each row's group, `place` where ceilings are kept."""
    parts = _parts(rated)
    measured = _reachable(rated.chips, place)
    found: list[list[RoofLevel]] = [[] for _ in range(count)]
    for name, _, _, sources in ROOFS:
        reachable = np.array([measured[chip.name].get(name, np.nan) for chip in rated.chips] + [np.nan])[rated.chip]
        ceiling = np.where(np.isnan(reachable), 1.0, reachable)
        best = _fullest([_means(rated, parts[source], ceiling, codes, count) for source in sources], count)
        known = np.bincount(codes, ~np.isnan(reachable), count) > 0
        for group in range(count):
            utilization, height, hours = (float(values[group]) for values in best)
            level = RoofLevel(name, None, None, 0.0, False)
            if not np.isnan(height):
                level = RoofLevel(name, utilization, height, hours, bool(known[group]))
            found[group].append(level)
    return [RoofHeights(tuple(levels)) for levels in found]


def _means(rated: Rated, part: tuple[Array, Array], ceiling: Array, codes: Codes, count: int) -> tuple[Array, Array, Array]:
    """Return the means over groups of a level over its peak and over its ceiling, and the GPU-hours in which it was read."""
    level, time = part
    heights = 1 - roof_distance(level, ceiling)
    hours = np.bincount(codes, time * rated.weight, count) / 3_600_000
    return (
        weighted_means(level, time, rated.weight, codes, count),
        weighted_means(np.asarray(heights), time, rated.weight, codes, count),
        hours,
    )


def _fullest(sources: Sequence[tuple[Array, Array, Array]], count: int) -> tuple[Array, Array, Array]:
    """Return the fuller of a link's two directions, group by group."""
    heights = np.array([height for _, height, _ in sources])
    best = np.argmax(np.where(np.isnan(heights), -np.inf, heights), axis=0)
    rows = np.arange(count)
    utilization, height, hours = (np.array([source[n] for source in sources])[best, rows] for n in range(3))
    return utilization, height, hours


def _parts(rated: Rated) -> dict[str, tuple[Array, Array]]:
    """Return each row's integral under each roof, over its peak (ms), and over how long it was read (0 where its peak is not known)."""
    clock = _of_chips(rated, [chip.sm_clock or chip.tensor_clock for chip in rated.chips])
    peaks = {"memory": _of_chips(rated, [chip.memory_clock for chip in rated.chips]), **dict.fromkeys(("fp64", "fp32", "fp16"), clock)}
    links: dict[str, Sequence[Link | Pcie | None]]
    links = {"nvlink": [chip.link for chip in rated.chips], "pcie": [chip.pcie for chip in rated.chips]}
    for name, each in links.items():
        rate = _of_chips(rated, [None if link is None else link.per_direction for link in each])
        peaks |= {f"{name}_tx": rate, f"{name}_rx": rate}
    parts = {"tensor": (rated.ofu_part, rated.ofu_time)}
    for name, peak in peaks.items():
        if f"{name}_ms" not in rated.sums.column_names:
            parts[name] = np.zeros(len(rated)), np.zeros(len(rated))
            continue
        level = np.asarray(ratio(np.nan_to_num(rated.column(f"{name}_sum")), peak), dtype=float)
        parts[name] = np.nan_to_num(level), np.where(np.isnan(peak), 0.0, np.nan_to_num(rated.column(f"{name}_ms")))
    return parts


def _of_chips(rated: Rated, values: Sequence[float | None]) -> Array:
    return np.array([np.nan if value is None else value for value in values] + [np.nan])[rated.chip]


def _reachable(chips: Sequence[Chip], place: Path | None) -> Mapping[str, Mapping[str, float]]:
    """Return for each chip the measured ceilings over the stated peaks, by roof; damaged files count as none (`ullage gpus` says so)."""
    found: dict[str, dict[str, float]] = {}
    for chip in chips:
        try:
            ceilings = ceilings_of(chip.name, place=place)
        except UllageError:
            ceilings = None
        found[chip.name] = {} if ceilings is None else dict(_shares(chip, ceilings))
    return found


def _shares(chip: Chip, ceilings: Ceilings) -> Mapping[str, float]:
    shares = {} if ceilings.memory is None else {"memory": ceilings.memory.value / chip.bandwidth}
    for precision in TENSOR:
        peak = ceilings.peak(precision)
        if peak is not None and precision in chip.precisions:
            return {**shares, "tensor": peak.value / chip.peak(precision)}
    return shares
