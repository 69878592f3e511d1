"""dcgm-exporter's HPC job mapping: a folder with a file per GPU, named 0, 1, … (or 0.7 for a MIG instance), a job id a line.

Source: dcgm-exporter README, "How to include HPC jobs in metric labels", and `internal/pkg/transformation/hpc.go`.
The folder says who holds a GPU now, neither since when nor on which host: the records match every time, and an input
with a single host, unless each host's folder lies in one folder and is named after the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa

from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.sources.jobs.job import job_source
from ullage.sources.jobs.record import Record, table
from ullage.sources.source import Place

_NAME = re.compile(r"\d{1,4}(?:\.\d{1,4})?", re.ASCII)
_LARGEST = 1 << 20  # bytes of a file of job ids


def recognise(place: Place) -> int:
    """Return 2 for a folder of files named after GPUs that do not hold JSON."""
    files = gpu_files(place.path)
    return 2 if files and not any(content(path).lstrip().startswith("{") for _, path in files[:8]) else 0


@job_source("mapping", recognise=recognise, reads="a folder of dcgm-exporter's HPC job mapping")
def read(place: Place, problems: Problems, zone: ZoneInfo | None) -> pa.Table:  # noqa: ARG001
    """Return a record per job and GPU, without times: who holds it now."""
    problems.note(f"{place.name} says who holds a GPU now, not since when: its jobs are taken to hold it all the time")
    return table(_records(place), problems, place.name)


def _records(place: Place) -> Iterator[Record]:
    for host, path in gpu_files(place.path):
        index, _, instance = path.name.partition(".")
        for job in dict.fromkeys(line.strip() for line in content(path).splitlines()):
            if job:
                yield Record(job, host=host, index=int(index), gpu=path.name if instance else None)


def gpu_files(folder: Path | None) -> list[tuple[str | None, Path]]:
    """Return the (host, file) of every GPU: the folder's own files, or those of the folders in it, each a host.

    Empty when any other file lies there: then it is a folder of something else.
    """
    if folder is None or not folder.is_dir():
        return []
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    found: list[tuple[str | None, Path]] = [(None, entry) for entry in entries if entry.is_file()]
    for host in (entry for entry in entries if entry.is_dir()):
        found += [(host.name, entry) for entry in sorted(host.iterdir()) if entry.is_file() and not entry.name.startswith(".")]
    return found if all(_NAME.fullmatch(path.name) for _, path in found) else []


def content(path: Path) -> str:
    """Return a small file's text; raises UllageError when it can't be read."""
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError as error:
        raise UllageError(f"{path} can't be read: {error.strerror or error}") from error
