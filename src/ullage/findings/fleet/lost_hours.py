"""Jobs that failed: what they had done may be lost."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.findings.fleet_evidence import FleetEvidence, JobEvidence, price
from ullage.findings.kind import fleet_kind
from ullage.findings.place import place_of_devices
from ullage.views.notation import GPU_HOURS, WORDS
from ullage.views.view import Fact, Finding

# Slurm's words, and Kubernetes' for a pod; who cancels or outlasts a limit has often what was wanted
OF_THE_MACHINES = frozenset({"NODE_FAIL", "BOOT_FAIL"})
OF_THE_JOB = frozenset({"FAILED", "OUT_OF_MEMORY", "DEADLINE"})
LEAST_HOURS = 1.0  # GPU-hours: a job that fails at its start costs little


@fleet_kind(
    "lost_hours",
    "failed",
    part="the hours of a job that failed and that no other finding of the job speaks of, OFU included",
    without=("*",),
)
def lost_hours(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the jobs that failed after a GPU-hour or more, by their own fault or by that of a machine."""
    for job in fleet.jobs:
        state = (job.state or "").upper().split(" ")[0].rstrip("+")
        if state in OF_THE_MACHINES | OF_THE_JOB and job.total(lambda one: one.held) >= LEAST_HOURS:
            yield _finding(job, state)


def _finding(job: JobEvidence, state: str) -> Finding:
    hours = job.total(lambda one: one.held)
    by_machine = state in OF_THE_MACHINES
    return Finding(
        where=place_of_devices(job, job.devices),
        owner="the operators of the hosts" if by_machine else job.owner,
        gpu_hours=hours,
        money=price(hours, job.devices),
        confidence="low",  # what was saved before (a checkpoint) is not lost, and records do not say so
        evidence=(Fact("state", state, WORDS), Fact("held", hours, GPU_HOURS, "GPU-hours")),
        advice=_advice(state, by_machine=by_machine),
    )


def _advice(state: str, *, by_machine: bool) -> str:
    if by_machine:
        return "look at the host in the scheduler's and the kernel's log before it gets another job; checkpoint more often on such hosts"
    if state == "OUT_OF_MEMORY":
        return "give it more memory on the host, or a smaller micro-batch; what was done since the last checkpoint is lost"
    return "read the job's log; what was done since the last checkpoint is lost"
