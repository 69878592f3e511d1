"""Which matrix products does a profile hold, and what do tiles cost of them?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ullage.asking import asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.traces import TraceReading
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.reports.gemms.gemms import GemmSummary


@dataclass(frozen=True, kw_only=True)
class TraceGemmsQuestion(TraceReading):
    """Matrix products by kernel: name decoded, shapes as the operator gave them, padding, speed, share of the peak.

    Shapes are in PyTorch profiles recorded with record_shapes=True; without them, names still tell tiles and legacy kernels. Layers are
    modules (with_modules=True or with_stack=True) and regions that the program names (record_function, NVTX).
    """

    files: tuple[str, ...] = asked(
        "A trace, a folder or a glob of them, or several.", argument=True, required=True, repeated=True, metavar="FILE…"
    )
    by: Literal["kernel", "product", "layer"] = asked("What a row is.", "kernel", display=True)
    ofu: float | None = asked("The job's OFU, as measured, 0.41: adjusted OFU is printed.", metavar="X")
    top: int = asked("Rows of the table.", 20, least=1, display=True)

    def __post_init__(self) -> None:
        if self.ofu is not None and not 0 < self.ofu <= 1.2:
            raise UllageError(f"an OFU of {self.ofu:g} can't be", "give a value above 0 and at most 1.2")


def answer(question: TraceGemmsQuestion, progress: Progress, command: str = "") -> GemmSummary:  # noqa: ARG001 - a question's `answer`
    """Return the products of a run; raises UllageError for what the user can fix, and where no kernel is a matrix product."""
    report = question.run_report(question.files, progress)
    if report.gemms is None:
        raise UllageError("no kernel of this run is a matrix product that can be told by its name", "ullage trace FILE shows its kernels")
    return replace(report.gemms, ofu=question.ofu, complete=report.complete)


_EXAMPLES = """
  ullage trace gemms trace.json.gz              every GEMM kernel, with its operator's shapes and its tile loss
  ullage trace gemms trace.json.gz --by layer   tile loss summed by module or named region
  ullage trace gemms trace.json.gz --ofu 0.41   OFU without the padding of tiles
  ullage trace gemms profiles/ --json           all ranks together, for programs
  ullage trace gemms trace.json --out gemms.json      for `ullage waterfall --gemms gemms.json`
"""

QUESTION = register(
    RegisteredQuestion(
        name="trace gemms",
        asked=TraceGemmsQuestion,
        noun="the matrix products of a trace",
        answer=answer,
        shown_by="ullage.render.gemms",
        examples=_EXAMPLES,
        read_places=lambda question: question.files,
        status_3="something of the run is missing in the files",
    )
)

trace_gemms = python_function(QUESTION)
