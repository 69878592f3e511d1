"""What does Ullage find here, and what would make its answers better?"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ullage.asking import asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.telemetry import StoredTelemetryReading
from ullage.problems import Problems

if TYPE_CHECKING:
    from ullage.reports.doctor.doctor import DoctorReport, TelemetryCheck

RECENT_MS = 15 * 60_000  # of a server: enough for the slowest exporter, little to ask


@dataclass(frozen=True, kw_only=True)
class DoctorQuestion(StoredTelemetryReading):
    """What Ullage finds on this machine and in your telemetry, what is missing, and what each missing part would add.

    Of a SOURCE it says which fields its exporter gives, on how many GPUs, which to switch on, and what a report would then say. Of a
    server the last 15 minutes are read. Nothing is changed, and no GPU is used.
    """

    sources: tuple[str, ...] = asked(
        "Telemetry, as `ullage fleet` reads it.", (), metavar="[SOURCE…]", argument=True, repeated=True, local=True
    )


def answer(question: DoctorQuestion, progress: Progress, command: str = "") -> DoctorReport:
    """Return what is there and what is missing; raises UllageError for a place that can't be read at all."""
    from ullage.cupti.permissions import report as permissions
    from ullage.reports.doctor.doctor import DoctorReport, machine_parts, this_python

    problems = Problems()
    places = tuple(_place(question, source, problems, progress) for source in question.sources)
    version, python, system = this_python()
    because = problems.cuts[0].reason if problems.cuts else ""
    return DoctorReport(version, python, system, tuple(machine_parts()), permissions(), places, because, command)


def _place(question: DoctorQuestion, source: str, problems: Problems, progress: Progress) -> TelemetryCheck:
    from ullage.intake import opened
    from ullage.reports.doctor.doctor import TelemetryCheck
    from ullage.reports.doctor.fields import capability_shares

    options = question.reading_options(progress)
    if "://" in source and question.since is None:
        options = replace(options, since=round(time.time() * 1000) - RECENT_MS)
    with opened([source], options=options, engine=question.engine) as taken:
        if question.strict:
            taken.problems.refuse_partial()
        for cut in taken.problems.cuts:
            problems.cut(cut.reason, cut.read_until)
        shares, jobs_on = capability_shares(taken.samples)
        return TelemetryCheck(source, tuple(shares), jobs_on, tuple(taken.problems.lines()))


_EXAMPLES = """
  ullage doctor                               this machine: extras, tools, what may be traced and counted
  ullage doctor http://prometheus:9090        and which fields that Prometheus has, and what the others would add
  ullage doctor scrapes/ --json | jq '.places[].capabilities[] | select(.gpus == 0)'
"""

QUESTION = register(
    RegisteredQuestion(
        name="doctor",
        asked=DoctorQuestion,
        noun="the doctor",
        answer=answer,
        shown_by="ullage.render.doctor",
        examples=_EXAMPLES,
        read_places=lambda question: question.sources,
        status_3="only a part of a source could be read",
    )
)

doctor = python_function(QUESTION)
