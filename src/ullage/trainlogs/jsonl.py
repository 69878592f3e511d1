"""Metrics as a JSON object (or a printed Python dictionary) on each line, with named keys: what most loggers can write.

A percentage is told from a ratio by the name ("mfu(%)") or, like MFU in job records, by the series: a median above 1.5 is
percent. Names with "tflops" are in TFLOP/s; of "flops_per_gpu" a number below a million is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ullage.problems import Problems
from ullage.trainlogs.keys import mapping, meaning, scaled
from ullage.trainlogs.lines import LogLine, time_of
from ullage.trainlogs.log import trainlog
from ullage.trainlogs.numbers import number
from ullage.trainlogs.step import LoggedStep, counted, mfu_as_ratios


def recognise(text: str) -> int:
    """Return 1 for an object with a name that reports a rate, a time or an MFU."""
    if not text.endswith("}") or "{" not in text:
        return 0
    fields = {found[0] for found in map(meaning, mapping(text) or {}) if found}
    return 1 if fields - {"step", "time"} else 0


@trainlog("jsonl", recognise=recognise, reads="JSON lines with named keys (step, timestamp, step_time, tokens, tflops_per_gpu, mfu, …)")
def read(lines: Iterable[LogLine], problems: Problems, where: str) -> Iterator[LoggedStep]:
    """Yield a step for each object, MFU as a ratio."""
    yield from mfu_as_ratios(list(_steps(lines, problems, where)))


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
            found[meant[0]] = meant[1], name, value
    return {field: (name, value) for field, (_, name, value) in found.items()}


def _step(line: LogLine, told: Mapping[str, tuple[str, Any]]) -> LoggedStep:
    values = {field: (number(str(value)), name) for field, (name, value) in told.items() if field not in ("time", "step")}
    inside = {field: scaled(field, name, value) for field, (value, name) in values.items() if value is not None}
    step = number(str(told["step"][1])) if "step" in told else None
    return LoggedStep(line.number, counted(step), time_of(told["time"][1]) if "time" in told else line.time, **inside)
