"""The drift check as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ullage.errors import harmless
from ullage.render.bench_words import shown, unit, word
from ullage.reports.drift import DriftReport, Moved
from ullage.views.numbers import UNKNOWN, percent
from ullage.views.table import table

STEADY = 5  # rows that are shown where nothing moved


def text(report: DriftReport) -> str:
    """Return what moved, furthest first, and of what it speaks; where nothing did, what moved most."""
    compared, moved = _compared(report), report.moved
    counted = f"{len(moved):,} of {compared:,} numbers" if moved else f"none of {compared:,} numbers"
    head = f"{harmless(report.gpu, 80)}: {counted} moved by more than {percent(report.limit)} since {harmless(report.before[:10], 10)}"
    rows = moved or [row for row in report.rows if row.change is not None][:STEADY]
    first, *lines = table(["bench", "case", "", "before", "now", "change"], [_row(row) for row in rows], left=3).splitlines()
    body = "\n".join([f"{first}  speaks of", *(f"{line}  {row.cause}" for line, row in zip(lines, rows, strict=True))])
    notes = [f"note: {harmless(note, 300)}" for note in report.notes]
    return "\n".join([head, "", body, *(["", *notes] if notes else [])]) + "\n"


def _compared(report: DriftReport) -> int:
    return sum(1 for row in report.rows if row.cause != "not compared")


def _row(row: Moved) -> list[str]:
    change = UNKNOWN if row.change is None else f"{row.change * 100:+.1f} %"
    case = " ".join(filter(None, (word(label, name) for name, label in row.labels.items())))
    in_unit = unit(row.quantity, [value for value in (row.before, row.now) if value is not None])
    return [row.bench, case, in_unit.name, shown(row.before, in_unit), shown(row.now, in_unit), change]


def record(report: DriftReport) -> dict[str, Any]:
    """Return the report for JSON; `ok` tells whether nothing moved, `compared` and `moved` how many numbers were looked at and did."""
    return {"ok": not report.moved, "compared": _compared(report), "moved": len(report.moved), **asdict(report)}
