"""verl's metrics: console lines `step:12 - actor/loss:0.1 - perf/mfu/actor:0.41 - timing_s/step:46.6`, and its JSON lines.

`perf/mfu/actor` is the MFU of the actor's update alone, not of the step, in which a rollout may take most of the time;
`perf/throughput` is tokens per second per GPU. A supervised run reports `train/mfu`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ullage.problems import Problems
from ullage.trainlogs.keys import mapping
from ullage.trainlogs.lines import LogLine
from ullage.trainlogs.log import trainlog
from ullage.trainlogs.numbers import number
from ullage.trainlogs.step import LoggedStep, counted

_CONSOLE = re.compile(r"(?<![\w/])step:\s*(\d{1,15}) - (\S.*)$", re.ASCII)
_OURS = re.compile(r"\bperf/(?:mfu/|total_num_tokens|time_per_step|throughput)|\btrain/mfu\b|\btiming_s/step\b")
_ONLY_OURS = re.compile(r"\bperf/(?:mfu/|total_num_tokens|time_per_step|throughput)|\btiming_s/step\b")  # others say train/mfu, too
_MFU = ("perf/mfu/actor", "train/mfu", "perf/mfu/actor_train")
_STEP_TIME = ("timing_s/step", "perf/time_per_step")


def recognise(text: str) -> int:
    """Return 2 for a console line or an object with verl's own names."""
    if not _OURS.search(text):
        return 0
    return 2 if _CONSOLE.search(text) or (_ONLY_OURS.search(text) and text.endswith("}") and mapping(text)) else 0


@trainlog("verl", recognise=recognise, reads="verl and VeRL-Omni (`step:12 - perf/mfu/actor:0.41 - …`, and its JSON lines)")
def read(lines: Iterable[LogLine], problems: Problems, where: str) -> Iterator[LoggedStep]:
    """Yield a step for each line of metrics."""
    actor = False
    for line in lines:
        told = _told(line.text)
        if told is None:
            if _OURS.search(line.text) and line.text.startswith("{"):
                problems.drop("lines that can't be read", where=f"{where} line {line.number:,}")
            continue
        mfu = next((name for name in _MFU if name in told), None)
        actor |= mfu in ("perf/mfu/actor", "perf/mfu/actor_train")
        yield LoggedStep(
            line.number,
            step=counted(_of(told, "step", "training/global_step")),
            time=line.time,
            step_time=_of(told, *_STEP_TIME),
            tokens=_of(told, "perf/total_num_tokens"),
            tokens_per_second_per_gpu=_of(told, "perf/throughput"),
            mfu=None if mfu is None else _of(told, mfu),
        )
    if actor:
        problems.note(f"the MFU of {where} is of the actor's update alone (perf/mfu/actor), not of the whole step as OFU is")


def _told(text: str) -> Mapping[str, object] | None:
    if not _OURS.search(text):
        return None
    console = _CONSOLE.search(text)
    if console:
        parts = (part.partition(":") for part in console[2].split(" - "))
        return {"step": console[1]} | {name.strip(): value for name, _, value in parts}
    found = mapping(text)
    return None if found is None else {name.removeprefix("data/"): value for name, value in found.items()}


def _of(told: Mapping[str, object], *names: str) -> float | None:
    for name in names:
        if told.get(name) is not None:
            return number(str(told[name]))
    return None
