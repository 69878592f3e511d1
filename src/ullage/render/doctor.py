"""The view of what is there and what is missing: telemetry first, then this machine."""

from __future__ import annotations

from typing import Any

from ullage.errors import harmless, public
from ullage.render.machine_check import CuptiCheckDocument, obstacles, possibilities
from ullage.reports.doctor.doctor import DoctorReport, MachinePart, TelemetryCheck
from ullage.reports.doctor.fields import CapabilityShare
from ullage.views.declared import Document, plain
from ullage.views.notation import COUNT, PERCENT, UNCUT
from ullage.views.numbers import counted
from ullage.views.view import Cell, Column, Headline, Item, ItemList, Look, Part, Section, Table, View


def view(report: DoctorReport) -> View:
    """Return the answer as data: what telemetry is good for and what would add to it, then what this machine has and lacks."""
    strong, rest = _telemetry_headline(report) if report.places else possibilities(report.permissions)
    sections = [_telemetry(place, number) for number, place in enumerate(report.places)]
    return View(
        kind="doctor",
        subject="What is here",
        headline=Headline(strong, rest, before="partial: " if report.partial_because else ""),
        basis=[f"Ullage {report.version}, Python {report.python}, {harmless(report.system, 200)}"],
        sections=[*sections, _machine(report), Section("findings", "Tracing and counting", [ItemList(obstacles(report.permissions))])],
        notes=[*([report.partial_because] if report.partial_because else []), *(note for place in report.places for note in place.notes)],
        command=report.command,
    )


def _telemetry_headline(report: DoctorReport) -> tuple[str, str]:
    gpus, full = (sum(of) for of in zip(*((place.gpus, place.shares[0].gpus) for place in report.places), strict=True))
    missing = {name for place in report.places for share in place.shares for name in share.missing}
    more = f"; {counted(len(missing), 'more field')} would add to the report" if missing else "; no field is missing"
    return f"OFU can be told of {full:,} of {counted(gpus, 'GPU')}", more if gpus else ""


def _telemetry(place: TelemetryCheck, number: int) -> Section:
    columns = [
        Column("capability"),
        Column("GPUs", COUNT),
        Column("of their time", PERCENT, key="time"),
        Column("a report then tells", UNCUT, wraps=True),
    ]
    jobs = ["jobs", place.jobs_on, None, "who held a GPU, and for what"]
    rows = [*(_capability(share) for share in place.shares), jobs]
    name = "fields" if number == 0 else f"fields {number + 1}"
    title = f"{harmless(public(place.place), 120)}: {counted(place.gpus, 'GPU')}"
    lacking = [_lacking(share) for share in place.shares if share.missing]
    if not place.jobs_on:
        needed = "job records (--jobs of `ullage fleet`), or an exporter that names pods or jobs"
        lacking.append(Item(needed, remarks=["adds jobs: who held a GPU, and for what"]))
    parts: list[Part] = [Table(name, columns, rows, brief=len(rows), title=title), ItemList(lacking, title="What to switch on")]
    return Section(name.replace(" ", "-"), "Telemetry", parts)


def _lacking(share: CapabilityShare) -> Item:
    off = " (switched off in dcgm-exporter's default list)" if share.off_by_default else ""
    some = f" on {share.of - share.gpus:,} of {counted(share.of, 'GPU')}" if share.gpus else ""
    return Item(f"{', '.join(share.missing)}{off}{some}", remarks=[f"adds {share.capability.name}: {share.capability.adds}"])


def _capability(share: CapabilityShare) -> list[Any]:
    look: Look = "strong" if share.gpus == share.of else "doubt"
    return [Cell(share.capability.name, look=look), share.gpus, share.time, share.capability.adds]


def _machine(report: DoctorReport) -> Section:
    columns = [Column("this machine"), Column("here"), Column("version, or how to get it", UNCUT), Column("what for", UNCUT, wraps=True)]
    rows = [_part(part) for part in report.parts]
    return Section("machine", "This machine", [Table("machine", columns, rows, brief=len(rows))])


def _part(part: MachinePart) -> list[Any]:
    look: Look = "" if part.there else "doubt"
    return [part.name, Cell("yes" if part.there else "no", look=look), part.known if part.there else part.how, part.purpose]


class CapabilityDocument(Document):
    """What a report tells: on how many of `of` GPUs it can, for which share of their time, and the fields to switch on for the others."""

    name: str
    adds: str
    gpus: int
    of: int
    time: float
    missing: list[str]
    off_by_default: bool


class TelemetryCheckDocument(Document):
    """What a place of telemetry is good for; `jobs_on` is for how many GPUs it names jobs."""

    place: str
    gpus: int
    jobs_on: int
    capabilities: list[CapabilityDocument]
    notes: list[str]


class PartDocument(Document):
    """An extra or a tool, what it is for, what is known of it, and how to get it."""

    name: str
    there: bool
    purpose: str
    known: str
    how: str


class DoctorDocument(Document):
    """The answer of `ullage doctor`; `permissions` is what `ullage cupti check` says."""

    ullage: str
    python: str
    system: str
    complete: bool
    partial_because: str
    parts: list[PartDocument]
    permissions: CuptiCheckDocument
    places: list[TelemetryCheckDocument]


def record(report: DoctorReport) -> dict[str, Any]:
    """Return the answer for JSON."""
    found = plain(
        DoctorDocument(
            ullage=report.version,
            python=report.python,
            system=report.system,
            complete=report.complete,
            partial_because=report.partial_because,
            parts=[PartDocument(part.name, part.there, part.purpose, part.known, part.how) for part in report.parts],
            permissions=CuptiCheckDocument(**report.permissions),
            places=[_place_document(place) for place in report.places],
        )
    )
    return dict(found)


def _place_document(place: TelemetryCheck) -> TelemetryCheckDocument:
    capabilities = [
        CapabilityDocument(one.capability.name, one.capability.adds, one.gpus, one.of, one.time, list(one.missing), one.off_by_default)
        for one in place.shares
    ]
    return TelemetryCheckDocument(public(place.place), place.gpus, place.jobs_on, capabilities, list(place.notes))
