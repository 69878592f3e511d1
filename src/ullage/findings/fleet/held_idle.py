"""Jobs that hold GPUs on which nothing runs."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.findings.fleet_evidence import DeviceOfJob, FleetEvidence, JobEvidence, price
from ullage.findings.kind import fleet_kind
from ullage.findings.place import place_of_devices
from ullage.views.notation import COUNT, GPU_HOURS, PERCENT
from ullage.views.view import Fact, Finding

LEAST_HOURS = 0.25  # of a GPU: loading a model and compiling take minutes
LEAST_SHARE = 0.1  # of the time for which a GPU is held
WHOLE = 0.95  # of it: a GPU that was never used


@fleet_kind("held_idle", "held idle", part="the step 'held idle' of the chain")
def held_idle(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the jobs that hold GPUs for a quarter of an hour and a tenth of their time without using them."""
    for job in fleet.jobs:
        idle = [one for one in job.devices if one.idle >= LEAST_HOURS and one.idle >= LEAST_SHARE * one.held]
        if idle:
            yield _finding(job, idle)


def _finding(job: JobEvidence, idle: list[DeviceOfJob]) -> Finding:
    hours, held = sum(one.idle for one in idle), sum(one.held for one in idle)
    unused = [one for one in idle if one.idle >= WHOLE * one.held]
    return Finding(
        where=place_of_devices(job, idle),
        owner=job.owner,
        gpu_hours=hours,
        money=price(hours, idle),
        confidence="high",
        evidence=(
            Fact("idle", hours, GPU_HOURS, "GPU-hours"),
            Fact("idle share", hours / held, PERCENT),
            Fact("GPUs that idle", len(idle), COUNT),
            Fact("GPUs of the job", len(job.devices), COUNT),
        ),
        advice=_advice(job, len(unused)),
    )


def _advice(job: JobEvidence, unused: int) -> str:
    whose = f"ask {job.owner} whether the job" if job.owner != "unknown" else "ask whose job it is and whether it"
    if unused == len(job.devices):
        return f"{whose} is still needed: nothing ran on any of its GPUs; a limit on idle time in the scheduler ends such jobs"
    if unused:
        return f"{whose} needs all its GPUs: some were never used; is a process started for each of them?"
    return f"{whose} can give its GPUs back between runs, or run as batch jobs: its GPUs rest for long times"
