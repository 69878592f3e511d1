"""What is computed, by which equation, and what is read?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.asking import asked
from ullage.asking.question import RegisteredQuestion, python_function, register
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.render.metrics import FieldList, MetricList


@dataclass(frozen=True, kw_only=True)
class MetricsQuestion:
    """The equations, printed from the code that computes them."""

    name: str | None = asked(
        "A metric, or a part of the names of several; without one all are listed.",
        metavar="[NAME]",
        argument=True,
        suggested="ullage.metrics.metric:METRICS",
    )
    fields: bool = asked("List the fields of the samples table instead.", False)


def answer(question: MetricsQuestion, *_: object) -> MetricList | FieldList:
    """Return all metrics, the one of that name, or those whose names hold it. Raises UllageError for a name that none has."""
    from ullage.metrics.metric import METRICS
    from ullage.render.metrics import FieldList, MetricList
    from ullage.tables import FIELDS

    name = question.name
    if question.fields:
        return FieldList(tuple(FIELDS.values()))
    if name is not None and name not in METRICS and name in FIELDS:
        raise UllageError(f"'{name}' is no metric but a field of the telemetry", "`ullage metrics --fields` lists all")
    alike = tuple(metric for metric in METRICS.values() if name is None or name in metric.name)
    chosen = alike if name not in METRICS and alike else (METRICS[str(name)],)
    return MetricList(chosen, named=[metric.name for metric in chosen] == [name])


_EXAMPLES = """
  ullage metrics                every metric with its equation and source
  ullage metrics sampled_ofu    one of them in full
  ullage metrics --fields       what is read from telemetry, in which unit
"""

QUESTION = register(
    RegisteredQuestion(
        name="metrics",
        asked=MetricsQuestion,
        noun="a list of metrics",
        answer=answer,
        shown_by=lambda question: f"ullage.render.metrics{':fields' if question.fields else ''}",
        examples=_EXAMPLES,
    )
)

metrics = python_function(QUESTION)
