"""What Slurm's controller says of its jobs: `scontrol show job -d` (or --details), with or without --oneliner.

Source: Slurm's manual page scontrol(1). With -d a line for each host (`Nodes=n1 CPU_IDs=0-7 Mem=0 GRES=gpu:2(IDX:0-1)`) tells which of
its GPUs a job holds: what accounting does not keep, and the reason to write it down while jobs run. Times have no zone, as sacct's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.sources.jobs.hostlist import expand
from ullage.sources.jobs.job import job_source
from ullage.sources.jobs.record import Record, queue_start, table, times
from ullage.sources.jobs.sacct import allocated, holds, hosts_of, indexes, state_of
from ullage.sources.source import Place

LONGEST = 1 << 20  # characters of one job; with a line for each host, 10,000 hosts take half of it
_HEAD = re.compile(r"JobId=(\d+)(?: [^\s=]+=\S*)*? JobName=(.*)", re.DOTALL)
_USER = re.compile(r"\s(?=UserId=\S+ GroupId=)")
_WORD = re.compile(r"(\w+)=(\S*)")
_DETAIL = re.compile(r"\sNodes=(\S+)(?: \w+=\S*)*? GRES(?:_IDX)?=(\S+)")


def recognise(place: Place) -> int:
    """Return 2 for text that begins with the number of a job, as only `scontrol` writes it."""
    return 2 if re.match(rb"JobId=\d+ ", place.head.lstrip()) else 0


@job_source("scontrol", recognise=recognise, reads="scontrol show job -d")
def read(place: Place, problems: Problems, zone: ZoneInfo | None) -> pa.Table:
    """Return a record per job and GPU where Slurm tells which (-d), else per job and host. Jobs that hold no GPU are counted."""
    where = Path(place.name).name
    return table(_records(place, where, problems, zone), problems, where)


def _records(place: Place, where: str, problems: Problems, zone: ZoneInfo | None) -> Iterator[Record]:
    for line, text in _jobs(place, where, problems):
        at = f"{where} line {line:,}"
        try:
            record, hosts, held = _told(text, problems, where, zone)
        except (ValueError, UllageError) as error:
            problems.drop("job records that can't be read", 1, f"{at}: {harmless(str(error))}")
            continue
        if not holds(record, hosts, True, at, problems):
            continue
        for host in hosts:
            own: Sequence[int | None] = held.get(host) or [None]
            yield from (replace(record, host=host, index=index) for index in own)


def _jobs(place: Place, where: str, problems: Problems) -> Iterator[tuple[int, str]]:
    """Return each job's text, and the number of its first line."""
    first, lines, size = 0, list[str](), 0
    with place.open() as file:
        for number, raw in enumerate(file, 1):
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if line.startswith("JobId="):
                if lines:
                    yield first, "\n".join(lines)
                first, lines, size = number, [], 0
            size += len(line)
            if size > LONGEST:
                problems.drop("lines of a job beyond what any job has", 1, f"{where} line {number:,}")
            elif line.strip():
                lines.append(line)
    if lines:
        yield first, "\n".join(lines)


def _told(text: str, problems: Problems, where: str, zone: ZoneInfo | None) -> tuple[Record, list[str], dict[str, list[int]]]:
    """Return a job, its hosts, and which of their GPUs it holds as far as that is told."""
    head = _HEAD.match(text)
    if head is None:
        raise ValueError("it does not begin with JobId= and JobName=")
    name, rest = _named(head[2])
    words: dict[str, str] = {}
    for key, value in _WORD.findall(rest):
        words.setdefault(key, value)  # what users write (Command, WorkDir, Comment) comes last
    state = state_of(words.get("JobState", ""))
    start, end = times(words.get("StartTime", ""), words.get("EndTime", ""), problems, where, zone)
    tres = next((words[key] for key in ("AllocTRES", "TRES") if key in words), None)
    record = Record(
        head[1],
        name=name or None,
        user=words.get("UserId", "").partition("(")[0] or None,
        queue_start=queue_start(words.get("EligibleTime", ""), words.get("SubmitTime", ""), zone),
        start=start,
        end=None if state in ("RUNNING", "SUSPENDED") else end,  # of a job that runs it is the end that the time limit sets
        state=state,
        gpus=None if tres is None else allocated(tres),
    )
    detailed = rest.partition(" WorkDir=")[0]
    held = {host: indexes(told) for nodes, told in _DETAIL.findall(detailed) for host in expand(nodes)}
    return record, hosts_of(words.get("NodeList", "")), held


def _named(text: str) -> tuple[str, str]:
    """Return a job's name, in which anything may stand, and what follows it."""
    line, _, more = text.partition("\n")
    if more:
        return line, f" {more}"
    parts = _USER.split(text.partition(" WorkDir=")[0])
    if len(parts) != 2:
        raise ValueError("where the job's name ends can't be told: write it without --oneliner")
    return parts[0], text[len(parts[0]) :]
