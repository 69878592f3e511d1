"""What a replay of a run says, and its critical path: as tables for a terminal and a page, and as plain data for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ullage.errors import harmless
from ullage.render.trace_code import Table
from ullage.reports.trace import TraceReport
from ullage.reports.what_if import Speedup, WhatIf
from ullage.views.numbers import UNKNOWN, percent
from ullage.views.table import table
from ullage.views.times import seconds

CHANGES = {
    "no_late_ranks": "no rank came late",
    "no_communication": "communication took no time",
    "launches_in_graphs": "launches were in graphs",
}
TIMES = ("elapsed", "time", "waited", "least", "likely", "most")  # ns
KINDS = {
    "kernel": "kernel",
    "collective": "collective",
    "copy": "copy",
    "launch": "call that launches",
    "wait": "call that waits, after it",
    "call": "other call",
    "host": "host between calls",
    "talk": "host in communication",
    "latency": "from launch to begin",
    "unexplained": "not explained",
}


def text(report: TraceReport, *, top: int) -> str:
    """Return the tables and what must be known of them; "" where no replay was asked for."""
    found = report.what_if
    if found is None:
        return ""
    parts = []
    for number, part in enumerate(tables(found, top=top, wide=60)):
        cells = [[shown for shown, _ in row] for row in part.rows]
        more = len(found.path.rows) - top if number == 1 else 0
        lines = [table([part.title, *part.head[1:]], cells, left=part.words)]
        lines += [f"… {more:,} more; --top shows them"] if more > 0 else []
        parts.append("\n".join([*lines, *(said(found) if not number else [])]))
    return "\n\n".join(parts)


def tables(found: WhatIf, *, top: int, wide: int) -> list[Table]:
    """Return the answers, the critical path by name (cut to `wide` characters), and by rank where ranks wait for one another
    (it may lie on a single one, which then is the slow one)."""
    path, whole = found.path, found.path.time or 1
    names = [
        [
            (harmless(row.name, wide) or "–", None),
            (KINDS[row.kind], None),
            (f"{row.count:,}", row.count),
            (seconds(row.time), row.time),
            (percent(row.time / whole, 1), row.time / whole),
        ]
        for row in path.rows[:top]
    ]
    ranks = [
        [
            (row.label, None),
            (seconds(row.time), row.time),
            (percent(row.time / whole, 1), row.time / whole),
            (f"{row.awaited:,}", row.awaited),
            (seconds(row.waited), row.waited),
        ]
        for row in path.ranks
    ]
    answers = Table("what if", ("what if", "times as fast", "at least", "at most", "time"), [_speedup(s) for s in found.speedups])
    by_name = Table("critical path", ("name", "kind", "count", "time", "share"), names, words=2)
    by_rank = Table("critical path by rank", ("rank", "time", "share", "path came to it", "others waited then"), ranks)
    return [answers, by_name, *([by_rank] if len(ranks) > 1 or found.collectives else [])]


def _speedup(row: Speedup) -> list[tuple[str, float | None]]:
    factors = [(UNKNOWN if value is None else f"{value:.2f}", value) for value in (row.factor, row.low, row.high)]
    return [(CHANGES[row.change], None), *factors, (seconds(row.time.likely), row.time.likely)]


def said(found: WhatIf) -> list[str]:
    """Return, a line each, what was replayed, how much of it no wait explains, and what else there is to know."""
    what = f"{found.operations:,} operations, {found.calls:,} calls, {found.collectives:,} collectives"
    head = (
        f"replayed {what} over {seconds(found.elapsed)}; without delays that no wait explains the replay is off by {percent(found.off, 1)}"
    )
    inferred = f"; {found.inferred:,} waits for events are inferred" if found.inferred else ""
    return [head + inferred, *found.notes]


def record(found: WhatIf) -> dict[str, Any]:
    """Return the answers and the path as plain data, times in ns; the rows of the path, of its kinds and of its ranks add up to all."""
    plain: dict[str, Any] = _in_ns(asdict(found) | {"path": asdict(found.path)})
    plain["path"]["kinds"] = [{"kind": kind, "time_ns": time} for kind, time in found.path.kinds.items()]
    return plain


def _in_ns(value: Any) -> Any:
    """Return plain data in which the name of each time says its unit."""
    if isinstance(value, dict):
        return {f"{key}_ns" if key in TIMES and isinstance(one, int | None) else key: _in_ns(one) for key, one in value.items()}
    return [_in_ns(one) for one in value] if isinstance(value, list | tuple) else value
