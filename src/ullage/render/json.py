"""A report as JSON: stable keys, ratios in [0, 1], GPU-hours, ISO 8601 times in UTC, null for what is not known."""

from __future__ import annotations

import datetime
import math
from typing import Any

from ullage.reports.fleet.agreement import Agreement
from ullage.reports.fleet.fleet import FleetReport
from ullage.reports.fleet.groups import Group
from ullage.views.findings import finding_record


def fleet(report: FleetReport) -> dict[str, Any]:
    """Return a fleet report as plain data, ready for JSON."""
    data: dict[str, Any] = _finite(
        {
            "complete": report.complete,
            "read_until": None if report.read_until is None else iso(report.read_until),
            "ofu": report.ofu,
            "ofu_all": report.ofu_all,
            "method": report.method,
            "ofu_bounds": None if report.ofu_bounds is None else list(report.ofu_bounds),
            "exact_share": report.exact_share,
            "gpus": report.gpus,
            "gpu_hours": report.gpu_hours,
            "trusted_share": report.trusted_share,
            "window": {
                "start": iso(report.window[0]),
                "end": iso(report.window[1]),
                "hours": (report.window[1] - report.window[0]) / 3_600_000,
            },
            "gpu_util": report.gpu_util,
            "tensor_active": report.tensor_active,
            "power": report.power,
            "tree": report.tree.as_dict(),
            "losses": [{"name": f.name, "label": f.label, "gpu_hours": lost} for f, lost in report.tree.losses(report.counted_hours)],
            "ledger": report.ledger,
            "ledger_shares": {
                owner: hours / total if (total := report.ledger["total"]) else None for owner, hours in report.ledger.items()
            },
            "ullage": {"gpu_hours": report.ullage, "cost": report.ullage_cost, "idle_cost": report.idle_cost, "fleet_cost": report.cost},
            "by": report.by,
            "groups": [group(g) for g in report.groups],
            "models": [group(g) for g in report.models],
            "course": [{"time": iso(p.time), "ofu": p.ofu, "gpu_util": p.gpu_util, "gpu_hours": p.gpu_hours} for p in report.course],
            "trust": {
                "verdicts": {name: {"series": count, "gpu_hours": hours} for name, (count, hours) in report.verdicts.items()},
                "findings": [
                    {
                        "gpu": v.gpu,
                        "mig": v.mig,
                        "host": v.host,
                        "index": v.index,
                        "verdict": v.verdict,
                        "trusted": v.trusted,
                        "evidence": v.evidence,
                    }
                    | {"gpu_hours": v.gpu_hours, "spans": [{"start": iso(start), "end": iso(end)} for start, end in v.spans if start]}
                    for v in report.doubtful_series
                ],
            },
            "findings": [finding_record(finding) for finding in report.findings],
            "agreement": None if report.agreement is None else agreement(report.agreement),
            "noise": [
                {"interval": n.interval, "phases": n.phases, "mean_deviation": n.mean_deviation, "bound": n.bound} for n in report.noise
            ],
            "command": report.command,
            "notes": report.notes,
        }
    )
    return data


def group(row: Group) -> dict[str, Any]:
    """Return one group as plain data."""
    return {
        "key": row.key,
        "ofu": row.ofu,
        "method": row.method,
        "exact_share": row.exact_share,
        "gpus": row.gpus,
        "gpu_hours": row.gpu_hours,
        "trusted_share": row.trusted_share,
        "ullage_gpu_hours": row.ullage,
        "cost": row.cost,
        "tree": row.tree.as_dict(),
    }


def agreement(found: Agreement) -> dict[str, Any]:
    """Return the comparison with reported MFU as plain data."""
    return {
        "pearson": found.pearson,
        "jobs": len(found.jobs),
        "mfu": found.mfu,
        "ofu": found.ofu,
        "mean_absolute_error": found.error,
        "within_10_points": found.within_10,
        "above_20_points": found.above_20,
        "by_gpus": [
            {
                "gpus": r.gpus,
                "jobs": r.jobs,
                "mfu": r.mfu,
                "mfu_deviation": r.mfu_deviation,
                "absolute_error": r.error,
                "absolute_error_deviation": r.error_deviation,
            }
            for r in found.rows
        ],
        "most_divergent": [
            {"job": c.job, "gpus": c.gpus, "mfu": c.mfu, "ofu": c.ofu, "relative_error": c.relative_error} for c in found.jobs[:20]
        ],
        "contradictions": [{"job": c.job, "counted": c.counted, "other": c.other} for c in found.contradictions],
    }


def iso(milliseconds: int) -> str:
    """Return a time as ISO 8601 in UTC.

    >>> iso(1_786_363_200_000)
    '2026-08-10T12:00:00Z'
    """
    when = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    return when.isoformat(timespec="milliseconds" if milliseconds % 1000 else "seconds").replace("+00:00", "Z")


def _finite(value: Any) -> Any:
    # JSON has no NaN: what is not known is null
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
