"""What changed between two runs, factor by factor? A gate for CI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ullage.asking import asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.traces import TraceReading, named_run
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.reports.trace.change import ChangeReport


def read_limits(texts: tuple[str, ...], flag: str, now: float) -> dict[str, float]:  # noqa: ARG001 - a TextReader
    """Read a gate's limits by metric, "" for the efficiency as a whole; of several for one the strictest.

    >>> read_limits(("0.95", "speed=0.9", "speed=0.8"), "--fail-under", 0)
    {'': 0.95, 'speed': 0.9}
    """
    limits: dict[str, float] = {}
    for text in texts:
        metric, _, number = text.rpartition("=")
        try:
            limit = float(number)
        except ValueError:
            limit = -1.0
        if not 0 < limit < 1e6:
            raise UllageError(f"'{text}' is no limit", f"write {flag} 0.95, or {flag} orchestration_efficiency=0.9")
        limits[metric] = max(limit, limits.get(metric, 0.0))
    return limits


@dataclass(frozen=True, kw_only=True)
class CompareQuestion(TraceReading):
    """What changed from run A to run B, and how much of the change in time each factor explains.

    A and B are trace files, or folders or globs of one run's traces.
    """

    a: str = asked("The run before.", argument=True, required=True, metavar="[NAME=]A")
    b: str = asked("The run after.", argument=True, required=True, metavar="[NAME=]B")
    fail_under: Mapping[str, float] | Sequence[float] = asked(
        "A gate: B must keep X of A's device parallel efficiency (without devices: the host's) or METRIC; 'speed': A's time over B's.",
        {},
        metavar="[METRIC=]X",
        read=read_limits,
        repeated=True,
    )
    top: int = asked("Regions shown.", 10, least=1, display=True)


def answer(question: CompareQuestion, progress: Progress, command: str = "") -> ChangeReport:  # noqa: ARG001 - a question's `answer`
    """Return what changed, and whether B passes the gate; raises UllageError for what the user can fix."""
    from ullage.reports.trace.change import GateVerdict, change, verdict

    (first, before), (second, after) = named_run(question.a), named_run(question.b)
    runs = [question.run_report([place], progress) for place in (before, after)]
    report = change(runs[0], runs[1], ("A", "B") if first == second else (first, second))
    gates = [verdict(report, limit) for limit in _limits(question.fail_under)]
    passed = GateVerdict(tuple(check for gate in gates for check in gate.checks)) if gates else None
    return replace(report, verdict=passed, complete=not any(run.partial for run in runs))


def _limits(given: Mapping[str, float] | Sequence[float]) -> list[float | Mapping[str, float]]:
    """Return the gate's limits: numbers for the efficiency as a whole, the others by metric.

    >>> _limits({"": 0.95, "speed": 0.9}), _limits([0.95])
    ([0.95, {'speed': 0.9}], [0.95])
    """
    if not isinstance(given, Mapping):
        return list(given)
    by_metric = {metric: limit for metric, limit in given.items() if metric}
    return [*([given[""]] if "" in given else []), *([by_metric] if by_metric else [])]


_EXAMPLES = """
  ullage trace compare before.json after.json            what changed, and what explains it
  ullage trace compare main=runs/main pr=runs/pr --window steps --fail-under 0.95
                                                         a gate: the efficiency may fall by 5 %
  ullage trace compare a/ b/ --fail-under orchestration_efficiency=0.9 --fail-under speed=0.95
"""

QUESTION = register(
    RegisteredQuestion(
        name="trace compare",
        asked=CompareQuestion,
        noun="the comparison of two runs",
        answer=answer,
        shown_by="ullage.render.change",
        examples=_EXAMPLES,
        read_places=lambda question: [named_run(run)[1] for run in (question.a, question.b)],
        gate=lambda _, report: report.verdict is not None and not report.verdict.passed,
        status_3="something of a run is missing in the files",
        status_4="B falls under --fail-under, or it can't be told that it does not",
    )
)

trace_compare = python_function(QUESTION)
