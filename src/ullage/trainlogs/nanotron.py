"""nanotron's iteration lines: `iteration: 7 / 100 | consumed_tokens: 1.79K | elapsed_time_per_iteration_ms: 4.71K | …`.

Numbers carry a letter for their magnitude (8.79K ms, 480B tokens). `model_tflops_per_gpu` is model work; its
`hardware_tflops_per_gpu` is the same number, and is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ullage.problems import Problems
from ullage.trainlogs.lines import LogLine
from ullage.trainlogs.log import trainlog
from ullage.trainlogs.numbers import TERA, human
from ullage.trainlogs.step import LoggedStep

_ITERATION = re.compile(r"\biteration:\s*(\d{1,15})\s*/\s*\d+\s*\|", re.ASCII)


def recognise(text: str) -> int:
    """Return 2 for an iteration line with tokens per second."""
    return 2 if "tokens_per_sec" in text and _ITERATION.search(text) else 0


@trainlog("nanotron", recognise=recognise, reads="nanotron (`model_tflops_per_gpu`)")
def read(lines: Iterable[LogLine], problems: Problems, where: str) -> Iterator[LoggedStep]:
    """Yield a step for each iteration line."""
    for line in lines:
        iteration = _ITERATION.search(line.text)
        if iteration is None:
            continue
        told = {name.strip(): value for name, _, value in (part.rpartition(":") for part in line.text.split("|"))}
        elapsed = human(told.get("elapsed_time_per_iteration_ms", told.get("time_per_iteration_ms", "")))
        rate, tokens = human(told.get("model_tflops_per_gpu", "")), human(told.get("tokens_per_sec", ""))
        if elapsed is None and rate is None:
            problems.drop("lines that can't be read", where=f"{where} line {line.number:,}")
            continue
        yield LoggedStep(
            line.number,
            step=int(iteration[1]),
            time=line.time,
            step_time=None if elapsed is None else elapsed / 1000,
            tokens=None if tokens is None or elapsed is None else tokens * elapsed / 1000,
            tokens_per_second_per_gpu=human(told.get("tokens_per_sec_per_gpu", "")),
            flops_per_gpu=None if rate is None else rate * TERA,
        )
