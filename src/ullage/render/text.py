"""A report as text for a terminal: the answer first, then tree and tables, then the notes. Colour is the caller's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

from ullage.audit.trust import Verdict
from ullage.errors import harmless
from ullage.metrics.telemetry import LABELS, Tree
from ullage.render.numbers import UNKNOWN, factor, hours, money, part_read, percent, span
from ullage.render.table import table
from ullage.reports.agreement import Agreement
from ullage.reports.fleet import FleetReport
from ullage.reports.groups import Group

SHOWN = 20  # rows of a table before "… n more"


def fleet(report: FleetReport, *, top: int = SHOWN, width: int | None = None) -> str:
    """Return a fleet report as plain text."""
    parts = [
        _headline(report, width or min(shutil.get_terminal_size((110, 24)).columns, 140)),
        _contrast(report),
        _chain(report),
        _groups(report, top),
        _ledger(report),
        _trust(report),
        _agreement(report.agreement),
        _noise(report),
        "\n".join(f"note: {harmless(note, 1000)}" for note in report.notes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(report: FleetReport, width: int) -> str:
    answer = f"OFU {percent(report.ofu, 1)} of {hours(report.gpu_hours)} GPU-hours ({percent(report.trusted_share, 1)} of them trusted)"
    if report.ofu is None:
        answer = f"OFU unknown for {hours(report.gpu_hours)} GPU-hours"
    answer = part_read(report.complete, report.read_until) + answer
    when = span(report.window)
    gap = width - len(answer) - len(when)
    return answer + " " * gap + when if gap >= 2 else f"{answer}\n{when}"


def _contrast(report: FleetReport) -> str:
    plural = "" if report.gpus == 1 else "s"
    words = [f"{round(report.gpus, 2):,.10g} GPU{plural}, {report.method} OFU"]
    if report.gpu_util is not None:
        words.append(f"'GPU utilization' says {percent(report.gpu_util)}")
    if report.ullage is not None:
        cost = f", {money(report.ullage_cost)} in money" if report.ullage_cost is not None else ""
        words.append(f"ullage {hours(report.ullage)} GPU-hours{cost}")
    return "; ".join(words)


def _chain(report: FleetReport) -> str:
    losses = report.tree.losses(report.counted_hours)
    if not losses:
        return ""
    rows = [[f.label, factor(f.value), _bar(f.value or 0.0), hours(lost)] for f, lost in losses]
    rows.append(["= OFU", factor(report.ofu), _bar(report.ofu or 0.0), hours(sum(lost for _, lost in losses))])
    return table(["where it goes", "factor", "", "ullage, GPU-hours"], rows)


def _bar(value: float, cells: int = 20) -> str:
    full = max(0, min(cells, round(value * cells)))
    return "█" * full + "·" * (cells - full)


def _groups(report: FleetReport, top: int) -> str:
    columns = _columns(report)
    head = [report.by, "GPUs", "GPU-hours", *(label for _, label in columns), "OFU", "ullage, GPU-hours"]
    priced = any(g.cost is not None for g in report.groups)
    rows = [_group(g, columns, priced) for g in report.groups[:top]]
    more = f"\n… {len(report.groups) - top:,} more; --top shows them" if len(report.groups) > top else ""
    return table([*head, "cost"] if priced else head, rows) + more if rows else ""


def _columns(report: FleetReport) -> list[tuple[str, str]]:
    """Return the factors that at least one group has, merged ones among them, in the order of the chain."""
    seen = {f.name: f.label for g in report.groups for f in g.tree.factors if f.value is not None}
    order = list(LABELS)
    return sorted(seen.items(), key=lambda item: (order.index(item[0].split("_x_")[0]), len(item[0])))


def _group(row: Group, columns: Sequence[tuple[str, str]], priced: bool) -> list[str]:
    cells = [harmless(row.key, 40), f"{row.gpus:,}", hours(row.gpu_hours)]
    cells += [factor(_value(row.tree, name)) for name, _ in columns]
    cells += [factor(row.ofu), hours(row.ullage)]
    return [*cells, money(row.cost)] if priced else cells


def _value(tree: Tree, name: str) -> float | None:
    return next((f.value for f in tree.factors if f.name == name), None)


def _ledger(report: FleetReport) -> str:
    names = {
        "job": "job",
        "shared": "shared",
        "held_idle": "held but idle",
        "free": "free",
        "not_sliced": "not sliced",
        "unknown": "unknown",
        "total": "total",
    }
    total = report.ledger["total"]
    shown = [(owner, time) for owner, time in report.ledger.items() if time or owner != "not_sliced"]  # few fleets slice
    rows = [[names.get(o, o), hours(h), percent(h / total, 1) if total else UNKNOWN] for o, h in shown]
    return table(["whose GPU-hours", "GPU-hours", "share"], rows)


def _trust(report: FleetReport) -> str:
    if set(report.verdicts) <= {"ok"} and not report.findings:
        series = sum(count for count, _ in report.verdicts.values())
        return "trust: the one series is ok" if series == 1 else f"trust: all {series:,} series ok"
    rows = [[name, f"{count:,}", hours(time)] for name, (count, time) in report.verdicts.items()]
    return table(["trust", "series", "GPU-hours"], rows) + "\n" + "\n".join(_findings(report))


def _findings(report: FleetReport) -> Iterator[str]:
    told: dict[str, int] = {}
    for finding in report.findings:
        told[finding.verdict] = told.get(finding.verdict, 0) + 1
        if told[finding.verdict] <= 2:
            mark = "" if finding.trusted else ", left out"
            yield f"  {harmless(finding.gpu, 48)}{_place(finding)}: {finding.verdict}{mark} ({harmless(finding.evidence)})"


def _place(finding: Verdict) -> str:
    return f" ({harmless(finding.place)})" if finding.place else ""


def _spread(mean: float, deviation: float | None) -> str:
    return f"{mean * 100:.1f}{'' if deviation is None else f' ± {deviation * 100:.1f}'}"  # one job has no spread


def _agreement(found: Agreement | None) -> str:
    if found is None:
        return ""
    r = "" if found.pearson is None else f", Pearson r {found.pearson:.2f}"
    plural = "" if len(found.jobs) == 1 else "s"
    head = (
        f"OFU beside reported MFU, {len(found.jobs):,} job{plural}: MFU {percent(found.mfu, 1)}, OFU {percent(found.ofu, 1)}, "
        f"mean absolute error {found.error * 100:.1f} points{r}; "
        f"{percent(found.within_10, 1)} within 10 points, {percent(found.above_20, 1)} above 20"
    )
    rows = [
        [
            f"{row.gpus:,}",
            f"{row.jobs:,}",
            _spread(row.mfu, row.mfu_deviation),
            _spread(row.error, row.error_deviation),
        ]
        for row in found.rows
    ]
    worst = [
        [harmless(c.job, 40), f"{c.gpus:,}", percent(c.mfu, 1), percent(c.ofu, 1), percent(c.relative_error)]
        for c in found.jobs[:5]
        if abs(c.mfu - c.ofu) > 0.05
    ]
    parts = [head, table(["GPUs", "jobs", "MFU, %", "|MFU − OFU|, points"], rows, left=0)]
    if worst:
        parts.append(table(["furthest apart", "GPUs", "MFU", "OFU", "(MFU − OFU)/OFU"], worst))
    return "\n\n".join(parts)


def _noise(report: FleetReport) -> str:
    if not report.noise:
        return ""
    rows = [[f"{n.interval:g} s", f"{n.phases}", f"{n.mean_deviation * 100:.3f}", f"{n.bound * 100:.3f}"] for n in report.noise]
    return table(["clock sampled every", "phases", "mean deviation, points", "95 % below"], rows)
