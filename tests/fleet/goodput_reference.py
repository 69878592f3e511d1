"""What came of a fleet's GPU-hours, second by second, from what is true of its jobs: short, slow, and meant to be checked by reading.

A fleet here is a `TrueFleet`: devices with a reading every `STEP` seconds, which stands for the seconds before it, and the true runs of
each job. `records_of` says what a scheduler and its snapshots kept of the runs.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

STEP = 10  # seconds between two readings
FAILS = {
    "FAILED": "failed",
    "OUT_OF_MEMORY": "out of memory",
    "NODE_FAIL": "node failed",
    "REQUEUED": "restarted",
    "PREEMPTED": "restarted",
}
CUT = {"CANCELLED by 1000": "cancelled", "TIMEOUT": "timed out"}
GOES_ON = ("COMPLETED", "RUNNING", None)


@dataclass(frozen=True)
class TrueRun:
    """A run of a job in seconds of the fleet's own clock; `end` None: it goes on. `queued` None: nobody kept it."""

    job: str
    cluster: str
    queued: int | None
    start: int
    end: int | None
    state: str | None
    gpus: int

    @property
    def ending(self) -> str | None:
        return (FAILS | CUT).get(self.state or "")

    def covers(self, second: int) -> bool:
        """Whether the second that ends at `second` belongs to it."""
        return self.start < second and (self.end is None or second <= self.end)


@dataclass(frozen=True)
class Reading:
    """A device at a time: whose it was, by label, and how it worked; `ofu` None: nobody measured it."""

    time: int
    cluster: str
    gpu: str
    mig: str | None
    share: float
    jobs: tuple[str, ...]
    idle: bool
    ofu: float | None


@dataclass
class TrueFleet:
    """What is true: readings, runs by (cluster, job), and the window in seconds."""

    window: tuple[int, int]
    readings: list[Reading] = field(default_factory=list)
    runs: list[TrueRun] = field(default_factory=list)
    of_jobs: dict[tuple[str, str], list[TrueRun]] = field(default_factory=dict)


def runs_in_window(fleet: TrueFleet, cluster: str, job: str) -> list[TrueRun]:
    """The runs of a job that have any second in the window, in order of time."""
    if (cluster, job) not in fleet.of_jobs:
        own = [run for run in fleet.runs if (run.cluster, run.job) == (cluster, job)]
        seconds = range(fleet.window[0] + 1, fleet.window[1] + 1)
        inside = [run for run in own if any(run.covers(second) for second in seconds)]
        fleet.of_jobs[cluster, job] = sorted(inside, key=lambda run: run.start)
    return fleet.of_jobs[cluster, job]


def ending_of_a_job(runs: list[TrueRun], second: int) -> str | None:
    """What ended the run that a second of a job belongs to; where all its runs ended alike, the labels' seconds beside them count too."""
    endings = {run.ending for run in runs}
    if len(endings) == 1:
        return endings.pop()
    return next((run.ending for run in runs if run.covers(second) and run.ending), None)


def ending_of_a_reading(fleet: TrueFleet, cluster: str, jobs: tuple[str, ...], second: int) -> str | None:
    """Of several jobs at once the work is lost where that of all is, by the mildest ending."""
    mildness = ["failed", "out of memory", "node failed", "restarted", "timed out", "cancelled"]
    endings = [ending_of_a_job(runs_in_window(fleet, cluster, job), second) for job in jobs]
    return None if None in endings or not endings else max(endings, key=lambda ending: mildness.index(str(ending)))


def goodput_by_seconds(fleet: TrueFleet) -> dict[str, Any]:
    """Goodput and what it is made of, in GPU-hours, a second at a time."""
    capacity = allocated = useful = 0.0
    hours: dict[str, float] = defaultdict(float)
    ofu: dict[str, float] = defaultdict(float)
    held: dict[tuple[str, str], float] = defaultdict(float)
    for reading in fleet.readings:
        for _ in range(STEP):
            part = reading.share / 3600
            if reading.jobs:
                ending = ending_of_a_reading(fleet, reading.cluster, reading.jobs, reading.time)
                if ending in FAILS.values():
                    held[reading.cluster, ",".join(sorted(reading.jobs))] += part
            if reading.ofu is None or (not reading.jobs and not reading.idle):
                continue  # its OFU or its owner is not known
            capacity += part
            if reading.jobs:
                allocated += part
                useful += part * reading.ofu
                if ending is not None:
                    hours[ending] += part
                    ofu[ending] += part * reading.ofu
    lost = sum(hours[ending] for ending in set(FAILS.values()))
    kept_ofu = useful - sum(ofu[ending] for ending in set(FAILS.values()))
    return {
        "capacity": capacity,
        "allocated": allocated,
        "kept": allocated - lost,
        "useful": kept_ofu,
        "goodput": kept_ofu / capacity if capacity else None,
        "bounds": ((useful - sum(ofu.values())) / capacity, useful / capacity) if capacity else None,
        "hours": {ending: amount for ending, amount in hours.items() if amount},
        "ofu": {ending: ofu[ending] for ending, amount in hours.items() if amount},
        "held": dict(held),
    }


def waits_by_seconds(fleet: TrueFleet) -> dict[str, Any] | None:
    """Waits of the runs that start in the window, counted a second at a time."""
    started = [run for run in fleet.runs if fleet.window[0] <= run.start < fleet.window[1]]
    known = [run for run in started if run.queued is not None]
    if not known:
        return None
    waits = [sum(1 for second in range(min(run.queued or 0, run.start), run.start) if second >= (run.queued or 0)) for run in known]
    ran = [sum(1 for second in range(run.start + 1, fleet.window[1] + 1) if run.covers(second)) for run in known]
    gpu_seconds = sum(run.gpus * wait for run, wait in zip(known, waits, strict=True))
    return {
        "runs": len(known),
        "unknown": len(started) - len(known),
        "jobs": len({(run.cluster, run.job) for run in known}),
        "mean": gpu_seconds / sum(run.gpus for run in known),
        "median": sorted(waits)[len(waits) // 2] if len(waits) % 2 else sum(sorted(waits)[len(waits) // 2 - 1 :][:2]) / 2,
        "longest": max(waits),
        "gpu_hours": gpu_seconds / 3600,
        "ran": sum(run.gpus * seconds for run, seconds in zip(known, ran, strict=True)) / 3600,
    }


# --- drawn fleets ---


def drawn_fleet(seed: int) -> TrueFleet:
    """A small fleet: jobs that fail, are requeued, cancelled, share GPUs or slices; labels that reach beyond their runs."""
    draw = random.Random(seed)
    steps, clusters = draw.randint(6, 24), ["east", "west"][: draw.choice([1, 1, 2])]
    fleet = TrueFleet((0, steps * STEP))
    names = [f"{n}" for n in range(1, draw.randint(2, 7))] + (["5_1", "5_2"] if draw.random() < 0.3 else [])
    for cluster in clusters:
        for name in names:
            fleet.runs += drawn_runs(draw, cluster, name, steps)
        for number in range(draw.randint(1, 4)):
            slices: list[tuple[str | None, float]] = [(None, 1.0)]
            if draw.random() < 0.2:
                slices = [("3g.40gb/1", 3 / 7), ("4g.40gb/2", 4 / 7)]
            for mig, share in slices:
                held = draw.sample(names, draw.randint(0, min(3, len(names))))
                early, late = (draw.choice([0, 0, 1, 2]) for _ in range(2))
                for step in range(1, steps + 1):
                    jobs = tuple(sorted(name for name in held if is_labelled(fleet, cluster, name, step * STEP, early, late)))
                    idle = draw.random() < 0.2
                    ofu = None if draw.random() < 0.05 else 0.0 if idle else round(draw.uniform(0.05, 0.6), 3)
                    fleet.readings.append(Reading(step * STEP, cluster, f"{cluster}-{number}", mig, share, jobs, idle, ofu))
    return fleet


def is_labelled(fleet: TrueFleet, cluster: str, job: str, second: int, early: int, late: int) -> bool:
    """Whether a sample names a job: while it runs, and some steps before and after."""
    own = [run for run in fleet.runs if (run.cluster, run.job) == (cluster, job)]
    return any(run.covers(second + ahead * STEP) for run in own for ahead in range(-late, early + 1))


def drawn_runs(draw: random.Random, cluster: str, job: str, steps: int) -> list[TrueRun]:
    """One to three runs of a job, one after another, some of them from before the window or beyond it."""
    time, runs, gpus = draw.randint(-5, steps) * STEP, [], draw.randint(1, 4)
    for last in [False] * draw.choice([0, 0, 0, 1, 2]) + [True]:
        start = time + draw.choice([0, 0, 3])  # a run may begin between two readings
        state = draw.choice([*FAILS, *CUT, *GOES_ON]) if last else draw.choice(["REQUEUED", "NODE_FAIL", "PREEMPTED", "FAILED"])
        end = None if state == "RUNNING" else start + draw.choice([0, 1, 2, 4, 8, steps]) * STEP
        queued = None if draw.random() < 0.3 else start - draw.choice([0, 1, 59, 1000, 86_400, -30])  # clocks that were set back
        runs.append(TrueRun(job, cluster, queued, start, end, state, gpus))
        time = (end or 0) + draw.choice([0, 0, STEP, 3 * STEP])
    return [run for n, run in enumerate(runs) if run.start not in {other.start for other in runs[:n]}]


def records_of(fleet: TrueFleet, seed: int) -> list[dict[str, Any]]:
    """What was kept of the runs, in seconds: a row a host or a device, some twice: once while they ran, once when they were over."""
    draw, rows = random.Random(seed + 1), []
    one_cluster = len({run.cluster for run in fleet.runs}) < 2
    naming = draw.choice(["own", "none", "slurm"]) if one_cluster else "own"
    for run in fleet.runs:
        cluster = {"own": run.cluster, "none": None, "slurm": "the-slurm-name"}[naming]
        row = {"job": run.job, "cluster": cluster, "queue_start": run.queued, "start": run.start, "end": run.end, "state": run.state}
        rows += [row | {"host": f"n{n}", "gpus": run.gpus} for n in range(draw.choice([1, 1, 2]))]
        if draw.random() < 0.3:  # a snapshot of the queue that names devices, kept beside the accounting
            running = {"queue_start": None, "end": None, "state": "RUNNING"}
            rows += [row | running | {"host": "n0", "index": n, "gpus": run.gpus} for n in range(run.gpus)]
        if draw.random() < 0.2 and run.state is not None:
            rows.append({"job": run.job, "cluster": cluster, "mfu": 0.3})  # what a log said: no run
    draw.shuffle(rows)
    return rows
