"""Microbenchmark tables as text for a terminal and as JSON for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ullage.benches.quantities import UNITS as SI
from ullage.benches.result import record as result_record
from ullage.errors import harmless
from ullage.render import ceilings
from ullage.render.bench_grid import grid
from ullage.render.bench_words import NOT_YET, made_on, stamped, verdict
from ullage.reports.bench import BenchReport, Cell, Table
from ullage.reports.power_curve import PowerCost, power_cost
from ullage.views.numbers import percent

WIDTH = 120  # columns of text, where nobody says how wide the terminal is


def text(report: BenchReport, width: int = WIDTH) -> str:
    """Return the measured ceilings, then every table: what was measured with its share of the stated peak, and below it what the paper has
    for such a GPU.

    A table that is wider than `width` is continued below itself.
    """
    made, found = made_on(report.results), report.ceilings
    parts = ["\n".join([headline(report), *([made] if made else [])])]
    parts += [ceilings.text(found, report.chip)] if found is not None else []
    parts += [table_text(table, width) for table in report.tables]
    notes = "".join(f"note: {harmless(note, 600)}\n" for note in report.notes)
    return "\n\n".join(parts) + "\n" + (f"\n{notes}" if notes else "")


def headline(report: BenchReport) -> str:
    """Return the answer in a line: how near the best product of matrices and the memory come to what the maker states."""
    if report.gpu is None:
        return NOT_YET
    best = (("tensor peak", _best(report, "throughput")), ("memory bandwidth", _best(report, "bandwidth")))
    told = [f"{percent(share)} of the stated {name}" for name, share in best if share is not None]
    cases = _cases(report)
    counted = f"{cases['measured']:,} of {cases['all']:,} cases have a number"
    return f"{harmless(report.gpu, 80)}: {', '.join([*told, counted])}"


def _cases(report: BenchReport) -> dict[str, int]:
    rows = [row for result in report.results for row in result.rows]
    return {"measured": sum(1 for row in rows if row.values), "all": len(rows)}


def _best(report: BenchReport, quantity: str) -> float | None:
    shares = [cell.share for table in report.tables for cell in table.cells if cell.quantity == quantity and cell.share is not None]
    return max(shares, default=None)


def table_text(table: Table, width: int = WIDTH) -> str:
    """Return one table with its title and stamp, and why cases have no number."""
    member = table.member
    head = textwrap.wrap(f"{member.name}: {member.title} ({member.source})", width, subsequent_indent="  ")
    told = stamped(cell.stamp for cell in table.cells if cell.value is not None) or NOT_YET
    empty = "" if table.lines else "no published figures"
    return "\n".join([*head, *(part for part in (told, empty) if part), *grid(table, width), *problems(table)])


def problems(table: Table) -> Iterator[str]:
    """Yield why cases have no number, a line a reason."""
    for problem, count in table.problems.items():
        yield f"{verdict(problem)}: {count:,} {'case' if count == 1 else 'cases'}: {harmless(problem, 300)}"


def record(report: BenchReport) -> dict[str, Any]:
    """Return the report for JSON: `results` as they can be read back, `ceilings` as `--save` keeps them, what the power limit costs, and
    `tables` beside published figures and stated peaks."""
    return {
        "gpu": report.gpu,
        "cases": _cases(report),
        "results": [result_record(result) for result in report.results],
        "ceilings": ceilings.record(report.ceilings),
        "power_cost": _power_record(power_cost(report.results)),
        "tables": [_table_record(table) for table in report.tables],
        "notes": list(report.notes),
    }


def _power_record(cost: PowerCost | None) -> dict[str, Any] | None:
    return None if cost is None else {**asdict(cost), "lost": cost.lost, "share": cost.share, "held_back": cost.held_back}


def _table_record(table: Table) -> dict[str, Any]:
    layout = table.member.layout
    names = (*layout.rows, *layout.across)
    rows = [
        {"labels": dict(zip(names, (*line.labels, *column), strict=True)), **_cell_record(cell)}
        for line in table.lines
        for (column, _), cell in line.cells.items()
    ]
    member = table.member
    about = {"bench": member.name, "title": member.title, "summary": member.summary, "source": member.source}
    return about | {"nearest": table.nearest, "rows": rows}


def _cell_record(cell: Cell) -> dict[str, Any]:
    return {
        "quantity": cell.quantity,
        "unit": SI[cell.quantity],
        "value": None if cell.value is None else cell.value.value,
        "published": dict(cell.published),
        "stated_peak": cell.peak,
        "share_of_peak": cell.share,
        "stamp": None if cell.stamp is None else asdict(cell.stamp),
        "problem": cell.problem or None,
    }
