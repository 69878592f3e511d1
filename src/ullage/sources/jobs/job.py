"""What a job record source is: a reader that turns a place into the `JOBS` table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from zoneinfo import ZoneInfo

import pyarrow as pa

from ullage.compressed import head
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.registry import Registry
from ullage.sources.source import Place
from ullage.tables import JOBS
from ullage.written_values import expanded_path


class JobReader(Protocol):
    """A function that turns a place into a table of job records."""

    def __call__(self, place: Place, problems: Problems, zone: ZoneInfo | None) -> pa.Table:
        """Return a table of `tables.JOBS`: a row per job and device (or per job and host, or per job).

        `zone` is that of times that say none; None: UTC, with a note.
        """


@dataclass(frozen=True)
class JobSource:
    """A registered format of job records. `recognise` says how sure it is: 0 no, 1 perhaps, 2 certainly."""

    name: str
    recognise: Callable[[Place], int]
    read: JobReader
    reads: str


JOB_SOURCES: Registry[JobSource] = Registry("job record format", package="ullage.sources.jobs", command="ullage fleet --help")


def job_source(name: str, *, recognise: Callable[[Place], int], reads: str) -> Callable[[JobReader], JobReader]:
    """Register the decorated function as the reader of a format of job records."""

    def register(reader: JobReader) -> JobReader:
        JOB_SOURCES.add(name, JobSource(name, recognise, reader, reads))
        return reader

    return register


def read_jobs(name: str, problems: Problems, zone: ZoneInfo | None = None) -> pa.Table:
    """Return the `JOBS` table of a file or folder of job records, its format recognised by content.

    `zone` is that of times that say none. Raises UllageError for a place that is none, and for one that holds no job records.
    """
    path = expanded_path(name)
    if not path.exists():
        raise UllageError(f"there is no file or folder '{name}' with job records")
    place = Place(str(path), path, b"" if path.is_dir() else head(path))
    ranked = [(s.recognise(place), s) for s in JOB_SOURCES.values()]
    sure = max(score for score, _ in ranked)
    if not sure:
        known = "; ".join(s.reads for s in JOB_SOURCES.values())
        raise UllageError(f"{name} holds no job records that Ullage reads", f"it reads: {known}")
    return next(s for score, s in ranked if score == sure).read(place, problems, zone).cast(JOBS)
