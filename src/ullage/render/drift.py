"""The view of the drift check: what moved, furthest first, and of what it speaks."""

from __future__ import annotations

from typing import Annotated, Any

from ullage.benches.quantities import UNITS
from ullage.errors import harmless
from ullage.render.bench import BenchResultsDocument, declared_result
from ullage.render.bench_words import shown, unit, word
from ullage.reports.bench.drift import DriftBaseline, DriftReport, MovedNumber
from ullage.views.declared import Document, Made, Ratio, plain, plain_data
from ullage.views.notation import FIGURES, Notation
from ullage.views.numbers import percent
from ullage.views.view import Cell, Column, Headline, Section, Table, Value, View

STEADY = 5  # rows that are shown where nothing moved
CHANGE = Notation("ratio", lambda value: f"{value * 100:+.1f} %")


def view(report: DriftReport) -> View:
    """Return the answer as data; where nothing moved, what moved most."""
    compared, moved = _compared(report), report.moved
    counted = f"{len(moved):,} of {compared:,} numbers" if moved else f"none of {compared:,} numbers"
    rest = f" moved by more than {percent(report.limit)} since {harmless(report.before[:10], 10)}"
    rows = moved or [row for row in report.rows if row.change is not None][:STEADY]
    columns = [Column("bench"), Column("case"), Column("", key="unit"), Column("before", FIGURES), Column("now", FIGURES)]
    columns += [Column("change", CHANGE), Column("speaks of")]
    table = Table("moved", columns, [_row(row) for row in rows], brief=len(rows))
    return View(
        kind="bench-drift",
        subject="Drift of a GPU's microbenchmarks",
        headline=Headline(counted, rest, f"{harmless(report.gpu, 80)}: "),
        sections=[Section("moved", "What moved" if moved else "What moved most", [table], "Furthest first.")],
        notes=report.notes,
    )


def _compared(report: DriftReport) -> int:
    return sum(1 for row in report.rows if row.cause != "not compared")


def _row(row: MovedNumber) -> list[Value | Cell]:
    case = " ".join(filter(None, (word(label, name) for name, label in row.labels.items())))
    in_unit = unit(row.quantity, [value for value in (row.before, row.now) if value is not None])
    numbers = [Cell(value, shown(value, in_unit)) for value in (row.before, row.now)]
    return [row.bench, case, Cell(UNITS[row.quantity], in_unit.name), *numbers, row.change, row.cause]


def baseline_view(report: DriftBaseline) -> View:
    """Return that a baseline was made, and how to compare with it."""
    numbers = sum(len(row.values) for result in report.results for row in result.rows)
    gpu = report.results[0].gpu if report.results else ""
    return View(
        kind="bench-results",
        subject="Baseline of a GPU's microbenchmarks",
        headline=Headline(f"{numbers:,} numbers", f" are the baseline in {harmless(report.place, 200)}", f"{harmless(gpu, 80)}: "),
        notes=["`ullage bench drift --baseline FILE` compares the GPU with it"],
    )


def baseline_record(report: DriftBaseline) -> dict[str, Any]:
    """Return what was measured for JSON, as the file holds it."""
    return plain(BenchResultsDocument(results=[declared_result(result) for result in report.results]))


class DriftDocument(Document):
    """The answer of `ullage bench drift`: whether nothing moved, how many numbers were `compared` and how many `moved`."""

    ok: bool
    compared: int
    moved: Annotated[int, Made(len)]
    gpu: str
    before: str
    now: str
    limit: Ratio
    rows: list[MovedNumber]
    notes: list[str]


def record(report: DriftReport) -> dict[str, Any]:
    """Return the report for JSON."""
    return plain_data(DriftDocument, report, ok=not report.moved, compared=_compared(report))
