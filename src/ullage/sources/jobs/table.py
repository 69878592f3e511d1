"""Job records in a plain CSV or Parquet file: job, user, gpus, start, end, and what the application reported of itself.

The heads' common spellings are known (see `docs/job-records.md`). A file that was written from `tables.JOBS` comes
back as it was.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from ullage.checked_parquet import opened
from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.sources import clock
from ullage.sources.delimited import first_lines, head
from ullage.sources.jobs.hostlist import expand
from ullage.sources.jobs.job import job_source
from ullage.sources.jobs.record import Record, numbers, table
from ullage.sources.jobs.record import count as gpu_count
from ullage.sources.naming.columns import listed
from ullage.sources.source import Place
from ullage.tables import JOBS

# column -> how heads are spelled, in small letters and without signs
_HEADS: dict[str, tuple[str, ...]] = {
    "job": ("job", "jobid", "jobidraw", "slurmjobid", "id"),
    "name": ("name", "jobname"),
    "user": ("user", "username", "jobuser", "owner"),
    "cluster": ("cluster", "clustername"),
    "host": ("host", "hosts", "hostname", "hostlist", "node", "nodes", "nodelist", "nodename"),
    "index": ("index", "gpuindex", "gpuid"),
    "gpu": ("gpu", "uuid", "gpuuuid", "gpulist", "gpuuuids", "devices"),
    "gpus": ("gpus", "gpunum", "numgpus", "ngpus", "gpucount", "allocgpus"),
    "queue_start": ("queuestart", "eligible", "eligibletime", "submit", "submitted", "submittime", "submissiontime"),
    "start": ("start", "starttime", "started", "begin"),
    "end": ("end", "endtime", "ended", "finish", "finished"),
    "state": ("state", "jobstate"),
    "mfu": ("mfu", "modelflopsutilization", "modelfloputilization"),
    "tflops": ("tflops", "tflopspergpu", "tflopsgpu", "modeltflops", "modeltflopspergpu"),
    "flops_per_gpu": ("flopspergpu", "modelflopspergpu"),
}
_MOMENTS = ("queue_start", "start", "end")
_TELLING = ("host", "index", "gpu", "gpus", "start", "end", "mfu", "tflops", "flops_per_gpu")
_WRITTEN = {"job", "user", "cluster", "host", "index", "gpu", "gpus", "start", "end", "mfu", "flops_per_gpu"}
_PERCENT = 1.5  # a column of MFUs whose median lies above this is in percent
Times = tuple[clock.Milliseconds, clock.Mask]
Place_ = tuple[str | None, int | None, str | None]  # host, index, gpu


@dataclass(frozen=True)
class Cells:
    """A table of job records: the words of each known column, the times, and the line before the first row.

    `ours` says that it was written from `tables.JOBS`.
    """

    words: dict[str, Sequence[str]]
    queue_start: Times
    start: Times
    end: Times
    rows: int
    line: int
    ours: bool


def recognise(place: Place) -> int:
    """Return 1 for Parquet and for a table with a column of job ids and one of places, times or reported figures."""
    if place.head.startswith(b"PAR1"):
        return 1
    first = None if b"\0" in place.head or place.head.lstrip()[:1] in (b"{", b"[", b"<") else head(place.head)
    columns = _columns(first.names) if first else {}
    return 1 if "job" in columns and any(name in columns for name in _TELLING) else 0


@job_source("table", recognise=recognise, reads="CSV or Parquet with the columns job, user, gpus, start, end, and mfu or tflops")
def read(place: Place, problems: Problems, zone: ZoneInfo | None) -> pa.Table:
    """Return a record per job and device. Rows whose times or devices can't be read are left out and counted."""
    where = Path(place.name).name
    cells = _parquet(place, where, problems, zone) if place.head.startswith(b"PAR1") else _csv(place, where, problems, zone)
    return table(_records(cells, where, problems), problems, where, escaped=cells.ours)


def _csv(place: Place, where: str, problems: Problems, zone: ZoneInfo | None) -> Cells:
    first = head(first_lines(place))
    columns = _columns(first.names) if first else {}
    if first is None or "job" not in columns:
        raise UllageError(f"{where} has no column of job ids", f"its columns are {listed(first.names if first else ())}")
    with place.open() as file:
        reader = csv.reader(io.TextIOWrapper(file, "utf-8", "replace", newline=""), delimiter=first.delimiter)
        rows = list(_rows(reader, first.lines, len(first.names), where, problems))
    words = {name: [row[at].strip() for row in rows] for name, at in columns.items()}
    times = {name: pa.array(words.get(name, [""] * len(rows)), pa.string()) for name in _MOMENTS}
    return _cells(words, _read_times(times, where, problems, zone), first.lines, ours=_ours(first.names))


def _rows(reader: Any, lines: int, width: int, where: str, problems: Problems) -> Iterator[list[str]]:
    try:
        for row in reader:
            if reader.line_num <= lines or not row:
                continue
            if len(row) == width:
                yield row
            else:
                problems.drop("job records with a wrong number of columns", 1, f"{where} line {reader.line_num:,}")
    except csv.Error as error:
        raise UllageError(f"{where} can't be read beyond line {reader.line_num:,}: {error}", "export it again") from error


def _parquet(place: Place, where: str, problems: Problems, zone: ZoneInfo | None) -> Cells:
    try:
        with opened(cast(Path, place.path)) as file:
            stored = file.read()
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise UllageError(f"{where} is a damaged Parquet file: {harmless(str(error))}", "copy or write it again") from error
    columns = _columns(stored.column_names)
    if "job" not in columns:
        raise UllageError(f"{where} has no column of job ids", f"its columns are {listed(stored.column_names)}")
    words = {name: [_word(value) for value in stored.column(at).to_pylist()] for name, at in columns.items() if name not in _MOMENTS}
    empty = pa.nulls(stored.num_rows, pa.string())
    times = {name: stored.column(columns[name]).combine_chunks() if name in columns else empty for name in _MOMENTS}
    words |= {name: [_word(value) for value in column.to_pylist()] for name, column in times.items()}
    return _cells(words, _read_times(times, where, problems, zone), 0, ours=_ours(stored.column_names))


def _ours(heads: Sequence[str]) -> bool:
    """Return whether a table was written from `tables.JOBS`, by this Ullage or by one whose table had fewer columns."""
    return list(heads) == [name for name in JOBS.names if name in heads] and set(heads) >= _WRITTEN


def _word(value: object) -> str:
    if value is None or value != value:  # NaN is not itself
        return ""
    if isinstance(value, list):
        return ";".join(str(one) for one in value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _read_times(times: dict[str, pa.Array], where: str, problems: Problems, zone: ZoneInfo | None) -> tuple[Times, Times, Times]:
    queue_start, start, end = (clock.milliseconds(times[name], problems, where, zone) for name in _MOMENTS)
    return queue_start, start, end


def _cells(words: dict[str, list[str]], times: tuple[Times, Times, Times], line: int, ours: bool) -> Cells:
    return Cells({**words}, *times, len(words["job"]), line, ours)


def _columns(heads: Sequence[str]) -> dict[str, int]:
    """Return which column holds what: the first head among the known spellings, in their order."""
    plain = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in heads]
    found = {}
    for column, spellings in _HEADS.items():
        at = next((plain.index(word) for word in spellings if word in plain), None)
        if at is not None:
            found[column] = at
    return found


def _records(cells: Cells, where: str, problems: Problems) -> Iterator[Record]:
    percent = _in_percent(cells.words.get("mfu", ()))
    for row in range(cells.rows):
        told = {name: words[row] for name, words in cells.words.items() if words[row] and words[row].casefold() not in clock.NOTHING}
        if "job" not in told:
            problems.drop("job records without a job id", 1, f"{where} row {row + 1:,}")
            continue
        try:
            record = _record(told, _time(cells.start, row, "start" in told), _time(cells.end, row, "end" in told), percent)
            record = replace(record, queue_start=_time(cells.queue_start, row, told=False))
            places, count = _places(told)
        except (ValueError, UllageError) as error:
            problems.drop("job records that can't be read", 1, f"{where} row {row + 1:,}: {error}")
            continue
        record = replace(record, gpus=count)
        for host, index, gpu in places or [(None, None, None)]:
            yield replace(record, host=host, index=index, gpu=gpu)


def _time(times: Times, row: int, told: bool) -> int | None:
    if told and not times[1][row]:
        raise ValueError("a time that can't be read")
    return int(times[0][row]) if times[1][row] else None


def _record(told: dict[str, str], start: int | None, end: int | None, percent: bool) -> Record:
    flops = _number(told.get("flops_per_gpu"))
    tera = _number(told.get("tflops"))
    return Record(
        told["job"],
        name=told.get("name"),
        user=told.get("user"),
        cluster=told.get("cluster"),
        start=start,
        end=end,
        state=told.get("state"),
        mfu=mfu(told["mfu"], percent) if "mfu" in told else None,
        flops_per_gpu=flops if flops is not None else tera * 1e12 if tera is not None else None,
    )


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"'{text}' is not a number")
    return value


def mfu(text: str, percent: bool) -> float:
    """Return a written MFU as a ratio; "41 %" says for itself, a bare number is percent where its column is.

    >>> mfu("0.41", False), mfu("41", True), mfu("41 %", False)
    (0.41, 0.41, 0.41)
    """
    written = text.endswith("%")
    value = _number(text.removesuffix("%").strip()) or 0.0
    return value / 100 if written or percent else value


def _in_percent(words: Sequence[str]) -> bool:
    """A column is in percent as a whole: an absurd ratio of 1.8 must not become 0.018 beside 0.4."""
    bare = [float(word) for word in words if re.fullmatch(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+", word)]
    positive = [value for value in bare if value > 0]
    return bool(positive) and float(np.median(positive)) > _PERCENT


def _places(told: dict[str, str]) -> tuple[list[Place_], int | None]:
    """Return the devices (or hosts) of a row, and how many devices the job holds.

    >>> _places({"gpus": "n1:0-1;n2:3"})
    ([('n1', 0, None), ('n1', 1, None), ('n2', 3, None)], 3)
    >>> _places({"gpus": "16", "host": "n[1-2]"})
    ([('n1', None, None), ('n2', None, None)], 16)
    """
    hosts = [] if told.get("host", "0").isdigit() else expand(told["host"])  # a bare number counts nodes
    gpus, count = told.get("gpus", ""), None
    if gpus.isdigit():
        gpus, count = "", gpu_count(int(gpus))
    gpu = told.get("gpu", "")
    if re.fullmatch(r"[\d,\s-]+", gpu):
        gpu, indexes = "", numbers(gpu)
    else:
        indexes = numbers(told["index"]) if "index" in told else []
    named = _listed(gpus) + _listed(gpu)
    if named:
        shared = (hosts[0] if len(hosts) == 1 else None, indexes[0] if len(indexes) == 1 else None)
        named = [(host or shared[0], index if index is not None else shared[1], uuid) for host, index, uuid in named]
        return named, len(named) if count is None else count
    if indexes:
        devices: list[Place_] = [(host, index, None) for host in (hosts or (None,)) for index in indexes]
        return devices, len(devices) if count is None else count
    return [(host, None, None) for host in hosts], count


def _listed(text: str) -> list[Place_]:
    """Return the devices of a list: 'host:0-3' by number, anything else is the device's own name."""
    found: list[Place_] = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        host, colon, indexes = part.rpartition(":")
        if colon and re.fullmatch(r"[\d,\s-]+", indexes):
            found += [(name, index, None) for name in expand(host) for index in numbers(indexes)]
        else:
            found += [(None, None, name) for name in re.split(r"[,\s]+", part) if name]
    return found
