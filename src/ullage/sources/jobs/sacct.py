"""Slurm's accounting: `sacct --parsable2` (or --parsable), `sacct --json`, and `squeue --json` or `scontrol show job --json`.

Source: Slurm's manual pages sacct(1) and squeue(1). The job's id is Slurm's own number (JobIDRaw, what a prolog
script sees as SLURM_JOB_ID) where the output has it, else JobID. Steps (123.batch) are no jobs of their own. `sacct`
writes times without a zone unless SLURM_TIME_FORMAT says otherwise: run it with TZ=UTC, or with
SLURM_TIME_FORMAT=%s. It names the hosts of a job, not its GPUs; `squeue --json` names both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.sources import clock
from ullage.sources.jobs.hostlist import expand
from ullage.sources.jobs.job import job_source
from ullage.sources.jobs.record import Record, count, numbers, queue_start, table, times
from ullage.sources.source import Place

MOST_JSON = 1 << 30  # bytes: sacct --json writes some 5 kB a job
_NOWHERE = ("", "none assigned", "(null)", "unknown", "n/a")
_DETAIL = re.compile(r"(?:^|[,=\s])gpu(?::([^:(,]+))?(?::\d+)?\(IDX:([\d,-]+)\)")
_UNREADABLE = (TypeError, ValueError, AttributeError, KeyError, OverflowError, RecursionError, UllageError)
_INSTANCE = re.compile(r"\d+g\.\d+gb")


def recognise(place: Place) -> int:
    """Return 2 for a first line with JobID between bars, or JSON with Slurm's jobs."""
    start = place.head.lstrip()
    first = start.split(b"\n", 1)[0].split(b"|")
    if len(first) > 1 and any(name.strip() in (b"JobID", b"JobIDRaw") for name in first):
        return 2
    return 2 if start.startswith(b"{") and b'"jobs"' in start and b'"job_id"' in start else 0


class _Answer(msgspec.Struct):
    """Slurm's answer, its jobs as text."""

    jobs: list[msgspec.Raw] = []


@job_source("sacct", recognise=recognise, reads="sacct --parsable2, sacct --json, squeue --json")
def read(place: Place, problems: Problems, zone: ZoneInfo | None) -> pa.Table:
    """Return a record per job and host (per GPU where Slurm names them). Jobs that never started or hold no GPU are counted."""
    where = Path(place.name).name
    records = _json(place, where, problems) if place.head.lstrip().startswith(b"{") else _text(place, where, problems, zone)
    return table(records, problems, where)


def _text(place: Place, where: str, problems: Problems, zone: ZoneInfo | None) -> Iterator[Record]:
    for at, told in text_rows(place, where, problems):
        job = told.get("JobIDRaw") or told.get("JobID") or ""
        if job and "." not in job:
            yield from _told(told, job, at, where, problems, zone)


def text_rows(place: Place, where: str, problems: Problems) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place of each line of `sacct --parsable2`, and its cells by their heads; lines that have others are counted."""
    with place.open() as file:
        lines = (line.decode("utf-8", "replace").rstrip("\r\n") for line in file)
        heads = next((line for line in lines if line.strip()), "").strip().split("|")
        if "AllocTRES" not in heads:
            problems.note(f"{where} has no column AllocTRES: its jobs are taken to hold every GPU of their hosts")
        for number, line in enumerate(lines, 2):
            cells = _cells(line, heads)
            if cells is None:
                problems.drop("lines of sacct with a wrong number of columns", 1 if line else 0, f"{where} line {number:,}")
                continue
            yield f"{where} line {number:,}", dict(zip(heads, cells, strict=True))


def _cells(line: str, heads: list[str]) -> list[str] | None:
    """Return the cells of a line; a job's name may hold bars, since sacct does not escape them."""
    cells, width = line.split("|"), len(heads)
    if len(cells) > width and "JobName" in heads:
        at, extra = heads.index("JobName"), len(cells) - width
        cells[at : at + extra + 1] = ["|".join(cells[at : at + extra + 1])]
    return cells if len(cells) == width else None


def _told(told: Mapping[str, str], job: str, place: str, where: str, problems: Problems, zone: ZoneInfo | None) -> Iterator[Record]:
    try:
        start, end = times(told.get("Start", ""), told.get("End", ""), problems, where, zone)
        hosts = hosts_of(told.get("NodeList", ""))
        gpus = allocated(told["AllocTRES"]) if "AllocTRES" in told else None
    except (ValueError, UllageError) as error:
        problems.drop("job records that can't be read", 1, f"{place}: {error}")
        return
    record = Record(
        job,
        name=told.get("JobName") or None,
        user=told.get("User") or None,
        cluster=told.get("Cluster") or None,
        queue_start=queue_start(told.get("Eligible", ""), told.get("Submit", ""), zone),
        start=start,
        end=end,
        state=state_of(told.get("State", "")),
        gpus=gpus,
    )
    if holds(record, hosts, "NodeList" in told, place, problems):
        yield from (replace(record, host=host) for host in (hosts or (None,)))


def state_of(text: str) -> str | None:
    """Return Slurm's word for how a job ended or stands, without who cancelled it.

    >>> state_of("CANCELLED by 1001"), state_of("")
    ('CANCELLED', None)
    """
    return text.split(" ", 1)[0].rstrip("+") or None


def holds(record: Record, hosts: list[str], told: bool, place: str, problems: Problems) -> bool:
    """Return whether the job ever held a GPU, as far as is known; counts those that did not."""
    if record.start is None or (told and not hosts):
        problems.drop("jobs that never started", 1, place)
        return False
    if record.gpus == 0:
        problems.drop("jobs without GPUs", 1, place)
        return False
    return True


def hosts_of(text: str) -> list[str]:
    """Return the hosts of a job by its node list; none where it has none yet."""
    return [] if text.strip().casefold() in _NOWHERE else expand(text)


def indexes(text: str) -> list[int]:
    """Return which GPUs of a host a job holds by its detail; none where it does not say, or numbers MIG instances, which are no GPUs.

    >>> indexes("gpu:a100:2(IDX:0-1),gpu:h100:1(IDX:4)"), indexes("gpu(IDX:3)"), indexes("gpu:1g.10gb:1(IDX:3)"), indexes("gpu:4")
    ([0, 1, 4], [3], [], [])
    """
    found = _DETAIL.findall(text)
    if any(_INSTANCE.search(kind) for kind, _ in found):
        return []
    return sorted({index for _, told in found for index in numbers(told)})


def allocated(text: str) -> int:
    """Return how many GPUs a job holds by its AllocTRES: the total, or the sum over types where only they are told.

    >>> allocated("billing=9,cpu=9,gres/gpu:h100=8,gres/gpu=8"), allocated("gres/gpu:a100=2,gres/gpu:h100=1"), allocated("cpu=4")
    (8, 3, 0)
    """
    counts = {name: int(number) for name, number in re.findall(r"gres/gpu(:[^=,]+)?=(\d{1,9})", text)}
    return count(counts[""] if "" in counts else sum(counts.values()))


def _json(place: Place, where: str, problems: Problems) -> Iterator[Record]:
    for at, job in json_jobs(place, where, problems):
        try:
            record, hosts, details = _decoded(job)
        except _UNREADABLE as error:
            problems.drop("job records that can't be read", 1, f"{at}: {harmless(str(error))}")
            continue
        if not holds(record, hosts, "nodes" in job, at, problems):
            continue
        if len(details) == len(hosts) and any(details):
            yield from (replace(record, host=host, index=index) for host, own in zip(hosts, details, strict=True) for index in own)
        else:
            yield from (replace(record, host=host) for host in (hosts or (None,)))


def json_jobs(place: Place, where: str, problems: Problems, naming: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place of each job of Slurm's JSON, and the job; only those in whose text `naming` stands. What is no job is counted.

    Raises UllageError for what is not whole JSON, or too much of it.
    """
    with place.open() as file:
        data = file.read(MOST_JSON + 1)
    if len(data) > MOST_JSON:
        raise UllageError(
            f"{where} holds more than {MOST_JSON >> 20:,} MB of JSON, which is read whole",
            "export a shorter time, or use sacct --parsable2, which is read line by line",
        )
    data = data.decode("utf-8", "replace").encode()  # a name in another encoding spoils only itself
    try:
        jobs = msgspec.json.decode(data, type=_Answer).jobs
    except (msgspec.DecodeError, RecursionError) as error:
        raise UllageError(f"{where} is not whole JSON: {error}", "write it again with sacct --json") from error
    for number, text in enumerate(jobs, 1):
        if naming.encode() not in bytes(text):
            continue
        at = f"{where} job {number:,}"
        try:
            # one at a time: as objects they take 20 times their text
            yield at, msgspec.json.decode(text, type=dict[str, Any])
        except _UNREADABLE as error:
            problems.drop("job records that can't be read", 1, f"{at}: {harmless(str(error))}")


def _decoded(job: dict[str, Any]) -> tuple[Record, list[str], list[list[int]]]:
    """Return a job, its hosts and their GPUs, from sacct's JSON (`time`, `tres`) or squeue's (`start_time`, `tres_alloc_str`)."""
    time = job.get("time") or {}
    start, end = (json_moment(time.get(name) if name in time else job.get(f"{name}_time")) for name in ("start", "end"))
    states = json_states(job)
    record = Record(
        str(job["job_id"]),
        name=_word(job.get("name")),
        user=_word((job.get("association") or {}).get("user") or job.get("user") or job.get("user_name")),
        cluster=_word(job.get("cluster")),
        queue_start=_queue_start(job, time),
        start=start,
        end=None if {"RUNNING", "SUSPENDED"} & set(states) else end,  # squeue tells the end that the time limit sets
        state=states[0] if states else None,
        gpus=_gpus(job),
    )
    details = [indexes(str(one)) for one in job.get("gres_detail") or []]
    return record, hosts_of(str(job.get("nodes") or "")), details


def json_states(job: dict[str, Any]) -> list[str]:
    """Return Slurm's words for how a job ended or stands: one in text, since 23.02 a list."""
    state = job.get("job_state") or (job.get("state") or {}).get("current") or ()
    return [state] if isinstance(state, str) else [str(word) for word in state]


def _gpus(job: dict[str, Any]) -> int | None:
    tres = job.get("tres")
    if isinstance(tres, dict):
        told = [
            one for one in tres.get("allocated") or [] if one.get("type") == "gres" and str(one.get("name") or "").split(":")[0] == "gpu"
        ]
        total = [one for one in told if one["name"] == "gpu"]
        return count(sum(int(one["count"]) for one in total or told))
    return allocated(job["tres_alloc_str"]) if isinstance(job.get("tres_alloc_str"), str) else None


def json_number(value: Any) -> int | None:
    """Return a number as Slurm's JSON writes it: as one, since 23.02 as {"set": true, "infinite": false, "number": 7}.

    >>> json_number(7), json_number({"set": True, "infinite": False, "number": 7}), json_number({"set": False, "number": 0})
    (7, 7, None)
    """
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else None
    return None if value is None else int(value)


def json_moment(value: Any) -> int | None:
    """Return a time of Slurm's JSON in ms: it is written in seconds."""
    value = json_number(value)
    if not value:
        return None
    found = clock.moment(str(value), Problems())
    if found is None:
        raise ValueError(f"{value} is not a time")
    return found


def _queue_start(job: Mapping[str, Any], time: Mapping[str, Any]) -> int | None:
    """Return since when a job of Slurm's JSON waited in the queue; None where nothing that can be read says so."""
    for value in (time.get("eligible", job.get("eligible_time")), time.get("submission", job.get("submit_time"))):
        with suppress(*_UNREADABLE):
            if (found := json_moment(value)) is not None:
                return found
    return None


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
