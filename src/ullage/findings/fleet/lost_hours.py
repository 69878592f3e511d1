"""Jobs that failed, or were started again: what their runs had done may be lost."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.findings.fleet_evidence import FleetEvidence, JobEvidence, price
from ullage.findings.kind import fleet_kind
from ullage.findings.place import place_of_devices
from ullage.views.notation import GPU_HOURS
from ullage.views.view import Fact, Finding

LEAST_HOURS = 1.0  # GPU-hours: a run that fails at its start costs little
OWNERS = {"node failed": "the operators of the hosts", "restarted": "the scheduler, the operators"}  # of other endings the job's own
ADVICE = {
    "failed": "read the job's log; what was done since the last checkpoint is lost",
    "out of memory": "give it more memory on the host, or a smaller micro-batch; what was done since the last checkpoint is lost",
    "node failed": "look at the host in the scheduler's and the kernel's log before it gets another job; checkpoint more often there",
    "restarted": "see who requeues or preempts it; have it save its work when a signal announces the end (--signal), so that it goes on",
}


@fleet_kind(
    "lost_hours",
    "failed",
    part="the hours of a job's runs that failed or were started again, of which no other finding of the job speaks, OFU included",
    without=("*",),
)
def lost_hours(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the jobs of whose runs a GPU-hour or more failed or was started again, by their own fault or by that of a machine."""
    for job in fleet.jobs:
        if sum(job.lost_runs.values()) >= LEAST_HOURS:
            yield _finding(job)


def _finding(job: JobEvidence) -> Finding:
    hours, most = sum(job.lost_runs.values()), max(job.lost_runs, key=lambda ending: job.lost_runs[ending])
    return Finding(
        where=place_of_devices(job, job.devices),
        owner=OWNERS.get(most, job.owner),
        gpu_hours=hours,
        money=price(hours, job.devices),
        confidence="low",  # what was saved before (a checkpoint) is not lost, and records do not say so
        evidence=tuple(Fact(ending, held, GPU_HOURS, "GPU-hours") for ending, held in job.lost_runs.items()),
        advice=ADVICE[most],
    )
