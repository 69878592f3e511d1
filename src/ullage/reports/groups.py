"""Rows of a report: device sums gathered by job, user, host, hour …, each with its OFU and tree."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.gpus.chip import find
from ullage.gpus.mig import mig_share
from ullage.metrics.metric import ratio
from ullage.metrics.telemetry import Tree
from ullage.reports.rated import Rated, rate, trees, weighted_mean
from ullage.sums.grouping import collapse
from ullage.units import HOUR_MS

Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """One row of the answer: a job, a user, a host, an hour …, with its OFU, its GPU-hours and what it falls short by.

    `ofu` and `tree` are over trusted series; `gpu_hours`, `gpus` and `cost` over all of them.
    """

    key: str
    ofu: float | None
    method: str
    gpus: int
    gpu_hours: float
    trusted_share: float
    tree: Tree
    cost: float | None

    @property
    def ullage(self) -> float | None:
        """GPU-hours short of full."""
        return None if self.ofu is None else self.gpu_hours * (1 - self.ofu)


def groups_of(rated: Rated, trusted: Mask, by: str, prices: Mapping[str, float]) -> list[Group]:
    """Return a group per value of the column `by`, the most GPU-hours short of full first; `trusted` says which rows count for OFU."""
    if by not in ("job", "bucket"):  # a device counts once in a group, whatever it ran
        keys = ["gpu", "mig"] if by == "gpu" else ["gpu", "mig", by]
        devices = rate(collapse(rated.sums, keys), rated.model)
        believed = {gpu for gpu, good in zip(rated.words("gpu"), trusted, strict=True) if good}
        trusted = np.array([gpu in believed for gpu in devices.words("gpu")], dtype=np.bool_)
        rated = devices
    names = rated.sums[by].to_pylist()
    keys_found = sorted(set(names), key=lambda name: _label(name, by))
    place = {key: code for code, key in enumerate(keys_found)}
    codes = np.array([place[name] for name in names], dtype=np.int64)
    found = _groups(rated, trusted, codes, [_label(name, by) for name in keys_found], prices_of(rated, prices))
    return found if by == "bucket" else sorted(found, key=lambda g: (-(g.ullage if g.ullage is not None else -1.0), g.key))


def _label(name: object, by: str) -> str:
    if by == "bucket":
        return datetime.datetime.fromtimestamp(int(str(name)) / 1000, datetime.UTC).strftime("%Y-%m-%d %H:00")
    return f"no {by}" if name is None else harmless(str(name))


def _groups(rated: Rated, trusted: Mask, codes: Codes, keys: Sequence[str], prices: Array) -> list[Group]:
    count = len(keys)
    good = rated.take(trusted)
    hours = rated.column("span_ms") * rated.weight / HOUR_MS
    whole, believed = np.bincount(codes, hours, count), np.bincount(codes[trusted], hours[trusted], count)
    spent = np.bincount(codes, hours * prices, count)
    devices = [set[tuple[str | None, str | None]]() for _ in keys]
    for code, gpu, mig in zip(codes, rated.words("gpu"), rated.words("mig"), strict=True):
        devices[code].add((gpu, mig))
    counted = np.bincount(codes[trusted], good.ofu_time * good.weight, count)
    exact = np.bincount(codes[trusted], good.ofu_time * good.weight * good.exact, count)
    return [
        Group(
            key=key,
            ofu=tree.ofu,
            method="exact" if counted[code] and exact[code] > 0.999 * counted[code] else "sampled",
            gpus=len(devices[code]),
            gpu_hours=float(whole[code]),
            trusted_share=float(ratio(believed[code], whole[code]) or 0.0),
            tree=tree,
            cost=None if np.isnan(spent[code]) else float(spent[code]),
        )
        for code, (key, tree) in enumerate(zip(keys, trees(good, codes[trusted], count), strict=True))
    ]


def gpu_hours(rated: Rated) -> float:
    """Return the observed GPU-hours of some rows; a MIG instance counts its share."""
    return float((rated.column("span_ms") * rated.weight).sum()) / HOUR_MS


def gauge(rated: Rated, name: str) -> float | None:
    """Return the mean of a gauge over the time in which it was known, or None."""
    return weighted_mean(rated.column(f"{name}_sum"), rated.column(f"{name}_ms"), rated.weight)


def exact_share(rated: Rated) -> float:
    """Return the share of OFU's time that cycle counters gave."""
    time = rated.ofu_time * rated.weight
    return float(ratio(float(time[rated.exact].sum()), float(time.sum())) or 0.0)


def prices_of(rated: Rated, prices: Mapping[str, float]) -> Array:
    """Return each row's price per GPU-hour; NaN where none was given. `prices` is by GPU name, "" for every other."""
    fallback = prices.get("", np.nan)
    named = {find(name).name: price for name, price in prices.items() if name}
    per_chip = np.array([named.get(chip.name, fallback) for chip in rated.chips] + [fallback])
    return per_chip[rated.chip]


def whole_or_sliced(sums: pa.Table, notes: list[str]) -> pa.Table:
    """Return the sums without the whole-GPU rows of GPUs whose MIG instances report too: their time must not count twice.

    Instances whose share of the GPU nobody knows can't be added to the others, and are left out with a note.
    """
    sums = _measurable(sums, notes)
    devices = list(zip(sums["gpu"].to_pylist(), sums["mig"].to_pylist(), strict=True))
    sliced = {gpu for gpu, mig in devices if mig}
    twice = [gpu in sliced and not mig for gpu, mig in devices]
    if any(twice):
        notes.append(
            f"{len({d[0] for d, t in zip(devices, twice, strict=True) if t}):,} GPUs in MIG mode are counted by their instances only"
        )
        return sums.filter(pa.array([not t for t in twice]))
    return sums


def _measurable(sums: pa.Table, notes: list[str]) -> pa.Table:
    pairs = list(zip(sums["mig"].to_pylist(), sums["model"].to_pylist(), strict=True))
    strange = {pair for pair in set(pairs) if not _has_share(*pair)}
    if not strange:
        return sums
    gpus = {gpu for gpu, pair in zip(sums["gpu"].to_pylist(), pairs, strict=True) if pair in strange}
    named = harmless(min(str(mig) for mig, _ in strange), 40)
    notes.append(f"instances of {len(gpus):,} GPUs are left out, since it is not known what share of the GPU they are (such as '{named}')")
    return sums.filter(pa.array([pair not in strange for pair in pairs]))


def _has_share(mig: str | None, model: str | None) -> bool:
    if not mig:
        return True
    try:
        chip = find(model) if model else None
    except UllageError:
        chip = None
    try:
        return mig_share(mig, chip) > 0
    except UllageError:
        return False
