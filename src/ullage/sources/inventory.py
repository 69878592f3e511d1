"""An inventory: which GPUs a fleet has, and from when until when, in a CSV or Parquet file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa

from ullage.checked_parquet import opened
from ullage.compressed import head as first_bytes
from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.sources import clock
from ullage.sources.delimited import first_lines, head
from ullage.sources.naming.columns import listed
from ullage.sources.source import Place
from ullage.written_values import expanded_path

MOST = 1_000_000  # entries; the largest fleets have a tenth of it
# column -> how heads are spelled, in small letters and without signs
_HEADS: dict[str, tuple[str, ...]] = {
    "gpu": ("gpu", "uuid", "gpuuuid"),
    "cluster": ("cluster", "clustername"),
    "host": ("host", "hostname", "node", "nodename"),
    "index": ("index", "gpuindex", "gpuid"),
    "start": ("start", "starttime", "from", "begin", "installed"),
    "end": ("end", "endtime", "until", "to", "removed"),
    "model": ("model", "gpumodel", "name"),
    "gpus": ("gpus", "gpucount", "numgpus", "ngpus"),
}
HINT = (
    "its columns are gpu (a UUID), or host and index, or host and gpus (how many it has); start and end; model and cluster may stand beside"
)
MOST_OF_A_HOST = 1024


@dataclass(frozen=True)
class Listed:
    """A GPU that an inventory lists: by its name, or by its place, from start to end (ms); None: for the whole window."""

    gpu: str | None = None
    cluster: str | None = None
    host: str | None = None
    index: int | None = None
    model: str | None = None
    start: int | None = None
    end: int | None = None

    @property
    def name(self) -> str:
        """What a note calls it.

        >>> Listed("GPU-1", host="n").name, Listed(host="n", index=3).name
        ('GPU-1', 'n/3')
        """
        return self.gpu or f"{self.host}/{self.index}"


def read_inventory(name: str, problems: Problems, zone: ZoneInfo | None = None) -> tuple[Listed, ...]:
    """Return the GPUs of an inventory; `zone` is that of times that say none.

    Raises UllageError that names file and line for the first entry that can't be read: a GPU that is missed here would be missed in the
    total of a fleet.
    """
    path = expanded_path(name)
    if not path.is_file():
        raise UllageError(f"there is no file '{harmless(name, 200)}' with an inventory")
    rows = _parquet(path) if first_bytes(path).startswith(b"PAR1") else _csv(path)
    found: list[Listed] = []
    for number, (line, row) in enumerate(rows, 1):
        if max(number, len(found)) > MOST:
            raise UllageError(f"{path.name} lists more than {MOST:,} GPUs", "give a file with a row for each GPU of the fleet")
        found += _listed(row, f"{path.name} {line}", path.name, problems, zone)
    if not found:
        raise UllageError(f"{path.name} lists no GPU", HINT)
    return tuple(found)


def _listed(row: Mapping[str, str], place: str, where: str, problems: Problems, zone: ZoneInfo | None) -> list[Listed]:
    """Return what a row lists: a GPU, or those of a host, numbered from 0."""
    told = {name: word for name, word in row.items() if word.casefold() not in clock.NOTHING}
    if "gpu" not in told and not ("host" in told and told.keys() & {"index", "gpus"}):
        raise UllageError(f"{place} names no GPU", "give its UUID in a column gpu, or host and index, or host and gpus: how many it has")
    times = {}
    for name in ("start", "end"):
        times[name] = clock.moment(told[name], problems, where, zone) if name in told else None
        if name in told and times[name] is None:
            raise UllageError(
                f"{place}: the {name} '{harmless(told[name], 40)}' is not a time", "write 2026-08-10T12:00:00Z, or leave it empty"
            )
    start, end = times["start"], times["end"]
    if start is not None and end is not None and start >= end:
        raise UllageError(f"{place}: the GPU ends before it starts", "an end lies after its start; leave out what never was there")
    index = _whole("index", told, place, "is not a number of a GPU", "write 0, 1, 2 …")
    entry = Listed(told.get("gpu"), told.get("cluster"), told.get("host"), index, told.get("model"), start, end)
    if entry.gpu is not None or index is not None:
        return [entry]
    count = _whole("gpus", told, place, "is not a number of GPUs", "write how many GPUs the host has: 8") or 0
    if count > MOST_OF_A_HOST:
        raise UllageError(f"{place}: no host has {count:,} GPUs", "gpus is how many GPUs one host has")
    return [replace(entry, index=number) for number in range(count)]


def _whole(name: str, told: Mapping[str, str], place: str, problem: str, hint: str) -> int | None:
    """Return a whole number from 0 to 9,999, None where none is told."""
    if name not in told:
        return None
    found = re.fullmatch(r"(\d{1,4})(?:\.0)?", told[name], re.ASCII)  # a table with empty cells writes whole numbers as 3.0
    if found is None:
        raise UllageError(f"{place}: the {name} '{harmless(told[name], 40)}' {problem}", hint)
    return int(found[1])


def _columns(names: list[str], where: str) -> dict[str, int]:
    plain = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in names]
    found = {
        column: plain.index(word)
        for column, spellings in _HEADS.items()
        for word in [next((word for word in spellings if word in plain), "")]
        if word
    }
    if "gpu" not in found and not ("host" in found and found.keys() & {"index", "gpus"}):
        raise UllageError(f"{where} names no GPUs: its columns are {listed(names)}", HINT)
    return found


def _csv(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a place in the file and the words of each row."""
    place = Place(str(path), path, first_bytes(path))
    if b"\0" in place.head:
        raise UllageError(f"{path.name} is neither CSV nor Parquet", HINT)
    data = first_lines(place)
    first = head(data)
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").splitlines()
    alone = next((at for at, line in enumerate(text, 1) if line.strip() and not line.startswith("#")), 0)  # one column has no delimiter
    names, lines = (list(first.names), first.lines) if first else ([text[alone - 1].strip().strip('"')] if alone else [], alone)
    columns = _columns(names, path.name)
    with place.open() as file:
        reader = csv.reader(io.TextIOWrapper(file, "utf-8", "replace", newline=""), delimiter=first.delimiter if first else ",")
        try:
            for row in reader:
                if reader.line_num <= lines or not any(cell.strip() for cell in row):
                    continue
                if len(row) != len(names):
                    raise UllageError(
                        f"{path.name} line {reader.line_num:,} has {len(row):,} columns, and the first line {len(names):,}", HINT
                    )
                yield f"line {reader.line_num:,}", {name: row[at].strip() for name, at in columns.items()}
        except csv.Error as error:
            raise UllageError(f"{path.name} can't be read beyond line {reader.line_num:,}: {error}", "export it again") from error


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        with opened(path) as file:
            if file.metadata.num_rows > MOST:
                raise UllageError(f"{path.name} lists more than {MOST:,} GPUs", "give a file with a row for each GPU of the fleet")
            table = file.read()
        columns = _columns(table.column_names, path.name)
        words = {name: [_word(value) for value in table.column(at).to_pylist()] for name, at in columns.items()}
    except (pa.ArrowException, OSError, UnicodeError, ValueError, OverflowError) as error:
        raise UllageError(f"{path.name} is a damaged Parquet file: {harmless(str(error))}", "copy or write it again") from error
    for row in range(table.num_rows):
        yield f"row {row + 1:,}", {name: column[row] for name, column in words.items()}


def _word(value: object) -> str:
    return "" if value is None or value != value else str(value).strip()  # NaN is not itself
