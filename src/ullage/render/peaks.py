"""The audit of a table of peaks as text and as plain data for JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ullage.audit.peaks import MEANINGS, SOUND, Judgement
from ullage.errors import harmless
from ullage.reports.peaks import PeaksReport
from ullage.views.numbers import UNKNOWN
from ullage.views.table import table


def text(report: PeaksReport) -> str:
    """Return the audit as text: how many rows are wrong, the rows as they came, what a lookup by substring catches, the notes."""
    parts = [_verdict(report), _rows(report), _traps(report), "\n".join(f"note: {note}" for note in report.notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def record(report: PeaksReport) -> dict[str, Any]:
    """Return the audit as plain data: values in FLOP/s, None for a value that is no finite number."""
    return {
        "wrong": len(report.wrong),
        "precision": report.precision,
        "rows": [
            {
                "name": judged.row.name,
                "where": judged.row.where,
                "precision": judged.precision,
                "value": judged.value,
                "right": judged.right,
                "verdict": judged.kind,
                "wrong": judged.wrong,
                "mfu_factor": judged.factor,
                "of": list(judged.of),
                "also_matches": [{"gpu": trap.gpu, "peak": trap.peak} for trap in judged.traps],
            }
            for judged in report.rows
        ],
        "notes": list(report.notes),
    }


def _verdict(report: PeaksReport) -> str:
    rows = len(report.rows)
    plural = "" if rows == 1 else "s"
    if not report.wrong:
        sound = sum(judged.kind == "right" for judged in report.rows)
        return f"nothing wrong in {rows:,} row{plural}: {sound:,} right, {rows - sound:,} not known"
    counts = Counter(judged.kind for judged in report.wrong if judged.kind not in SOUND)
    caught = sum(bool(judged.traps) for judged in report.wrong)
    said = [f"{count:,} {kind}" for kind, count in counts.most_common()] + ([f"{caught:,} that match other GPUs"] if caught else [])
    return f"{len(report.wrong):,} of {rows:,} row{plural} wrong: {', '.join(said)}"


def _rows(report: PeaksReport) -> str:
    rows = [
        [
            harmless(judged.row.name, 40),
            judged.precision,
            judged.kind,
            _tera(judged.value),
            _tera(judged.right),
            UNKNOWN if judged.factor is None or judged.kind == "right" else f"{judged.factor:.3f}",
            _says(judged),
        ]
        for judged in report.rows
    ]
    return _with_words(["name", "precision", "verdict", "TFLOP/s", "right", "MFU ×", "what it is"], rows)


def _with_words(head: list[str], rows: list[list[str]]) -> str:
    """Return a table whose last column is words, to the left."""
    width = max(len(row[-1]) for row in [head, *rows])
    return table([*head[:-1], head[-1].ljust(width)], [[*row[:-1], row[-1].ljust(width)] for row in rows], left=3)


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


def _traps(report: PeaksReport) -> str:
    rows = {
        (judged.row.name, trap.gpu): [harmless(judged.row.name, 40), trap.gpu, judged.precision, _tera(judged.value), _tera(trap.peak)]
        for judged in reversed(report.rows)
        for trap in judged.traps
    }
    head = ["name", "also matches", "precision", "gives it, TFLOP/s", "its own"]
    return table(head, list(rows.values())[::-1], left=3) if rows else ""


def _tera(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value / 1e12:,.4g}" if value < 1e15 else f"{value / 1e12:,.0f}"
