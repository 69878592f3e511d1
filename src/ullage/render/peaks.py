"""The view of the audit of a table of peaks."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from ullage.audit.peaks import MEANINGS, SOUND, Judgement
from ullage.reports.audit.peaks import PeaksReport
from ullage.views.declared import At, Document, Made, Rate, plain_data
from ullage.views.notation import FACTOR_3, Notation
from ullage.views.numbers import counted
from ullage.views.view import Column, Headline, Section, Table, Value, View

# peaks as tables give them, with four digits; the factor on an MFU with three decimals, however small it is
_STATED = Notation("FLOP/s", lambda value: f"{value / 1e12:,.4g}" if value < 1e15 else f"{value / 1e12:,.0f}")
_EFFECT = Notation(FACTOR_3.unit, lambda value: f"{value:.3f}")


def view(report: PeaksReport) -> View:
    """Return the answer as data: how many rows are wrong, the rows as they came, what a lookup by substring catches, the notes."""
    return View(
        kind="audit-peaks",
        subject="Audit of a table of peaks",
        headline=_headline(report),
        sections=[
            Section("rows", "Row by row", [_rows(report)], _ROWS),
            Section("traps", "What else a name matches", [_traps(report)], _TRAPS),
        ],
        notes=report.notes,
    )


class OtherPeakDocument(Document):
    """A GPU whose peak the value is, too."""

    gpu: str
    peak: Rate


class JudgedPeakDocument(Document):
    """A row of a table of peaks, and what it holds in place of the right value."""

    name: Annotated[str, At("row.name")]
    where: Annotated[str, At("row.where")]
    precision: str
    value: Rate | None
    right: Rate | None
    verdict: Annotated[str, At("kind")]
    wrong: bool
    mfu_factor: Annotated[float | None, At("factor")]
    of: list[str]
    also_matches: Annotated[list[OtherPeakDocument], At("traps")]


class PeaksAuditDocument(Document):
    """The answer of `ullage audit peaks`."""

    wrong: Annotated[int, Made(len)]
    precision: str
    rows: list[JudgedPeakDocument]
    notes: list[str]


def record(report: PeaksReport) -> dict[str, Any]:
    """Return the audit as plain data: values in FLOP/s, None for a value that is no finite number."""
    return plain_data(PeaksAuditDocument, report)


def _headline(report: PeaksReport) -> Headline:
    rows = counted(len(report.rows), "row")
    if not report.wrong:
        sound = sum(judged.kind == "right" for judged in report.rows)
        return Headline("nothing wrong", f" in {rows}: {sound:,} right, {len(report.rows) - sound:,} not known")
    counts = Counter(judged.kind for judged in report.wrong if judged.kind not in SOUND)
    caught = sum(bool(judged.traps) for judged in report.wrong)
    said = [f"{count:,} {kind}" for kind, count in counts.most_common()] + ([f"{caught:,} that match other GPUs"] if caught else [])
    return Headline(f"{len(report.wrong):,} of {rows} wrong", f": {', '.join(said)}")


def _rows(report: PeaksReport) -> Table:
    columns = [Column("name"), Column("precision"), Column("verdict"), Column("TFLOP/s", _STATED, "value")]
    columns += [Column("right", _STATED), Column("MFU ×", _EFFECT, "mfu_factor"), Column("what it is")]
    return Table("rows", columns, [_row(judged) for judged in report.rows], brief=len(report.rows))


def _row(judged: Judgement) -> list[Value]:
    factor = None if judged.kind == "right" else judged.factor
    return [judged.row.name, judged.precision, judged.kind, judged.value, judged.right, factor, _says(judged)]


def _says(judged: Judgement) -> str:
    where = f" ({judged.row.where})" if judged.row.where else ""
    match judged.kind:
        case "right":
            said = ""
        case "sparse" | "half" | "precision":
            said = "; or ".join(judged.of)
        case "sku":
            said = f"of {' or '.join(judged.of)}"
        case "ambiguous":
            said = f"not the peak of {' and '.join(judged.of)}"
        case "unit":
            said = f"in {judged.of[0]}, unlike the other rows"
        case "fallback" if judged.value is not None:
            said = "what every GPU gets that is not in the table"
        case _:
            said = MEANINGS[judged.kind]
    return (said + where).strip()


def _traps(report: PeaksReport) -> Table:
    rows: dict[tuple[str, str], list[Value]] = {
        (judged.row.name, trap.gpu): [judged.row.name, trap.gpu, judged.precision, judged.value, trap.peak]
        for judged in reversed(report.rows)
        for trap in judged.traps
    }
    columns = [Column("name"), Column("also matches"), Column("precision")]
    columns += [Column("gives it, TFLOP/s", _STATED, "given"), Column("its own", _STATED)]
    return Table("traps", columns, list(rows.values())[::-1], brief=len(rows))


_ROWS = "Each row of the table beside the dense peak of the GPU that it names."
_TRAPS = "GPUs whose driver's name holds the name of a row: a lookup by substring gives them its peak."
