"""What a metrics tracker keeps: values by name, step and time, of one run or several; and how they become a training's steps.

A reader is one module of this folder with one function under `@tracker`. It is handed a file or folder that it recognised and
yields a `MetricPoint` for each value, in any order; what is damaged it counts in `Problems`. Which names mean what, units, and
points that belong to one step are not its business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ullage.compressed import head
from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.registry import Registry
from ullage.trainlogs.keys import meaning, scaled
from ullage.trainlogs.step import LoggedStep, counted, mfu_as_ratios

_RUNS_SHOWN = 5


@dataclass(frozen=True)
class MetricPoint:
    """A value of a metric as it was logged. `time` is in ms since 1970, `record` where it stands in its `file`, from 1.

    Values of one record of one file were logged together; "" is the file that was named.
    """

    metric: str
    value: float
    step: int | None = None
    time: int | None = None
    run: str = ""
    record: int = 0
    file: str = ""


class PointReader(Protocol):
    """A function that reads the values that a tracker kept."""

    def __call__(self, path: Path, problems: Problems) -> Iterator[MetricPoint]:
        """Yield the values of a file or folder."""


@dataclass(frozen=True)
class Tracker:
    """A registered format. `recognise` sees a file with its first bytes, or a folder without any."""

    name: str
    recognise: Callable[[Path, bytes], bool]
    read: PointReader
    reads: str


TRACKERS: Registry[Tracker] = Registry("format of tracked metrics", package="ullage.trainlogs", command="ullage fleet --help")


def tracker(name: str, *, recognise: Callable[[Path, bytes], bool], reads: str) -> Callable[[PointReader], PointReader]:
    """Register the decorated function as the reader of what a tracker keeps. `reads` is one line for the table of formats."""

    def register(reader: PointReader) -> PointReader:
        TRACKERS.add(name, Tracker(name, recognise, reader, reads))
        return reader

    return register


def tracker_of(path: Path) -> Tracker | None:
    """Return the format of a file or folder, None where it is none of these."""
    start = b"" if path.is_dir() else head(path)
    return next((one for one in TRACKERS.values() if one.recognise(path, start)), None)


@dataclass
class _Row:
    """What is known of one step so far."""

    record: int
    step: int | None
    time: int | None
    values: dict[str, float] = field(default_factory=dict)


def steps_of_points(points: Iterable[MetricPoint], where: str, run: str | None = None) -> list[LoggedStep]:
    """Return the steps of one run: values of one step in one row, each field by the best of its names that the run has.

    A metric that is logged again for a step begins a row of its own: a restarted training does the step again. Raises
    UllageError where there are several runs and `run` is none of them.
    """
    known = [(point, found) for point in points if (found := meaning(point.metric)) and found[0] != "time"]
    chosen_run = _chosen_run([point.run for point, found in known if found[0] != "step"], where, run)
    known = [(point, found) for point, found in known if point.run == chosen_run]
    steps = _steps_logged(known)
    kept = [(replace(point, step=steps.get((point.file, point.record), point.step)), found) for point, found in known if found[0] != "step"]
    names: dict[str, tuple[int, str]] = {}
    for point, (name, rank) in kept:
        if name not in names or rank < names[name][0]:
            names[name] = rank, point.metric
    if all(point.time is not None for point, _ in kept):
        kept.sort(key=lambda pair: pair[0].time or 0)
    rows = _rows((point, name) for point, (name, _) in kept if names[name][1] == point.metric)
    return mfu_as_ratios([LoggedStep(row.record, row.step, row.time, **row.values) for row in rows])


def _steps_logged(known: Iterable[tuple[MetricPoint, tuple[str, int]]]) -> dict[tuple[str, int], int | None]:
    """Return by file and record the step that a training logged as a metric of its own: the tracker's may count calls."""
    best: dict[tuple[str, int], tuple[int, int | None]] = {}
    for point, (name, rank) in known:
        place = point.file, point.record
        if name == "step" and (place not in best or rank < best[place][0]):
            best[place] = rank, counted(point.value)
    return {place: step for place, (_, step) in best.items() if step is not None}


def _rows(points: Iterable[tuple[MetricPoint, str]]) -> list[_Row]:
    rows: list[_Row] = []
    latest: dict[tuple[str, str, int], _Row] = {}
    for point, name in points:
        key = ("record", point.file, point.record) if point.step is None else ("step", "", point.step)
        row = latest.get(key)
        if row is None or name in row.values:
            row = latest[key] = _Row(point.record, point.step, point.time)
            rows.append(row)
        row.values[name] = scaled(name, point.metric, point.value)
        if point.time is not None:
            row.time = max(point.time, row.time or point.time)
    return rows


def _chosen_run(runs: Iterable[str], where: str, wanted: str | None) -> str:
    """Return the run to read: the one that is wanted, or the only one."""
    found = list(dict.fromkeys(runs))
    if wanted in found:
        return str(wanted)
    if len(found) > 1:
        shown = ", ".join(f"'{harmless(run, 60)}'" for run in found[:_RUNS_SHOWN]) + (", …" if len(found) > _RUNS_SHOWN else "")
        raise UllageError(
            f"{where} holds {len(found)} runs: {shown}",
            "name the job as the run is called (--reported LOG=RUN), or give that run alone",
        )
    return found[0] if found else ""


def milliseconds(seconds: float) -> int | None:
    """Return seconds since 1970 in ms; None for what is no time.

    >>> milliseconds(1786363203.25), milliseconds(float("nan"))
    (1786363203250, None)
    """
    return round(seconds * 1000) if math.isfinite(seconds) and abs(seconds) < 1e12 else None
