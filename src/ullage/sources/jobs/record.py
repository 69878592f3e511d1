"""One row of `tables.JOBS` as a value, and the table of many: what every reader of job records makes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from zoneinfo import ZoneInfo

import pyarrow as pa

from ullage.errors import UllageError
from ullage.job_names import escaped_name
from ullage.problems import Problems
from ullage.sources import clock
from ullage.tables import JOBS

MOST_RECORDS = 2_000_000  # of one file: a year of a site that starts 5,000 jobs with GPUs a day
CHUNK = 50_000  # records that are Python objects at a time
_MOST_GPUS = 10_000_000


@dataclass(frozen=True)
class Record:
    """A job on one device, or on a host whose devices nobody names (`index` and `gpu` null), or of unknown place.

    Times are ms since 1970 UTC; `queue_start` is when it began to wait in the queue, `start` null means before everything, `end` null
    still running. `gpus` counts the whole job's devices. `gpu` is a UUID, 'cluster/host/index', 'host/index', or '0.7' for MIG instance 7
    of GPU 0 (as in mapping folders).
    """

    job: str
    name: str | None = None
    user: str | None = None
    cluster: str | None = None
    host: str | None = None
    index: int | None = None
    gpu: str | None = None
    start: int | None = None
    end: int | None = None
    state: str | None = None
    gpus: int | None = None
    mfu: float | None = None
    flops_per_gpu: float | None = None
    queue_start: int | None = None


def table(records: Iterable[Record], problems: Problems, where: str = "", escaped: bool = False) -> pa.Table:
    """Return the `JOBS` table; a job that ends before it starts is left out and counted, once however many devices it has.

    The ids of jobs are written as samples write them (`ullage.job_names`); `escaped` says that they are so already.
    Records are held as columns, some `CHUNK` at a time, so that memory follows the table. Raises UllageError for more than
    `MOST_RECORDS` records.

    >>> table([Record("1", start=20, end=10), Record("2", start=10, end=20)], Problems())["job"].to_pylist()
    ['2']
    """
    parts, kept = [JOBS.empty_table()], list[Record]()
    reversed_: tuple[int | None, str] = (None, "")
    for number, record in enumerate(records, 1):
        if number > MOST_RECORDS:
            raise UllageError(
                f"{where} holds more than {MOST_RECORDS:,} job records (one a job and host)",
                "export a shorter time, or only jobs with GPUs",
            )
        if record.start is not None and record.end is not None and record.end < record.start:
            if (record.start, record.job) != reversed_:  # the devices of one job stand together
                problems.drop("jobs that end before they start", 1, f"{where} job {record.job}")
            reversed_ = (record.start, record.job)
            continue
        kept.append(record if escaped else replace(record, job=escaped_name(record.job)))
        if len(kept) == CHUNK:
            parts.append(_table(kept))
            kept = []
    return pa.concat_tables([*parts, _table(kept)])


def _table(records: Sequence[Record]) -> pa.Table:
    columns = {field.name: [getattr(record, field.name) for record in records] for field in fields(Record)}
    return pa.table([_column(columns[field.name], field.type) for field in JOBS], schema=JOBS)


def records(jobs: pa.Table) -> list[Record]:
    """Return the rows of a `JOBS` table as records, times in ms."""
    columns = []
    for name in (field.name for field in fields(Record)):
        column = jobs[name]
        column = column.cast(JOBS.field(name).type).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        columns.append(column.to_pylist())
    return [Record(*row) for row in zip(*columns, strict=True)]


def _column(values: list[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def times(start: str, end: str, problems: Problems, where: str, zone: ZoneInfo | None) -> tuple[int | None, int | None]:
    """Return two written times in ms; `zone` is that of times that say none.

    Raises ValueError for one that says something and can't be read.
    """
    return _time(start, problems, where, zone), _time(end, problems, where, zone)


def queue_start(eligible: str, submitted: str, zone: ZoneInfo | None) -> int | None:
    """Return since when (ms) a job waited in the queue: since it could run, where that is known, else since it was submitted.

    What can't be read says nothing here: the job ran, whenever that was.

    >>> queue_start("1970-01-01T00:00:02Z", "1970-01-01T00:00:01Z", None), queue_start("Unknown", "1970-01-01T00:00:01Z", None)
    (2000, 1000)
    """
    for text in (eligible, submitted):
        with suppress(ValueError):
            if (found := _time(text, Problems(), "", zone)) is not None:
                return found
    return None


def count(number: int) -> int:
    """Return a number of GPUs; raises ValueError beyond what any machine has, so that a broken number is no job's size."""
    if not 0 <= number <= _MOST_GPUS:
        raise ValueError(f"{number} is not a number of GPUs")
    return number


def _time(text: str, problems: Problems, where: str, zone: ZoneInfo | None) -> int | None:
    found = clock.moment(text, problems, where, zone)
    if found is None and text.strip().casefold() not in clock.NOTHING:
        raise ValueError(f"'{text}' is not a time")
    return found


def numbers(text: str) -> list[int]:
    """Return the GPU numbers of a list such as '0-3,6'; raises ValueError where it is none (or beyond 1,024 GPUs).

    >>> numbers("0-3,6"), numbers("2")
    ([0, 1, 2, 3, 6], [2])
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part, re.ASCII)
        if match is None or int(match[2] or match[1]) >= 1024:
            raise ValueError(f"'{text}' is no list of GPU numbers")
        found.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(set(found))
