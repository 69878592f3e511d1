"""How much of a fleet went into work that was kept, how much was lost to runs that failed, and how long jobs waited before they ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import pyarrow as pa

from ullage.findings.fleet_evidence import QueueWaits
from ullage.job_names import plain_name
from ullage.metrics.goodput import goodput, program_goodput, runtime_goodput, scheduling_goodput
from ullage.metrics.metric import ratio
from ullage.reports.fleet.job_runs import ENDINGS, LOST, EndedSpan, JobRun, JobRuns
from ullage.reports.fleet.rated import NOT_ALLOCATED, Array, Rated
from ullage.sums.ledger import CODES
from ullage.units import HOUR_MS

HELD = tuple(CODES[name] for name in ("job", "shared", "held_idle"))
JobKey = tuple[str | None, str]  # a cluster, and a job (or several that share GPUs) in one word
RowsOfSpans = Callable[[Mapping[JobKey, Sequence[EndedSpan]]], Mapping[str, Rated]]


@dataclass(frozen=True)
class EndedRuns:
    """The runs that one thing ended before they completed: how many, the GPU-hours that they held, and the OFU-hours in them."""

    ending: str
    runs: int
    gpu_hours: float
    ofu_hours: float

    @property
    def lost(self) -> bool:
        """Whether their work counts as lost; that of runs that were cancelled or timed out counts as kept."""
        return self.ending in LOST


@dataclass(frozen=True)
class FleetGoodput:
    """GPU-hours whose OFU is known: `capacity` of all whose owner is known, `allocated` of them to jobs, `useful` what they come to at
    the peak; `ended` are the runs among them that did not complete, `lost_by_job` GPU-hours held by runs that were lost, by ending.

    Time of unknown owners stands outside.
    """

    capacity: float
    allocated: float
    ofu_hours: float
    ended: tuple[EndedRuns, ...]
    lost_by_job: Mapping[JobKey, Mapping[str, float]] = field(default_factory=dict, repr=False)

    @property
    def kept(self) -> float:
        """GPU-hours of runs whose work was kept."""
        return self.allocated - sum(one.gpu_hours for one in self.ended if one.lost)

    @property
    def useful(self) -> float:
        """OFU-hours of runs whose work was kept."""
        return self.ofu_hours - sum(one.ofu_hours for one in self.ended if one.lost)

    @property
    def scheduling(self) -> float | None:
        """The share of the capacity that jobs held."""
        return _known(scheduling_goodput(self.allocated, self.capacity))

    @property
    def runtime(self) -> float | None:
        """The share of what jobs held that belongs to runs whose work was kept."""
        return _known(runtime_goodput(self.kept, self.allocated))

    @property
    def program(self) -> float | None:
        """OFU of the runs whose work was kept, over all that they held."""
        return _known(program_goodput(self.useful, self.kept))

    @property
    def goodput(self) -> float | None:
        """The product of the three."""
        if self.scheduling is None or self.runtime is None or self.program is None:
            return None
        return float(goodput(self.scheduling, self.runtime, self.program))

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Goodput if the work of all runs that did not complete was lost, and if checkpoints saved all of it."""
        least = ratio(self.ofu_hours - sum(one.ofu_hours for one in self.ended), self.capacity)
        most = ratio(self.ofu_hours, self.capacity)
        return None if least is None or most is None else (float(least), float(most))


def queue_waits(runs: Sequence[JobRun], window: tuple[int, int], seen: Mapping[str, int]) -> QueueWaits | None:
    """Return how long the runs that started in a window had waited; None where no record says so.

    `seen` says on how many devices samples saw a job, for records that don't. A run of which neither says it counts nowhere.
    """
    started = [(one, one.gpus or seen.get(one.job, 0)) for one in runs if window[0] <= one.start < window[1]]
    waits = [(one, gpus, one.wait) for one, gpus in started if gpus and one.wait is not None]
    if not waits:
        return None
    longest, _, wait = max(waits, key=lambda each: each[2])
    gpu_ms = sum(gpus * ms for _, gpus, ms in waits)
    return QueueWaits(
        runs=len(waits),
        unknown=sum(gpus > 0 and one.wait is None for one, gpus in started),
        jobs=len({(one.cluster, one.job) for one, _, _ in waits}),
        mean=gpu_ms / sum(gpus for _, gpus, _ in waits) / 1000,
        median=median(ms for _, _, ms in waits) / 1000,
        longest=wait / 1000,
        longest_job=plain_name(longest.job),
        gpu_hours=gpu_ms / HOUR_MS,
        ran=sum(gpus * (min(one.end, window[1]) - one.start) for one, gpus, _ in waits) / HOUR_MS,
    )


def fleet_goodput(good: Rated, runs: JobRuns, rows_of_spans: RowsOfSpans) -> FleetGoodput | None:
    """Return the goodput of trusted rows by the runs that records tell of; None where none tells a state.

    `rows_of_spans` gives the trusted rows of some spans of jobs, by ending: it is asked for those jobs alone of which only a part of the
    time is of runs that did not complete.
    """
    if not any(one.state for one in runs.runs) or not len(good):
        return None
    by_job, own = runs.by_job(), _sums_by_job(good)
    tally, parts = _EndedTally(), dict[JobKey, list[EndedSpan]]()
    for key, sums in own.items():
        spans = runs.ended_spans(*key, by_job)
        if spans and all(one.whole for one in spans):
            tally.add(key, spans[0].ending, sums)
        elif spans:
            parts[key] = spans
    for ending, rated in rows_of_spans(parts).items() if parts else ():
        for key, sums in _sums_by_job(rated).items():
            tally.add(key, ending, sums)
    time, whose = good.ofu_time * good.weight / HOUR_MS, good.column("owner")
    count = runs.endings(own)
    return FleetGoodput(
        capacity=float(time[np.isin(whose, (*HELD, *NOT_ALLOCATED))].sum()),
        allocated=float(time[np.isin(whose, HELD)].sum()),
        ofu_hours=float(_ofu_hours(good)[np.isin(whose, HELD)].sum()),
        ended=tuple(
            EndedRuns(ending, count[ending], tally.hours[ending], tally.ofu_hours[ending]) for ending in ENDINGS if ending in tally.hours
        ),
        lost_by_job=tally.lost_by_job,
    )


@dataclass(frozen=True)
class _JobSums:
    """Of the time that a job held GPUs: GPU-hours whose OFU is known, OFU-hours, and all GPU-hours."""

    hours: float
    ofu_hours: float
    held: float


class _EndedTally:
    """Sums of time of runs that did not complete, by what ended them, and the GPU-hours held of each job that lost any."""

    def __init__(self) -> None:
        self.hours: dict[str, float] = defaultdict(float)
        self.ofu_hours: dict[str, float] = defaultdict(float)
        self.lost_by_job: dict[JobKey, dict[str, float]] = {}

    def add(self, key: JobKey, ending: str, sums: _JobSums) -> None:
        self.hours[ending] += sums.hours
        self.ofu_hours[ending] += sums.ofu_hours
        if ending in LOST:
            own = self.lost_by_job.setdefault(key, {})
            own[ending] = own.get(ending, 0.0) + sums.held


def _ofu_hours(rows: Rated) -> Array:
    return np.nan_to_num(rows.ofu_part * rows.weight) / HOUR_MS


def _sums_by_job(rows: Rated) -> dict[JobKey, _JobSums]:
    """Return the sums of each job, or of several that share GPUs, over the time that it held them."""
    if not len(rows):
        return {}
    codes, firsts = rows.alike("cluster", "job")
    held = np.isin(rows.column("owner"), HELD)
    amounts = (rows.ofu_time * rows.weight / HOUR_MS, _ofu_hours(rows), rows.column("span_ms") * rows.weight / HOUR_MS)
    sums = zip(*(np.bincount(codes[held], amount[held], len(firsts)).tolist() for amount in amounts), strict=True)
    names = rows.sums.select(["cluster", "job"]).take(pa.array(firsts)).to_pylist()
    return {(row["cluster"], row["job"]): _JobSums(*own) for row, own in zip(names, sums, strict=True) if row["job"] is not None}


def _known(value: float | None) -> float | None:
    return None if value is None or value != value else float(value)
