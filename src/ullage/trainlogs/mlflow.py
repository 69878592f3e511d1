"""MLflow's metrics: the files of a run (`mlruns/EXPERIMENT/RUN/metrics/NAME`), their folders, and its database (`mlflow.db`).

A line of a file is a time in ms, a value and a step; the metric's name is the file's path below `metrics`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ullage.compressed import opened
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.trainlogs.databases import has_columns, rows_of, run_labels
from ullage.trainlogs.lines import LogLines
from ullage.trainlogs.points import MetricPoint, tracker

_METRICS: Final = "metrics"
_META: Final = "meta.yaml"
_LINE = re.compile(r"(\d{10,15}) (\S{1,40})(?: (-?\d{1,18}))?(?: \S+ \S+)?", re.ASCII)
_NAME = re.compile(r"^run_name: *['\"]?(.*?)['\"]?\s*$", re.MULTILINE)
_COLUMNS: Final = {"key", "value", "timestamp", "run_uuid", "step", "is_nan"}
_FILES: Final = 10_000
_DEEPEST: Final = 2  # folders between the one that is named and a run's: the experiment's


def recognise(path: Path, start: bytes) -> bool:
    """Return whether it is a metric's file, a folder with a run's, or a database with MLflow's table of metrics."""
    if path.is_dir():
        return next(_runs(path), None) is not None
    if has_columns(path, start, "metrics", _COLUMNS):
        return True
    first, _, more = start[:200].partition(b"\n")
    whole = bool(more) or len(start) < 200
    return _METRICS in path.absolute().parts[:-1] and whole and _LINE.fullmatch(first.decode("ascii", "replace").strip()) is not None


@tracker("mlflow", recognise=recognise, reads="MLflow's metrics (mlruns/…, the folder of a run, mlflow.db)")
def read(path: Path, problems: Problems) -> Iterator[MetricPoint]:
    """Yield every value of the runs that were not deleted."""
    if not path.is_dir():
        database = has_columns(path, path.open("rb").read(16), "metrics", _COLUMNS)
        yield from _from_database(path, problems) if database else _from_file(path, _metric(path), "", problems)
        return
    folders = list(_runs(path))
    labels = run_labels({folder.parent.name: _run_name(folder) for folder in folders})
    files = ((folder, file) for folder in folders for file in sorted(folder.rglob("*")) if file.is_file())
    for count, (folder, file) in enumerate(files):
        if count == _FILES:
            return problems.cut(f"{path.name} has more than {_FILES:,} files of metrics")
        yield from _from_file(file, file.relative_to(folder).as_posix(), labels[folder.parent.name], problems)


def _runs(path: Path) -> Iterator[Path]:
    """Yield the folders of metrics: the one that is named, a run's, or those of the runs of an experiment or of all of them."""
    if path.name == _METRICS and (path.parent / _META).is_file():
        yield path
        return
    for depth in range(_DEEPEST + 1):
        found = sorted(meta.parent / _METRICS for meta in path.glob("*/" * depth + _META) if (meta.parent / _METRICS).is_dir())
        yield from (folder for folder in found if not _deleted(folder.parent))


def _deleted(run: Path) -> bool:
    return "lifecycle_stage: deleted" in _meta(run)


def _run_name(metrics: Path) -> str | None:
    found = _NAME.search(_meta(metrics.parent))
    return found[1] if found else None


def _meta(run: Path) -> str:
    try:
        with (run / _META).open(encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""


def _metric(file: Path) -> str:
    """Return a metric's name: what stands behind the last folder `metrics` of its path."""
    parts = file.absolute().parts
    after = len(parts) - parts[::-1].index(_METRICS)
    return "/".join(parts[after:])


def _from_file(path: Path, metric: str, run: str, problems: Problems) -> Iterator[MetricPoint]:
    try:
        with opened(path) as file:
            for line in LogLines(file, path.name, problems):
                found = _LINE.fullmatch(line.text)
                value = _float(found[2]) if found else None
                if found is None or value is None:
                    problems.drop("lines that can't be read", where=f"{path.name} line {line.number:,}")
                    problems.cut(f"{path.name} has lines that can't be read")
                    continue
                yield MetricPoint(metric, value, int(found[3] or 0), int(found[1]), run, line.number, metric)
    except UllageError as error:
        problems.cut_short("files of metrics that can't be read", f"{path.name} ({error.problem})")


def _from_database(path: Path, problems: Problems) -> Iterator[MetricPoint]:
    labels = run_labels(dict(rows_of(path, "SELECT run_uuid, name FROM runs WHERE lifecycle_stage != 'deleted'", problems)))
    question = "SELECT key, value, timestamp, run_uuid, step, is_nan FROM metrics ORDER BY timestamp, step"
    for record, (key, value, time, run, step, is_nan) in enumerate(rows_of(path, question, problems), 1):
        if run not in labels:
            continue
        number = math.nan if is_nan else _float(value)
        if not isinstance(key, str) or number is None or not isinstance(time, int) or not isinstance(step, int):
            problems.drop("values that are not numbers", where=f"{path.name} row {record:,}")
            continue
        yield MetricPoint(key, number, step, time, labels[run], record)


def _float(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
