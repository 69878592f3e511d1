"""The view of what changed: the worst first, each with its course, what else changed then, and the command that shows more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ullage.errors import harmless
from ullage.findings.fleet_evidence import SIGNS, SeenStraggler
from ullage.render.svg.changes import change_picture
from ullage.reports.watch.measures import MEASURES
from ullage.reports.watch.watch import WatchReport
from ullage.reports.watch.watched_changes import WatchedChange
from ullage.views.declared import Document, Hours, Ratio, iso, plain
from ullage.views.findings import finding_record
from ullage.views.notation import COUNT, FACTOR, GPU_HOURS, UNCUT, Notation
from ullage.views.numbers import counted, hours, moment, part_read, percent, signed, span
from ullage.views.times import whole_units
from ullage.views.view import Cell, Column, Fact, Finding, Headline, Look, Picture, Section, Table, Value, View

DRAWN = 6  # changes that a page draws
TITLES = {"job": "changed while it ran", "run": "slower than earlier runs", "fleet": "most jobs at once"}


def view(report: WatchReport) -> View:
    """Return the answer as data: what changed for the worse first."""
    drawn = [one for one in report.changes if one.course is not None][:DRAWN]
    return View(
        kind="watch",
        subject="What changed",
        window=span(report.window),
        headline=_headline(report),
        findings=[finding_of(one) for one in report.worse],
        facts=[
            Fact("runs of jobs", report.jobs, COUNT, f"{hours(report.job_hours)} h of them, {hours(report.gpu_hours)} GPU-hours"),
            Fact("steps", whole_units(report.bucket_ms)),
            Fact("smallest change told", f"{percent(report.least_change)} and {hours(report.least_hours)} GPU-hours"),
        ],
        sections=[
            *([Section("courses", "Courses", [_picture(one) for one in drawn], _COURSES)] if drawn else []),
            Section("changes", "Every change", [_table(report.changes)], _TABLE),
            *([Section("stragglers", "Stragglers of the last hour", [_stragglers(report.stragglers)], _SLOW)] if report.stragglers else []),
        ],
        notes=[*report.notes, *_smaller(report)],
        command=report.command,
    )


def _picture(change: WatchedChange) -> Picture:
    return Picture(lambda width: change_picture(change, width=width, standalone=False))


def _headline(report: WatchReport) -> Headline:
    before = part_read(report.complete, report.read_until)
    looked = f"in {hours(report.job_hours)} h of {counted(report.jobs, 'run')} of jobs"
    if not report.worse:
        strong = f"{counted(len(report.changes), 'change')}, none for the worse" if report.changes else "nothing changed"
        return Headline(strong, f", {looked}", before)
    lost = sum(one.gpu_hours for one in report.worse)
    on = f"{len(report.going_on):,} of them go on" if len(report.going_on) != 1 else "one of them goes on"
    on = on if len(report.worse) > 1 else "it goes on" if report.going_on else "it is over"
    return Headline(f"{counted(len(report.worse), 'change')} for the worse: {hours(lost)} GPU-hours lost", f"; {on}, {looked}", before)


def _smaller(report: WatchReport) -> list[str]:
    if not report.smaller:
        return []
    return [f"{counted(report.smaller, 'change')} more cost less than {hours(report.least_hours)} GPU-hours: --least tells of them"]


def notation_of(change: WatchedChange) -> Notation:
    """Return how the levels of a change are written: those of a fleet are ratios to what its jobs had."""
    return FACTOR if change.scope == "fleet" else MEASURES[change.measure].notation


def finding_of(change: WatchedChange) -> Finding:
    """Return a change as what is worth doing."""
    notation = notation_of(change)
    evidence = [
        Fact(MEASURES[change.measure].label, change.after, notation),
        Fact("before", change.before, notation),
        Fact("since", f"{moment(change.start)} UTC"),
        *([] if change.until is None else [Fact("until", f"{moment(change.until)} UTC")]),
        *([Fact("earlier runs of its kind", change.earlier, COUNT)] if change.earlier else []),
        *([Fact("jobs that fell with it", len(change.jobs), COUNT)] if change.scope == "fleet" else []),
        *([Fact(f"{MEASURES[change.mover].label} after over before", change.moved[change.mover], FACTOR)] if change.mover else []),
        *(Fact("changed with it", words) for words in change.beside),
    ]
    return Finding(
        where=change.where,
        owner=change.owner,
        gpu_hours=change.gpu_hours,
        confidence=change.confidence,
        evidence=evidence,
        advice=advice_of(change),
        next_command=change.command,
        kind="change",
        title=TITLES[change.scope],
        part="what its work would have cost less as it was before",
    )


def advice_of(change: WatchedChange) -> str:
    """Return what to do about a change."""
    if change.scope == "fleet":
        return "see what changed on all hosts at that time: driver, fabric, storage, power limits"
    return f"see what changed then; {MEASURES[change.mover or change.measure].advice}"


def _table(changes: Sequence[WatchedChange]) -> Table:
    columns = [
        Column("since", key="since"),
        Column("until"),
        Column("of", room=30),
        Column("measure"),
        Column("before", Notation("", str)),
        Column("after", Notation("", str)),
        Column("difference", Notation("", str), key="low", detail=True),
        Column("GPU-hours lost", GPU_HOURS, key="gpu_hours"),
        Column("sure"),
        Column("moved most", UNCUT),
        Column("beside it", UNCUT, detail=True),
        Column("command", UNCUT, detail=True),
    ]
    return Table("changes", columns, [_row(one) for one in changes])


def _row(change: WatchedChange) -> list[Value | Cell]:
    notation = notation_of(change)
    look: Look = "strong" if change.worse and change.goes_on else ""
    moved = f"{MEASURES[change.mover].label} × {FACTOR.words(change.moved[change.mover])}" if change.mover else ""
    return [
        Cell(moment(change.start), look=look),
        moment(change.until) if change.until is not None else "goes on" if change.goes_on else "its end",
        harmless(str(change.where), 300) or "the fleet",
        MEASURES[change.measure].label,
        Cell(change.before, notation.words(change.before)),
        Cell(change.after, notation.words(change.after)),
        Cell(change.low, f"{_with_sign(change.low, notation)} to {_with_sign(change.high, notation)}"),
        change.gpu_hours if change.measure == "ofu" else None,
        change.confidence,
        moved,
        "; ".join(change.beside),
        change.command,
    ]


def _stragglers(stragglers: Sequence[SeenStraggler]) -> Table:
    columns = [
        Column("since", key="since"),
        Column("until"),
        Column("job", names_of="job"),
        Column("host", names_of="host"),
        Column("GPUs", UNCUT),
        Column("seen by"),
        Column("times as long as its peers", FACTOR, key="longer"),
    ]
    rows: list[list[Value | Cell]] = [
        [
            Cell(moment(one.start), look="" if one.end else "strong"),
            "goes on" if one.end is None else moment(one.end),
            one.job,
            one.devices[0][0],
            ", ".join(gpu for _, gpu, _ in one.devices),
            SIGNS[one.sign],
            one.longer,
        ]
        for one in stragglers
    ]
    return Table("stragglers", columns, rows)


def _with_sign(value: float, notation: Notation) -> str:
    return signed(value, notation.write)


_COURSES = (
    "Each step is the mean over one bucket. The dashed lines are the levels before and after; what lies between them is what was lost, "
    "or gained."
)
_TABLE = (
    "What cost most first. GPU-hours lost are those that the same work would not have needed at the level before; below 0 they were "
    "gained. The difference is told with 95 % confidence."
)


_SLOW = (
    "Devices that need longer for the same work than the others of their job, which wait for them: their clock is lower, they compute for "
    "longer, they come late, or an NVLink sends again."
)


class SeenStragglerDocument(Document):
    """A device, or devices of a host, that make their job wait: since when, until when (null: it goes on), by which sign, and how much.

    `sign` is `clock`, `busy`, `late` or `link`; `longer` is how many times as long as their peers they need for the same work.
    """

    cluster: str | None
    job: str
    host: str | None
    gpus: list[str]
    start: str
    found: str
    end: str | None
    sign: str
    longer: float


class WatchedChangeDocument(Document):
    """A change of `measure`, of a `scope`: a job while it ran, a run beside earlier ones, or the fleet (levels over what its jobs had).

    It says when, from and to which level, bounds of the difference (95 %), GPU-hours lost, what moved with it and changed beside it.
    """

    measure: str
    scope: str
    where: dict[str, str | int]
    owner: str
    gpus: int
    start: str
    settled: str
    until: str | None
    goes_on: bool
    before: float
    after: float
    difference_bounds: list[float]
    gpu_hours: Hours
    confidence: str
    worse: bool
    earlier_runs: int
    jobs: list[str]
    moved: dict[str, float]
    beside: list[str]
    advice: str
    command: str


class WatchDocument(Document):
    """The answer of `ullage watch`: every change that was found; `ok` where none is for the worse and goes on."""

    ok: bool
    complete: bool
    partial_because: str | None
    start: str
    end: str
    step_seconds: float
    runs: int
    job_hours: float
    gpu_hours: Hours
    least_gpu_hours: Hours
    least_change: Ratio
    smaller: int
    changes: list[WatchedChangeDocument]
    stragglers: list[SeenStragglerDocument]
    notes: list[str]
    command: str


def record(report: WatchReport) -> dict[str, Any]:
    """Return the report for JSON."""
    return plain(
        WatchDocument(
            ok=not report.going_on,
            complete=report.complete,
            partial_because=report.partial_because or None,
            start=iso(report.window[0]),
            end=iso(report.window[1]),
            step_seconds=report.bucket_ms / 1000,
            runs=report.jobs,
            job_hours=report.job_hours,
            gpu_hours=report.gpu_hours,
            least_gpu_hours=report.least_hours,
            least_change=report.least_change,
            smaller=report.smaller,
            changes=[change_document(one) for one in report.changes],
            stragglers=[_straggler_document(one) for one in report.stragglers],
            notes=list(report.notes),
            command=report.command,
        )
    )


def _straggler_document(one: SeenStraggler) -> SeenStragglerDocument:
    return SeenStragglerDocument(
        cluster=one.cluster,
        job=harmless(one.job),
        host=one.devices[0][0],
        gpus=[gpu for _, gpu, _ in one.devices],
        start=iso(one.start),
        found=iso(one.found),
        end=None if one.end is None else iso(one.end),
        sign=one.sign,
        longer=one.longer,
    )


def change_document(change: WatchedChange) -> WatchedChangeDocument:
    """Return a change as a part of a document."""
    return WatchedChangeDocument(
        measure=change.measure,
        scope=change.scope,
        where=finding_record(finding_of(change))["where"],
        owner=harmless(change.owner),
        gpus=change.gpus,
        start=iso(change.start),
        settled=iso(change.settled),
        until=None if change.until is None else iso(change.until),
        goes_on=change.goes_on,
        before=change.before,
        after=change.after,
        difference_bounds=[change.low, change.high],
        gpu_hours=change.gpu_hours,
        confidence=change.confidence,
        worse=change.worse,
        earlier_runs=change.earlier,
        jobs=[harmless(job) for job in change.jobs],
        moved=dict(change.moved),
        beside=list(change.beside),
        advice=advice_of(change),
        command=change.command,
    )
