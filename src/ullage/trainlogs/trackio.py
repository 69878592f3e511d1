"""Trackio's database (`~/.cache/huggingface/trackio/PROJECT.db`): a row a call of `trackio.log`, its metrics as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ullage.problems import Problems
from ullage.trainlogs.databases import has_columns, rows_of, run_labels
from ullage.trainlogs.keys import mapping
from ullage.trainlogs.lines import time_of
from ullage.trainlogs.numbers import number
from ullage.trainlogs.points import MetricPoint, tracker

_COLUMNS: Final = {"timestamp", "run_name", "step", "metrics"}
# The runs and the calls; earlier versions know a run by its name alone
_BY_ID: Final = (
    "SELECT DISTINCT run_id, run_name FROM metrics",
    "SELECT timestamp, run_id, step, metrics FROM metrics ORDER BY rowid",
)
_BY_NAME: Final = (
    "SELECT DISTINCT run_name, run_name FROM metrics",
    "SELECT timestamp, run_name, step, metrics FROM metrics ORDER BY rowid",
)


def recognise(path: Path, start: bytes) -> bool:
    """Return whether a file is a database with Trackio's table of metrics."""
    return not path.is_dir() and has_columns(path, start, "metrics", _COLUMNS)


@tracker("trackio", recognise=recognise, reads="Trackio's database (PROJECT.db)")
def read(path: Path, problems: Problems) -> Iterator[MetricPoint]:
    """Yield the numbers of every call."""
    runs, question = _BY_ID if has_columns(path, path.open("rb").read(16), "metrics", {"run_id"}) else _BY_NAME
    labels = run_labels(dict(rows_of(path, runs, problems)))
    for record, (written, run, step, metrics) in enumerate(rows_of(path, question, problems), 1):
        text = metrics.decode("utf-8", "replace") if isinstance(metrics, bytes) else metrics
        values = mapping(text) if isinstance(text, str) else None
        if values is None or run not in labels:
            problems.drop("rows that can't be read", where=f"{path.name} row {record:,}")
            problems.cut(f"{path.name} has rows that can't be read")
            continue
        time = time_of(written)
        for name, value in values.items():
            if isinstance(value, bool | list) or (found := number(str(value))) is None:
                continue
            yield MetricPoint(name, found, step if isinstance(step, int) else None, time, labels[run], record)
