"""The view of a reported MFU beside OFU in the course of time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from ullage.render import audit
from ullage.reports.audit.course import MfuCourse, MfuCoursePoint
from ullage.views.declared import Document, Made, Moment, Ratio, filled, plain
from ullage.views.notation import PERCENT, PERCENT_1, PERCENT_2, QUANTITY
from ullage.views.numbers import counted, moment, part_read, percent
from ullage.views.view import Cell, Column, Fact, Headline, Section, Table, Value, View

FURTHEST = 20  # spans that a terminal shows


def view(report: MfuCourse) -> View:
    """Return the answer as data: both means and how far they are apart, each span, and what explains the means where that was asked."""
    times = f"{report.mfu / report.ofu:,.2f} times OFU" if report.ofu else "OFU is 0"
    compared = f": reported MFU {percent(report.mfu, 2)}, OFU {percent(report.ofu, 2)}, over {counted(report.steps, 'step')}"
    explained = [] if report.explained is None else audit.view(report.explained).sections
    return View(
        kind="mfu-course",
        subject=f"Reported MFU beside OFU of job {report.job}",
        headline=Headline(times, compared, part_read(report.complete, None)),
        basis=[] if report.explained is None else [*audit.likeliest(report.explained.finding)],
        facts=[*_facts(report)],
        sections=[Section("course", "In the course of time", [_course(report)], _HOW), *explained],
        notes=(*report.notes, *([] if report.explained is None else report.explained.notes)),
    )


def _facts(report: MfuCourse) -> Iterator[Fact]:
    yield Fact("Reported MFU", report.mfu, PERCENT_2, "mean over the time of the steps")
    yield Fact("OFU", report.ofu, PERCENT_2, "over the same time")
    yield Fact("Move together", report.correlation, QUANTITY, "Pearson r of both over the spans")


def _course(report: MfuCourse) -> Table:
    columns = [
        Column("from, UTC"),
        Column("steps"),
        Column("of the time steps", PERCENT),
        Column("reported MFU", PERCENT_1),
        Column("OFU", PERCENT_1),
        Column("MFU over OFU", QUANTITY),
    ]
    apart = sorted(range(len(report.points)), key=lambda number: -_distance(report.points[number]))
    return Table(
        "course", columns, [_row(one) for one in report.points], brief=FURTHEST, chosen=sorted(apart[:FURTHEST]),
        elsewhere="these lie furthest apart; --only course shows them",
    )  # fmt: skip


def _row(one: MfuCoursePoint) -> list[Value | Cell]:
    steps = (
        "" if one.first_step is None else f"{one.first_step}" if one.first_step == one.last_step else f"{one.first_step}–{one.last_step}"
    )
    return [moment(one.start, seconds=True), steps, one.logged, one.mfu, one.ofu, one.ratio]


def _distance(one: MfuCoursePoint) -> float:
    return -1.0 if one.mfu is None or one.ofu is None else abs(one.mfu - one.ofu)


_HOW = (
    "Each row is a span of a minute or more. What steps reported is weighed by their time in the span; OFU is of the job's GPUs over "
    "all of it, also between steps. A pause for a checkpoint lowers OFU, and no step reports it."
)


class MfuCoursePointDocument(Document):
    """A span: the steps in it, the share of it that they took, what they reported, and OFU."""

    start: Moment
    end: Moment
    first_step: int | None
    last_step: int | None
    logged: Ratio
    mfu: Ratio | None
    ofu: Ratio | None
    ratio: float | None


class MfuCourseDocument(Document):
    """The answer of `ullage audit mfu --reported LOG`: means over the time of the steps, every span, and the audit of the means."""

    job: str
    steps: int
    mfu: Ratio
    ofu: Ratio
    correlation: float | None
    course: list[MfuCoursePointDocument]
    explained: audit.AuditDocument | None
    complete: bool
    notes: Annotated[list[str], Made(list)]


def record(report: MfuCourse) -> dict[str, Any]:
    """Return the answer as plain data, ready for JSON."""
    return plain(
        filled(
            MfuCourseDocument,
            report,
            course=[filled(MfuCoursePointDocument, one) for one in report.points],
            explained=None if report.explained is None else audit.declared(report.explained),
        )
    )
