"""Metrics as a JSON object (or a printed Python dictionary) on each line, with named keys: what most loggers can write.

A percentage is told from a ratio by the name ("mfu(%)") or, like MFU in job records, by the series: a median above 1.5 is
percent. Names with "tflops" are in TFLOP/s; of "flops_per_gpu" a number below a million is.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ullage.problems import Problems
from ullage.trainlogs.keys import folded, mapping, meaning
from ullage.trainlogs.lines import LogLine, moment
from ullage.trainlogs.log import trainlog
from ullage.trainlogs.numbers import TERA, number
from ullage.trainlogs.step import LoggedStep, counted

_PERCENT: Final = 1.5  # a series of MFU with a median above this is in percent
_FLOPS: Final = 1e6  # no GPU trains at a million FLOP/s, none at a million TFLOP/s
_SECONDS, _MILLISECONDS = 1e8, 1e11  # a number of seconds since 1970 is above the first, one of ms above the second


def recognise(text: str) -> int:
    """Return 1 for an object with a name that reports a rate, a time or an MFU."""
    if not text.endswith("}") or "{" not in text:
        return 0
    fields = {found[0] for found in map(meaning, mapping(text) or {}) if found}
    return 1 if fields - {"step", "time"} else 0


@trainlog("jsonl", recognise=recognise, reads="JSON lines with named keys (step, timestamp, step_time, tokens, tflops_per_gpu, mfu, …)")
def read(lines: Iterable[LogLine], problems: Problems, where: str) -> Iterator[LoggedStep]:
    """Yield a step for each object, MFU as a ratio."""
    steps = list(_steps(lines, problems, where))
    told = [step.mfu for step in steps if step.mfu is not None and step.mfu == step.mfu]
    percent = bool(told) and statistics.median(told) > _PERCENT
    for step in steps:
        yield replace(step, mfu=step.mfu / 100) if percent and step.mfu is not None else step


def _steps(lines: Iterable[LogLine], problems: Problems, where: str) -> Iterator[LoggedStep]:
    for line in lines:
        if line.text.startswith("{") or line.text.endswith("}"):
            told = mapping(line.text)
            if told is None and line.text.startswith("{"):
                problems.drop("lines that can't be read", where=f"{where} line {line.number:,}")
            if told:
                yield _step(line, _chosen(told))


def _chosen(told: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return for every field the name and value of the first of its names that the line has."""
    found: dict[str, tuple[int, str, Any]] = {}
    for name, value in told.items():
        meant = meaning(name)
        if meant is None or value is None or isinstance(value, bool | list | dict):
            continue
        if meant[0] not in found or meant[1] < found[meant[0]][0]:
            found[meant[0]] = meant[1], folded(name), value
    return {field: (name, value) for field, (_, name, value) in found.items()}


def _step(line: LogLine, told: Mapping[str, tuple[str, Any]]) -> LoggedStep:
    values = {field: (number(str(value)), name) for field, (name, value) in told.items() if field not in ("time", "step")}
    scaled = {field: value * _factor(field, name, value) for field, (value, name) in values.items() if value is not None}
    step = number(str(told["step"][1])) if "step" in told else None
    return LoggedStep(line.number, counted(step), _time(told["time"][1]) if "time" in told else line.time, **scaled)


def _factor(field: str, name: str, value: float) -> float:
    if field == "step_time":
        return 1e-3 if name.endswith("_ms") else 1.0
    if field == "flops_per_gpu":
        return TERA if "tflop" in name or value < _FLOPS else 1.0
    if field == "mfu":
        return 0.01 if "%" in name or "percent" in name or "pct" in name else 1.0
    return 1.0


def _time(value: Any) -> int | None:
    """Return a time in ms since 1970 from a number or a text; a time since the start of the run is none.

    >>> _time(1786363203), _time("2026-08-10T12:00:03Z"), _time(12.5)
    (1786363203000, 1786363203000, None)
    """
    if isinstance(value, int | float):
        if not _SECONDS < value < 1e15:
            return None
        return round(value if value > _MILLISECONDS else value * 1000)
    found = moment(str(value))
    return found[0] if found else None
