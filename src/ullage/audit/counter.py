"""Somebody's FLOPs function against known answers: it runs in another process, with a limit to every call."""

from __future__ import annotations

import contextlib
import json
import math
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from ullage.audit.counter_call import ADAPTERS
from ullage.audit.counter_cases import Example
from ullage.audit.mistakes.mistake import MISTAKES, AuditedJob, Mistake
from ullage.errors import UllageError, harmless
from ullage.models.config import Config
from ullage.models.formula import Formula, compiled
from ullage.models.step import Step

AGREES = 1e-3  # relative: sums of s²/2 for s(s+1)/2 stay below it
EXACT = 1e-6
_WITHIN = (AGREES, AGREES, EXACT)  # how near sets of one, two and three mistakes must come: many sets lie near any number
_NO_COUNT = ("peak", "precision", "ranks")  # what mistakes are about that a counter of FLOPs can't make
_LOADING = 6  # times the limit of a call, for importing the module (torch takes its time)


@dataclass(frozen=True)
class CounterAnswer:
    """What a counter said to one case: a number, or why there is none."""

    flops: float | int | None
    failed: str = ""


@dataclass(frozen=True)
class ComparedCount:
    """A counter's answer beside the right ones: training FLOPs (three times forward) by the true and by the full convention.

    `explained` is the smallest set of known mistakes whose factor is its error, and `exact` whether within a millionth.
    """

    example: Example
    causal: int
    full: int
    told: CounterAnswer
    explained: tuple[Mistake, ...] = ()
    exact: bool = False

    @property
    def ratio(self) -> float | None:
        """Theirs over ours, attention causal where it is; None without a positive number."""
        return self.told.flops / self.causal if self.told.flops and self.told.flops > 0 else None

    @property
    def full_ratio(self) -> float | None:
        """Theirs over ours with all of attention."""
        return self.told.flops / self.full if self.told.flops and self.told.flops > 0 else None

    @property
    def agrees(self) -> bool:
        """Whether it is right within a thousandth by one of the two conventions."""
        return any(ratio is not None and abs(ratio - 1) <= AGREES for ratio in (self.ratio, self.full_ratio))


def asked(target: str, examples: Sequence[Example], timeout: float) -> tuple[str | None, list[CounterAnswer]]:
    """Return the counter's package with its version if known, and what it says to each example, each within `timeout` s.

    A call that doesn't return, or ends its process, is an answer like others: the next one gets a new process. Raises
    UllageError when the function can't be loaded.
    """
    told: list[CounterAnswer] = []
    version: str | None = None
    while len(told) < len(examples):
        with _Process(target, timeout) as process:
            version = process.version
            for example in examples[len(told) :]:
                answer = process.ask(example)
                told.append(answer)
                if process.ended:
                    break
    return version, told


class _Process:
    """One run of `counter_call`, with its answers in a queue; None in it is the end."""

    def __init__(self, target: str, timeout: float) -> None:
        self._timeout, self.ended = timeout, False
        command = [sys.executable, "-m", "ullage.audit.counter_call", target]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            self.version = self._begun(target)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def ask(self, example: Example) -> CounterAnswer:
        """Return what the function says; `ended` tells that it took its process with it."""
        patches = [rows * columns for rows, columns in example.patches]
        case = {"config": example.config, "seqlens": example.seqlens, "patches": patches, "prompts": example.prompts}
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(case) + "\n")
            self._process.stdin.flush()
        said = self._next(self._timeout)
        if "flops" in said:
            return CounterAnswer(said["flops"])
        return CounterAnswer(None, harmless(str(said["failed"]), 200))

    def _begun(self, target: str) -> str | None:
        said = self._next(_LOADING * self._timeout)
        if "failed" in said:
            package = f"install {target} where ullage is installed" if target in ADAPTERS else "name it as module:function"
            raise UllageError(f"'{target}' can't be loaded: {harmless(str(said['failed']), 300)}", package)
        version: str | None = said["ready"]
        return version

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):
            for line in self._process.stdout:
                self._answers.put(line)
        self._answers.put(None)

    def _next(self, seconds: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.ended = True
            return {"failed": f"took more than {seconds:g} s"}
        if line is None:
            self.ended = True
            return {"failed": f"ended its process (exit code {self._process.wait()})"}
        said: dict[str, Any] = json.loads(line)
        return said


def compared(example: Example, told: CounterAnswer) -> ComparedCount:
    """Return a counter's answer beside the right ones, with the known mistakes that explain it."""
    formula = compiled(Config(example.config, example.name))
    step = Step(example.samples, formula.attention)
    causal = 3 * formula.forward(step)
    row = ComparedCount(example, causal, 3 * formula.forward(Step(step.samples, "full")), told)
    if row.ratio is None or row.agrees:
        return row
    explained = _explained(row.ratio, formula, step)
    if explained is None:
        return row
    mistakes, miss = explained
    return ComparedCount(example, causal, row.full, told, mistakes, miss <= EXACT)


def _explained(ratio: float, formula: Formula, step: Step) -> tuple[tuple[Mistake, ...], float] | None:
    """Return the smallest set of mistakes whose factor is the ratio: of equally many, the exact, then those met most often."""
    case = AuditedJob(formula, step)
    bases = [_Base((), 1.0, dict(_factors(case))), *_longest(case)]
    for size in range(1, len(_WITHIN) + 1):
        fits = [fit for base in bases for fit in base.fitting(ratio, size)]
        if fits:
            return min(fits, key=lambda fit: (fit[1] > EXACT, -math.prod(m.weight for m in fit[0]), fit[1]))
    return None


@dataclass(frozen=True)
class _Base:
    """Mistakes that are taken as made, their factor together, and the factors of others upon them."""

    made: tuple[Mistake, ...]
    factor: float
    others: dict[Mistake, float]

    def fitting(self, ratio: float, size: int) -> Iterator[tuple[tuple[Mistake, ...], float]]:
        """Yield sets of `size` mistakes about different things that give the ratio, and how far they miss it.

        Mistakes about different parts of a model add what they change; those about all of it multiply.
        """
        for chosen in combinations(self.others, size - len(self.made)):
            together = (*self.made, *chosen)
            if len({mistake.about for mistake in together}) < size:
                continue
            factors = [self.others[m] for m in chosen]
            totals = [self.factor * math.prod(factors), self.factor * (1 + sum(f - 1 for f in factors))]
            miss = min(abs(ratio / total - 1) for total in totals if total > 0)
            if miss <= _WITHIN[size - 1]:
                yield together, miss


def _longest(case: AuditedJob) -> Iterator[_Base]:
    """Yield the base on which every sequence is as long as the longest: other mistakes are made on those lengths."""
    mistake = MISTAKES["longest_for_all"]
    factor = mistake.factor(case)
    if not isinstance(factor, float | int) or factor <= 1 + AGREES:
        return
    longest, count = max(case.step.samples, key=lambda item: item[0].text)[0], sum(count for _, count in case.step.samples)
    padded = replace(case, step=replace(case.step, samples=((longest, count),)))
    yield _Base((mistake,), factor, {m: f for m, f in _factors(padded) if m.about != mistake.about})


def _factors(case: AuditedJob) -> Iterator[tuple[Mistake, float]]:
    for mistake in MISTAKES.values():
        if mistake.circumstance or mistake.about in _NO_COUNT:
            continue
        factor = mistake.factor(case)
        if isinstance(factor, float | int) and math.isfinite(factor) and factor > 0 and abs(factor - 1) > AGREES / 10:
            yield mistake, factor
