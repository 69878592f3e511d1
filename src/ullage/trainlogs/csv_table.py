"""Metrics as a table with a header (CSV): a run's history as Weights & Biases exports it, a panel's, Lightning's `metrics.csv`.

In a panel's export a column is "RUN - METRIC", beside it its least and greatest values ("…__MIN", "…__MAX"), which are not read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ullage.compressed import opened
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.trainlogs.keys import meaning
from ullage.trainlogs.lines import time_of
from ullage.trainlogs.numbers import number
from ullage.trainlogs.points import MetricPoint, tracker
from ullage.trainlogs.step import counted

_COLUMNS: Final = 20_000
_PANEL: Final = " - "
_RANGES: Final = ("__MIN", "__MAX")


def recognise(path: Path, start: bytes) -> bool:
    """Return whether the first line is a header with a step and with what a training reports."""
    if path.is_dir():
        return False
    first = start.partition(b"\n")[0]
    if b"," not in first or b"\x00" in first:
        return False
    try:
        header = next(csv.reader([first.decode("utf-8-sig", "strict")]), [])
    except (csv.Error, UnicodeDecodeError):
        return False
    found = {meant[0] for name in header if (meant := _named(name)[2])}
    return "step" in found and bool(found - {"step", "time"})


@tracker("csv", recognise=recognise, reads="CSV with a header (W&B's exports, Lightning's metrics.csv)")
def read(path: Path, problems: Problems) -> Iterator[MetricPoint]:
    """Yield the cells of every column with a known name."""
    where = path.name
    with opened(path) as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8-sig", "replace", newline=""))
        header = next(rows, [])[:_COLUMNS]
        columns = [(place, *_named(name)) for place, name in enumerate(header)]
        steps = _columns(columns, "step")
        times = _columns(columns, "time")
        kept = [(place, run, name) for place, run, name, meant in columns if meant and meant[0] not in ("step", "time")]
        for row in _whole_rows(rows, len(header), problems, where):
            step = counted(next((found for place in steps if (found := number(row[place])) is not None), None))
            time = next((found for place in times if (found := _time(row[place])) is not None), None)
            for place, run, name in kept:
                value = number(row[place]) if row[place] else None
                if value is not None:
                    yield MetricPoint(name, value, step, time, run, rows.line_num)


def _named(column: str) -> tuple[str, str, tuple[str, int] | None]:
    """Return the run and the metric that a column is of, and what the metric means."""
    if column.endswith(_RANGES):
        return "", column, None
    run, dash, metric = column.rpartition(_PANEL)
    if dash and (meant := meaning(metric)):
        return run, metric, meant
    return "", column, meaning(column)


def _columns(columns: Sequence[tuple[int, str, str, tuple[str, int] | None]], field: str) -> list[int]:
    """Return where the columns of a field stand, the best name first."""
    found = [(meant[1], place) for place, _, _, meant in columns if meant and meant[0] == field]
    return [place for _, place in sorted(found)]


def _whole_rows(rows: Iterator[list[str]], width: int, problems: Problems, where: str) -> Iterator[list[str]]:
    """Yield the rows as long as the header; a shorter last one is torn."""
    place = f"{where} row 1"
    count, short = 1, 0
    try:
        for row in rows:
            count += 1
            place = f"{where} row {count:,}"
            if not row:
                continue
            if len(row) == width:
                yield row
            else:
                short = count
                problems.drop("rows with other columns than the header", where=place)
    except (csv.Error, UllageError) as error:
        return problems.cut_short("ends of tables that can't be read", f"{place} ({error})")
    if short:
        problems.cut(f"{where} has rows with other columns than the header")


def _time(text: str) -> int | None:
    try:
        return time_of(float(text))
    except ValueError:
        return time_of(text)
