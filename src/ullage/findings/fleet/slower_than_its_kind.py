"""Jobs that do less work in an hour than the others of their kind: of the same user and name, on as many GPUs of the same model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from ullage.findings.fleet_evidence import FleetEvidence, JobEvidence, price
from ullage.findings.kind import fleet_kind
from ullage.findings.place import place_of_devices
from ullage.metrics.metric import ratio
from ullage.views.notation import COUNT, FACTOR, PERCENT_1
from ullage.views.view import Fact, Finding

LEAST_OTHERS = 2  # jobs of the kind beside it: of two jobs nobody can say which one is wrong
MOST_OF_THE_SLOWEST = 0.75  # of the OFU of the slowest other job of the kind: settings that people try differ by less
LEAST_HOURS = 1.0  # GPU-hours at work: a job that has just begun is still starting

ADVICE = {
    "load_balance": "see which rank comes late (ullage trace … --by rank), and compare what each rank is fed",
    "activity": "compare its input pipeline, its host and its debug settings with those of the other jobs: its GPUs wait more than theirs",
    "sm_fill": "compare batch size and kernels with those of the other jobs: fewer of its SMs hold work",
    "tensor_issue": "compare precision, kernels and library versions with those of the other jobs: its SMs multiply less",
    "clock": "compare power caps and cooling of its hosts with those of the other jobs: its clock is lower",
}
OTHERWISE = "compare its settings and its hosts with those of the other jobs of its kind"


@fleet_kind(
    "slower_than_its_kind", "slower than its kind", part="the ullage of a job that no other finding of the job speaks of", without=("*",)
)
def slower_than_its_kind(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the jobs whose OFU is at most three quarters of that of every other job of their kind, and that memory does not bind."""
    kinds: dict[tuple[object, ...], list[JobEvidence]] = {}
    for job in fleet.jobs:
        if job.likeness is not None and job.ofu is not None and job.total(lambda one: one.worked) >= LEAST_HOURS:
            kinds.setdefault(job.likeness, []).append(job)
    for jobs in kinds.values():
        for job in jobs if len(jobs) > LEAST_OTHERS else ():
            others = [other for other in jobs if other is not job]
            if not job.bound_by_memory and (job.ofu or 0.0) <= MOST_OF_THE_SLOWEST * min(other.ofu or 0.0 for other in others):
                yield _finding(job, others)


def _finding(job: JobEvidence, others: list[JobEvidence]) -> Finding:
    usual = median(other.ofu or 0.0 for other in others)
    hours = job.total(lambda one: one.worked) * (1 - (job.ofu or 0.0) / usual)
    moved, change = moved_step(job, others)
    return Finding(
        where=place_of_devices(job, job.devices),
        owner=job.owner,
        gpu_hours=hours,
        money=price(hours, job.devices),
        confidence="medium",
        evidence=(
            Fact("OFU", job.ofu, PERCENT_1),
            Fact("OFU of its kind", usual, PERCENT_1),
            Fact("other jobs of its kind", len(others), COUNT),
            *([Fact(f"{moved.replace('_', ' ')} beside theirs", change, FACTOR)] if moved else []),
        ),
        advice=ADVICE.get(moved, OTHERWISE),
    )


def moved_step(job: JobEvidence, others: Sequence[JobEvidence]) -> tuple[str, float | None]:
    """Return the step of the chain that fell most beside the others', and how far; "" where no step is known."""
    own, theirs = _factors(job), [_factors(other) for other in others]
    changes = {
        name: ratio(value, median(found[name] for found in theirs)) for name, value in own.items() if all(name in found for found in theirs)
    }
    known = {name: change for name, change in changes.items() if change is not None}
    return min(known.items(), key=lambda item: item[1]) if known else ("", None)


def _factors(job: JobEvidence) -> dict[str, float]:
    """Return what is left after each step of the job's chain over what was left before it, where each step is known by itself."""
    left, found = job.total(lambda one: one.counted), {}
    for name in ADVICE:
        after = left - job.total(lambda one, step=name: one.lost.get(step, 0.0))  # type: ignore[misc]
        if left > 0:
            found[name] = after / left
        left = after
    return found
