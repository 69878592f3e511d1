"""Stragglers as they come: devices that make their job wait, scrape by scrape, from settled samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.reports.fleet.groups import in_slices
from ullage.reports.watch.device_peers import JobReadings
from ullage.reports.watch.slow_devices import SlowSpell, slow_devices, window_numbers

Device = tuple[str | None, str, str | None]  # host, GPU, MIG instance
TOGETHER = 2  # windows within which devices of one host are found that are one straggler
WHOLE_SECONDS_MS = 2_000  # from which intervals of scrapes are whole seconds
SIGNS = {"clock": "lower clock", "busy": "computes for longer", "late": "comes late", "link": "NVLink sends again"}
NAMES = ("cluster", "job", "host", "gpu", "mig", "model")


@dataclass(frozen=True)
class SeenStraggler:
    """Devices of a job that made it wait: from `start` on, known at `found`, to `end` (ms; None: to the last window).

    `sign` says by what they were seen: `clock`, `busy`, `late` or `link` (see `slow_devices`); `longer` is how many times as long as the
    others they needed for the same work when they were found.
    """

    cluster: str | None
    job: str
    devices: tuple[Device, ...]
    start: int
    found: int
    sign: str
    longer: float
    end: int | None = None


def seen_stragglers(samples: Any, notes: list[str] | None = None) -> list[SeenStraggler]:
    """Return the stragglers of settled samples (Ibis), in order of when they were found."""
    table = pa.concat_tables([_readings(part) for part in in_slices(samples, [] if notes is None else notes)])
    found = [one for cluster, job, rows in _jobs(table) for one in _of_job(cluster, job, table.take(rows))]
    return sorted(found, key=lambda one: (one.found, one.job))


def _readings(samples: Any) -> pa.Table:
    """Return what one job's devices showed: activities from cycles where they are counted."""
    cycles = samples.sm_cycles_delta.nullif(0)
    own = samples.filter(samples.job.notnull() & (samples.sharers <= 1))
    chosen = own.select(
        *NAMES,
        time=own.time.epoch_seconds() * 1000 + own.time.millisecond(),
        tensor=(own.tensor_cycles_delta / cycles).coalesce(own.tensor_active),
        sm=(own.sm_active_cycles_delta / cycles).coalesce(own.sm_active),
        engine=own.gr_active,
        clock=own.sm_clock,
        replays=own.nvlink_replays,
    )
    table = chosen.to_pyarrow()
    return table.cast(pa.schema([field.with_type(pa.string() if field.name in NAMES else field.type) for field in table.schema]))


def _jobs(table: pa.Table) -> Iterator[tuple[str | None, str, npt.NDArray[np.int64]]]:
    """Yield each job of each cluster, with its rows."""
    codes = np.zeros(len(table), np.int64)
    for name in ("cluster", "job"):
        words = table[name].combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * (len(words.dictionary) + 1) + words.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(rows):
            yield table["cluster"][int(rows[0])].as_py(), table["job"][int(rows[0])].as_py(), rows


def _of_job(cluster: str | None, job: str, table: pa.Table) -> Iterator[SeenStraggler]:
    places, numbers = _devices(table)
    times = table["time"].to_numpy().astype(np.int64)
    window_ms = _interval(times, numbers)
    if len(places) < 2 or window_ms is None:
        return
    windows = window_numbers(times, numbers, window_ms)
    windows -= windows.min()
    shape = (int(windows.max()) + 1, len(places))

    def by_window(name: str) -> npt.NDArray[np.float64]:
        values = np.full(shape, np.nan)
        values[windows, numbers] = table[name].to_numpy().astype(float)
        return values

    last = np.zeros(shape[0], np.int64)
    np.maximum.at(last, windows, times)
    models: list[str | None] = [None] * len(places)
    for number, model in zip(numbers.tolist(), table["model"].to_pylist(), strict=True):
        models[number] = model
    replays = np.diff(by_window("replays"), axis=0, prepend=np.nan)
    readings = JobReadings(
        times=np.maximum.accumulate(last),
        tensor=by_window("tensor"),
        sm=by_window("sm"),
        engine=by_window("engine"),
        clock=by_window("clock"),
        replays=np.where(replays < 0, np.nan, replays),  # a driver that was loaded again counts anew
        hosts=tuple(host for host, _, _ in places),
        models=tuple(models),
    )
    for spells in _by_host(places, slow_devices(readings, window_ms / 1000)):
        ends = [None if one.end is None else int(readings.times[one.end]) for one in spells]
        end = None if None in ends else max(filter(None, ends))
        yield SeenStraggler(
            cluster, job, tuple(sorted({places[one.device] for one in spells}, key=str)),
            min(int(readings.times[one.start]) for one in spells), int(readings.times[spells[0].found]), spells[0].sign,
            max(one.longer for one in spells), end,
        )  # fmt: skip


def _devices(table: pa.Table) -> tuple[list[Device], npt.NDArray[np.int64]]:
    """Return the devices of a job, and the number of each row's."""
    names: dict[Device, int] = {}
    numbers = [
        names.setdefault((host, str(gpu), mig), len(names))
        for host, gpu, mig in zip(*(table[name].to_pylist() for name in ("host", "gpu", "mig")), strict=True)
    ]
    return list(names), np.array(numbers, np.int64)


def _interval(times: npt.NDArray[np.int64], devices: npt.NDArray[np.int64]) -> int | None:
    """Return the usual time (ms) between two readings of a device; None where none was read twice."""
    order = np.lexsort((times, devices))
    between = np.diff(times[order])[np.diff(devices[order]) == 0]
    usual = float(np.median(between)) if len(between) else 0.0
    if usual <= 0:
        return None
    return round(usual / 1000) * 1000 if usual >= WHOLE_SECONDS_MS else max(100, round(usual / 100) * 100)


def _by_host(places: Sequence[Device], spells: Sequence[SlowSpell]) -> Iterator[list[SlowSpell]]:
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
