"""torchtitan's metrics lines: `step: 10  loss: 7.07  …  tps: 7,312  tflops: 423.11  mfu: 42.78%`, with or without colours.

`tps` is tokens per second per GPU. Each rank that is not silenced writes its own. There is no step time: the interval
between lines tells it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ullage.problems import Problems
from ullage.trainlogs.lines import LogLine
from ullage.trainlogs.log import trainlog
from ullage.trainlogs.numbers import flops, number
from ullage.trainlogs.step import LoggedStep

_STEP = re.compile(r"(?<![\w/])step:\s*(\d{1,15})(?!\d)", re.ASCII)
_FIELD = re.compile(r"(?<![\w/])(tps|wps|tflops|mfu):\s*(\d[^\s|]{0,40}|N/A)", re.ASCII)


def recognise(text: str) -> int:
    """Return 2 for a line with a step, tokens (or words) per second and an MFU."""
    if "mfu:" not in text or "loss:" not in text or not _STEP.search(text):
        return 0
    told = {name for name, _ in _FIELD.findall(text)}
    return 2 if "mfu" in told and told & {"tps", "wps"} else 0


@trainlog("torchtitan", recognise=recognise, reads="torchtitan (`step: … tps: … tflops: … mfu: …%`)")
def read(lines: Iterable[LogLine], problems: Problems, where: str) -> Iterator[LoggedStep]:
    """Yield a step for each line of each rank; an MFU of N/A is not reported."""
    for line in lines:
        found = _STEP.search(line.text)
        told: dict[str, str] = dict(_FIELD.findall(line.text))
        if found is None or not told:
            if found is None and {"tps", "mfu"} <= set(told):
                problems.drop("lines that can't be read", where=f"{where} line {line.number:,}")
            continue
        mfu = number(told.get("mfu", ""))
        yield LoggedStep(
            line.number,
            step=int(found[1]),
            time=line.time,
            tokens_per_second_per_gpu=number(told.get("tps") or told.get("wps", "")),
            flops_per_gpu=flops(told.get("tflops", "")),
            mfu=None if mfu is None else mfu / 100,
        )
