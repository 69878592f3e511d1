"""In how many passes are metrics collected, and how can fewer do?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ullage.asking import WrongQuestionError, asked
from ullage.asking.counters import CounterLibrary
from ullage.asking.question import RegisteredQuestion, python_function, register

if TYPE_CHECKING:
    from ullage.reports.counters.counters import Planned


@dataclass(frozen=True, kw_only=True)
class CuptiPlanQuestion(CounterLibrary):
    """In how many passes a chip collects these metrics, which of them make it so, and which others would come cheaper."""

    chip: str = asked(
        "The chip, or a GPU that has it.",
        metavar="CHIP",
        argument=True,
        required=True,
        suggested="ullage.cupti.metric_names.dictionary:chips",
    )
    metrics: tuple[str, ...] = asked("Which metrics.", (), metavar="METRIC…", argument=True, repeated=True)
    which: Literal["device", "kernel", "vector"] | None = asked("One of Ullage's own sets of counters as well.", flag="--set")
    mode: Literal["both", "range", "pm"] = asked(
        "By ranges, which are replayed a pass each, or by PM sampling, which has one pass.", "both"
    )
    groups: bool = asked("Say which of them go together in a pass; in JSON they always stand.", False, display=True)

    def __post_init__(self) -> None:
        if not self.metrics and not self.which:
            raise WrongQuestionError("name metrics, or one of Ullage's sets with --set")


def answer(question: CuptiPlanQuestion, *_: object) -> Planned:
    """Return the plan; raises UllageError for a metric that the chip doesn't have, and without a library that can be asked."""
    from ullage.cupti.counters.catalogue import source
    from ullage.reports.counters.counters import planned

    return planned(source(question.cupti), question.chip, question.metrics, question.which or "", question.mode, grouped=True)


_EXAMPLES = """
  ullage cupti plan H200 --set device                                   what Ullage samples beside a job
  ullage cupti plan H200 --set kernel --mode range --groups             what it counts of each kernel, pass by pass
  ullage cupti plan GH100 sm__throughput dram__bytes_read.sum           a name without roll-up is completed
  ullage cupti plan B200 'sm__ops_path_tensor_op_utc*.sum' --json

\b
Passes are counted without a GPU by CUPTI 12.6 to 13.1; a later one does it only where there is a driver, and without one
counts those by ranges alone.
"""

QUESTION = register(
    RegisteredQuestion(
        name="cupti plan",
        asked=CuptiPlanQuestion,
        noun="a plan of passes",
        answer=answer,
        shown_by="ullage.render.counters:plan",
        examples=_EXAMPLES,
    )
)

cupti_plan = python_function(QUESTION)
