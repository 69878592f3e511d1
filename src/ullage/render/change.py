"""What changed from run A to run B, and the same as plain data for JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from msgspec import UNSET, UnsetType, field

from ullage.errors import harmless
from ullage.reports.trace.change import BoundedNumber, ChangeReport, Check, ComparedPart, ComparedSide, ExplainedChange
from ullage.totals import RESOURCES
from ullage.views.declared import At, Document, Seconds, filled, plain_data
from ullage.views.names import lowered
from ullage.views.notation import FIGURES, TIME
from ullage.views.numbers import UNKNOWN, factor, signed
from ullage.views.times import seconds
from ullage.views.view import Cell, Column, Headline, Paragraph, Section, Table, Value, View

SHOWN = 12  # regions before "… n more"
WRITTEN: dict[str, Callable[[float], str]] = {"ns": seconds, "": "{:,.0f}".format, "1": factor}
P = TypeVar("P", bound="ComparedPartDocument")


def view(report: ChangeReport, *, top: int = SHOWN) -> View:
    """Return the answer, what each side did in both runs, the regions, the verdict of a gate if there is one, and the notes."""
    checks = [] if report.verdict is None else [Paragraph("\n".join(map(_said, report.verdict.checks)), kept=True)]
    return View(
        kind="trace-compare",
        subject="Two runs compared",
        headline=headline(report),
        sections=[
            *(Section(found.name, "Devices" if found.resource is None else "Hosts", [side(found)], _HOW) for found in report.whole.sides),
            Section("regions", "Regions", [regions(report, top)]),
            Section("gate", "Gate", checks),
        ],
        notes=[harmless(note, 1000) for note in report.notes],
    )


def headline(report: ChangeReport) -> Headline:
    """Return in a line how much longer B takes, and what explains more of it than anything else."""
    whole = report.whole
    a, b = (letter if name == letter else f"{letter} '{harmless(name, 100)}'" for letter, name in (("A", report.a), ("B", report.b)))
    elapsed = whole.find("elapsed")
    ratio = None if elapsed is None else elapsed.ratio
    if ratio is None:
        return Headline(f"{b} against {a}")
    why = f"; {_cause(whole)} explains {_signed(whole.cause.elapsed)}" if whole.cause is not None else ""
    times = f"{seconds(whole.a_elapsed)} to {seconds(whole.b_elapsed)}"
    return Headline(f"{ratio.value:.3f} times", f" as long as {a}: {times}{why}", before=f"{b} takes ")


def side(found: ComparedSide) -> Table:
    """Return what the devices (or the hosts) did in both runs, with what each row explains of the elapsed time."""
    name, unit = found.name.capitalize(), f"all {'devices' if found.resource is None else RESOURCES[found.resource]}"
    columns = [Column(head, FIGURES) for head in ("A", "B", "ratio", "elapsed", unit)]
    rows: list[list[Value | Cell]] = [
        [Cell(row.label, depth=row.depth), _value(row, row.a), _value(row, row.b), _ratio(row), *_explains(row)]
        for row in found.rows
        if row.unit != "" or row.metric == "launches" or row.a != row.b
    ]
    return Table(found.name, [Column(name), *columns], rows, brief=len(rows))


def regions(report: ChangeReport, top: int) -> Table:
    """Return the regions that both runs have, a row each, the most changed first."""
    columns = [Column("region", room=40), Column("A", TIME), Column("B", TIME), Column("ratio", FIGURES)]
    columns += [Column("device, A", FIGURES), Column("device, B", FIGURES), Column("explained by")]
    rows: list[list[Value | Cell]] = []
    for part in report.parts[1:]:
        elapsed, device = part.find("elapsed"), part.find("device_parallel_efficiency")
        values = (Cell(None), Cell(None)) if device is None else (_value(device, device.a), _value(device, device.b))
        ratio = Cell(None) if elapsed is None else _ratio(elapsed)
        rows.append([part.name, part.a_elapsed or None, part.b_elapsed or None, ratio, *values, _cause(part)])
    return Table("regions", columns, rows, brief=top, elsewhere="--top shows them")


class BoundedDocument(Document):
    """A number and the bounds between which it surely lies; a bound is null where there is none."""

    value: float
    low: float
    high: float | None


class ExplainedChangeDocument(Document):
    """A quantity in both runs, their ratio, and how much time its change explains."""

    metric: str
    label: str
    depth: int
    unit: str
    a: BoundedDocument | None
    b: BoundedDocument | None
    ratio: BoundedDocument | None
    settled: bool
    elapsed: Seconds | None = field(name="elapsed_s")
    resources: Seconds | None = field(name="resource_s")


class ElapsedDocument(Document):
    """How long both runs took, in s."""

    a: float
    b: float


class ComparedPartDocument(Document):
    """The whole, or a region, of two runs: a list of changes for the host, and one for the device."""

    elapsed_s: ElapsedDocument
    explained_by: Annotated[str | None, At("cause.metric")]
    host: list[ExplainedChangeDocument] | UnsetType = UNSET
    device: list[ExplainedChangeDocument] | UnsetType = UNSET


class ComparedRegionDocument(ComparedPartDocument, kw_only=True):
    """A region of two runs."""

    name: str


class CheckDocument(Document):
    """Whether a ratio keeps its limit; null: it cannot be told."""

    metric: str
    limit: float
    ratio: BoundedDocument | None
    passed: bool | None


class TraceCompareDocument(Document):
    """The answer of `ullage trace compare`; with a gate also whether it `passed`."""

    a: str
    b: str
    mode: str
    whole: ComparedPartDocument
    regions: list[ComparedRegionDocument]
    notes: list[str]
    passed: bool | UnsetType = UNSET
    checks: list[CheckDocument] | UnsetType = UNSET


def record(report: ChangeReport) -> dict[str, Any]:
    """Return the comparison as plain data: ratios, times in s, None for what is not known or can't be told."""
    verdict = report.verdict
    gate: dict[str, Any] = {} if verdict is None else {"passed": verdict.passed, "checks": [_check(one) for one in verdict.checks]}
    regions = [_part(ComparedRegionDocument, part) for part in report.parts[1:]]
    return plain_data(TraceCompareDocument, report, whole=_part(ComparedPartDocument, report.whole), regions=regions, **gate)


def _check(check: Check) -> CheckDocument:
    return filled(CheckDocument, check, ratio=_bounded(check.change.ratio, 1))


def _part(kind: type[P], part: ComparedPart) -> P:
    elapsed = ElapsedDocument(a=part.a_elapsed / 1e9, b=part.b_elapsed / 1e9)
    return filled(kind, part, elapsed_s=elapsed, **{found.name: [_change(row) for row in found.rows] for found in part.sides})


def _change(row: ExplainedChange) -> ExplainedChangeDocument:
    scale = 1e-9 if row.unit == "ns" else 1
    unit = {"ns": "s", "": "count"}.get(row.unit, row.unit)
    sides = {name: _bounded(getattr(row, name), scale) for name in ("a", "b")}
    return filled(ExplainedChangeDocument, row, unit=unit, ratio=_bounded(row.ratio, 1), **sides)


def _bounded(found: BoundedNumber | None, scale: float) -> BoundedDocument | None:
    if found is None:
        return None
    high = found.high * scale
    return BoundedDocument(value=found.value * scale, low=found.low * scale, high=high if high != float("inf") else None)


def _value(row: ExplainedChange, found: BoundedNumber | None) -> Cell:
    if found is None:
        return Cell(None)
    written = WRITTEN[row.unit]
    low, high = written(found.low), written(found.high)
    return Cell(found.value, written(found.value) if low == high else f"{low}–{high}")


def _words(row: ExplainedChange, found: BoundedNumber | None) -> str:
    return FIGURES.words(_value(row, found).words or None)


def _ratio(row: ExplainedChange) -> Cell:
    ratio = row.ratio
    if ratio is None:
        return Cell(None)
    low, high = f"{ratio.low:.3f}", f"{ratio.high:.3f}"
    return Cell(ratio.value, f"{ratio.value:.3f}" if low == high else f"{low}–{high}")


def _explains(row: ExplainedChange) -> list[Cell]:
    if row.ratio is not None and not row.settled:
        return [Cell(None, "cannot tell"), Cell(None, " ")]
    about = "" if row.ratio is None or row.ratio.exact or row.elapsed is None else "≈ "
    return [Cell(time, about + _signed(time)) for time in (row.elapsed, row.resources)]


def _signed(time: float | None) -> str:
    """Return what is added to a time, with its sign.

    >>> _signed(1_500_000), _signed(-7), _signed(0.2), _signed(None)
    ('+1.500 ms', '−7 ns', '0', '–')
    """
    return UNKNOWN if time is None else "0" if abs(time) < 0.5 else signed(time, seconds)


def _cause(part: ComparedPart) -> str:
    return (
        ""
        if part.cause is None
        else f"{lowered(part.cause.label)} ({_words(part.cause, part.cause.a)} to {_words(part.cause, part.cause.b)})"
    )


def _said(check: Check) -> str:
    ratio = "unknown" if check.change.ratio is None else _ratio(check.change).words
    said = {True: "passed", False: "failed", None: "cannot tell, so not passed"}[check.passed]
    return f"{said}: {lowered(check.label)} ({check.metric}) is {ratio} of A's, the limit is {check.limit:g}"


_HOW = "What each row explains of the change in time: of the elapsed time, and of the time of all of them together."
