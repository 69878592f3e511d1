"""What Slurm's records say of one job beyond `tables.JOBS`: the id that people see, its steps, its account, exit code and comment.

A task of a job array is `4711_3` to people and has a number of its own for a prolog (`JobIDRaw`); a step is `4711.0` or `4711.batch`; a
component of a heterogeneous job is `4711+1`. Read from `sacct --parsable2` with JobID and JobIDRaw, and from `sacct --json` of any version:
22.05 (data parser 0.0.38) has plain numbers and words, 23.02 and later have numbers as objects and states as lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo

from ullage.compressed import head
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.sources.jobs.record import times
from ullage.sources.jobs.sacct import json_jobs, json_moment, json_number, json_states, recognise, state_of, text_rows
from ullage.sources.source import Place
from ullage.written_values import expanded_path

MOST_STEPS = 10_000  # of one job that are kept
_NUMBER = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True)
class SlurmStep:
    """A step of a job, by its full name ("4711_3.batch"), and when it ran (ms)."""

    name: str
    start: int | None
    end: int | None


@dataclass(frozen=True)
class SlurmJob:
    """A job as Slurm's records have it: `shown` is its id as people see it, `job` Slurm's own number, which a prolog has.

    Times are ms since 1970; `exit_code` is the program's, 0 for success; `comment` is the administrator's.
    """

    job: str
    shown: str
    cluster: str | None = None
    account: str | None = None
    partition: str | None = None
    submitted: int | None = None
    start: int | None = None
    end: int | None = None
    state: str | None = None
    exit_code: int | None = None
    comment: str | None = None
    steps: tuple[SlurmStep, ...] = ()


def slurm_jobs(name: str, wanted: str, problems: Problems, zone: ZoneInfo | None = None) -> list[SlurmJob]:
    """Return the jobs of Slurm's records that an id may mean: a job, the tasks of an array, a task; each with its steps.

    A file that is none of Slurm's has none. `zone` is that of times that say none.
    """
    path, number = expanded_path(name), _NUMBER.match(wanted)
    if number is None or not path.is_file():
        return []
    place = Place(str(path), path, head(path))
    if not recognise(place):
        return []
    if place.head.lstrip().startswith(b"{"):
        found = [*_of_json(place, path.name, problems, number[0])]
    else:
        found = _of_text(place, path.name, problems, zone, number[0])
    return [job for job in found if number[0] in (_number(job.shown), job.job)]


def _number(shown: str) -> str:
    found = _NUMBER.match(shown)
    return found[0] if found else ""


# --- sacct --parsable2 ---


def _of_text(place: Place, where: str, problems: Problems, zone: ZoneInfo | None, number: str) -> list[SlurmJob]:
    jobs: dict[tuple[str, str | None], SlurmJob] = {}
    steps: dict[tuple[str, str | None], list[SlurmStep]] = {}
    for _, told in text_rows(place, where, problems):
        shown = told.get("JobID") or told.get("JobIDRaw") or ""
        if number not in (_number(shown), _number(told.get("JobIDRaw") or "")):
            continue
        try:
            start, end = times(told.get("Start", ""), told.get("End", ""), problems, where, zone)
            submitted, _ = times(told.get("Submit", ""), "", problems, where, zone)
        except ValueError:  # the reader of job records counts such lines
            continue
        job, _, step = shown.partition(".")
        key = (job, told.get("Cluster") or None)
        if step:
            steps.setdefault(key, []).append(SlurmStep(shown, start, end))
            del steps[key][MOST_STEPS:]
        else:
            jobs[key] = replace(_of_row(told, shown), submitted=submitted, start=start, end=end)
    return [replace(job, steps=tuple(steps.get(key, ()))) for key, job in jobs.items()]


def _of_row(told: Mapping[str, str], shown: str) -> SlurmJob:
    code = told.get("ExitCode", "").partition(":")[0]
    return SlurmJob(
        job=told.get("JobIDRaw") or shown,
        shown=shown,
        cluster=told.get("Cluster") or None,
        account=told.get("Account") or None,
        partition=told.get("Partition") or None,
        state=state_of(told.get("State", "")),
        exit_code=int(code) if re.fullmatch(r"\d{1,3}", code, re.ASCII) else None,
        comment=told.get("AdminComment") or None,
    )


# --- sacct --json ---


def _of_json(place: Place, where: str, problems: Problems, number: str) -> Iterator[SlurmJob]:
    for _, job in json_jobs(place, where, problems, naming=number):
        try:
            yield _of_object(job)
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError, UllageError):
            continue  # the reader of job records counts such jobs


def _of_object(job: Mapping[str, Any]) -> SlurmJob:
    raw, time = str(job["job_id"]), job.get("time") or {}
    shown, states = _shown(raw, job.get("array") or {}, job.get("het") or {}), json_states(dict(job))
    return SlurmJob(
        job=raw,
        shown=shown,
        cluster=_word(job.get("cluster")),
        account=_word(job.get("account")),
        partition=_word(job.get("partition")),
        submitted=json_moment(time.get("submission")),
        start=json_moment(time.get("start")),
        end=json_moment(time.get("end")),
        state=states[0] if states else None,
        exit_code=_exit_code(job, states),
        comment=_word((job.get("comment") or {}).get("administrator")),
        steps=tuple(_step(shown, step) for step in (job.get("steps") or [])[:MOST_STEPS]),
    )


def _exit_code(job: Mapping[str, Any], states: list[str]) -> int | None:
    """Return a job's exit code; Slurm 22.05 writes 0 in JSON for jobs that failed, which says nothing."""
    code = json_number((job.get("exit_code") or {}).get("return_code"))
    return None if code == 0 and "FAILED" in states else code


def _shown(raw: str, array: Mapping[str, Any], het: Mapping[str, Any]) -> str:
    """Return the id that people see of a job: its own number, or that of its array with the task's, or of its heterogeneous job."""
    of_array, task = json_number(array.get("job_id")), json_number(array.get("task_id"))
    if of_array and task is not None:
        return f"{of_array}_{task}"
    of_het, offset = json_number(het.get("job_id")), json_number(het.get("job_offset"))
    return f"{of_het}+{offset}" if of_het and offset is not None else raw


def _step(shown: str, step: Mapping[str, Any]) -> SlurmStep:
    told, time = step.get("step") or {}, step.get("time") or {}
    name = told.get("id")
    if isinstance(name, Mapping):  # 23.02 writes {"job_id": 4711, "step_id": "batch"}, later ones "4711.batch", 22.05 "batch" alone
        name = name.get("step_id")
    return SlurmStep(f"{shown}.{str(name).rpartition('.')[2]}", json_moment(time.get("start")), json_moment(time.get("end")))


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
