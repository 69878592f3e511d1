"""Jobs that memory binds: their low OFU is no fault of theirs, and what is left to gain lies below another roof."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.findings.fleet_evidence import FleetEvidence, JobEvidence, price
from ullage.findings.kind import fleet_kind
from ullage.findings.place import place_of_devices
from ullage.views.notation import COUNT, PERCENT, PERCENT_1
from ullage.views.view import Fact, Finding

LEAST_HOURS = 1.0  # GPU-hours at work: loading a model moves bytes, too
CLOSE = 0.8  # of what is reachable: hardly any kernel comes closer, so only other work than this helps


@fleet_kind(
    "memory_bound",
    "bound by memory",
    part="what a job that memory binds falls short of the memory's roof, without what its GPUs wait for a straggler",
    without=("straggler",),
)
def memory_bound(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the jobs that reach half or more of the memory bandwidth, and less of every other roof."""
    for job in fleet.jobs:
        if job.bound_by_memory and job.memory is not None and job.total(lambda one: one.worked) >= LEAST_HOURS:
            yield _finding(job, job.memory)


def _finding(job: JobEvidence, height: float) -> Finding:
    hours = job.total(lambda one: one.worked) * max(0.0, 1 - height)
    return Finding(
        where=place_of_devices(job, job.devices),
        owner=job.owner,
        gpu_hours=hours,
        money=price(hours, job.devices),
        confidence="high" if job.memory_measured else "medium",  # what is reachable differs by a tenth from the stated peak
        evidence=(
            Fact("bandwidth of reachable", height, PERCENT),
            Fact("OFU", job.ofu, PERCENT_1),
            Fact("GPUs", len(job.devices), COUNT),
        ),
        advice=_advice(height),
    )


def _advice(height: float) -> str:
    fewer = "move fewer bytes for each result: larger batches, weights and caches of fewer bits"
    if height >= CLOSE:
        return f"its low OFU is no fault: it is near the memory's peak; {fewer}, or a GPU with more bandwidth for its price"
    return f"its low OFU is no fault: memory binds it; {fewer}, fused kernels; then let copies and kernels overlap"
