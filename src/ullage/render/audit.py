"""The audit of a reported MFU as text and as plain data for JSON."""

from __future__ import annotations

import math
from typing import Any

from ullage.audit.mfu import Explanation, Finding
from ullage.errors import harmless
from ullage.reports.audit import AuditReport
from ullage.views.numbers import percent
from ullage.views.table import table


def text(report: AuditReport) -> str:
    """Return the finding as text: the verdict first, then the explanations, the likeliest first, then what would decide."""
    parts = [_verdict(report), _explanations(report), _deciding(report), "\n".join(f"note: {harmless(n, 1000)}" for n in report.notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def record(report: AuditReport) -> dict[str, Any]:
    """Return the finding as plain data: ratios in [0, 1], factors on the reported MFU."""
    return {
        "architecture": report.architecture,
        "convention": report.convention,
        **finding(report.finding),
        "considered": {e.mistake.name: e.low if e.low == e.high else [e.low, e.high] for e in report.finding.considered},
        "notes": list(report.notes),
    }


def finding(found: Finding) -> dict[str, Any]:
    """Return one finding as plain data."""
    return {
        "reported": found.reported,
        "ofu": found.ofu,
        "relative_error": found.ratio - 1,
        "expected": list(found.expected),
        "agrees": found.agrees,
        "flagged": found.flagged,
        "explanations": [_explained(e) for e in found.explanations],
        "far_fetched": found.far_fetched,
    }


def _explained(explanation: Explanation) -> dict[str, Any]:
    return {
        "mistakes": [
            {"name": m.name, "says": m.says, "factor": factor, "circumstance": m.circumstance, "decided_by": m.decides}
            for m, factor in explanation.mistakes
        ],
        "factor": explanation.factor,
        "corrected_mfu": explanation.corrected,
        "beside_ofu": explanation.comparable,
    }


def _verdict(report: AuditReport) -> str:
    finding = report.finding
    low, high = finding.expected
    says = f"reported MFU {percent(finding.reported, 2)}, OFU {percent(finding.ofu, 2)}: {percent(finding.ratio - 1, 1)} apart; "
    says += f"OFU allows {percent(low, 1)} to {percent(high, 1)}"
    if finding.agrees:
        return f"nothing to explain: {says}"
    if not finding.explanations:
        return f"nothing in the list explains it: {says}\n{_tried(finding)}"
    best = finding.explanations[0]
    head = "the reported MFU is wrong" if best.wrong else "both may be right"
    return f"{head}: {says}\nlikeliest: {'; and '.join(m.says for m, _ in best.mistakes)}\n{_stands(best)}"


def _tried(finding: Finding) -> str:
    tried = f"{len(finding.considered)} mistakes and circumstances were tried, alone, in pairs and in threes"
    if not finding.far_fetched:
        return tried
    sets = "set fits" if finding.far_fetched == 1 else "sets fit"
    return f"{tried}; {finding.far_fetched} {sets}, but a mistake that is not in the list is likelier"


def _stands(best: Explanation) -> str:
    """Say which MFU stands, and what lies beside OFU where a circumstance sets them apart."""
    stands = f"corrected MFU {percent(best.corrected, 2)}" if best.wrong else f"MFU {percent(best.corrected, 2)} stands"
    if math.isclose(best.corrected, best.comparable):
        return stands
    return f"{stands}; what is executed, which OFU sees, comes to {percent(best.comparable, 2)}"


def _explanations(report: AuditReport) -> str:
    if not report.finding.explanations:
        return ""
    rows = [
        [
            " + ".join(f"{m.name} ({factor:.3f})" for m, factor in e.mistakes),
            f"{e.factor:.3f}",
            percent(e.corrected, 2),
            percent(e.comparable, 2),
        ]
        for e in report.finding.explanations
    ]
    return table(["what fits, with its factor", "together", "corrected MFU", "beside OFU"], rows)


def _deciding(report: AuditReport) -> str:
    explanations = report.finding.explanations
    if len(explanations) < 2:
        return ""
    asked = dict.fromkeys(m.decides for e in explanations for m, _ in e.mistakes)
    return "what would tell them apart:\n" + "\n".join(f"  {what}" for what in asked)
