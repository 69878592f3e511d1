"""A FLOP ledger as text and as plain data for JSON."""

from __future__ import annotations

from typing import Any

from ullage.errors import harmless
from ullage.reports.flops import FlopsReport
from ullage.views.numbers import flops as counted
from ullage.views.numbers import percent
from ullage.views.table import table


def text(report: FlopsReport, *, by: str = "group") -> str:
    """Return the ledger as text: the answer first, then FLOPs by group (or by name of the work), then the notes."""
    parts = [_headline(report), _table(report, by), "\n".join(f"note: {harmless(note, 1000)}" for note in _notes(report))]
    return "\n\n".join(part for part in parts if part) + "\n"


def record(report: FlopsReport) -> dict[str, Any]:
    """Return the ledger as plain data: FLOPs as integers, ratios in [0, 1], FLOP/s; what is not known is null."""
    ledger = report.ledger
    data: dict[str, Any] = {
        "architecture": ledger.architecture,
        "family": ledger.family,
        "forward": ledger.forward,
        "backward": ledger.backward,
        "training": ledger.training,
        "executed": ledger.executed,
        "convention": ledger.convention,
        "status": ledger.status,
        "counted": dict(ledger.counted),
        "uncertainty": ledger.uncertainty,
        "model_efficiency": report.model_efficiency,
        "tokens": report.step.tokens,
        "per_token": ledger.training // report.step.tokens if report.step.tokens else None,
        "groups": [{"group": group, **parts, "share": share} for group, parts, share in _groups(report, "group")],
        "terms": [term.record() for term in ledger.terms],
        "notes": list(_notes(report)),
    }
    if report.step_time is not None:
        data |= {
            "step_time": report.step_time,
            "gpus": report.gpus,
            "tflops_per_gpu": report.tflops_per_gpu,
            "mfu": report.mfu,
            "hfu": report.hfu,
            "expected_ofu": report.expected_ofu,
        }
    if report.peak is not None:
        data |= {"peak": report.peak, "peak_source": report.peak_source}
    return data


def _headline(report: FlopsReport) -> str:
    ledger = report.ledger
    lines = []
    if report.mfu is not None:
        peak = f"{report.gpus:,} × {(report.peak or 0) / 1e12:,.1f} TFLOP/s ({report.peak_source})"
        lines.append(
            f"MFU {percent(report.mfu, 1)}, HFU {percent(report.hfu, 1)} of {peak}; OFU to expect {percent(report.expected_ofu, 1)}"
        )
    if report.tflops_per_gpu is not None:
        lines.append(
            f"{report.tflops_per_gpu:,.1f} TFLOP/s per GPU: {counted(ledger.training)} in {report.step_time:g} s on {report.gpus:,}"
        )
    kind = f"{counted(ledger.forward)} forward"
    if ledger.backward:
        kind = f"{counted(ledger.training)} a step: {kind}, {counted(ledger.backward)} backward"
    how = f"{ledger.convention} attention" if ledger.convention in ("causal", "full") else f"counted as {ledger.convention} does"
    lines.append(f"{kind}; {ledger.architecture}, {how}, {ledger.status}" + _per_token(report) + _runs(report))
    if ledger.executed != ledger.training:
        lines.append(f"{counted(ledger.executed)} executed, {percent(report.model_efficiency, 1)} of them for the model")
    return "\n".join(lines)


def _per_token(report: FlopsReport) -> str:
    tokens = report.step.tokens
    return f"; {counted(report.ledger.training // tokens)} a token of {tokens:,}" if tokens else ""


def _runs(report: FlopsReport) -> str:
    runs = report.step.repeats
    return f"; the network runs {runs:,} times" if runs > 1 else ""


_COLUMNS = {"forward": ("forward",), "backward": ("dgrad", "wgrad"), "recompute": ("recompute",)}


def _groups(report: FlopsReport, by: str) -> list[tuple[str, dict[str, int], float]]:
    """Return the FLOPs of each group (or name) of work by pass, and its share of all that is executed."""
    ledger = report.ledger
    sums = ledger.by(by, "pass_")
    columns = {c: passes for c, passes in _COLUMNS.items() if any(p in passes for _, p in sums)}
    found = []
    for key in dict.fromkeys(getattr(term, by) for term in ledger.terms):
        parts = {column: sum(sums.get((key, p), 0) for p in passes) for column, passes in columns.items()}
        found.append((key, parts, sum(parts.values()) / (ledger.executed or 1)))
    return found


def _table(report: FlopsReport, by: str) -> str:
    groups = _groups(report, by)
    rows = [[harmless(key, 60), *(counted(p) if p else "" for p in parts.values()), percent(share, 1)] for key, parts, share in groups]
    return table([by, *groups[0][1], "share"], rows) if rows else ""


def _notes(report: FlopsReport) -> list[str]:
    ledger = report.ledger
    notes = [*report.notes, *ledger.notes]
    if ledger.uncertainty:
        share = percent(ledger.uncertainty, 1)
        notes.append(f"scans are counted as the chunked algorithm does them; as a recurrence the model needs {share} less")
    if ledger.counted.get("backward") == "exact":
        notes.append("backward is counted exactly: no gradient flows into data or what is frozen")
    return notes
