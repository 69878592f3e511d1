"""Megatron-LM's iteration lines, and those of what grew from it: Megatron-Bridge, Megatron-DeepSpeed, GPT-NeoX, Primus.

` [2026-08-10 12:00:03] iteration 50/ 5000 | consumed samples: 51200 | elapsed time per iteration (ms): 6167.4 | throughput
per GPU (TFLOP/s/GPU): 412.3 | …`: the time is the mean since the line before (`--log-interval`), the throughput is there
with `--log-throughput`. Megatron-Bridge writes the throughput on a line of its own before: `Step Time : 6.17s GPU
utilization: 412.3MODEL_TFLOP/s/GPU`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ullage.problems import Problems
from ullage.trainlogs.lines import LogLine
from ullage.trainlogs.log import trainlog
from ullage.trainlogs.numbers import flops, number
from ullage.trainlogs.step import LoggedStep

_ITERATION = re.compile(r"\biteration\s+(\d{1,15})\s*/\s*\d+\s*\|", re.ASCII)
_BRIDGE = re.compile(r"Step Time\s*:\s*([\d.]+)\s*s\b.{0,20}GPU utilization:\s*([\d.]+)\s*(?:MODEL_)?(TFLOP)", re.ASCII)
_TIME = "elapsed time per iteration (ms)"
_RATE = (
    "throughput per gpu (tflop/s/gpu)",
    "compute per gpu (tflop/s/gpu)",
    "approx flops per gpu",
    "tflops",
)
_TOKENS = (
    "tokens per gpu (tokens/s/gpu)",
    "tokens per second per gpu (tok/s/gpu)",
    "tokens per gpu per second (tgs)",
    "tokens/s/gpu",
    "tokens/s/gpu inst/harmonic mean",
)
_SAMPLES = ("samples per second", "samples/sec")


def recognise(text: str) -> int:
    """Return 2 for an iteration line with its elapsed time, or Megatron-Bridge's line of step time and utilization."""
    return 2 if (_TIME in text and _ITERATION.search(text)) or _BRIDGE.search(text) else 0


@trainlog("megatron", recognise=recognise, reads="Megatron-LM (`throughput per GPU (TFLOP/s/GPU)`), Megatron-Bridge, GPT-NeoX")
def read(lines: Iterable[LogLine], problems: Problems, where: str) -> Iterator[LoggedStep]:
    """Yield a step for each iteration line; the time is of its end."""
    waiting: LoggedStep | None = None
    for line in lines:
        bridge = _BRIDGE.search(line.text)
        iteration = _ITERATION.search(line.text)
        if bridge:
            if waiting is not None:
                yield waiting
            waiting = LoggedStep(line.number, time=line.time, step_time=number(bridge[1]), flops_per_gpu=flops(bridge[2] + bridge[3]))
        elif iteration and _TIME in line.text:
            yield _step(line, iteration[1], waiting)
            waiting = None
        elif iteration and "elapsed" in line.text:
            problems.drop("lines that can't be read", where=f"{where} line {line.number:,}")
    if waiting is not None:
        yield waiting


def _step(line: LogLine, iteration: str, before: LoggedStep | None) -> LoggedStep:
    told: dict[str, str] = {}
    for part in line.text.split("|"):
        name, _, value = part.rpartition(":")
        told.setdefault(name.strip().lower(), value)
    elapsed, rate = number(told.get(_TIME, "")), _first(told, _RATE)
    batch, length = number(told.get("global batch size", "")), number(told.get("actual seqlen", ""))
    tokens, samples = _first(told, _TOKENS), _first(told, _SAMPLES)
    return LoggedStep(
        line.number,
        step=int(iteration),
        time=line.time,
        step_time=None if elapsed is None else elapsed / 1000,
        tokens=None if batch is None or length is None else batch * length,
        tokens_per_second_per_gpu=None if tokens is None else number(tokens),
        samples_per_second=None if samples is None else number(samples),
        flops_per_gpu=flops(rate) if rate is not None else before.flops_per_gpu if before else None,
    )


def _first(told: dict[str, str], names: Iterable[str]) -> str | None:
    return next((told[name] for name in names if name in told), None)
