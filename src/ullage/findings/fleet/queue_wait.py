"""Jobs that waited long in the queue before they ran."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.findings.fleet_evidence import FleetEvidence, QueueWaits
from ullage.findings.kind import fleet_kind
from ullage.metrics.metric import ratio
from ullage.views.notation import COUNT, GPU_HOURS, PERCENT, WORDS
from ullage.views.numbers import hours
from ullage.views.view import Fact, Finding, FindingPlace

LEAST_MEAN = 900.0  # s: schedulers look through their whole queue every few minutes, so a wait below that says little
LEAST_SHARE = 0.1  # of the GPU-hours that the same runs held
FREE = 0.05  # of the fleet: enough for many a job that waits


@fleet_kind("queue_wait", "queue waits", part="no part of the ullage: GPUs × the time for which jobs waited before they ran")
def queue_wait(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield what waits come to, where a GPU's wait is a quarter of an hour on average, and all waits a tenth of the time that followed."""
    waits = fleet.queue
    if waits is not None and waits.mean >= LEAST_MEAN and waits.gpu_hours >= LEAST_SHARE * waits.ran:
        yield _finding(fleet, waits)


def _finding(fleet: FleetEvidence, waits: QueueWaits) -> Finding:
    free = ratio(sum(one.free + one.not_sliced for one in fleet.free), sum(one.observed for one in fleet.free))
    one_job = waits.jobs == 1
    return Finding(
        where=FindingPlace(job=waits.longest_job) if one_job else FindingPlace(),
        owner="the scheduler, the demand",
        gpu_hours=waits.gpu_hours,
        confidence="medium" if waits.unknown else "high",
        evidence=(
            Fact("mean wait", f"{hours(waits.mean / 3600)} h", WORDS, "by GPUs"),
            *([] if one_job else [Fact("longest wait", f"{hours(waits.longest / 3600)} h (job {waits.longest_job})", WORDS)]),
            Fact("runs that waited", waits.runs, COUNT),
            Fact("held then", waits.ran, GPU_HOURS, "GPU-hours"),
            *([Fact("free in the window", free, PERCENT)] if free is not None and not one_job else []),
        ),
        advice=_advice(None if one_job else free),
    )


def _advice(free: float | None) -> str:
    if free is not None and free >= FREE:
        return "see why jobs wait while GPUs stand free: limits of users and queues, reservations, too few GPUs in one place, drained hosts"
    return "take back what is held idle first; then let short jobs fill gaps (backfill needs honest time limits), or add GPUs"
