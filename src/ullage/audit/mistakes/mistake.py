"""What a mistake is: a factor on a reported MFU, computed from the model at hand, and the measurement that would show it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from ullage.audit.mistakes.recount import recount
from ullage.gpus.chip import Chip
from ullage.models.formula import Formula
from ullage.models.passes import Training, matches
from ullage.models.step import Step
from ullage.models.work import Work
from ullage.registry import Registry


@dataclass(frozen=True)
class AuditedJob:
    """The job whose MFU was reported: what its step is in truth, and on what it ran.

    `gpus` worked on the step, `node` of them in one machine; `data_parallel` and `sequence_parallel` are the layout's sizes.
    `framework` is the one that reported, where its count is known (`models.conventions`).
    """

    formula: Formula
    step: Step
    training: Training = field(default_factory=Training)
    chip: Chip | None = None
    precision: str = "bf16"
    gpus: int = 1
    node: int = 8
    data_parallel: int = 1
    sequence_parallel: int = 1
    accumulation: int = 1
    framework: str | None = None

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """What each known mistake and circumstance does to the MFU of this job, but for those that can't be made or change nothing."""
        found = []
        for member in MISTAKES.values():
            given = member.factor(self)
            low, high = given if isinstance(given, tuple) else (given, given)
            if low is None or high is None or not 0 < low <= high < math.inf:
                continue
            effect = Effect(member, low, high)
            if effect.reach > SAME:
                found.append(effect)
        return tuple(found)

    @cached_property
    def truth(self) -> int:
        """Model FLOPs of the step."""
        return self.counted(self.formula.works)

    def counted(self, works: Iterable[Work], *, step: Step | None = None, training: Training | None = None) -> int:
        """Return the model FLOPs of a step with other work, another step or another way of training."""
        formula = replace(self.formula, works=tuple(works))
        trained = training or self.training
        # what is left out can't be frozen any more
        frozen = tuple(p for p in trained.frozen if any(matches(p, work, layer) for work in formula.works for layer in work.layers))
        terms = formula.terms(step or self.step, replace(trained, recompute="none", frozen=frozen))
        return sum(term.flops for term in terms if term.model)

    def with_works(self, change: Callable[[Work], Iterable[Work]]) -> float:
        """Return the factor on the FLOPs when each work is counted as `change` says."""
        changed = [list(change(work)) for work in self.formula.works]
        factor = self.counted(w for works in changed for w in works) / self.truth
        return recount(self._forward([[w] for w in self.formula.works], self.step), self._forward(changed, self.step), factor)

    def at(self, step: Step) -> float:
        """Return the factor on the FLOPs when another step is counted."""
        works = [[w] for w in self.formula.works]
        factor = self.counted(self.formula.works, step=step) / self.truth
        return recount(self._forward(works, self.step), self._forward(works, step), factor)

    def _forward(self, parts: Iterable[Iterable[Work]], step: Step) -> list[int]:
        """Return the forward FLOPs of each part."""
        return [sum(w.flops * len(w.layers) * step.value(w.quantity) for w in works) for works in parts]

    def named(self, *starts: str) -> list[Work]:
        """Return the works whose names are one of `starts` or lie below one ("moe.experts")."""
        return [w for w in self.formula.works if any(is_below(w.name, start) for start in starts)]

    def without(self, *names: str) -> float | None:
        """Return the factor when work of these names is left out; None where nothing is called so, or nothing else would be left."""
        chosen = self.named(*names)
        if not chosen or len(chosen) == len(self.formula.works):
            return None
        return self.with_works(lambda w: [] if w in chosen else [w])


def is_below(name: str, start: str) -> bool:
    """Return whether a name is `start` or part of it, also in a part of the model ("decoder.attention.q" is of "attention").

    >>> is_below("moe.experts.up", "moe.experts"), is_below("decoder.attention.k", "attention.k"), is_below("mlp.up", "moe")
    (True, True, False)
    """
    return f".{name}.".find(f".{start}.") >= 0


def is_softmax(name: str) -> bool:
    """Return whether work is a product of softmax attention: scans and linear attention have scores and values too, and are none.

    >>> is_softmax("cross_attention.image.scores"), is_softmax("linear_attention.delta.values"), is_softmax("attention.v")
    (True, False, False)
    """
    *groups, part = name.split(".")
    return part in ("scores", "values") and ("attention" in groups or "cross_attention" in groups)


Factor = float | tuple[float, float] | None


@dataclass(frozen=True)
class Mistake:
    """A known way to get an MFU wrong.

    `says` tells it to a person; `decides` names the data that would show it. `about` is what it is a mistake about: of two
    mistakes about one thing only one can be made. `weight` is an estimate of how many of a hundred wrong reports have it.
    `factor(case)` is what the reported MFU was multiplied with: a number, the two ends of what is possible, or None where
    the mistake can't be made on this model. A `circumstance` is no mistake: it sets OFU and a right MFU apart, and its
    weight is how many of a hundred jobs it holds for.
    """

    name: str
    about: str
    says: str
    decides: str
    weight: float
    factor: Callable[[AuditedJob], Factor]
    circumstance: bool = False


@dataclass(frozen=True)
class Effect:
    """A mistake on one job, and what it multiplies the MFU with: between `low` and `high`, mostly the same number."""

    mistake: Mistake
    low: float
    high: float

    @property
    def reach(self) -> float:
        """How far it can move the number, as the logarithm of a ratio."""
        return max(abs(math.log(self.low)), abs(math.log(self.high)))


MISTAKES: Registry[Mistake] = Registry("mistake", package="ullage.audit.mistakes", command="ullage audit mfu --list")

Computed = Callable[[AuditedJob], Factor]
SHAPES = "the GEMM shapes of a trace, or the framework's FLOPs per token against `ullage flops`"  # what decides about layers
EXPERTS = "moe.experts"
SAME = 1e-3  # logarithm of a factor nearer to 1 than anything that matters


def mistake(
    name: str, *, about: str, says: str, decides: str, weight: float = 1.0, circumstance: bool = False
) -> Callable[[Computed], Computed]:
    """Register a way to get an MFU wrong; the function gives its factor for a case, and is given back as it was."""

    def register(function: Computed) -> Computed:
        MISTAKES.add(name, Mistake(name, about, says, decides, weight, function, circumstance))
        return function

    return register


def scaled(work: Work, factor: float) -> Work:
    """Return a work with its FLOPs multiplied, to the nearest integer."""
    return replace(work, flops=round(work.flops * factor), least=None)
