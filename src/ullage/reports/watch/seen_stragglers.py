"""Stragglers as they come: a device that is busier than the others of its job at the same time and does no more work, scrape by scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from ullage.findings.fleet.straggler import straggling_devices
from ullage.findings.fleet_evidence import DeviceOfJob
from ullage.reports.fleet.groups import in_slices, stacked
from ullage.reports.fleet.rated import rate
from ullage.sums.job_courses import device_scrape_sums

IN_A_ROW = 2  # scrapes in which a device must stand out: one may meet another part of a step than those of its peers
CLEAR = 1.2  # times as busy as the others: one scrape is enough
GONE = 4  # windows without it after which it is over: a slow device may look like the others for a moment
LEAST_DEVICES = 3  # of a job: of two nobody can say which one is slow
WHOLE = 0.7  # of the usual time of a window: of less its devices were seen at different times


@dataclass(frozen=True)
class SeenStraggler:
    """Devices of a job that made it wait: from `start` on, known at `found`, to `end` (ms; None: to the last window).

    `busier` is how many times as busy as the others they were when they were found.
    """

    cluster: str | None
    job: str
    devices: tuple[tuple[str | None, str, str | None], ...]
    start: int
    found: int
    busier: float
    end: int | None = None


@dataclass
class _Streak:
    start: int
    count: int = 0
    silent: int = 0
    found: int | None = None
    busier: float = 0.0


def seen_stragglers(samples: Any, window_ms: int, gpu: str | None = None, notes: list[str] | None = None) -> list[SeenStraggler]:
    """Return the stragglers of settled samples (Ibis), in order of when they were found, by windows of so many ms: a scrape's interval."""
    sums = stacked([device_scrape_sums(table, interval_ms=window_ms) for table in in_slices(samples, [] if notes is None else notes)])
    if not len(sums):
        return []
    windows = _devices_by_window(sums, gpu)
    found: list[SeenStraggler] = []
    for (cluster, job), own in groupby(windows, key=lambda one: one[0]):
        found += _of_job(cluster, job, [(at, devices) for _, at, devices in own], window_ms)
    return sorted(found, key=lambda one: (one.found, one.job))


def _devices_by_window(sums: Any, gpu: str | None) -> Iterator[tuple[tuple[str | None, str], int, list[DeviceOfJob]]]:
    """Yield (job, time of the last sample of a scrape, its devices) by job, in order of time."""
    rated = rate(sums.sort_by([(name, "ascending") for name in ("cluster", "job", "bucket", "host", "gpu", "mig")]), gpu)
    quiet = rated.sums["_quiet"].to_numpy(zero_copy_only=False).astype(bool)
    column = {name: np.nan_to_num(rated.column(name)) for name in rated.sums.column_names if name.endswith(("_ms", "_sum"))}
    words = {name: rated.words(name) for name in ("cluster", "job", "host", "gpu", "mig")}
    buckets = rated.column("bucket").astype(np.int64).tolist()
    last = rated.column("last_ms")
    held, idle = column["span_ms"], np.where(quiet, column["span_ms"], 0.0)
    sm = np.divide(column["sm_active_sum"], column["sm_active_ms"], out=np.full(len(held), np.nan), where=column["sm_active_ms"] > 0)
    engine = np.divide(column["gr_active_sum"], column["gr_active_ms"], out=np.full(len(held), np.nan), where=column["gr_active_ms"] > 0)
    rows = range(len(held))
    for key, group in groupby(rows, key=lambda row: (words["cluster"][row], words["job"][row], buckets[row])):
        own = list(group)
        devices = [
            DeviceOfJob(
                gpu=str(words["gpu"][row]),
                host=words["host"][row],
                index=None,
                mig=words["mig"][row],
                model=None,
                held=float(held[row]),
                idle=float(idle[row]),
                counted=float(rated.ofu_time[row]),
                kept=float(np.nan_to_num(rated.ofu_part[row])),
                tensor=float(np.nan_to_num(rated.tensor_part[row])),
                engine=None if np.isnan(engine[row]) else float(engine[row]),
                sm=None if np.isnan(sm[row]) else float(sm[row]),
            )
            for row in own
        ]
        yield (key[0], str(key[1])), max(int(last[row]) for row in own), devices


def _of_job(cluster: str | None, job: str, windows: Sequence[tuple[int, Sequence[DeviceOfJob]]], window_ms: int) -> Iterator[SeenStraggler]:
    streaks: dict[tuple[str | None, str, str | None], _Streak] = {}
    for at, devices in windows:
        whole = [
            one for one in devices if one.held >= WHOLE * window_ms and one.worked > 0 and one.busy is not None and one.ofu is not None
        ]
        slow = straggling_devices(whole) if len(whole) >= LEAST_DEVICES else []
        named = {(one.host, one.gpu, one.mig): one for group in slow for one in group}
        yield from _ended(cluster, job, streaks, named, at)
        _lengthened(streaks, named, whole, at, window_ms)
    yield from _stragglers_by_host(cluster, job, {place: streak for place, streak in streaks.items() if streak.found is not None}, None)


def _lengthened(
    streaks: dict[tuple[str | None, str, str | None], _Streak],
    named: Mapping[tuple[str | None, str, str | None], DeviceOfJob],
    devices: Sequence[DeviceOfJob],
    at: int,
    window_ms: int,
) -> None:
    usual = float(np.median([one.busy or 0.0 for one in devices])) if devices else 0.0
    for place, one in named.items():
        streak = streaks.setdefault(place, _Streak(at - window_ms))
        busier = (one.busy or 0.0) / usual if usual > 0 else 0.0
        streak.count, streak.silent = streak.count + 1, 0
        if streak.found is None and streak.count >= _needed(busier):
            streak.found, streak.busier = at, busier


def _needed(busier: float) -> int:
    """Return in how many scrapes in a row a device must stand out that is so many times as busy as the others."""
    return 1 if busier >= CLEAR else IN_A_ROW


def _ended(
    cluster: str | None,
    job: str,
    streaks: dict[tuple[str | None, str, str | None], _Streak],
    named: Mapping[tuple[str | None, str, str | None], DeviceOfJob],
    at: int,
) -> Iterator[SeenStraggler]:
    over: dict[tuple[str | None, str, str | None], _Streak] = {}
    for place in [place for place in streaks if place not in named]:
        streak = streaks[place]
        streak.silent += 1
        if streak.found is None or streak.silent >= GONE:
            del streaks[place]
            if streak.found is not None:
                over[place] = streak
    yield from _stragglers_by_host(cluster, job, over, at)


def _stragglers_by_host(
    cluster: str | None, job: str, streaks: Mapping[tuple[str | None, str, str | None], _Streak], end: int | None
) -> Iterator[SeenStraggler]:
    """Yield what was found; devices of one host that were found at once are one straggler."""
    by_host: dict[tuple[str | None, int], list[tuple[str | None, str, str | None]]] = {}
    for place, streak in streaks.items():
        by_host.setdefault((place[0], streak.found or 0), []).append(place)
    for (_, found), places in by_host.items():
        first = min(streaks[place].start for place in places)
        busier = max(streaks[place].busier for place in places)
        yield SeenStraggler(cluster, job, tuple(sorted(places, key=str)), first, found, busier, end)
