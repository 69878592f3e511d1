"""Device sums beside what each device can do: the one place where telemetry meets the table of GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.errors import UllageError
from ullage.gpus.chip import Chip, find
from ullage.gpus.mig import mig_share
from ullage.metrics.metric import ratio
from ullage.metrics.ofu import counted_units, exact_ofu, mean_sm_clock
from ullage.metrics.telemetry import Tree, tree

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rated:
    """Rows of device sums (one per device and job, or device and bucket) with what is needed to divide them.

    `weight` is the share of a whole GPU that the row's device is (below 1 for a MIG instance); `ofu_part` over `ofu_time`
    is the row's OFU, both in ms; `exact` says that cycle counters gave it; `chip` is the index into `chips`, -1 when the
    device is not known.
    """

    sums: pa.Table
    weight: Array
    chip: npt.NDArray[np.int64]
    chips: tuple[Chip, ...]
    exact: npt.NDArray[np.bool_]
    ofu_part: Array
    ofu_time: Array
    tensor_part: Array
    tensor_time: Array
    unknown_models: dict[str, float]
    model: str | None

    def __len__(self) -> int:
        return len(self.sums)

    def column(self, name: str) -> Array:
        """Return a column of the sums as floats, missing as NaN."""
        return np.asarray(self.sums[name].to_numpy(zero_copy_only=False), dtype=float)

    def words(self, name: str) -> list[str | None]:
        """Return a column of names."""
        return list(self.sums[name].to_pylist())

    def take(self, rows: npt.NDArray[np.bool_]) -> Rated:
        """Return only the chosen rows."""
        picked = {
            name: getattr(self, name)[rows] for name in ("weight", "chip", "exact", "ofu_part", "ofu_time", "tensor_part", "tensor_time")
        }
        return replace(self, sums=self.sums.filter(pa.array(rows)), **picked)


def rate(sums: pa.Table, model: str | None = None) -> Rated:
    """Return device sums with chip, weight and OFU parts. `model` names the GPU where the samples don't.

    A model that Ullage does not know keeps its rows, without OFU: `unknown_models` has its GPU-hours.
    """
    chips, codes, unknown = _chips(sums, model)
    clock = np.array([c.tensor_clock for c in chips] + [np.nan])[codes]
    sms = np.array([float(c.sms) for c in chips] + [np.nan])[codes]
    ceiling = np.array([c.sm_clock or c.tensor_clock for c in chips] + [np.nan])[codes]
    weight = np.array(
        [
            mig_share(mig, chips[code] if code >= 0 else None) if mig else 1.0
            for mig, code in zip(sums["mig"].to_pylist(), codes, strict=True)
        ]
    )
    column = {
        name: np.asarray(sums[name].to_numpy(zero_copy_only=False), dtype=float)
        for name in sums.column_names
        if name.endswith(("_ms", "_sum", "_cycles"))
    }
    seconds = column["cycles_ms"] / 1000
    units = counted_units(ratio(column["sm_cycles"], seconds), ceiling, sms)
    # counters need a reading before: of a short watch (four readings), a quarter of the time has none
    exact = (column["cycles_ms"] >= 0.7 * np.maximum(column["ofu_ms"], 1)) & (column["cycles_ms"] >= 0.5 * column["span_ms"])
    by_cycles = exact_ofu(column["tensor_cycles"], seconds, clock, units) * column["cycles_ms"]
    has_gauge = column["tensor_active_ms"] > 0
    by_gauge = exact & ~has_gauge
    return Rated(
        sums=sums,
        weight=weight,
        chip=codes,
        chips=tuple(chips),
        exact=exact,
        ofu_part=np.where(exact, by_cycles, column["ofu_sum"] / clock),
        ofu_time=np.where(np.isnan(clock), 0.0, np.where(exact, column["cycles_ms"], column["ofu_ms"])),
        tensor_part=np.where(
            by_gauge,
            column["cycles_ms"] * ratio(column["tensor_cycles"], column["sm_cycles"]),
            np.where(exact, column["tensor_active_sum"], column["ofu_tensor_sum"]),
        ),
        tensor_time=np.where(by_gauge, column["cycles_ms"], np.where(exact, column["tensor_active_ms"], column["ofu_ms"])),
        unknown_models=unknown,
        model=model,
    )


def mean_clock(rated: Rated) -> Array:
    """Return each row's true mean SM clock in Hz from its elapsed-cycle counter; NaN where there is none."""
    ceiling = np.array([c.sm_clock or c.tensor_clock for c in rated.chips] + [np.nan])[rated.chip]
    sms = np.array([float(c.sms) for c in rated.chips] + [np.nan])[rated.chip]
    cycles, seconds = rated.column("sm_cycles"), rated.column("cycles_ms") / 1000
    result: Array = mean_sm_clock(cycles, seconds, counted_units(ratio(cycles, seconds), ceiling, sms))
    return result


def _chips(sums: pa.Table, model: str | None) -> tuple[list[Chip], npt.NDArray[np.int64], dict[str, float]]:
    names = [name or model for name in sums["model"].to_pylist()]
    found: dict[str | None, int] = {}
    chips: list[Chip] = []
    unknown: dict[str, float] = {}
    for name in dict.fromkeys(names):
        try:
            chip = find(name) if name else None
        except UllageError:
            chip = None
        if chip is not None and chip not in chips:
            chips.append(chip)
        found[name] = -1 if chip is None else chips.index(chip)
    for name, span in zip(names, sums["span_ms"].to_pylist(), strict=True):
        if found[name] < 0:
            unknown[name or ""] = unknown.get(name or "", 0.0) + span / 3_600_000
    return chips, np.array([found[name] for name in names], dtype=np.int64), unknown


def weighted_mean(part: Array, time: Array, weight: Array) -> float | None:
    """Return Σ part·weight / Σ time·weight over rows where time is known, or None when there is no such time."""
    return _known(float(_means(part, time, weight, np.zeros(len(part), np.int64), 1)[0]))


def trees(rated: Rated, codes: npt.NDArray[np.int64], count: int) -> list[Tree]:
    """Return a telemetry tree for each of `count` groups; `codes` is each row's group, and a row is one device of it."""
    gauges = {
        "tensor": (rated.tensor_part, rated.tensor_time),
        "sm": (rated.column("sm_active_sum"), rated.column("sm_active_ms")),
        "gr": (rated.column("gr_active_sum"), rated.column("gr_active_ms")),
    }
    mean = {name: _means(part, time, rated.weight, codes, count) for name, (part, time) in gauges.items()}
    most = {name: _most(ratio(part, time), codes, count) for name, (part, time) in gauges.items()}
    ofu = _means(rated.ofu_part, rated.ofu_time, rated.weight, codes, count)
    return [
        tree(
            ofu=_known(ofu[group]),
            tensor=_known(mean["tensor"][group]),
            tensor_max=_known(most["tensor"][group]),
            sm=_known(mean["sm"][group]),
            sm_max=_known(most["sm"][group]),
            gr=_known(mean["gr"][group]),
            gr_max=_known(most["gr"][group]),
        )
        for group in range(count)
    ]


def tree_of(rated: Rated) -> Tree:
    """Return the telemetry tree of all rows together, each row one device."""
    return trees(rated, np.zeros(len(rated), np.int64), 1)[0]


def _means(part: Array, time: Array, weight: Array, codes: npt.NDArray[np.int64], count: int) -> Array:
    rows = (time > 0) & ~np.isnan(part)
    top = np.bincount(codes[rows], (part * weight)[rows], count)
    result: Array = ratio(top, np.bincount(codes[rows], (time * weight)[rows], count))
    return result


def _most(own: Array, codes: npt.NDArray[np.int64], count: int) -> Array:
    most = np.full(count, -np.inf)
    rows = ~np.isnan(own)
    np.maximum.at(most, codes[rows], own[rows])
    return np.where(np.isinf(most), np.nan, most)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
