"""Several ranks write about one step, one after the other or interleaved: their lines become one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.problems import Problems
from ullage.trainlogs.step import LoggedStep

# What ranks write of themselves is averaged, for the job's figure per GPU is the mean over its GPUs.
_MEANS: Final = ("step_time", "tokens", "tokens_per_second_per_gpu", "samples_per_second", "flops_per_gpu", "mfu")
_OPEN: Final = 2  # steps that ranks may write about at once: a fast rank is one ahead
_SKEW: Final = 60_000  # ms between the lines of one step, beside the step's own time; later it is the step done again


@dataclass
class _Copies:
    """The first line about a step, and the sums over all lines about it."""

    first: LoggedStep
    last: int | None
    lines: int = 0
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)

    def takes(self, step: LoggedStep) -> bool:
        """Whether a line is about the same step, and not about the step done again after a restart."""
        if step.step is None or step.step != self.first.step:
            return False
        if step.time is None or self.first.time is None:
            return True
        return abs(step.time - self.first.time) <= _SKEW + 1000 * (step.step_time or 0.0)

    def add(self, step: LoggedStep) -> None:
        self.lines += 1
        if step.time is not None:
            self.last = max(step.time, self.last or step.time)
        for name in _MEANS:
            value = getattr(step, name)
            if value is not None:
                total, count = self.sums.get(name, (0.0, 0))
                self.sums[name] = total + value, count + 1

    def step(self) -> LoggedStep:
        """Return the step with the mean of every value, and the time of its last line."""
        if self.lines == 1:
            return self.first
        means = {name: total / count for name, (total, count) in self.sums.items()}
        return replace(self.first, time=self.last, **means)  # type: ignore[arg-type]


def one_a_step(steps: Iterable[LoggedStep], problems: Problems) -> Iterator[LoggedStep]:
    """Yield one `Step` for the lines about each step, values averaged, in the order of their first lines.

    Lines about the same step belong together while at most one other step lies between, and while their times are near:
    a step that a restarted job does again is a row of its own.
    """
    open_steps: list[_Copies] = []
    for step in steps:
        copies = next((one for one in open_steps if one.takes(step)), None)
        if copies is None:
            copies = _Copies(step, step.time)
            open_steps.append(copies)
            if len(open_steps) > _OPEN:
                yield _closed(open_steps.pop(0), problems)
        copies.add(step)
    for copies in open_steps:
        yield _closed(copies, problems)


def _closed(copies: _Copies, problems: Problems) -> LoggedStep:
    problems.repair("further lines about a step (other ranks, other trainers' layers), joined to its first", copies.lines - 1)
    return copies.step()
