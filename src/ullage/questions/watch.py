"""What changed in the fleet, since when, and what did it cost?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.asking import asked, read_share
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.telemetry import TelemetryReading

if TYPE_CHECKING:
    from ullage.reports.watch.watch import WatchReport


@dataclass(frozen=True, kw_only=True)
class WatchQuestion(TelemetryReading):
    """What changed in a fleet, since when, what it cost, and what else changed then.

    Looked at are OFU and its factors, memory and power of every job while it runs, runs beside earlier ones of their kind (cluster,
    user, name, GPUs), and all jobs at once. SOURCE is telemetry as `ullage fleet` reads it.
    """

    sources: tuple[str, ...] = asked(
        "Files, folders, stores or URLs.", metavar="SOURCE…", argument=True, required=True, repeated=True, local=True
    )
    jobs: tuple[str, ...] = asked(
        "Job records: sacct output, a CSV, a mapping folder. They name runs of one kind. Repeatable.",
        (),
        metavar="FILE",
        repeated=True,
        local=True,
    )
    least: float = asked("GPU-hours that a change must have cost to be told.", 0.5, least=0, metavar="GPU-HOURS")
    change: float = asked("Smallest change that counts, as a share of the level: 5%, or 0.05.", 0.05, read=read_share, shown="5%")
    gpu: str | None = asked("Which GPU it is, where the samples don't say.", minor=True)


def answer(question: WatchQuestion, progress: Progress, command: str = "") -> WatchReport:
    """Return what changed; raises UllageError for what the user can fix, and for partial input under `strict`."""
    from ullage.intake import opened
    from ullage.reports.fleet.request import FleetRequest
    from ullage.reports.watch.watch import watch

    request = FleetRequest(since=question.since, until=question.until, gpu=question.gpu, command=command, progress=progress)
    with opened(question.sources, jobs=question.jobs, options=question.reading_options(progress)) as taken:
        if question.strict:
            taken.problems.refuse_partial()
        made = watch(
            taken.samples,
            taken.jobs,
            request,
            taken.problems.lines(),
            taken.rolled,
            sources=question.sources,
            least_hours=question.least,
            least_change=question.change,
        )
        return taken.marked(made)


_EXAMPLES = """
  ullage watch store/                                  a store: what changed in all of its time
  ullage watch store/ --since 24h                      in the last day
  ullage watch http://prometheus:9090 --since 24h      a Prometheus, Thanos, Mimir or VictoriaMetrics
  ullage watch week.parquet --jobs sacct.txt           with job records, which name runs of one kind
  ullage watch store/ --since 24h --least 10 --json    for a script: status 3 where something is worse and goes on
  ullage watch store/ --out changes.html               a page with the course of each change
"""

QUESTION = register(
    RegisteredQuestion(
        name="watch",
        asked=WatchQuestion,
        noun="what changed",
        answer=answer,
        shown_by="ullage.render.watch",
        examples=_EXAMPLES,
        read_places=lambda question: [*question.sources, *question.jobs],
        gate=lambda _, report: bool(report.going_on),
        status_3="something changed for the worse and goes on, or only a part of the source could be read",
    )
)

watch = python_function(QUESTION)
