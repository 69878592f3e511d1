"""What findings of a fleet are made from, out of a report's sums: hours, activity and losses of each device of each job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.audit.trust import Verdict
from ullage.field import CLOCK_LIMITS
from ullage.findings.fleet_evidence import DeviceOfJob, FleetEvidence, FreeHours, JobEvidence, LimitedClock
from ullage.metrics.metric import ratio
from ullage.reports.fleet.groups import gpu_hours
from ullage.reports.fleet.rated import NOT_ALLOCATED, WORK, Array, Codes, Rated
from ullage.reports.fleet.roofs import RoofHeights, roofs_of
from ullage.sums.ledger import CODES
from ullage.units import HOUR_MS

_JOB, _DEVICE = ("cluster", "job"), ("cluster", "job", "host", "gpu", "mig")


def fleet_evidence(
    good: Rated,
    lost: Mapping[str, Array],
    prices: Array,
    jobs: pa.Table | None,
    window: tuple[int, int],
    mfus: Mapping[str, float],
    verdicts: Sequence[Verdict] = (),
    lost_runs: Mapping[tuple[str | None, str], Mapping[str, float]] | None = None,
) -> FleetEvidence:
    """Return what findings are made from: `good` are the rows of trusted series, `lost` what each step of the chain loses in each row (ms),
    `prices` each row's price per GPU-hour (NaN: not given), `mfus` what jobs reported, `verdicts` those on series that are not ok,
    `lost_runs` GPU-hours of lost runs by (cluster, job) and cause."""
    hours = (window[1] - window[0]) / HOUR_MS
    if not len(good):
        return FleetEvidence(hours, 0.0, (), (), tuple(verdicts))
    found = tuple(_jobs(good, lost, prices, _records(jobs), mfus, lost_runs or {}))
    return FleetEvidence(hours, gpu_hours(good), found, tuple(_free(good, prices)), tuple(verdicts))


def _records(jobs: pa.Table | None) -> dict[str, tuple[str | None, str | None]]:
    """Return the name and the state of each job that a record names; the first record of a job that says so counts."""
    found: dict[str, tuple[str | None, str | None]] = {}
    for row in [] if jobs is None else jobs.select(["job", "name", "state"]).to_pylist():
        name, state = found.get(row["job"], (None, None))
        found[row["job"]] = (name or row["name"], state or row["state"])
    return found


def _jobs(
    good: Rated,
    lost: Mapping[str, Array],
    prices: Array,
    records: Mapping[str, tuple[str | None, str | None]],
    mfus: Mapping[str, float],
    lost_runs: Mapping[tuple[str | None, str], Mapping[str, float]],
) -> list[JobEvidence]:
    held = good.sums["job"].is_valid().to_numpy()
    rows, own, own_prices = good.take(held), {name: values[held] for name, values in lost.items()}, prices[held]
    if not len(rows):
        return []
    codes, firsts = rows.alike(*_DEVICE)
    names = _words(rows, firsts, ("cluster", "job", "user", "namespace", "host", "gpu", "index", "mig", "model"))
    devices = _devices(rows, own, own_prices, codes, names)
    found: dict[tuple[Any, ...], list[int]] = {}
    for number, row in enumerate(names):
        found.setdefault((row["cluster"], row["job"]), []).append(number)
    roofs = _roofs_of_jobs(rows, codes, [*found.values()])
    return [
        JobEvidence(
            job=job,
            cluster=cluster,
            user=_first(names, numbers, "user"),
            namespace=_first(names, numbers, "namespace"),
            name=records.get(job, (None, None))[0],
            state=records.get(job, (None, None))[1],
            devices=tuple(devices[number] for number in numbers),
            reported_mfu=mfus.get(job),
            bound=roof.bound,
            memory=None if (level := roof.level("memory")) is None else level.height,
            memory_measured=level is not None and level.measured,
            lost_runs=lost_runs.get((cluster, job), {}),
        )
        for ((cluster, job), numbers), roof in zip(found.items(), roofs, strict=True)
    ]


def _roofs_of_jobs(rows: Rated, codes: Codes, jobs: Sequence[Sequence[int]]) -> list[RoofHeights]:
    """Return how high each job is under each roof while it works; `codes` is each row's device, `jobs` the devices of each job."""
    if not rows.column("memory_ms").any():
        return [RoofHeights()] * len(jobs)
    job_of = np.zeros(int(codes.max()) + 1, np.int64)
    for job, devices in enumerate(jobs):
        job_of[list(devices)] = job
    works = np.isin(rows.column("owner"), WORK)
    return roofs_of(rows.take(works), job_of[codes][works], len(jobs))


def _first(names: Sequence[Mapping[str, Any]], numbers: Sequence[int], column: str) -> str | None:
    return next((names[number][column] for number in numbers if names[number][column]), None)


def _words(rows: Rated, firsts: npt.NDArray[np.int64], columns: Sequence[str]) -> list[dict[str, Any]]:
    known = [name for name in columns if name in rows.sums.column_names]
    table = rows.sums.select(known).take(pa.array(firsts)).to_pylist()
    return [dict.fromkeys(columns) | row for row in table]


def _devices(rows: Rated, lost: Mapping[str, Array], prices: Array, codes: Codes, names: Sequence[Mapping[str, Any]]) -> list[DeviceOfJob]:
    count = len(names)

    def added(values: Array, where: npt.NDArray[np.bool_] | None = None) -> Array:
        chosen = np.nan_to_num(values * rows.weight) / HOUR_MS
        return _sums(codes, chosen if where is None else np.where(where, chosen, 0.0), count)

    owner, span = rows.column("owner"), rows.column("span_ms")
    works = np.isin(owner, WORK)
    parts = {
        "held": added(span),
        "idle": added(span, owner == CODES["held_idle"]),
        "counted": added(rows.ofu_time, works),
        "kept": added(rows.ofu_part, works),
        "tensor": added(rows.tensor_part, works),
    }
    means = {
        name: ratio(added(rows.column(f"{gauge}_sum"), works), added(rows.column(f"{gauge}_ms"), works))
        for name, gauge in (("engine", "gr_active"), ("sm", "sm_active"), ("power", "power"))
    }
    steps = {name: _sums(codes, np.nan_to_num(values) / HOUR_MS, count) for name, values in lost.items()}
    costs = _sums(codes, span * rows.weight / HOUR_MS * prices, count)
    limits = _limits(rows, works, added)
    return [
        DeviceOfJob(
            gpu=row["gpu"],
            host=row["host"],
            index=row["index"],
            mig=row["mig"],
            model=row["model"],
            **{name: float(values[number]) for name, values in parts.items()},
            engine=_known(means["engine"][number]),
            sm=_known(means["sm"][number]),
            lost={name: float(values[number]) for name, values in steps.items() if values[number]},
            cost=_known(costs[number]),
            limits={name: found for name, each in limits.items() if (found := LimitedClock(*each[number].tolist())).hours},
            power=_known(means["power"][number]),
        )
        for number, row in enumerate(names)
    ]


def _limits(
    rows: Rated, works: npt.NDArray[np.bool_], added: Callable[[Array, npt.NDArray[np.bool_]], Array]
) -> dict[str, npt.NDArray[np.float64]]:
    """Return for each limit of the clock that any row knows: hours under it, tensor hours and OFU-hours of each device."""
    clock = np.array([chip.tensor_clock for chip in rows.chips] + [np.nan])[rows.chip]
    counted = rows.ofu_part - rows.column("ofu_sum") / clock  # what cycle counters tell of OFU
    found = {}
    for limit in CLOCK_LIMITS:
        if rows.column(f"{limit}_ms").any():
            kept = rows.column(f"{limit}_ofu_sum") / clock
            kept += np.nan_to_num(counted * np.asarray(ratio(rows.column(f"{limit}_cycles"), rows.column("tensor_cycles"))))
            parts = (rows.column(f"{limit}_ms"), rows.column(f"{limit}_tensor_sum"), kept)
            found[limit] = np.stack([added(part, works) for part in parts], axis=1)
    return found


def _free(good: Rated, prices: Array) -> list[FreeHours]:
    codes, firsts = good.alike("cluster", "host")
    owner, hours = good.column("owner"), good.column("span_ms") * good.weight / HOUR_MS
    count = len(firsts)
    nobody = np.isin(owner, NOT_ALLOCATED)
    observed = _sums(codes, hours, count)
    unsliced = _sums(codes, np.where(owner == CODES["not_sliced"], hours, 0.0), count)
    free = _sums(codes, np.where(nobody, hours, 0.0), count) - unsliced
    costs = _sums(codes, np.where(nobody, hours * prices, 0.0), count)
    return [
        FreeHours(row["cluster"], row["host"], float(observed[number]), float(free[number]), float(unsliced[number]), _known(costs[number]))
        for number, row in enumerate(_words(good, firsts, ("cluster", "host")))
    ]


def _sums(codes: Codes, values: Array, count: int) -> Array:
    return np.bincount(codes, values, count).astype(np.float64)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
