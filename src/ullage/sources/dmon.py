"""What `nvidia-smi dmon` prints, as text or as CSV: two header lines, then a line for each GPU and moment.

`nvidia-smi dmon --gpm-metrics 2,3,5 -o DT -f node-17.dmon` is enough for OFU with no exporter at all: `pclk` (the SM
clock) and `mmaact` (any tensor pipe) stand in one row. Columns are found by name, in whatever order and number; the
headers come again every screenful. `-`, `–` and `N/A` mean that the GPU can't say (GPM needs Hopper or later).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from ullage.errors import UllageError, UnreadableError
from ullage.problems import Problems
from ullage.sources.naming.fields import Alias, clean
from ullage.sources.naming.labels import device_name
from ullage.sources.source import InOrder, Options, Place, source
from ullage.tables import samples
from ullage.units import DAY_MS

ROWS = 100_000  # rows of one batch
MOST_INDEX = 32_767  # what the column `index` of samples holds
UNREAD, BEYOND = "lines that can't be read", f"lines with a GPU number above {MOST_INDEX:,}"
# Column -> (field, unit), as in headers that dmon printed (drivers 384 to 610); GPM columns with `--gpm-metrics
# 1,2,3,5,10,11,12,13,20,21,60,61`. `sm` is the share of time in which a kernel ran, the "GPU utilization"; SM activity
# is `smutil`. nvidia-smi writes MB where it means MiB.
COLUMNS: dict[str, tuple[str, str]] = {
    "pwr": ("power", "W"),
    "gtemp": ("temperature", "C"),
    "temp": ("temperature", "C"),
    "sm": ("gpu_util", "%"),
    "mclk": ("memory_clock", "MHz"),
    "pclk": ("sm_clock", "MHz"),
    "fb": ("memory_used", "MiB"),
    "gract": ("gr_active", "%"),
    "smutil": ("sm_active", "%"),
    "smocc": ("sm_occupancy", "%"),
    "mmaact": ("tensor_active", "%"),
    "dram": ("dram_active", "%"),
    "fp64": ("fp64_active", "%"),
    "fp32": ("fp32_active", "%"),
    "fp16": ("fp16_active", "%"),
    "pcitx": ("pcie_tx", "MiB/s"),
    "pcirx": ("pcie_rx", "MiB/s"),
    "txpci": ("pcie_tx", "MiB/s"),
    "rxpci": ("pcie_rx", "MiB/s"),
    "nvltx": ("nvlink_tx", "MiB/s"),
    "nvlrx": ("nvlink_rx", "MiB/s"),
}
_UNSAID = {"-", "–", "—", "n/a", "[n/a]", "na", ""}
_HEADER = re.compile(rb"^#\s*(?:Date[ ,]+)?(?:Time[ ,]+)?gpu[ ,]", re.MULTILINE | re.IGNORECASE)


def recognise(place: Place) -> int:
    """Return 2 for a file with dmon's header (`# gpu …`, with Date and Time before it or without), else 0."""
    return 2 if _HEADER.search(place.head) else 0


@dataclass
class _Log:
    """What has been read of one file: the columns of the last header, values by column, and how far time has come.

    A round is one line for each GPU; a GPU that comes again begins the next. `latest` is the last line's time in ms,
    as the file itself tells it: since 1970, since the first midnight, or in rounds of a second.
    """

    columns: list[str] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    gpus: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    round: int = 0
    day: int = 0
    latest: int | None = None
    order: InOrder = field(default_factory=InOrder)

    def empty(self) -> None:
        """Forget the rows, once they are a batch."""
        self.values, self.gpus, self.times = {}, [], []


@source("dmon", recognise=recognise, reads="nvidia-smi dmon (text or CSV, with --gpm-metrics 2,3,5 for OFU)")
def read(place: Place, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield batches with a row for each line. The device is 'cluster/host/number', the host is the file's name.

    dmon knows neither UUID nor model. Its times are local and have no zone: they are taken as UTC, and a note says so.
    With a time but no date (`-o T`) the last line is of the day on which the file was last written. Without either,
    lines get a second each round of GPUs (dmon's default), the last when the file was last written; a note says so.
    """
    path = cast(Path, place.path)
    log, written = _Log(), round(path.stat().st_mtime * 1000)
    shift = _shift(place, written, problems)
    try:
        for number, line in _lines(place, problems):
            if line.startswith("#"):
                _header(log, line)
                continue
            if line and (wrong := _row(log, line)):
                problems.drop(wrong, where=f"{path.name} line {number}")
            if len(log.gpus) >= ROWS:
                yield _batch(log, place, shift, options, problems)
    except UnreadableError as error:
        if log.latest is None:
            raise
        log.order.add(np.array(log.times, np.int64) + shift)
        problems.cut_short("ends of files that are damaged", error.problem, log.order.read_until)
    if log.gpus:
        yield _batch(log, place, shift, options, problems)
    elif log.latest is None:
        raise UllageError(f"{path.name} is a dmon log without a line that can be read", "keep the header lines: columns are found by name")


def _lines(place: Place, problems: Problems) -> Iterator[tuple[int, str]]:
    """Yield numbered lines, stripped. A last line without a line feed is left out: in a log that grows it is not written yet."""
    file, number = place.open(), 0
    with file:
        while raw := file.readline():
            number += 1
            if not raw.endswith(b"\n"):
                problems.drop("last lines without an end", where=f"{place.name} line {number}")
                return
            yield number, raw.decode("utf-8", "replace").strip()


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")] if "," in line else line.split()


def _header(log: _Log, line: str) -> None:
    """Take the columns from a header; the line of units below it has `Idx` where the header has `gpu`."""
    cells = [cell.lower() for cell in _cells(line.lstrip("# "))]
    if "gpu" in cells:
        log.columns = cells


def _row(log: _Log, line: str) -> str:
    """Take one line of values; return what such lines are called where it can't be taken, "" where it is."""
    cells = _cells(line)
    if not log.columns or len(cells) != len(log.columns):
        return UNREAD
    row = dict(zip(log.columns, cells, strict=True))
    if not row["gpu"].isdecimal():
        return UNREAD
    try:
        numbers = {name: _number(row[name]) for name in row if name in COLUMNS}
        moment = _moment(log, row)
    except ValueError:
        return UNREAD
    if len(row["gpu"]) > len(str(MOST_INDEX)) or (gpu := int(row["gpu"])) > MOST_INDEX:
        return BEYOND
    if gpu in log.seen:
        log.round, log.seen = log.round + 1, set()
    log.seen.add(gpu)
    log.latest = log.round * 1000 if moment is None else moment
    log.times.append(log.latest)
    log.gpus.append(gpu)
    for name in COLUMNS:
        log.values.setdefault(name, []).append(numbers.get(name, float("nan")))
    return ""


def _number(cell: str) -> float:
    """Return a cell's number; CSV writes the unit behind it ("360 W"). Raises ValueError for anything else."""
    return float("nan") if cell.lower() in _UNSAID else float(cell.split()[0])


def _moment(log: _Log, row: dict[str, str]) -> int | None:
    """Return a row's time in ms as if its zone were UTC, without a date since the first midnight; None without a time."""
    if "time" not in row:
        return None
    clock = datetime.strptime(row["time"], "%H:%M:%S").replace(tzinfo=UTC)
    if "date" in row:
        day = datetime.strptime(row["date"].replace("/", "").replace("-", ""), "%Y%m%d").replace(tzinfo=UTC)
        return round((day + timedelta(hours=clock.hour, minutes=clock.minute, seconds=clock.second)).timestamp() * 1000)
    moment = log.day * DAY_MS + (clock.hour * 3600 + clock.minute * 60 + clock.second) * 1000
    if log.latest is not None and moment < log.latest - DAY_MS // 2:  # the clock passed midnight
        log.day += 1
        moment += DAY_MS
    return moment


def _shift(place: Place, written: int, problems: Problems) -> int:
    """Return what to add to the log's own times: nothing, the day, or what makes the last round end when the file was written."""
    log = _Log()
    with suppress(UnreadableError):  # whoever reads it for its rows says so
        for _, line in _lines(place, Problems()):
            if line.startswith("#"):
                _header(log, line)
            elif "date" in log.columns:
                problems.note("nvidia-smi dmon writes local times without a zone; they are taken as UTC")
                return 0
            elif line:
                _row(log, line)
                log.empty()
    if log.latest is None:
        return 0
    if "time" in log.columns:
        problems.note(
            "nvidia-smi dmon -o T writes no date and no zone; the last line is taken to be of the day the file was written, in UTC"
        )
        return (written - log.latest) // DAY_MS * DAY_MS
    problems.note(
        "the dmon log has no times (-o DT writes them); a second is counted for each round, and the last ends when the file was written"
    )
    return written - log.latest


def _batch(log: _Log, place: Place, shift: int, options: Options, problems: Problems) -> pa.RecordBatch:
    """Return the rows read so far and empty the log of them."""
    host = place.unique
    times = np.array(log.times, np.int64) + shift
    log.order.add(times)
    columns: dict[str, Any] = {
        "time": times,
        "host": pa.array([host] * len(log.gpus)),
        "cluster": pa.array([options.cluster] * len(log.gpus), pa.string()),
        "gpu": pa.array([device_name(options.cluster, host, gpu) for gpu in log.gpus]),
        "index": pa.array(log.gpus, pa.int16()),
    }
    flags = np.zeros(len(log.gpus), np.uint16)
    for name, (target, unit) in COLUMNS.items():
        values = np.array(log.values[name])
        if np.isnan(values).all():
            continue
        cleaned, marks = clean(Alias(name, target, unit), values, problems, Path(place.name).name)
        columns[target] = np.where(np.isnan(columns[target]), cleaned, columns[target]) if target in columns else cleaned
        flags |= marks
    batch = samples({**columns, "flags": flags})
    log.empty()
    return _within(batch, options)


def _within(batch: pa.RecordBatch, options: Options) -> pa.RecordBatch:
    times = batch.column("time").cast(pa.int64()).to_numpy()
    since = times > options.since if options.since is not None else np.ones(len(times), np.bool_)
    until = times <= options.until if options.until is not None else np.ones(len(times), np.bool_)
    return batch.filter(pa.array(since & until))
