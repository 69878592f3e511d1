"""Jobs that do less work in an hour than earlier ones of their kind did: those of the window that this one is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from ullage.findings.fleet.slower_than_its_kind import ADVICE, LEAST_HOURS, MOST_OF_THE_SLOWEST, OTHERWISE, moved_step
from ullage.findings.fleet_evidence import FleetEvidence, JobEvidence, price
from ullage.findings.kind import fleet_kind
from ullage.findings.place import place_of_devices
from ullage.views.notation import COUNT, FACTOR, PERCENT_1
from ullage.views.view import Fact, Finding

SEVERAL = 2  # earlier jobs of the kind: one alone may have been an exception


@fleet_kind(
    "slower_than_before",
    "slower than before",
    part="the ullage of a job that no other finding of the job speaks of",
    without=("*", "slower_than_its_kind"),
)
def slower_than_before(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the jobs whose OFU is at most three quarters of that of every earlier job of their kind; memory binds none of them."""
    kinds: dict[tuple[object, ...], list[JobEvidence]] = {}
    for job in fleet.earlier:
        if _tells(job) and job.likeness is not None:
            kinds.setdefault(job.likeness, []).append(job)
    for job in fleet.jobs:
        before = kinds.get(job.likeness, []) if job.likeness is not None else []
        if before and _tells(job) and (job.ofu or 0.0) <= MOST_OF_THE_SLOWEST * min(one.ofu or 0.0 for one in before):
            yield _finding(job, before)


def _tells(job: JobEvidence) -> bool:
    return job.ofu is not None and not job.bound_by_memory and job.total(lambda one: one.worked) >= LEAST_HOURS


def _finding(job: JobEvidence, before: list[JobEvidence]) -> Finding:
    usual = median(one.ofu or 0.0 for one in before)
    hours = job.total(lambda one: one.worked) * (1 - (job.ofu or 0.0) / usual)
    moved, change = moved_step(job, before)
    return Finding(
        where=place_of_devices(job, job.devices),
        owner=job.owner,
        gpu_hours=hours,
        money=price(hours, job.devices),
        confidence="medium" if len(before) >= SEVERAL else "low",
        evidence=(
            Fact("OFU", job.ofu, PERCENT_1),
            Fact("OFU before", usual, PERCENT_1),
            Fact("earlier jobs of its kind", len(before), COUNT),
            *([Fact(f"{moved.replace('_', ' ')} beside theirs", change, FACTOR)] if moved else []),
        ),
        advice=f"see what changed since then; {ADVICE.get(moved, OTHERWISE).replace('the other jobs', 'the earlier ones')}",
    )
