"""The stragglers of a fleet's jobs over a whole window: which jobs are looked at scrape by scrape, and what is found in them.

To look at each scrape of 10,000 GPUs takes minutes, sums take a second. A straggler makes means differ: by what its job waits for it, over
all of the job's time. So a job is looked at where its GPUs differ by so much that a straggler among them may be worth a finding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from ullage.findings.fleet_evidence import DeviceOfJob, FleetEvidence, JobEvidence, SeenStraggler
from ullage.findings.kind import worth_a_line
from ullage.reports.fleet.judged import JudgedFleet
from ullage.reports.stragglers.seen_stragglers import seen_stragglers
from ullage.units import HOUR_MS

MARGIN = 4.0  # times what differs: a mean shows at least four fifths of what is waited
WAITS = 0.85  # of engine activity: who waits is busy for more than 0.9 of the time, and all rest in pauses
MOST_READINGS = 500_000  # that are looked at one by one: of more, means over minutes are
STEP_MS = 60_000


def with_stragglers(found: FleetEvidence, fleet: JudgedFleet, wanted: Callable[[JobEvidence], bool] = lambda _: True) -> FleetEvidence:
    """Return what was measured of a fleet with the stragglers of those jobs that are wanted, and in which one may be worth a finding."""
    resending = {job for one in found.sick if "nvlink_replays" in one.errors for job in one.jobs}
    least = worth_a_line(found)
    chosen = [job for job in found.jobs if wanted(job) and (job.job in resending or may_straggle(job, least))]
    if not chosen:
        return found
    samples = fleet.believed_samples
    own = samples.filter(samples.job.cast("string").isin(sorted({job.job for job in chosen})))
    step = step_between_readings(sum(job.total(lambda one: one.held) for job in chosen), fleet.interval_ms)
    by_job: dict[tuple[str | None, str], list[SeenStraggler]] = {}
    for one in seen_stragglers(own, step_ms=step):
        by_job.setdefault((one.cluster, one.job), []).append(one)
    jobs = (replace(job, stragglers=tuple(by_job.get((job.cluster, job.job), ()))) for job in found.jobs)
    return replace(found, jobs=tuple(jobs))


def may_straggle(job: JobEvidence, least_hours: float) -> bool:
    """Return whether a straggler of a job may cost as much (GPU-hours), by how far means of its GPUs differ."""
    return MARGIN * unequal(job.devices) * job.total(lambda one: one.worked) >= least_hours


def unequal(devices: Sequence[DeviceOfJob]) -> float:
    """Return how far, relatively, a mean of one device is from the median of those of its model, in whichever sign it is most.

    Signs are the clock, SM activity for as much tensor work, and rests of the engine where the others wait, busy with that.
    """
    models: dict[str | None, list[DeviceOfJob]] = {}
    for one in devices:
        models.setdefault(one.model, []).append(one)
    return max((_farthest([*map(sign, alike)], least) for alike in models.values() for sign, least in COMPARED_MEANS), default=0.0)


def _clock(one: DeviceOfJob) -> float | None:
    return one.clock


def _busy(one: DeviceOfJob) -> float | None:
    return None if one.sm is None or not one.tensor or not one.counted else one.sm / (one.tensor / one.counted)


def _engine(one: DeviceOfJob) -> float | None:
    return one.engine


COMPARED_MEANS = ((_clock, 0.0), (_busy, 0.0), (_engine, WAITS))  # with what the others show at least, where it is one


def _farthest(values: Sequence[float | None], least: float) -> float:
    known = [value for value in values if value is not None]
    usual = median(known) if known else 0.0
    return max(abs(value - usual) for value in known) / usual if usual > least else 0.0


def step_between_readings(gpu_hours: float, interval_ms: int) -> int | None:
    """Return over how long (ms) means are taken, so that there are not too many of them; None: each sample counts by itself.

    >>> step_between_readings(1_000.0, 30_000), step_between_readings(240_000.0, 30_000)
    (None, 1740000)
    """
    held = gpu_hours * HOUR_MS
    return None if held <= MOST_READINGS * interval_ms else STEP_MS * math.ceil(held / MOST_READINGS / STEP_MS)
