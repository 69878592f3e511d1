"""NeMo's progress: `Training epoch 0, iteration 28/99 | … | global_step: 28 | train_step_timing in s: 12.2 | …`.

Lightning's progress bar of NeMo 1 says the same with `=` and commas. `TFLOPS_per_GPU` is there with the FLOPs callback.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ullage.problems import Problems
from ullage.trainlogs.lines import LogLine
from ullage.trainlogs.log import trainlog
from ullage.trainlogs.numbers import flops, number
from ullage.trainlogs.step import LoggedStep, counted

_FIELD = re.compile(
    r"(?<![\w/])(global_step|train_step_timing in s|tokens_per_sec_per_gpu|TFLOPS_per_GPU|reduced_train_loss|tokens_per_step)"
    r"\s*[:=]\s*([+-]?[\d.nN][^\s,|\]]{0,40})"
)
_ITERATION = re.compile(r"\biteration (\d{1,15})/\d+", re.ASCII)


def recognise(text: str) -> int:
    """Return 2 for a line with NeMo's step timing, or its loss beside a step."""
    return 2 if "train_step_timing in s" in text or ("reduced_train_loss" in text and "global_step" in text) else 0


@trainlog("nemo", recognise=recognise, reads="NeMo (`train_step_timing in s`, `TFLOPS_per_GPU`)")
def read(lines: Iterable[LogLine], problems: Problems, where: str) -> Iterator[LoggedStep]:
    """Yield a step for each progress line."""
    for line in lines:
        if not recognise(line.text):
            continue
        told: dict[str, str] = dict(_FIELD.findall(line.text))
        iteration = _ITERATION.search(line.text)
        step = counted(number(told.get("global_step") or (iteration[1] if iteration else "")))
        if step is None:  # a list of all timings, a configuration
            problems.drop("lines that can't be read", where=f"{where} line {line.number:,}")
            continue
        yield LoggedStep(
            line.number,
            step=step,
            time=line.time,
            step_time=number(told.get("train_step_timing in s", "")),
            tokens=number(told.get("tokens_per_step", "")),
            tokens_per_second_per_gpu=number(told.get("tokens_per_sec_per_gpu", "")),
            flops_per_gpu=flops(told.get("TFLOPS_per_GPU", "")),
        )
