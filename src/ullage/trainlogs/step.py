"""What a trainer reports of one step."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

_PERCENT: Final = 1.5  # a series of MFU with a median above this is in percent


@dataclass(frozen=True)
class LoggedStep:
    """A step as reported: SI units without prefixes, `time` in ms since 1970 (the end of the step), None for what is not said.

    `step_time` is of one step, also where a line stands for several. `tokens` and `samples_per_second` are of the whole
    job, the other rates per GPU. `mfu` is a ratio.
    """

    line: int
    step: int | None = None
    time: int | None = None
    step_time: float | None = None
    tokens: float | None = None
    tokens_per_second_per_gpu: float | None = None
    samples_per_second: float | None = None
    flops_per_gpu: float | None = None
    mfu: float | None = None


def counted(value: float | None) -> int | None:
    """Return a step's number as a whole one; None for what is none.

    >>> counted(9e3), counted(None), counted(float("nan"))
    (9000, None, None)
    """
    return int(value) if value is not None and value == value and abs(value) < 2.0**53 else None


def mfu_as_ratios(steps: Sequence[LoggedStep]) -> list[LoggedStep]:
    """Return steps with their MFU as ratios: a series whose median is above 1.5 is in percent.

    >>> [step.mfu for step in mfu_as_ratios([LoggedStep(1, mfu=1.5), LoggedStep(2, mfu=50.0), LoggedStep(3, mfu=75.0)])]
    [0.015, 0.5, 0.75]
    """
    reported = [step.mfu for step in steps if step.mfu is not None and step.mfu == step.mfu]
    if not reported or statistics.median(reported) <= _PERCENT:
        return list(steps)
    return [step if step.mfu is None else replace(step, mfu=step.mfu / 100) for step in steps]
