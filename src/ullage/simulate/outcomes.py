"""How the runs of a simulated fleet ended and how long they waited in the queue, and the goodput that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ullage.simulate.schedule import ScheduledJob
from ullage.simulate.specification import Specification, stream
from ullage.units import HOUR_MS

# How runs end, as schedulers write it, with the share of each.
STATES = (("COMPLETED", 0.7), ("FAILED", 0.14), ("OUT_OF_MEMORY", 0.04), ("TIMEOUT", 0.06), ("CANCELLED", 0.06))
LOST = ("FAILED", "OUT_OF_MEMORY")  # whose work counts as lost
MEAN_WAIT = 1800.0  # s


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended or stands, in the scheduler's word, and from when it waited in the queue (ms)."""

    state: str
    queue_start: int


def outcomes(specification: Specification, jobs: Sequence[ScheduledJob]) -> dict[str, RunOutcome]:
    """Return how each job ended, by name: the same for the same seed. One that goes on after the window runs still."""
    draw = stream(specification, 9)
    names, weights = [name for name, _ in STATES], [share for _, share in STATES]
    found = {}
    for job in jobs:
        state, wait = str(draw.choice(names, p=weights)), round(draw.exponential(MEAN_WAIT)) * 1000
        found[job.name] = RunOutcome("RUNNING" if job.end > specification.window[1] else state, job.start - wait)
    return found


def goodput_key(key: Mapping[str, Any], found: Mapping[str, RunOutcome], jobs: Sequence[ScheduledJob], start: int) -> dict[str, Any]:
    """Return the goodput that a report must find, from the other answers of the key; right where no two jobs share a GPU.

    Hours are those of trusted series. `waits` are of the runs that started within the window: GPU-hours waited, and the longest wait (s).
    """
    of_jobs = key["jobs"]
    hours = {name: of_jobs[name]["trusted_gpu_hours"] for name in of_jobs}
    used = {name: (of_jobs[name]["trusted_ofu"] or 0.0) * hours[name] for name in of_jobs}
    lost = [name for name in of_jobs if found[name].state in LOST]
    capacity = key["fleet"]["trusted_gpu_hours"] - key["ledger"]["unknown"] / HOUR_MS
    allocated = sum(hours.values())
    kept = allocated - sum(hours[name] for name in lost)
    useful = sum(used.values()) - sum(used[name] for name in lost)
    waited = [(job, job.start - found[job.name].queue_start) for job in jobs if job.start >= start]
    return {
        "scheduling": allocated / capacity,
        "runtime": kept / allocated if allocated else None,
        "program": useful / kept if kept else None,
        "goodput": useful / capacity,
        "states": {name: one.state for name, one in found.items()},
        "waits": {
            "runs": len(waited),
            "gpu_hours": sum(wait * len(job.gpus) for job, wait in waited) / HOUR_MS,
            "longest_seconds": max((wait for _, wait in waited), default=0) / 1000,
        },
    }
