"""The audit of a FLOPs function as text and as plain data for JSON."""

from __future__ import annotations

from typing import Any

from ullage.audit.counter import Compared
from ullage.errors import harmless
from ullage.reports.counter import CounterReport
from ullage.views.table import table

_NOTES = (
    "theirs over ours: training FLOPs, three times a forward pass; attention causal where it is, windows too, or all of it (full)",
    "right is within a thousandth of one of the two; ≈ marks candidates: mistakes that fit within a thousandth, not a millionth",
)


def text(report: CounterReport) -> str:
    """Return the verdict, a row a feature, and how to read it."""
    rows = [[row.example.feature, row.example.name, _ratio(row.ratio), _ratio(row.full_ratio), _says(row)] for row in report.rows]
    head = ["feature", "model", "causal", "full", "what it does"]
    lines = table(head[:4], [r[:4] for r in rows], left=2).split("\n")
    told = "\n".join(f"{line}  {says}" for line, says in zip(lines, ["what it does", *(r[4] for r in rows)], strict=True))
    notes = "\n".join(f"note: {note}" for note in _NOTES)
    return f"{_verdict(report)}\n\n{told}\n\n{notes}\n"


def record(report: CounterReport) -> dict[str, Any]:
    """Return the audit as plain data."""
    return {
        "target": report.target,
        "version": report.version,
        "right": report.right,
        "cases": len(report.rows),
        "without_a_number": report.silent,
        "rows": [_row(row) for row in report.rows],
    }


def _row(row: Compared) -> dict[str, Any]:
    return {
        "feature": row.example.feature,
        "model": row.example.name,
        "seqlens": list(row.example.seqlens),
        "flops": row.told.flops,
        "failed": row.told.failed or None,
        "causal": row.causal,
        "full": row.full,
        "ratio": row.ratio,
        "ratio_full": row.full_ratio,
        "right": row.agrees,
        "mistakes": [mistake.name for mistake in row.explained],
        "exact": row.exact,
    }


def _verdict(report: CounterReport) -> str:
    name = harmless(report.version or report.target, 100)
    worst = [row.ratio for row in report.rows if row.ratio is not None and not row.agrees]
    verdict = f"{name} is right on {report.right} of {len(report.rows)} cases"
    if worst:
        verdict += f"; the others are {min(worst):.3f} to {max(worst):.3f} of the truth"
    return verdict + (f", {report.silent} got no number" if report.silent else "")


def _ratio(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.4f}"


def _says(row: Compared) -> str:
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
