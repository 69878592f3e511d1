"""DeepSpeed's throughput timer, its pipeline engine's lines, and the summary of its FLOPs profiler.

The timer (`global_step=10, RunningAvgSamplesPerSec=25.0, CurrSamplesPerSec=25.7`) knows samples, not FLOPs. The pipeline
engine adds the time: `steps: 10 loss: 6.9 iter time (s): 1.234 samples/sec: 25.9`. The profiler's summary of one step has
`FLOPS per GPU = 3 * fwd flops per GPU / iter latency: 13.36 TFLOPS`; its figures for forward and backward alone are not the
step's, and are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ullage.problems import Problems
from ullage.trainlogs.lines import LogLine
from ullage.trainlogs.log import trainlog
from ullage.trainlogs.numbers import flops, number, span
from ullage.trainlogs.step import LoggedStep

_TIMER = re.compile(r"(?:global_step=|\s0/)(\d{1,15}), RunningAvgSamplesPerSec=[^,]*, CurrSamplesPerSec=([^,\s]{1,40})", re.ASCII)
_ENGINE = re.compile(r"\bsteps?:\s*(\d{1,15})\s.*\biter time \(s\):\s*(\S{1,40})\s+samples/sec:\s*(\S{1,40})", re.ASCII)
_PROFILE = re.compile(r"\bProfile Summary at step (\d{1,15})", re.ASCII)
_SUMMARY = re.compile(r"^\W*(?:\d+:\s*)?(iter latency|FLOPS per GPU|samples/second)\b[^:]*:\s*(\S.*)$")


def recognise(text: str) -> int:
    """Return 1 for any of its lines: a Megatron log has them too, and knows more."""
    return 1 if _TIMER.search(text) or _ENGINE.search(text) or _PROFILE.search(text) else 0


@trainlog("deepspeed", recognise=recognise, reads="DeepSpeed (throughput timer, pipeline engine, FLOPs profiler)")
def read(lines: Iterable[LogLine], problems: Problems, where: str) -> Iterator[LoggedStep]:  # noqa: ARG001 - a reader's signature
    """Yield a step for each line of the timer or the engine, and for each summary of the profiler."""
    profile: LoggedStep | None = None
    for line in lines:
        if found := _TIMER.search(line.text):
            yield LoggedStep(line.number, int(found[1]), line.time, samples_per_second=number(found[2]))
        elif found := _ENGINE.search(line.text):
            yield LoggedStep(line.number, int(found[1]), line.time, number(found[2]), samples_per_second=number(found[3]))
        elif found := _PROFILE.search(line.text):
            if profile is not None:
                yield profile
            profile = LoggedStep(line.number, int(found[1]), line.time)
        elif profile is not None and (found := _SUMMARY.match(line.text)):
            profile = _with(profile, found[1], found[2])
            if found[1] == "samples/second":
                yield profile
                profile = None
    if profile is not None:
        yield profile


def _with(profile: LoggedStep, name: str, value: str) -> LoggedStep:
    """Return the profile with what one line of its summary says."""
    if name == "iter latency":
        return replace(profile, step_time=span(value))
    if name == "FLOPS per GPU":
        return replace(profile, flops_per_gpu=flops(value))
    return replace(profile, samples_per_second=number(value))
