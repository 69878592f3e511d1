"""What is known of a counter?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.asking import asked
from ullage.asking.counters import CounterLibrary
from ullage.asking.question import RegisteredQuestion, python_function, register

if TYPE_CHECKING:
    from ullage.reports.counters.counters import DescribedMetrics


@dataclass(frozen=True, kw_only=True)
class CuptiDescribeQuestion(CounterLibrary):
    """What metrics count: kind, unit, hardware unit, NVIDIA's description where its library is installed, what may follow the
    name, the passes it needs, and the field of DCGM that is the same.
    """

    chip: str = asked(
        "The chip, or a GPU that has it.",
        metavar="CHIP",
        argument=True,
        required=True,
        suggested="ullage.cupti.metric_names.dictionary:chips",
    )
    metrics: tuple[str, ...] = asked(
        "Which metrics; a glob is all that it matches.", metavar="METRIC…", argument=True, required=True, repeated=True
    )


def answer(question: CuptiDescribeQuestion, *_: object) -> DescribedMetrics:
    """Return what is known of some metrics; raises UllageError for one that the chip doesn't have."""
    from ullage.cupti.counters.catalogue import source
    from ullage.reports.counters.counters import described

    return described(source(question.cupti), question.chip, question.metrics)


_EXAMPLES = """
  ullage cupti describe H200 sm__cycles_active
  ullage cupti describe GB100 sm__pipe_tensor_cycles_active dram__bytes_read
  ullage cupti describe GH100 'lts__t_sectors_op_*' --json
"""

QUESTION = register(
    RegisteredQuestion(
        name="cupti describe",
        asked=CuptiDescribeQuestion,
        noun="a description of counters",
        answer=answer,
        shown_by="ullage.render.counters:described",
        examples=_EXAMPLES,
    )
)

cupti_describe = python_function(QUESTION)
