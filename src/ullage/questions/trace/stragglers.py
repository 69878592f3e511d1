"""Which ranks, stages and operations hold a training job up?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ullage.asking import asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.reports.trace.stragglers import StragglerReport


@dataclass(frozen=True, kw_only=True)
class StragglersQuestion:
    """How much faster a training job were without stragglers, and what makes it slow.

    FILE tells the operations of each rank (Parquet: dp_rank, stage, rank, step, optype, start_ts, duration, seq_id, mb_id, mc, gmc). The
    job is replayed along its dependencies with other durations: what if each operation took as long as its peers' do, and what if only
    one rank, stage or kind of operation did not?
    """

    files: tuple[str, ...] = asked(
        "Operations of a job's ranks: files, folders or globs.", argument=True, required=True, repeated=True, metavar="FILE…"
    )
    peers: Literal["step", "job"] = asked(
        "Compare an operation with those of its type on all ranks in the same step, or in all steps of the job.", "step"
    )
    top: int = asked("Rows of a table.", 12, least=1, display=True)


def answer(question: StragglersQuestion, progress: Progress, command: str = "") -> StragglerReport:  # noqa: ARG001 - a question's `answer`
    """Return what stragglers cost a job; raises UllageError for what the user can fix."""
    from ullage.named import found
    from ullage.problems import Problems
    from ullage.reports.trace.stragglers import straggler_report
    from ullage.traces.operations import read_operations
    from ullage.traces.trace import recognised

    problems = Problems()
    paths = found(question.files)
    for path in paths:
        trace, file = recognised(path)
        if trace.name != "operations":
            raise UllageError(
                f"{file.name} is a trace of another kind ({trace.name}): it does not tell the operations of pipeline stages",
                "give operations by rank and stage as Parquet; ullage trace says which rank comes late, and what a token costs each",
            )
    return straggler_report(read_operations(paths, problems), peers=question.peers, problems=problems)


_EXAMPLES = """
  ullage trace stragglers trace.parquet                  who is slow, compared within each step
  ullage trace stragglers trace.parquet --peers job      compared over all steps, as the paper has it
  ullage trace stragglers trace.parquet --out stragglers.html
  ullage simulate trace --format operations --straggler 3 && ullage trace stragglers traces/
"""

QUESTION = register(
    RegisteredQuestion(
        name="trace stragglers",
        asked=StragglersQuestion,
        noun="the stragglers of a job",
        answer=answer,
        shown_by="ullage.render.stragglers",
        examples=_EXAMPLES,
        read_places=lambda question: question.files,
        status_3="a part of the operations could not be used",
    )
)

trace_stragglers = python_function(QUESTION)
