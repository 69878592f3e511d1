"""What can a chip count?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ullage.asking import asked
from ullage.asking.counters import CounterLibrary
from ullage.asking.question import RegisteredQuestion, python_function, register

if TYPE_CHECKING:
    from ullage.reports.counters.counters import Listing


@dataclass(frozen=True, kw_only=True)
class CuptiMetricsQuestion(CounterLibrary):
    """The metrics of a chip, by a part of their names. CHIP is CUPTI's name (GH100) or a GPU's (H200, 'H100 SXM')."""

    chip: str = asked(
        "The chip, or a GPU that has it.",
        metavar="CHIP",
        argument=True,
        required=True,
        suggested="ullage.cupti.metric_names.dictionary:chips",
    )
    pattern: str = asked("A part of the name, a glob, or a regular expression.", "", metavar="[PATTERN]", argument=True)
    kind: Literal["counter", "ratio", "throughput"] | None = asked("Only metrics of this kind.")
    limit: int | None = asked("Lines at most; 0 for all.", least=0, shown="40; with --json all")


def answer(question: CuptiMetricsQuestion, *_: object) -> Listing:
    """Return the metrics that match; raises UllageError for a chip that there isn't."""
    from ullage.cupti.counters.catalogue import source
    from ullage.reports.counters.counters import listing

    return listing(source(question.cupti), question.chip, question.pattern, question.kind or "", question.limit)


_EXAMPLES = """
  ullage cupti metrics GH100                          how many there are, and the first of them
  ullage cupti metrics 'H100 SXM' 'dram*'             a glob
  ullage cupti metrics B200 'ops_path_tensor.*fp4'    a regular expression
  ullage cupti metrics H200 hit_rate --kind ratio     a part of the name
  ullage cupti metrics H200 --json | jq -r '.metrics[].name'
"""

QUESTION = register(
    RegisteredQuestion(
        name="cupti metrics",
        asked=CuptiMetricsQuestion,
        noun="a list of counters",
        answer=answer,
        shown_by="ullage.render.counters:listing",
        examples=_EXAMPLES,
    )
)

cupti_metrics = python_function(QUESTION)
