"""Slurm's records of jobs as `sacct` writes them: text, and JSON in the shapes of several versions, drawn or given.

The shapes: 22.05 (dbv0.0.38) has plain numbers, a word for the state and the step's id alone; 23.02 (dbv0.0.39) has steps of ids with two
keys; from 23.11 on (data parser 0.0.40) numbers are objects, states are lists and a step's id is one word.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

SHAPES = ("22.05", "23.02", "23.11")
HEADS = "JobID|JobIDRaw|User|Account|Cluster|JobName|Partition|NodeList|AllocTRES|Submit|Start|End|State|ExitCode|AdminComment"


@dataclass(frozen=True)
class Step:
    name: str
    start: int  # s
    end: int


@dataclass(frozen=True)
class Submitted:
    """A job as it was submitted and ran; times in s. `array` and `het` are (id of the whole, number in it)."""

    raw: int
    start: int = 1_786_320_000
    end: int = 1_786_323_600
    submitted: int = 1_786_319_000
    gpus: int = 2
    nodes: str = "n1"
    name: str = "train"
    state: str = "COMPLETED"
    code: int = 0
    comment: str = ""
    cluster: str = "east"
    array: tuple[int, int] | None = None
    het: tuple[int, int] | None = None
    steps: tuple[Step, ...] = field(default=())

    @property
    def shown(self) -> str:
        if self.array:
            return f"{self.array[0]}_{self.array[1]}"
        return f"{self.het[0]}+{self.het[1]}" if self.het else str(self.raw)


def text(jobs: list[Submitted]) -> str:
    """Return `sacct --parsable2` with steps."""
    lines = [HEADS]
    for job in jobs:
        tres = f"billing=9,cpu=9,gres/gpu={job.gpus},node=1"
        times = [clock(job.submitted), clock(job.start), clock(job.end)]
        who = ["ann", "physics", job.cluster, job.name, "main", job.nodes, tres]
        lines.append("|".join([job.shown, str(job.raw), *who, *times, job.state, f"{job.code}:0", job.comment]))
        for step in job.steps:
            who = ["", "physics", job.cluster, step.name, "", job.nodes, tres]
            times = [clock(step.start), clock(step.start), clock(step.end)]
            lines.append("|".join([f"{job.shown}.{step.name}", f"{job.raw}.{step.name}", *who, *times, job.state, "0:0", ""]))
    return "\n".join(lines) + "\n"


def clock(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def as_json(jobs: list[Submitted], shape: str) -> str:
    """Return `sacct --json` in the shape of a version."""
    return json.dumps({"meta": {"Slurm": {"release": shape}}, "jobs": [_job(job, shape) for job in jobs], "errors": []})


def _number(value: int | None, shape: str) -> Any:
    if shape != "23.11":
        return value
    return {"set": value is not None, "infinite": False, "number": value or 0}


def _job(job: Submitted, shape: str) -> dict[str, Any]:
    array_id, task = job.array or (0, None)
    het_id, offset = job.het or (0, None)
    exit_code: dict[str, Any] = {"status": "SUCCESS", "return_code": _number(job.code, shape)}
    if shape == "22.05" and job.state == "FAILED":  # as it really writes it
        exit_code = {"status": "SUCCESS", "return_code": 0}
    return {
        "job_id": job.raw,
        "array": {"job_id": array_id, "task": None, "task_id": _number(task, shape)},
        "het": {"job_id": het_id, "job_offset": _number(offset, shape)},
        "account": "physics",
        "association": {"account": "physics", "cluster": job.cluster, "user": "ann"},
        "cluster": job.cluster,
        "comment": {"administrator": job.comment or None, "job": None, "system": None},
        "exit_code": exit_code,
        "name": job.name,
        "nodes": job.nodes,
        "partition": "main",
        "state": {"current": job.state if shape == "22.05" else [job.state], "reason": "None"},
        "steps": [_step(job, step, shape) for step in job.steps],
        "time": {"submission": job.submitted, "start": job.start, "end": job.end, "elapsed": job.end - job.start},
        "tres": {"allocated": [{"type": "cpu", "name": "", "count": 9}, {"type": "gres", "name": "gpu", "count": job.gpus}]},
        "user": "ann",
    }


def _step(job: Submitted, step: Step, shape: str) -> dict[str, Any]:
    ids: dict[str, Any] = {
        "22.05": int(step.name) if step.name.isdigit() else step.name,
        "23.02": {"job_id": job.raw, "step_id": step.name},
        "23.11": f"{job.raw}.{step.name}",
    }
    times = {"start": _number(step.start, shape), "end": _number(step.end, shape)}
    return {"step": {"id": ids[shape], "name": "x"}, "time": times, "state": job.state}


def drawn(draw: random.Random) -> list[Submitted]:
    """Return the jobs of a queue: single ones, arrays whose last task has the array's own number, heterogeneous ones."""
    jobs: list[Submitted] = []
    number = draw.randint(1, 9_000)
    for _ in range(draw.randint(1, 5)):
        sort, parts = draw.choice(["one", "array", "het"]), draw.randint(1, 4)
        raws = [number + 1 + n for n in range(parts)]
        for n, raw in enumerate(raws):
            start = 1_786_320_000 + draw.randint(0, 9_000)
            end = start + draw.randint(60, 9_000)
            middle = draw.randint(start, end)
            jobs.append(
                Submitted(
                    raw=number if sort == "array" and n == parts - 1 else raw,
                    start=start,
                    end=end,
                    submitted=start - draw.randint(0, 500),
                    gpus=draw.randint(1, 8),
                    name=draw.choice(["train", "a|b", "llama 70b"]),
                    state=draw.choice(["COMPLETED", "FAILED", "TIMEOUT"]),
                    code=draw.choice([0, 1, 3]),
                    comment=draw.choice(["", "JS1:Short"]),
                    array=(number, n) if sort == "array" else None,
                    het=(number + 1, n) if sort == "het" else None,
                    steps=(Step("batch", start, end), Step("0", start, middle), Step("1", middle, end)),
                )
            )
            if sort == "one":
                break
        number += parts + draw.randint(1, 9)
    return jobs
