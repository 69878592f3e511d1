"""What a convention is: another tool's way of counting a step, as forward FLOPs by name; training is three times that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ullage.errors import UllageError, harmless
from ullage.models.formula import Formula
from ullage.models.ledger import Term
from ullage.models.passes import Pass, Training
from ullage.models.step import Step
from ullage.registry import Registry

Row = tuple[str, int]  # name of the work as in the ledger ("attention.scores"), forward FLOPs of the step
Function = Callable[[Formula, Step], Iterator[Row]]


@dataclass(frozen=True)
class FrameworkCount:
    """A framework's count: `says` is what it leaves out or counts twice, as one sentence for the report's notes."""

    name: str
    says: str
    source: str
    function: Function


CONVENTIONS: Registry[FrameworkCount] = Registry("convention", package="ullage.models.conventions", command="ullage flops --help")


def convention(name: str, *, says: str, source: str) -> Callable[[Function], Function]:
    """Register a framework's way of counting; the function yields forward FLOPs by name of work, and is given back as it was."""

    def register(function: Function) -> Function:
        CONVENTIONS.add(name, FrameworkCount(name, says, source, function))
        return function

    return register


def terms(name: str, formula: Formula, step: Step, training: Training) -> tuple[tuple[Term, ...], str]:
    """Return the terms that the framework called `name` would count, and the note that goes with them.

    Frameworks know neither frozen weights nor recomputation: backward is twice the forward. Raises UllageError for an
    unknown name, and where the framework has no count for this architecture.
    """
    if name not in CONVENTIONS:
        raise UllageError(f"no framework is called '{harmless(name, 40)}'", f"known are {', '.join(sorted(CONVENTIONS))}")
    counting = CONVENTIONS[name]
    passes: tuple[Pass, ...] = ("forward",) if training.forward_only else ("forward", "dgrad", "wgrad")
    rows = list(counting.function(formula, step))
    made = [Term(row, row.rpartition(".")[0] or row, pass_, flops, least=flops) for pass_ in passes for row, flops in rows if flops]
    return tuple(made), f"counted as {counting.name} does: {counting.says}"
