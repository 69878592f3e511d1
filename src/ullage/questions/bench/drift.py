"""Does this GPU still do what it did?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.asking import WrongQuestionError, asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register

if TYPE_CHECKING:
    from ullage.benches.result import BenchResult
    from ullage.reports.bench.drift import DriftBaseline, DriftReport
    from ullage.reports.bench.suite import EarlyStop

SECONDS = 60.0  # after which no case begins


@dataclass(frozen=True, kw_only=True)
class DriftQuestion:
    """A minute of microbenchmarks beside a stored baseline: did something move?

    Latencies are compared in SM cycles: when they move, memory, caches or firmware did. Rates that moved as the clock did
    speak of power or heat.
    """

    baseline: str | None = asked("What the GPU did before.", metavar="FILE")
    against: str | None = asked("Compare this file in place of measuring.", metavar="FILE")
    limit: float = asked("A change that counts, percent.", 3.0, above=0)
    device: int = asked("The GPU's number, as CUDA counts.", 0, least=0, shown="0")
    out: str | None = asked("Keep what was measured: .json.", metavar="FILE", acts=True)

    def __post_init__(self) -> None:
        """Refuse what would measure for nothing."""
        if self.baseline is None and self.out is None:
            raise WrongQuestionError("name a --baseline to compare with, or --out FILE to make one")


def answer(question: DriftQuestion, progress: Progress, command: str = "") -> DriftReport | DriftBaseline:  # noqa: ARG001 - a question's
    """Return what moved since the baseline; without one, what was measured and is kept.

    Raises UllageError for what the user can fix. After Ctrl-C, or when the GPU is lost, the answer is of what had ended.
    """
    from ullage.reports.bench.drift import DriftBaseline, drift_report
    from ullage.reports.bench.suite import read_results, write_results
    from ullage.views.files import check_out

    out = None if question.out is None else Path(question.out)
    check_out(out, (".json",), (question.baseline, question.against))
    before = [] if question.baseline is None else list(read_results(Path(question.baseline)))
    results, early_stop = _results(question, out, progress)
    if out is not None:
        write_results(results, out)
    remarks = () if out is None else (f"wrote {out}",)
    if question.baseline is None:
        return DriftBaseline(tuple(results), str(out), early_stop=early_stop, more_remarks=remarks)
    return replace(drift_report(results, before, question.limit / 100), early_stop=early_stop, more_remarks=remarks)


def _results(question: DriftQuestion, out: Path | None, progress: Progress) -> tuple[list[BenchResult], EarlyStop | None]:
    from ullage.benches.bench import BENCHES
    from ullage.reports.bench.suite import measured_suite, read_results

    if question.against is not None:
        return list(read_results(Path(question.against))), None
    names = [name for name, member in BENCHES.items() if member.drift]
    return measured_suite(names, question.device, progress, quick=True, budget=SECONDS, drift=True, keep=out)


_EXAMPLES = """
  ullage bench drift --out node17.json                   measure, and keep it as the baseline
  ullage bench drift --baseline node17.json              a minute: did something move?
  ullage bench drift --baseline node17.json --limit 5 --json
"""

QUESTION: RegisteredQuestion[DriftQuestion, DriftReport | DriftBaseline] = register(
    RegisteredQuestion(
        name="bench drift",
        asked=DriftQuestion,
        noun="the drift check",
        answer=answer,
        shown_by=lambda question: "ullage.render.drift:baseline" if question.baseline is None else "ullage.render.drift",
        examples=_EXAMPLES,
        gate=lambda _, report: bool(getattr(report, "moved", ())),
        only_reads=False,
        status_3="something moved, or the microbenchmarks ended early",
    )
)

bench_drift = python_function(QUESTION)
