"""What ranks were fed, and what a token cost them, as tables for a terminal and for a page."""

from __future__ import annotations

from ullage.errors import harmless
from ullage.render.trace_code import Table
from ullage.reports.sequences import FedRank, Sequences, verdict
from ullage.reports.trace import TraceReport
from ullage.views.numbers import factor
from ullage.views.table import table
from ullage.views.times import seconds

_HEAD = ("rank", "tokens", "of median", "kernel time", "per token", "of median", "finding")


def text(report: TraceReport, *, top: int) -> str:
    """Return the table and what it comes to; "" where tokens are not known of two ranks or more."""
    if report.sequences is None:
        return ""
    part, more = ranks(report, top=top, wide=40), len(report.sequences.ranks) - top
    cells = [[shown for shown, _ in row] for row in part.rows]
    lines = [table([part.title, *part.head[1:]], cells), *([f"… {more:,} more; --top shows them"] if more > 0 else [])]
    return "\n".join([*lines, said(report.sequences)])


def ranks(report: TraceReport, *, top: int, wide: int) -> Table:
    """Return a row for each rank, in their order; those with a finding first."""
    assert report.sequences is not None
    rows = sorted(report.sequences.ranks, key=lambda row: not row.finding)
    title = "cost per token" + (f", of {report.tables_of}" if report.tables_of else "")
    return Table(title, _HEAD, [_row(row, wide) for row in rows[:top]])


def _row(row: FedRank, wide: int) -> list[tuple[str, float | None]]:
    return [
        (harmless(row.label, wide), None),
        (f"{row.tokens:,}", row.tokens),
        (factor(row.relative_tokens), row.relative_tokens),
        (seconds(row.time), row.time),
        (seconds(round(row.per_token * 1e9)), row.per_token),
        (factor(row.relative_cost), row.relative_cost),
        (row.finding, None),
    ]


def said(found: Sequences) -> str:
    """Return in a line how unequally ranks compute, and whether unequal sequences are why."""
    where = f"in {found.steps:,} {'step' if found.steps == 1 else 'steps'}" if found.steps else "in all"
    times = f"{factor(found.imbalance)} times as long as the mean one, {factor(found.at_equal_tokens)} at equal tokens"
    why = verdict(found)
    return f"{where} the longest rank computes {times}{f': {why}' if why else ''}"
