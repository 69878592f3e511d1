"""The view of the audit of a FLOPs function."""

from __future__ import annotations

from typing import Annotated, Any

from ullage.audit.counter import ComparedCount
from ullage.errors import harmless
from ullage.reports.audit.counter import CounterReport
from ullage.views.declared import At, Document, Flops, Made, Words, plain_data
from ullage.views.notation import Notation
from ullage.views.view import Column, Headline, Section, Table, View

_NOTES = (
    "theirs over ours: training FLOPs, three times a forward pass; attention causal where it is, windows too, or all of it (full)",
    "right is within a thousandth of one of the two; ≈ marks candidates: mistakes that fit within a thousandth, not a millionth",
)
_RATIO = Notation("ratio", lambda value: f"{value:.4f}")


def view(report: CounterReport) -> View:
    """Return the answer as data: on how many cases the function is right, a row a feature, and how to read it."""
    columns = [Column("feature"), Column("model"), Column("causal", _RATIO), Column("full", _RATIO), Column("what it does")]
    rows = [[row.example.feature, row.example.name, row.ratio, row.full_ratio, _says(row)] for row in report.rows]
    return View(
        kind="audit-counter",
        subject="Audit of a FLOPs function",
        headline=_headline(report),
        sections=[Section("cases", "Case by case", [Table("cases", columns, rows, brief=len(rows))])],
        notes=_NOTES,
    )


class ComparedCountDocument(Document):
    """A case: what the function said of it, and what is right."""

    feature: Annotated[str, At("example.feature")]
    model: Annotated[str, At("example.name")]
    seqlens: Annotated[list[int], At("example.seqlens")]
    flops: Annotated[float | None, At("told.flops")]
    failed: Annotated[Words, At("told.failed")]
    causal: Flops
    full: Flops
    ratio: float | None
    ratio_full: Annotated[float | None, At("full_ratio")]
    right: Annotated[bool, At("agrees")]
    mistakes: Annotated[list[str], At("explained"), Made(lambda found: [mistake.name for mistake in found])]
    exact: bool


class CounterAuditDocument(Document):
    """The answer of `ullage audit counter`."""

    target: str
    target_version: Annotated[str | None, At("version")]
    right: int
    cases: Annotated[int, At("rows"), Made(len)]
    without_a_number: Annotated[int, At("silent")]
    rows: list[ComparedCountDocument]


def record(report: CounterReport) -> dict[str, Any]:
    """Return the audit as plain data."""
    return plain_data(CounterAuditDocument, report)


def _headline(report: CounterReport) -> Headline:
    name = harmless(report.version or report.target, 100)
    worst = [row.ratio for row in report.rows if row.ratio is not None and not row.agrees]
    others = f"; the others are {min(worst):.3f} to {max(worst):.3f} of the truth" if worst else ""
    silent = f", {report.silent} got no number" if report.silent else ""
    return Headline(f"{name} is right on {report.right}", f" of {len(report.rows)} cases{others}{silent}")


def _says(row: ComparedCount) -> str:
    if row.told.failed:
        return row.told.failed
    if row.ratio is None:
        return f"says {row.told.flops:g}"
    if row.agrees:
        close = row.ratio is not None and abs(row.ratio - 1) <= abs((row.full_ratio or 0) - 1)
        return "right" if close else "right, with attention in full"
    if row.explained:
        return ("" if row.exact else "≈ ") + " + ".join(mistake.name for mistake in row.explained)
    return "nothing in the list explains it"
