"""Which tensor instructions does a binary really issue?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ullage.asking import WrongQuestionError, asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register


@dataclass(frozen=True, kw_only=True)
class SassQuestion:
    """Which tensor instructions a binary really issues, which are emulated, and which are of an older generation.

    FILE is a cubin, fat binary, object, library, executable or PTX, told by its content. Each finding shows the instruction that
    proves it, and the ceiling that follows where somebody measured it.
    """

    files: tuple[str, ...] = asked("Binaries and PTX.", (), argument=True, repeated=True, metavar="[FILE]…")
    kernel: str = asked("Only kernels whose name, as the binary writes it, holds NAME.", "", metavar="NAME")
    arch: str | None = asked("Only this architecture (sm_90, sm_90a); PTX is compiled for it.", metavar="SM")
    strict: bool = asked("A gate: nothing may be emulated or legacy.", False)
    table: bool = asked("Compile every known instruction for every architecture, and show what comes of it.", False)
    family: Literal["mma", "wgmma", "tcgen05", "vector", "copy", "cluster"] | None = asked("With --table: only these instructions.")

    def __post_init__(self) -> None:
        if self.table == bool(self.files):
            raise WrongQuestionError("give a FILE, or --table")
        if self.table and (self.kernel or self.strict):
            raise WrongQuestionError(f"--{'strict' if self.strict else 'kernel'} is about files, not about --table")
        if self.family and not self.table:
            raise WrongQuestionError("--family is a part of --table")


def answer(question: SassQuestion, progress: Progress, command: str = "") -> Any:  # noqa: ARG001 - a question's `answer`
    """Return the lint of the files, or what every architecture makes of each instruction."""
    if question.table:
        return _table(question, progress)
    from ullage.reports.sass import audit_sass

    files = [Path(file) for file in question.files]
    return audit_sass(files, kernel=question.kernel, architecture=question.arch, progress=progress)


def _table(question: SassQuestion, progress: Progress) -> Any:
    from ullage.kernels.compiling import ARCHITECTURES
    from ullage.kernels.sass.outcomes import table
    from ullage.kernels.sass.probe import PROBES

    architectures = ARCHITECTURES if question.arch is None else (question.arch,)
    return table(architectures, [one for one in PROBES.values() if question.family in (None, one.family)], progress)


_EXAMPLES = """
  ullage sass kernel.cubin                       what it issues, what is emulated, what is of an older generation
  ullage sass libkernels.so --kernel gemm        kernels whose name holds "gemm", for every architecture in the file
  ullage sass kernel.cubin kernel.ptx            what was asked beside what came of it: certain verdicts
  ullage sass kernel.ptx --arch sm_90a --strict  a gate: nothing may be emulated or legacy
  ullage sass --table --family mma               what every architecture makes of each instruction"""

QUESTION: RegisteredQuestion[SassQuestion, Any] = register(
    RegisteredQuestion(
        name="sass",
        asked=SassQuestion,
        noun="the instructions of a binary",
        answer=answer,
        shown_by=lambda question: "ullage.render.sass_tables" if question.table else "ullage.render.sass",
        examples=_EXAMPLES,
        read_places=lambda question: question.files,
        gate=lambda question, report: question.strict and bool(report.bad),
        status_3="with --strict, a kernel is emulated or legacy",
    )
)

sass = python_function(QUESTION)
