"""Device sums beside what each device can do: the one place where telemetry meets the table of GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import UllageError
from ullage.gpus.chip import Chip, find
from ullage.gpus.mig import mig_share
from ullage.metrics.metric import ratio
from ullage.metrics.ofu import counted_units
from ullage.metrics.telemetry import TelemetryTree, chain, credible, step_losses, tree
from ullage.sums.gauges import CLOCK_FLOOR
from ullage.sums.ledger import CODES
from ullage.units import HOUR_MS

Array = npt.NDArray[np.float64]
TOO_FAST = 1.25  # boards run a little above their stated clock, none a quarter
NEARLY_ALL = 0.7  # of a short watch (four readings), a quarter of the time has no reading before
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rated:
    """Rows of device sums (the time in one state each) with what is needed to divide them.

    `weight` is the share of a whole GPU that the row's device is (below 1 for a MIG instance, and for what is not sliced); `ofu_part`
    over `ofu_time` is the row's OFU, both in ms; `exact_time` is the part of that time in which cycles were counted; `chip` is the
    index into `chips`, -1 when the device is not known.
    """

    sums: pa.Table
    weight: Array
    chip: npt.NDArray[np.int64]
    chips: tuple[Chip, ...]
    exact_time: Array
    ofu_part: Array
    ofu_time: Array
    tensor_part: Array
    unknown_models: dict[str, float]
    model: str | None

    @property
    def exact(self) -> npt.NDArray[np.bool_]:
        """Whether cycles were counted in (nearly) all of the row's time whose OFU is known."""
        return np.asarray((self.exact_time > 0) & (self.exact_time >= NEARLY_ALL * self.ofu_time))

    @property
    def hours(self) -> Array:
        """The GPU-hours of each row; a MIG instance counts its share."""
        return self.column("span_ms") * self.weight / HOUR_MS

    @property
    def ullage_hours(self) -> Array:
        """The GPU-hours by which each row falls short of full; 0 where its OFU is not known."""
        return np.nan_to_num((self.ofu_time - self.ofu_part) * self.weight) / HOUR_MS

    def __len__(self) -> int:
        return len(self.sums)

    def column(self, name: str) -> Array:
        """Return a column of the sums as floats, missing as NaN."""
        return np.asarray(self.sums[name].to_numpy(zero_copy_only=False), dtype=float)

    def words(self, name: str) -> list[str | None]:
        """Return a column of names."""
        return list(self.sums[name].to_pylist())

    def codes(self, *names: str) -> tuple[Codes, int]:
        """Return a number for each row's values in these columns of names (those that there are), and how many numbers there are."""
        return codes_of(self.sums, *names)

    def alike(self, *names: str) -> tuple[Codes, Codes]:
        """Return a number for each row's values in these columns of names, and the first row that has each number."""
        codes, count = self.codes(*names)
        firsts = np.zeros(count, np.int64)
        firsts[codes[::-1]] = np.arange(len(codes))[::-1]
        return codes, firsts

    def take(self, rows: npt.NDArray[np.bool_]) -> Rated:
        """Return only the chosen rows."""
        picked = {name: getattr(self, name)[rows] for name in ("weight", "chip", "exact_time", "ofu_part", "ofu_time", "tensor_part")}
        return replace(self, sums=self.sums.filter(pa.array(rows)), **picked)


def codes_of(sums: pa.Table, *names: str) -> tuple[Codes, int]:
    """Return a number for each row's values in some columns of names, in the order in which they appear, and how many there are.

    Columns that the table lacks tell nothing apart.

    >>> codes, count = codes_of(pa.table({"gpu": ["b", "a", "b"], "mig": [None, None, "1g"]}), "gpu", "mig", "job")
    >>> codes.tolist(), count
    ([0, 1, 2], 3)
    """
    codes = np.zeros(len(sums), np.int64)
    for name in (name for name in names if name in sums.column_names):
        own, size = _codes(sums[name])
        codes = _first_seen(codes * size + own)
    return codes, (int(codes.max()) + 1 if len(codes) else 0)


def _codes(column: pa.ChunkedArray) -> tuple[Codes, int]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = pc.dictionary_encode(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0), null_encoding="encode")
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), max(len(encoded.dictionary), 1)


def _first_seen(codes: Codes) -> Codes:
    found: Codes = pc.dictionary_encode(pa.array(codes)).indices.to_numpy().astype(np.int64)
    return found


def rate(sums: pa.Table, model: str | None = None) -> Rated:
    """Return device sums with chip, weight and OFU parts. `model` names the GPU where the samples don't.

    A model that Ullage does not know keeps its rows, without OFU: `unknown_models` has its GPU-hours.
    """
    chips, codes, unknown = _chips(sums, model)
    clock = np.array([c.tensor_clock for c in chips] + [np.nan])[codes]
    sms = np.array([float(c.sms) for c in chips] + [np.nan])[codes]
    ceiling = np.array([c.sm_clock or c.tensor_clock for c in chips] + [np.nan])[codes]
    column = {
        name: np.nan_to_num(np.asarray(sums[name].to_numpy(zero_copy_only=False), dtype=float))
        for name in sums.column_names
        if name.endswith(("_ms", "_sum", "_cycles"))
    }
    weight = _weights(sums, chips, codes)
    units = _units(sums, column, ceiling, sms * weight)
    by_cycles = ratio(column["tensor_cycles"], clock * units) * 1000  # ms of OFU 1: exact_ofu x the time counted
    return Rated(
        sums=sums,
        weight=weight,
        chip=codes,
        chips=tuple(chips),
        exact_time=np.where(np.isnan(clock), 0.0, column["cycles_ms"]),
        ofu_part=column["ofu_sum"] / clock + np.where(column["cycles_ms"] > 0, by_cycles, 0.0),
        ofu_time=np.where(np.isnan(clock), 0.0, column["cycles_ms"] + column["ofu_ms"]),
        tensor_part=column["ofu_tensor_sum"] + column["cycles_tensor_sum"],
        unknown_models=unknown,
        model=model,
    )


def _weights(sums: pa.Table, chips: Sequence[Chip], codes: npt.NDArray[np.int64]) -> Array:
    """Return the share of a whole GPU that each row's device is."""
    weights = np.ones(len(sums))
    if sums["mig"].null_count < len(sums):
        migs = sums["mig"].to_pylist()
        found: dict[tuple[str, int], float] = {}
        for mig, code in {(mig, int(code)) for mig, code in zip(migs, codes, strict=True) if mig}:
            found[mig, code] = mig_share(mig, chips[code] if code >= 0 else None)
        weights = np.array([found[mig, int(code)] if mig else 1.0 for mig, code in zip(migs, codes, strict=True)])
    if "share" not in sums.column_names or sums["share"].null_count == len(sums):
        return weights
    rest = np.asarray(sums["share"].to_numpy(zero_copy_only=False), dtype=float)
    return np.where(np.isnan(rest), weights, rest)


def _units(sums: pa.Table, column: Mapping[str, Array], ceiling: Array, sms: Array) -> Array:
    """Return by how many SMs each row's counters are summed: all rows of a device whose cycles pass alike tell it together.

    Where a device's counters are summed in some rows, those that pass as no clock of an SM does, or hardly at all, are summed too.
    """
    codes, count = codes_of(sums, "gpu", "mig", "summed")
    cycles, seconds = (np.bincount(codes, column[name], count) for name in ("sm_cycles", "cycles_ms"))
    rate_of: Array = ratio(cycles, seconds / 1000)[codes] if count else np.zeros(0)
    device, devices = codes_of(sums, "gpu", "mig")
    own = counted_units(rate_of, sms)
    anywhere = np.bincount(device, own > 1, devices)[device] > 0
    a_clock = (rate_of >= CLOCK_FLOOR) & (rate_of <= TOO_FAST * ceiling)
    units: Array = np.where(anywhere & ~a_clock, sms, own)
    return units


def _chips(sums: pa.Table, model: str | None) -> tuple[list[Chip], npt.NDArray[np.int64], dict[str, float]]:
    own, count = _codes(sums["model"])
    words = pc.dictionary_encode(sums["model"].cast(pa.string()).combine_chunks(), null_encoding="encode").dictionary.to_pylist()
    chips: list[Chip] = []
    found = np.full(count, -1, np.int64)
    spent = np.bincount(own, sums["span_ms"].to_numpy(zero_copy_only=False).astype(float), count)
    unknown: dict[str, float] = {}
    for place, name in enumerate(word or model for word in words):
        try:
            chip = find(name) if name else None
        except UllageError:
            chip = None
        if chip is None:
            unknown[name or ""] = unknown.get(name or "", 0.0) + float(spent[place]) / 3_600_000
            continue
        if chip not in chips:
            chips.append(chip)
        found[place] = chips.index(chip)
    return chips, found[own], unknown


def weighted_mean(part: Array, time: Array, weight: Array) -> float | None:
    """Return Σ part·weight / Σ time·weight over rows where time is known, or None when there is no such time."""
    return _known(float(weighted_means(part, time, weight, np.zeros(len(part), np.int64), 1)[0]))


def trees(rated: Rated, codes: npt.NDArray[np.int64], count: int) -> list[TelemetryTree]:
    """Return a telemetry tree for each of `count` groups; `codes` is each row's group, and a row is one device of it."""
    gauges = {
        "tensor": (rated.tensor_part, rated.ofu_time),
        "sm": (rated.column("sm_active_sum"), rated.column("sm_active_ms")),
        "gr": (rated.column("gr_active_sum"), rated.column("gr_active_ms")),
    }
    mean = {name: weighted_means(part, time, rated.weight, codes, count) for name, (part, time) in gauges.items()}
    most = {name: _most(ratio(part, time), codes, count) for name, (part, time) in gauges.items()}
    ofu = weighted_means(rated.ofu_part, rated.ofu_time, rated.weight, codes, count)
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


def tree_of(rated: Rated) -> TelemetryTree:
    """Return the telemetry tree of all rows together as the work of one job."""
    return job_chains(rated, np.zeros(len(rated), np.int64), 1)[0]


# --- losses ---

WORK = tuple(CODES[name] for name in ("job", "shared", "unknown"))
NOT_ALLOCATED = tuple(CODES[name] for name in ("free", "not_sliced"))


def losses(rated: Rated, jobs: Codes | None = None) -> dict[str, Array]:
    """Return, for each row of sums, what each step of the chain loses of the row's GPU time (ms) whose OFU is known; NaN: not a step of it.

    What nobody held is lost at the first step, what was held and idle at the second, each less the little tensor work that was seen there;
    what did something by the steps of its job's chain. `jobs` names each row's job by a number; without it the rows say it: the job's
    name and cluster, and each device for itself where no job is known.
    """
    time = rated.ofu_time * rated.weight
    lost = np.nan_to_num(time - rated.ofu_part * rated.weight)
    whose = np.zeros(len(rated), np.int64) if jobs is not None or "owner" not in rated.sums.column_names else rated.column("owner")
    work = np.isin(whose, WORK)
    found = {
        "not_allocated": np.where(np.isin(whose, NOT_ALLOCATED) & (time > 0), lost, np.nan),
        "held_idle": np.where((whose == CODES["held_idle"]) & (time > 0), lost, np.nan),
    }
    codes = _jobs(rated) if jobs is None else jobs
    inside = rated.take(work)
    for name, values in _job_losses(inside, codes[work]).items():
        found[name] = np.full(len(rated), np.nan)
        found[name][work] = values
    return found


def _job_losses(rated: Rated, jobs: Codes) -> dict[str, Array]:
    time = rated.ofu_time * rated.weight
    tensor: Array = ratio(rated.tensor_part, rated.ofu_time)
    sm, gr = (ratio(np.nan_to_num(rated.column(f"{name}_sum")), rated.column(f"{name}_ms")) for name in ("sm_active", "gr_active"))
    sm, gr = credible(tensor, sm, gr)
    ofu: Array = ratio(rated.ofu_part, rated.ofu_time)
    devices, count = codes_of(rated.sums.select(["gpu", "mig"]).append_column("_job", pa.array(jobs)), "_job", "gpu", "mig")
    of_device = np.zeros(count, np.int64)
    of_device[devices] = jobs
    most = {name: _busiest(rated, level, jobs, devices, of_device) for name, level in (("tensor", tensor), ("sm", sm), ("gr", gr))}
    return step_losses(time, {"tensor": tensor, "sm": sm, "gr": gr, "ofu": ofu}, most)


def _busiest(rated: Rated, level: Array, jobs: Codes, devices: Codes, of_device: Codes) -> Array:
    """Return, for each row, the highest mean that any device of its job has; NaN where no device of the job tells any.

    `devices` numbers each row's device in its job, and `of_device` has the job of each such number.
    """
    known = ~np.isnan(level) & (rated.ofu_time > 0)
    time = np.where(known, rated.ofu_time, 0.0)
    top = np.bincount(devices, np.nan_to_num(level) * time, len(of_device))
    mean: Array = ratio(top, np.bincount(devices, time, len(of_device)))
    return _most(mean, of_device, int(jobs.max(initial=-1)) + 1)[jobs]


def _jobs(rated: Rated) -> Codes:
    """Return a number for each row's job: one name in two clusters is two jobs; what names none is each device's own."""
    named, _ = rated.codes("cluster", "job")
    own, _ = rated.codes("gpu", "mig")
    has = rated.sums["job"].is_valid().to_numpy() if "job" in rated.sums.column_names else np.zeros(len(rated), np.bool_)
    return _first_seen(np.where(has, 2 * named, 2 * own + 1))


def chains(rated: Rated, lost: Mapping[str, Array], codes: Codes, count: int) -> list[TelemetryTree]:
    """Return the chain of each of `count` groups of rows (`codes` is each row's group) from the rows' losses."""
    time = np.bincount(codes, rated.ofu_time * rated.weight, count)
    kept = np.bincount(codes, np.nan_to_num(rated.ofu_part * rated.weight), count)
    added = {name: np.bincount(codes, np.nan_to_num(values), count) for name, values in lost.items()}
    has = {name: np.bincount(codes, ~np.isnan(values), count) > 0 for name, values in lost.items()}
    plain = trees(rated, codes, count) if (time <= 0).any() else []  # without OFU there are gauges, perhaps, and no losses
    return [
        chain(float(time[n]), float(kept[n] / time[n]), {name: float(added[name][n]) for name in added if has[name][n]})
        if time[n] > 0
        else plain[n]
        for n in range(count)
    ]


def job_chains(rated: Rated, codes: Codes, count: int) -> list[TelemetryTree]:
    """Return the chain of each of `count` groups of rows, each group taken for one job and all its time for work."""
    return chains(rated, losses(rated, codes), codes, count)


def weighted_means(part: Array, time: Array, weight: Array, codes: npt.NDArray[np.int64], count: int) -> Array:
    """Return Σ part·weight / Σ time·weight of each of `count` groups of rows; NaN where a group has no such time."""
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
