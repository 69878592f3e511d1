"""The audit of a fleet's reported MFUs as text and as plain data for JSON."""

from __future__ import annotations

from typing import Any

from ullage.errors import harmless
from ullage.render.audit import finding as finding_data
from ullage.render.json import iso
from ullage.reports.audit_fleet import Audited, FleetAudit
from ullage.views.numbers import UNKNOWN, part_read, percent
from ullage.views.table import table

_REASONS, _NAMED = 10, 3  # shown, of each
_UNEXPLAINED = "nothing in the list explains it"


def text(audit: FleetAudit) -> str:
    """Return the audit as text: how many are wrong, a line for each job whose MFU and OFU disagree, what was left out, the notes."""
    apart = [job for job in audit.jobs if job.verdict != "agrees"]
    rows = [_row(job) for job in apart]
    head = ["job", "name", "cause", "GPUs", "reported", "OFU", "corrected", "beside OFU"]
    parts = [part_read(audit.complete, audit.read_until) + _headline(audit), table(head, rows, left=3) if rows else "", _left_out(audit)]
    parts.append("\n".join(f"note: {harmless(note, 1000)}" for note in audit.notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def record(audit: FleetAudit) -> dict[str, Any]:
    """Return the audit as plain data: ratios in [0, 1], a member for each audited job, those furthest apart first."""
    return {
        "complete": audit.complete,
        "read_until": None if audit.read_until is None else iso(audit.read_until),
        "audited": len(audit.jobs),
        "wrong": len(audit.of("wrong")),
        "unexplained": len(audit.of("unexplained")),
        "explained": len(audit.of("explained")),
        "jobs": [
            {"job": job.job, "name": job.name, "gpus": job.gpus, "gpu": job.chip, "verdict": job.verdict} | finding_data(job.finding)
            for job in audit.jobs
        ],
        "left_out": [{"job": job, "reason": reason} for job, reason in audit.left_out],
        "notes": list(audit.notes),
    }


def _headline(audit: FleetAudit) -> str:
    if not audit.jobs:
        return "no reported MFU could be audited"
    wrong, unexplained, explained = (len(audit.of(v)) for v in ("wrong", "unexplained", "explained"))
    agreed = len(audit.of("agrees"))
    parts = [f"{wrong + unexplained:,} of {len(audit.jobs):,} reported MFUs {'is' if wrong + unexplained == 1 else 'are'} wrong"]
    if unexplained:
        parts.append(f"{unexplained:,} of them for no cause in the list")
    if explained:
        parts.append(f"{explained:,} {'differs' if explained == 1 else 'differ'} from OFU for a reason that makes neither wrong")
    return "; ".join([*parts, f"{agreed:,} {'agrees' if agreed == 1 else 'agree'} with OFU"])


def _row(job: Audited) -> list[str]:
    finding = job.finding
    best = finding.explanations[0] if finding.explanations else None
    return [
        harmless(job.job, 40),
        harmless(job.name, 40) if job.name else UNKNOWN,
        " + ".join(best.names) if best else _UNEXPLAINED,
        f"{job.gpus:,}",
        percent(finding.reported, 1),
        percent(finding.ofu, 1),
        percent(best.corrected if best else None, 1),
        percent(best.comparable if best else None, 1),
    ]


def _left_out(audit: FleetAudit) -> str:
    """Say what was left out, a line for each reason."""
    if not audit.left_out:
        return ""
    reasons: dict[str, list[str]] = {}
    for job, reason in audit.left_out:
        reasons.setdefault(reason, []).append(job)
    ranked = sorted(reasons.items(), key=lambda item: -len(item[1]))
    lines = [f"  {_counted(len(jobs))}: {harmless(reason, 200)} ({_listed(jobs)})" for reason, jobs in ranked[:_REASONS]]
    if ranked[_REASONS:]:
        rest = sum(len(jobs) for _, jobs in ranked[_REASONS:])
        lines.append(f"  {_counted(rest)} for {len(ranked) - _REASONS:,} more reasons; --json has them all")
    return "left out:\n" + "\n".join(lines)


def _counted(jobs: int) -> str:
    return f"{jobs:,} {'job' if jobs == 1 else 'jobs'}"


def _listed(jobs: list[str]) -> str:
    """Return a few of the jobs by name."""
    return ", ".join(harmless(job, 40) for job in jobs[:_NAMED]) + (", …" if jobs[_NAMED:] else "")
