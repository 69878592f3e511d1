"""What is wrong with a table of peaks?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.asking import asked
from ullage.asking.question import RegisteredQuestion, python_function, register

if TYPE_CHECKING:
    from ullage.reports.audit.peaks import PeaksReport


@dataclass(frozen=True, kw_only=True)
class PeaksQuestion:
    """Each row of a table of peaks: right, with sparsity, another precision's, another GPU's, a fallback, or a name that
    catches other GPUs.

    A table is a Python file with dictionaries of GPU names (nested by precision, if it is), JSON, or lines name=value.
    The unit is told by magnitude.
    """

    tables: tuple[str, ...] = asked(
        "Files with tables, or name=value.", metavar="FILE|NAME=VALUE…", argument=True, required=True, repeated=True
    )
    precision: str = asked("Precision of rows that name none.", "bf16", short="-p", suggested="ullage.gpus.precision:PRECISIONS")
    exact: bool = asked("Names are compared whole, not searched for in the driver's name.", False)


def answer(question: PeaksQuestion, *_: object) -> PeaksReport:
    """Return the judgement of every row; raises UllageError for what can't be read."""
    from ullage.reports.audit.peaks import audit_peaks

    return audit_peaks(question.tables, question.precision, exact=question.exact)


_EXAMPLES = """
  ullage audit peaks flops_counter.py              every dictionary of GPU names in a Python file; nothing is executed
  ullage audit peaks peaks.json --precision fp8
  ullage audit peaks 'H100 PCIe=989' H200=2000     name=value, in TFLOP/s or FLOP/s
  ullage audit peaks table.yaml --exact --json
"""

QUESTION = register(
    RegisteredQuestion(
        name="audit peaks",
        asked=PeaksQuestion,
        noun="the audit of a table of peaks",
        answer=answer,
        shown_by="ullage.render.peaks",
        examples=_EXAMPLES,
        read_places=lambda question: question.tables,
        gate=lambda _, report: bool(report.wrong),
        status_3="a row is wrong",
    )
)

audit_peaks = python_function(QUESTION)
