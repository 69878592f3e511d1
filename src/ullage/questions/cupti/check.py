"""What does this machine allow of tracing and counting, and what stands in the way?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ullage.asking import asked
from ullage.asking.counters import CounterLibrary
from ullage.asking.question import RegisteredQuestion, python_function, register


@dataclass(frozen=True, kw_only=True)
class CuptiCheckQuestion(CounterLibrary):
    """Whether CUDA programs can be traced here, and the GPUs' counters read; if not, why, and what to do.

    Looks at the driver, CUPTI, permissions, containers, MIG, other profilers and DCGM. Nothing is initialised.
    """

    need: Literal["tracing", "counters"] | None = asked("A gate for scripts: is this possible?")


def answer(question: CuptiCheckQuestion, *_: object) -> dict[str, Any]:
    """Return what is possible ("yes", "no", "perhaps"), and the findings that stand in the way."""
    from ullage.cupti.permissions import report

    return report(question.cupti)


_EXAMPLES = """
  ullage cupti check
  ullage cupti check --need counters && ullage run --kernels 100 -- ./a.out
  ullage cupti check --json | jq -r '.findings[].do'
"""

QUESTION = register(
    RegisteredQuestion(
        name="cupti check",
        asked=CuptiCheckQuestion,
        noun="a check of this machine",
        answer=answer,
        shown_by="ullage.render.machine_check",
        examples=_EXAMPLES,
        gate=lambda question, report: question.need is not None and report[question.need] == "no",
        status_3="what --need names is surely not possible",
    )
)

cupti_check = python_function(QUESTION)
