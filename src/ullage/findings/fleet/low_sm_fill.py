"""Jobs whose GPUs are busy with most of their SMs empty."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.findings.fleet_evidence import FleetEvidence, JobEvidence, price
from ullage.findings.kind import fleet_kind
from ullage.findings.place import place_of_devices
from ullage.metrics.metric import ratio
from ullage.views.notation import COUNT, PERCENT
from ullage.views.view import Fact, Finding

MOST_FILL = 0.5  # of the SMs hold work while the engine is busy: collectives alone, on a few SMs each, leave 0.7 to 0.9
LEAST_HOURS = 1.0  # GPU-hours at work
LITTLE_BUSY = 0.5  # of the time: a GPU that several jobs of this kind could share


@fleet_kind(
    "low_sm_fill",
    "low SM fill",
    part="the step 'SM fill' of a job's chain, without what its GPUs wait for a straggler",
    without=("straggler",),
)
def low_sm_fill(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the jobs of whose SMs at most half hold work while the GPU is busy, and that memory does not bind."""
    for job in fleet.jobs:
        if job.bound_by_memory:
            continue
        known = [one for one in job.devices if one.engine is not None and one.sm is not None]
        worked = sum(one.worked for one in known)
        engine = ratio(sum((one.engine or 0.0) * one.worked for one in known), worked)
        fill = ratio(ratio(sum((one.sm or 0.0) * one.worked for one in known), worked), engine)
        if fill is not None and engine is not None and fill <= MOST_FILL and worked >= LEAST_HOURS:
            yield _finding(job, engine, fill)


def _finding(job: JobEvidence, engine: float, fill: float) -> Finding:
    hours = job.total(lambda one: one.lost.get("sm_fill", 0.0))
    return Finding(
        where=place_of_devices(job, job.devices),
        owner=job.owner,
        gpu_hours=hours,
        money=price(hours, job.devices),
        confidence="medium",  # a collective that waits for a late rank fills few SMs, too
        evidence=(Fact("SM fill", fill, PERCENT), Fact("engine busy", engine, PERCENT), Fact("GPUs", len(job.devices), COUNT)),
        advice=_advice(len(job.devices), engine),
    )


def _advice(gpus: int, engine: float) -> str:
    if gpus > 1:
        return "trace a step (ullage trace): collectives that nothing hides and small kernels fill few SMs; larger micro-batches fill more"
    if engine < LITTLE_BUSY:
        return "let jobs of this kind share a GPU (MIG slices, MPS): it is busy for less than half of the time, and then with few SMs"
    return (
        "larger batches, CUDA graphs or fused kernels: the kernels are too small for this GPU; or run it on a slice (MIG) or a smaller GPU"
    )
