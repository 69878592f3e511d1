"""What a trainer's log is: a reader that turns its lines into steps, and how a file finds its reader.

A reader is one module of this folder with one function under `@trainlog`. It is handed the lines of a file and yields a
`Step` for every line (or group of lines) that reports one, in SI units; a line that looks like its own and can't be read
it counts in `Problems`. It knows nothing of jobs, GPUs or peaks. Values that can't be are taken out here, and the lines
that several ranks wrote about one step become one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, tzinfo
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.registry import Registry
from ullage.sources.source import Place
from ullage.trainlogs.lines import LogLine, LogLines
from ullage.trainlogs.points import TRACKERS, steps_of_points, tracker_of
from ullage.trainlogs.ranks import one_a_step
from ullage.trainlogs.step import LoggedStep
from ullage.written_values import expanded_path

# A row a step. A null is "not reported", never zero.
SERIES = pa.schema(
    [
        pa.field("line", pa.int64(), nullable=False, metadata={"meaning": "the line of the log, from 1"}),
        pa.field("step", pa.int64(), metadata={"meaning": "the number of the step, as the trainer counts"}),
        pa.field("time", pa.timestamp("ms", "UTC"), metadata={"meaning": "when the line was written: the end of the step"}),
        pa.field("step_time", pa.float64(), metadata={"unit": "s", "meaning": "time of one step"}),
        pa.field("tokens", pa.float64(), metadata={"unit": "1", "meaning": "tokens of one step, of the whole job"}),
        pa.field("tokens_per_second_per_gpu", pa.float64(), metadata={"unit": "1/s"}),
        pa.field("samples_per_second", pa.float64(), metadata={"unit": "1/s", "meaning": "of the whole job"}),
        pa.field("flops_per_gpu", pa.float64(), metadata={"unit": "FLOP/s", "meaning": "model FLOP/s per GPU as reported"}),
        pa.field("mfu", pa.float64(), metadata={"unit": "1", "meaning": "model FLOP utilization as reported"}),
    ]
)

# What a number can be: above 0, and at most this. A reported MFU above 1 is wrong, but it was reported.
_HIGHEST: Final = {
    "step_time": 1e6,
    "tokens": 1e15,
    "tokens_per_second_per_gpu": 1e12,
    "samples_per_second": 1e12,
    "flops_per_gpu": 1e18,
    "mfu": 100.0,
}
_STEPS: Final = 1 << 53
_FIRST, _LAST = 0, 4_102_444_800_000  # 1970 and 2100, in ms


class LogReader(Protocol):
    """A function that turns the lines of a log into steps."""

    def __call__(self, lines: Iterable[LogLine], problems: Problems, where: str) -> Iterator[LoggedStep]:
        """Yield what each step reports, in the order of the lines."""


@dataclass(frozen=True)
class TrainLog:
    """A registered format. `recognise` sees a line's text and says how sure it is: 0 not mine, 1 perhaps, 2 certainly."""

    name: str
    recognise: Callable[[str], int]
    read: LogReader
    reads: str


TRAINLOGS: Registry[TrainLog] = Registry("trainer log format", package="ullage.trainlogs", command="ullage fleet --help")


def trainlog(name: str, *, recognise: Callable[[str], int], reads: str) -> Callable[[LogReader], LogReader]:
    """Register the decorated function as the reader of a trainer's log. `reads` is one line for the table of formats."""

    def register(reader: LogReader) -> LogReader:
        TRAINLOGS.add(name, TrainLog(name, recognise, reader, reads))
        return reader

    return register


def read_log(name: str, problems: Problems | None = None, *, zone: tzinfo = UTC, run: str | None = None) -> pa.Table:
    """Return the `SERIES` table of what a trainer printed or a tracker kept, its format recognised by content.

    A file may be compressed by gzip, bzip2 or xz; a tracker's may be a folder, or a database of several runs, of which `run`
    is read. Times without a zone are taken to be in `zone`, and a note says so. Raises UllageError for a place that is not
    there, that no reader recognises, that reports nothing, or that holds several runs and none that is called `run`.
    """
    problems = problems if problems is not None else Problems()
    path = expanded_path(name)
    if not path.exists():
        raise UllageError(
            f"there is no trainer log '{harmless(name)}'", "give a file: what the trainer printed, or its metrics as a tracker keeps them"
        )
    steps, reads = _tracked(path, problems, run) or _printed(path, problems, zone)
    kept = list(one_a_step(_sane(steps, problems, path.name), problems))
    if not kept:
        raise UllageError(f"{path.name} reports no step of a training", f"it reads like {reads}")
    return table(kept)


def _tracked(path: Path, problems: Problems, run: str | None) -> tuple[list[LoggedStep], str] | None:
    """Return the steps of what a tracker kept, and its format in words; None for what no tracker did."""
    found = tracker_of(path)
    if found is None:
        return None
    return steps_of_points(found.read(path, problems), path.name, run), f"{found.name}: {found.reads}"


def _printed(path: Path, problems: Problems, zone: tzinfo) -> tuple[list[LoggedStep], str]:
    """Return the steps of what a trainer printed, and its format in words."""
    place, where = Place(str(path), path), path.name
    if path.is_dir():
        raise UllageError(f"the folder {harmless(where)} holds no metrics that Ullage reads", formats())
    log = _recognised(place, where)
    with place.open() as file:
        lines = LogLines(file, where, problems, zone)
        steps = list(log.read(_as_far_as_it_goes(lines, problems, where), problems, where))
    if lines.assumed:
        problems.note(f"the times of {where} name no zone; they are taken as {zone}")
    return steps, f"{log.name}: {log.reads}"


LINES = 2000  # looked at for a line that a format is certain of


def is_log(path: Path) -> bool:
    """Return whether a format is certain of one of a file's first lines, or a tracker kept it."""
    try:
        if tracker_of(path) is not None:
            return True
        if path.is_dir():
            return False
        with Place(str(path), path).open() as file:
            lines = islice(LogLines(file, path.name, Problems()), LINES)
            return any(log.recognise(line.text) > 1 for line in lines for log in TRAINLOGS.values())
    except UllageError:
        return False


def table(steps: Iterable[LoggedStep]) -> pa.Table:
    """Return steps as a `SERIES` table."""
    rows = list(steps)
    columns = []
    for field in SERIES:
        values = [getattr(row, field.name) for row in rows]
        kind = pa.int64() if pa.types.is_timestamp(field.type) else field.type
        columns.append(pa.array(values, kind).cast(field.type))
    return pa.Table.from_arrays(columns, schema=SERIES)


def formats() -> str:
    """Return what is read, in words."""
    printed, tracked = [log.reads for log in TRAINLOGS.values()], [found.reads for found in TRACKERS.values()]
    return "it reads: " + "; ".join(printed + tracked)


def _recognised(place: Place, where: str) -> TrainLog:
    """Return the first format that is certain of a line; without one, the one that was perhaps right first."""
    perhaps: TrainLog | None = None
    logs, seen = TRAINLOGS.values(), 0
    try:
        with place.open() as file:
            for line in LogLines(file, where, Problems()):
                seen = line.number
                for log in logs:
                    sure = log.recognise(line.text)
                    if sure > 1:
                        return log
                    perhaps = log if sure and perhaps is None else perhaps
    except UllageError:  # damaged: what came before may still be read
        if not seen:
            raise
    if perhaps is None:
        raise UllageError(f"{where} is no trainer's log that Ullage reads ({seen:,} lines)", formats())
    return perhaps


def _as_far_as_it_goes(lines: LogLines, problems: Problems, where: str) -> Iterator[LogLine]:
    """Yield the lines up to where a damaged file ends, with a note."""
    try:
        yield from lines
    except UllageError as error:
        problems.note(f"{where} ended early, and what came before is used: {error.problem}")
        problems.cut(f"{where} ended early: {error.problem}")


def _sane(steps: Iterable[LoggedStep], problems: Problems, where: str) -> Iterator[LoggedStep]:
    """Yield the steps that still say something once what can't be is taken out."""
    for step in steps:
        wrong: dict[str, Any] = {name: None for name, highest in _HIGHEST.items() if not _possible(getattr(step, name), highest)}
        for name in wrong:
            problems.drop(f"impossible values of {name}", where=f"{where} line {step.line:,}")
        if step.step is not None and not 0 <= step.step < _STEPS:
            wrong["step"] = None
        if step.time is not None and not _FIRST <= step.time < _LAST:
            wrong["time"] = None
        sane = replace(step, **wrong) if wrong else step
        if any(getattr(sane, name) is not None for name in _HIGHEST):
            yield sane


def _possible(value: float | None, highest: float) -> bool:
    return value is None or (math.isfinite(value) and 0 < value <= highest)


assert tuple(field.name for field in fields(LoggedStep)) == tuple(SERIES.names)
