"""What does a FLOPs function count wrongly?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.asking import asked
from ullage.asking.question import RegisteredQuestion, python_function, register

if TYPE_CHECKING:
    from ullage.reports.audit.counter import CounterReport


@dataclass(frozen=True, kw_only=True)
class CounterQuestion:
    """What a FLOPs function counts wrongly, feature by feature.

    FUNCTION is called with a configuration (a mapping that also has attributes) and the lengths of a step's sequences, in
    another process, and returns the training FLOPs of the step. It runs: name only code that you trust.
    """

    function: str = asked(
        "The function, as module:function; or verl, or hf, as they are installed.",
        metavar="MODULE:FUNCTION",
        argument=True,
        required=True,
    )
    timeout: float = asked("Seconds a call may take.", 20.0)


def answer(question: CounterQuestion, *_: object) -> CounterReport:
    """Return what a counter says to every case beside what is right; raises UllageError for a function that can't be loaded."""
    from ullage.reports.audit.counter import audit_counter

    return audit_counter(question.function, timeout=question.timeout)


_EXAMPLES = """
  ullage audit counter mytrainer.flops:step_flops    function(config, seqlens) -> training FLOPs of the step
  ullage audit counter verl                          verl's FlopsCounter, as it is installed
  ullage audit counter hf                            the Transformers trainer's floating_point_ops
  ullage audit counter verl --json
"""

QUESTION = register(
    RegisteredQuestion(
        name="audit counter",
        asked=CounterQuestion,
        noun="the audit of a FLOPs function",
        answer=answer,
        shown_by="ullage.render.counter",
        examples=_EXAMPLES,
        gate=lambda _, report: report.right < len(report.rows),
        only_reads=False,
        status_3="a case is not right",
    )
)

audit_counter = python_function(QUESTION)
