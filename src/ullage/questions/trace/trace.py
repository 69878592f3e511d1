"""Where does the time of a traced run go: its host and device efficiency trees, and what explains the loss?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ullage.asking import asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.traces import TraceReading, read_gigabytes_a_second
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.reports.trace.trace import TraceReport


def read_ranks(texts: tuple[str, ...], flag: str, now: float) -> dict[str, int]:  # noqa: ARG001 - a TextReader
    """Read ranks by a file's name ("" for the only file).

    >>> read_ranks(("a.json=3",), "--rank", 0), read_ranks(("3",), "--rank", 0)
    ({'a.json': 3}, {'': 3})
    """
    ranks = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not number.isascii() or not number.isdigit():
            raise UllageError(f"'{text}' names no rank", f"write {flag} 3, or {flag} FILE=3")
        ranks[name] = int(number)
    return ranks


@dataclass(frozen=True, kw_only=True)
class TraceQuestion(TraceReading):
    """Host and device efficiency trees of a profile, and where its time goes.

    FILE is a trace of PyTorch (Kineto JSON), JAX (trace.json.gz, xplane.pb), Nsight Systems (SQLite), rocprofv3 (rocpd, JSON),
    TALP (JSON), Paraver or Score-P (OTF2), plain or compressed; a folder or a glob of them is one run, a file a rank.
    """

    files: tuple[str, ...] = asked(
        "A trace, a folder or a glob of them, or several.", argument=True, required=True, repeated=True, metavar="FILE…"
    )
    by: Literal["rank", "device", "region", "step"] | None = asked("Trees of each of these.", display=True)
    price: float | None = asked("Money per GPU-hour, for the bill of losses.", metavar="P", least=0)
    currency: str | None = asked("What --price is in: EUR, USD, credits.", metavar="NAME", env="ULLAGE_CURRENCY", minor=True)
    what_if: bool = asked(
        "Replay the run: how much faster it would be without late ranks, communication or launches; and its critical path.", False
    )
    top: int = asked("Rows of a table.", 12, least=1, display=True)
    ranks: dict[str, int] = asked(
        "The rank of a file that tells none, or a wrong one. Repeatable.",
        {},
        flag="--rank",
        metavar="[FILE=]N",
        read=read_ranks,
        repeated=True,
        minor=True,
    )
    link: float | None = asked(
        "GB/s of a GPU's link one way, for collectives not within a host; in Python B/s.",
        metavar="R",
        read=read_gigabytes_a_second,
        minor=True,
    )
    tables: Literal["common", "recorded"] = asked(
        "Which time the tables cover: the time in which all ranks were recorded, as the trees do, or all that was recorded.",
        "common",
        minor=True,
    )


def answer(question: TraceQuestion, progress: Progress, command: str = "") -> TraceReport:  # noqa: ARG001 - a question's `answer`
    """Return the trees of one run; raises UllageError for what the user can fix."""
    from ullage.reports.trace.trace import TraceRequest
    from ullage.views.notation import currency_name

    if question.what_if and question.region is not None:
        raise UllageError("a region can't be replayed: what it waits for lies outside too", "cut a part of the run with --window instead")
    more = {"ranks": question.ranks, "tables": question.tables, "replay": question.what_if}
    request = TraceRequest(price=question.price, currency=currency_name(question.currency or ""), link=question.link)
    return question.run_report(question.files, progress, request, **more)


def write_events(question: TraceQuestion, out: Path | None, progress: Progress) -> str | None:
    """Write every event for Perfetto, where that is asked for, which reads the files again; return what makes it partial."""
    if out is None or out.suffix.lower() != ".pftrace":
        return None
    from ullage.render.trace_files import write

    report = answer(question, progress)
    write(report, out, files=question.files)
    return "something of the run is missing in the files" if report.partial else ""


_EXAMPLES = """
  ullage trace trace.json.gz                      a PyTorch profile
  ullage trace profiles/                          many ranks, a file each
  ullage trace report.sqlite --by rank            Nsight Systems (nsys export --type sqlite report.nsys-rep)
  ullage trace host.trace.json.gz                 a JAX profile
  ullage trace 4711_results.db                    rocprofv3 (rocprofv3 --sys-trace -- ./a.out)
  ullage trace talp.json                          TALP's JSON: recomputed from its raw times
  ullage trace scorep-20260101/traces.otf2        Score-P (pip install 'ullage[otf2]')
  ullage trace trace.json --window steps          from the first profiler step to the last
  ullage trace trace.json --region forward        one NVTX range or user annotation
  ullage trace profiles/ --what-if                how much faster without late ranks, communication, launches
  ullage trace trace.json --out trace.svg         the timeline; .html is the whole report, .pftrace opens in Perfetto
\b
Several runs:
  ullage trace compare before.json after.json     what changed, factor by factor
  ullage trace scaling run1/ run2/ run4/          the table of POP: efficiencies and scalability
"""

QUESTION = register(
    RegisteredQuestion(
        name="trace",
        asked=TraceQuestion,
        noun="the report on a trace",
        answer=answer,
        shown_by="ullage.render.trace_files",
        examples=_EXAMPLES,
        read_places=lambda question: question.files,
        straight_to_file=write_events,
        status_3="something of the run is missing in the files",
    )
)

trace = python_function(QUESTION)
