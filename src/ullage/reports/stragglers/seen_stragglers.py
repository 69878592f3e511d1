"""Stragglers as samples show them: devices that make their job wait, since when, until when, and for how much of its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.field import IDLE
from ullage.findings.fleet_evidence import PlacedDevice, SeenStraggler
from ullage.reports.fleet.groups import in_slices
from ullage.reports.fleet.rated import codes_of
from ullage.reports.stragglers.device_peers import JobReadings
from ullage.reports.stragglers.job_pauses import Array
from ullage.reports.stragglers.slow_devices import SlowSpell, slow_devices, window_numbers

TOGETHER = 2  # windows within which devices of one host are found that are one straggler
WHOLE_SECONDS_MS = 2_000  # from which intervals of scrapes are whole seconds
JOB = ("cluster", "job")
DEVICE = (*JOB, "host", "gpu", "mig")
NAMES = (*DEVICE, "model")
READINGS = ("tensor", "sm", "engine", "clock", "replays")


def seen_stragglers(samples: Any, notes: list[str] | None = None, *, step_ms: int | None = None) -> list[SeenStraggler]:
    """Return the stragglers of settled samples (Ibis), in order of when they were found.

    Each scrape counts by itself; with `step_ms` the mean over each such step of time does.
    """
    parts = [_readings(part, step_ms) for part in in_slices(samples, [] if notes is None else notes)]
    table = pa.concat_tables(parts, promote_options="default")  # a slice may lack no reading of a kind, and say so
    found = [one for rows in _rows_of_jobs(table) for one in _of_job(rows)]
    return sorted(found, key=lambda one: (one.found, one.job))


def _readings(samples: Any, step_ms: int | None) -> pa.Table:
    """Return what one job's devices showed: activities from cycles where they are counted."""
    own = samples.filter(samples.job.notnull() & (samples.sharers <= 1))
    cycles = own.sm_cycles_delta.nullif(0)
    chosen = own.select(
        *NAMES,
        time=own.time.epoch_seconds() * 1000 + own.time.millisecond(),
        tensor=(own.tensor_cycles_delta / cycles).coalesce(own.tensor_active),
        sm=(own.sm_active_cycles_delta / cycles).coalesce(own.sm_active),
        engine=own.gr_active,
        clock=own.sm_clock,
        replays=own.nvlink_replays,
    )
    if step_ms is not None:
        stepped = chosen.mutate(time=(chosen.time / step_ms).ceil().cast("int64") * step_ms)
        means = {name: stepped[name].mean() for name in READINGS[:-1]}
        chosen = stepped.group_by([*NAMES, "time"]).aggregate(**means, replays=stepped.replays.max())
    table = chosen.to_pyarrow()
    return table.cast(
        pa.schema([field.with_type(pa.string() if field.name in (*DEVICE, "model") else field.type) for field in table.schema])
    )


@dataclass(frozen=True)
class _JobRows:
    """The readings of one job: `places` are its devices and `models` theirs; `numbers` is each row's device, `times` its time (ms)."""

    cluster: str | None
    job: str
    places: list[PlacedDevice]
    models: list[str | None]
    numbers: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    values: dict[str, Array]


def _rows_of_jobs(table: pa.Table) -> Iterator[_JobRows]:
    """Yield the readings of each job of each cluster."""
    devices, count = codes_of(table, *DEVICE)
    firsts = np.zeros(count, np.int64)
    firsts[devices[::-1]] = np.arange(len(devices))[::-1]
    names = table.select(NAMES).take(pa.array(firsts)).to_pylist()
    columns = {name: table[name].to_numpy().astype(float) for name in READINGS}
    times, jobs = table["time"].to_numpy().astype(np.int64), codes_of(table, *JOB)[0]
    order = np.argsort(jobs, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(jobs[order])) + 1) if len(order) else ():
        own, numbers = np.unique(devices[rows], return_inverse=True)
        told = [names[device] for device in own.tolist()]
        yield _JobRows(
            cluster=told[0]["cluster"],
            job=told[0]["job"],
            places=[(one["host"], str(one["gpu"]), one["mig"]) for one in told],
            models=[one["model"] for one in told],
            numbers=numbers.astype(np.int64),
            times=times[rows],
            values={name: column[rows] for name, column in columns.items()},
        )


def _of_job(rows: _JobRows) -> Iterator[SeenStraggler]:
    window_ms = _interval(rows.times, rows.numbers)
    if len(rows.places) < 2 or window_ms is None:
        return
    readings = _by_window(rows, window_ms)
    groups = [*_by_host(rows.places, slow_devices(readings, window_ms / 1000))]
    waits = np.array([np.max([one.waited for one in spells], axis=0) for spells in groups]).reshape(-1, len(readings.times))
    for spells, waited in zip(groups, shares_waited(waits, _at_work(readings)), strict=True):
        ends = [None if one.end is None else int(readings.times[one.end]) for one in spells]
        yield SeenStraggler(
            cluster=rows.cluster,
            job=rows.job,
            devices=tuple(sorted({rows.places[one.device] for one in spells}, key=str)),
            start=min(int(readings.times[one.start]) for one in spells),
            found=int(readings.times[spells[0].found]),
            sign=spells[0].sign,
            longer=max(one.longer for one in spells),
            end=None if None in ends else max(filter(None, ends)),
            waited=float(waited),
        )


def _by_window(rows: _JobRows, window_ms: int) -> JobReadings:
    """Return the readings of a job, window by window."""
    windows = window_numbers(rows.times, rows.numbers, window_ms)
    windows -= windows.min()
    shape = (int(windows.max()) + 1, len(rows.places))

    def by_window(name: str) -> Array:
        values = np.full(shape, np.nan)
        values[windows, rows.numbers] = rows.values[name]
        return values

    last = np.zeros(shape[0], np.int64)
    np.maximum.at(last, windows, rows.times)
    replays = np.diff(by_window("replays"), axis=0, prepend=np.nan)
    return JobReadings(
        times=np.maximum.accumulate(last),
        **{name: by_window(name) for name in ("tensor", "sm", "engine", "clock")},
        replays=np.where(replays < 0, np.nan, replays),  # a driver that was loaded again counts anew
        hosts=tuple(host for host, _, _ in rows.places),
        models=tuple(rows.models),
    )


def _at_work(readings: JobReadings) -> Array:
    """Return how many devices of a job were at work in each window."""
    busiest = np.fmax(np.fmax(readings.tensor, readings.sm), readings.engine)
    return np.asarray((busiest >= IDLE).sum(axis=1), float)


def shares_waited(waited: Array, at_work: Array) -> Array:
    """Return the share of a job's time at work for which it waited for each of its stragglers, of those that are slow at once.

    `waited` (straggler, window) is for which share of each window it waits for one alone, `at_work` (window) how many devices worked. With
    the slowest gone a job waits for the next: so each costs what it is waited for longer than for the next, and all together what the
    slowest does.

    >>> shares_waited(np.array([[0.5, 0.0], [0.25, 0.0]]), np.array([8.0, 8.0])).tolist()
    [0.125, 0.125]
    """
    order = np.argsort(-waited, axis=0, kind="stable")
    falling = np.take_along_axis(waited, order, axis=0)
    following = np.concatenate([falling[1:], np.zeros((1, waited.shape[1]))])
    own = np.empty_like(waited)
    np.put_along_axis(own, order, falling - following, axis=0)
    return np.asarray((own * at_work).sum(axis=1) / max(at_work.sum(), 1.0))


def _interval(times: npt.NDArray[np.int64], devices: npt.NDArray[np.int64]) -> int | None:
    """Return the usual time (ms) between two readings of a device; None where none was read twice."""
    order = np.lexsort((times, devices))
    between = np.diff(times[order])[np.diff(devices[order]) == 0]
    usual = float(np.median(between)) if len(between) else 0.0
    if usual <= 0:
        return None
    return round(usual / 1000) * 1000 if usual >= WHOLE_SECONDS_MS else max(100, round(usual / 100) * 100)


def _by_host(places: Sequence[PlacedDevice], spells: Sequence[SlowSpell]) -> Iterator[list[SlowSpell]]:
    """Yield spells of one sign in devices of one host that were found at nearly the same time, which are one straggler."""
    groups: list[list[SlowSpell]] = []
    for one in spells:
        for own in reversed(groups):
            first = own[0]
            if one.found - first.found > TOGETHER:
                continue
            if first.sign == one.sign and places[first.device][0] == places[one.device][0] is not None:
                own.append(one)
                break
        else:
            groups.append([one])
    yield from groups
