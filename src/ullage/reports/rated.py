"""Device sums beside what each device can do: the one place where telemetry meets the table of GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.errors import UllageError
from ullage.gpus.chip import Chip, find
from ullage.gpus.mig import mig_share
from ullage.metrics.metric import ratio
from ullage.metrics.ofu import counted_units, mean_sm_clock
from ullage.metrics.telemetry import Tree, chain, credible, step_losses, tree
from ullage.sums.ledger import CODES

Array = npt.NDArray[np.float64]
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
        picked = {name: getattr(self, name)[rows] for name in ("weight", "chip", "exact_time", "ofu_part", "ofu_time", "tensor_part")}
        return replace(self, sums=self.sums.filter(pa.array(rows)), **picked)


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
    units = _units(sums, column, ceiling, sms)
    by_cycles = ratio(column["tensor_cycles"], clock * units) * 1000  # ms of OFU 1: exact_ofu x the time counted
    return Rated(
        sums=sums,
        weight=_weights(sums, chips, codes),
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
    rest = sums["share"].to_pylist() if "share" in sums.column_names else [None] * len(sums)
    migs = sums["mig"].to_pylist()
    found: dict[tuple[str, int], float] = {}
    for mig, code in {(mig, int(code)) for mig, code in zip(migs, codes, strict=True) if mig}:
        found[mig, code] = mig_share(mig, chips[code] if code >= 0 else None)
    return np.array(
        [share if share is not None else found[mig, int(code)] if mig else 1.0 for share, mig, code in zip(rest, migs, codes, strict=True)]
    )


def _units(sums: pa.Table, column: Mapping[str, Array], ceiling: Array, sms: Array) -> Array:
    """Return by how many SMs each row's counters are summed: it is a device's own, and all its rows tell it together."""
    names = [sums[name].to_pylist() for name in ("gpu", "mig") if name in sums.column_names]
    devices = list(zip(*names, strict=True)) if names else [()] * len(sums)
    place = {device: number for number, device in enumerate(dict.fromkeys(devices))}
    codes = np.array([place[device] for device in devices], dtype=np.int64)
    cycles, seconds = (np.bincount(codes, column[name], len(place)) for name in ("sm_cycles", "cycles_ms"))
    rate_of: Array = ratio(cycles, seconds / 1000)
    units: Array = counted_units(rate_of[codes] if len(codes) else rate_of, ceiling, sms)
    return units


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
        "tensor": (rated.tensor_part, rated.ofu_time),
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
    most = {name: _busiest(rated, level, jobs) for name, level in (("tensor", tensor), ("sm", sm), ("gr", gr))}
    return step_losses(time, {"tensor": tensor, "sm": sm, "gr": gr, "ofu": ofu}, most)


def _busiest(rated: Rated, level: Array, jobs: Codes) -> Array:
    """Return, for each row, the highest mean that any device of its job has; NaN where no device of the job tells any."""
    known = ~np.isnan(level) & (rated.ofu_time > 0)
    devices = list(zip(jobs.tolist(), rated.words("gpu"), rated.words("mig"), strict=True))
    place = {device: number for number, device in enumerate(dict.fromkeys(devices))}
    codes = np.array([place[device] for device in devices], dtype=np.int64)
    time = np.where(known, rated.ofu_time, 0.0)
    top = np.bincount(codes, np.nan_to_num(level) * time, len(place))
    mean: Array = ratio(top, np.bincount(codes, time, len(place)))
    of_job = np.array([device[0] for device in place], dtype=np.int64)
    return _most(mean, of_job, int(jobs.max(initial=-1)) + 1)[jobs]


def _jobs(rated: Rated) -> Codes:
    """Return a number for each row's job: one name in two clusters is two jobs; what names none is each device's own."""
    columns = rated.sums.column_names
    clusters = rated.words("cluster") if "cluster" in columns else [None] * len(rated)
    names = rated.words("job") if "job" in columns else [None] * len(rated)
    keys = [
        ("job", cluster, job) if job is not None else ("device", gpu, mig)
        for cluster, job, gpu, mig in zip(clusters, names, rated.words("gpu"), rated.words("mig"), strict=True)
    ]
    place = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([place[key] for key in keys], dtype=np.int64)


def chains(rated: Rated, lost: Mapping[str, Array], codes: Codes, count: int) -> list[Tree]:
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


def job_chains(rated: Rated, codes: Codes, count: int) -> list[Tree]:
    """Return the chain of each of `count` groups of rows, each group taken for one job and all its time for work."""
    return chains(rated, losses(rated, codes), codes, count)


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
