"""How does a program scale: several runs of it beside one another, as POP does?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ullage.asking import WrongQuestionError, asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.traces import TraceReading, named_run
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.reports.trace.scaling import ScalingReport


@dataclass(frozen=True, kw_only=True)
class ScalingQuestion(TraceReading):
    """Efficiencies and scalability over several runs of one program.

    RUN is a trace file, or a folder or glob of one run's traces. Scalability is told against the reference run: by
    instructions, IPC and frequency where the traces hold counters, by kernel time, launches and bytes where not.
    """

    runs: tuple[str, ...] = asked("Two runs or more.", argument=True, required=True, repeated=True, metavar="[NAME=]RUN…")
    reference: str | None = asked("The run that the others are held against.", metavar="NAME", shown="the one with the fewest resources")
    strong: bool = asked("The runs solve the same problem (without --strong and --weak: told from the work).", False)
    weak: bool = asked("The problem grows with the resources.", False)

    def __post_init__(self) -> None:
        if self.strong and self.weak:
            raise WrongQuestionError("--strong and --weak exclude each other")

    @property
    def kind(self) -> Literal["strong", "weak"] | None:
        """How the problem grows, None where the work is to tell."""
        return "strong" if self.strong else "weak" if self.weak else None


def answer(question: ScalingQuestion, progress: Progress, command: str = "") -> ScalingReport:  # noqa: ARG001 - a question's `answer`
    """Return the runs beside one another; raises UllageError for what the user can fix."""
    from ullage.reports.trace.scaling import scaling

    if len(question.runs) < 2:
        raise UllageError("one run does not scale", "give two or more: ullage trace scaling RUN RUN…")
    named = [named_run(run) for run in question.runs]
    # no table is shown, so nothing needs to be read twice
    reports = [(name, question.run_report([place], progress, tables="recorded")) for name, place in named]
    report = scaling([(name, one.whole) for name, one in reports], reference=question.reference, kind=question.kind)
    return replace(report, complete=not any(one.partial for _, one in reports))


_EXAMPLES = """
  ullage trace scaling nodes1/ nodes2/ nodes4/ nodes8/     folders of traces, one a run
  ullage trace scaling talp-*.json --strong                TALP files; more resources, the same problem
  ullage trace scaling one=a.json two=b.json --out scaling.svg
"""

QUESTION = register(
    RegisteredQuestion(
        name="trace scaling",
        asked=ScalingQuestion,
        noun="the scaling of runs",
        answer=answer,
        shown_by="ullage.render.scaling",
        examples=_EXAMPLES,
        read_places=lambda question: [named_run(run)[1] for run in question.runs],
        status_3="something of a run is missing in the files",
    )
)

trace_scaling = python_function(QUESTION)
