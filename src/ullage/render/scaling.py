"""Runs beside each other as text, in the form of the TALP paper's tables 1 to 3, and as plain data for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ullage.errors import harmless
from ullage.metrics.tree import Node
from ullage.reports.scaling import Block, Row, ScalingReport
from ullage.totals import RESOURCES, Resource
from ullage.views.numbers import UNKNOWN, factor
from ullage.views.times import seconds

NAME = 24  # characters of a run's name above its column


def text(report: ScalingReport) -> str:
    """Return the answer, the table, and the notes."""
    notes = "\n".join(f"note: {harmless(note, 1000)}" for note in report.notes)
    return "\n\n".join(part for part in (headline(report), table(report), notes) if part) + "\n"


def headline(report: ScalingReport) -> str:
    """Return how the runs scale, and in a second line what loses most, where that is known."""
    counts = [c.resources for c in report.columns]
    said = f"{len(counts):,} {'run' if len(counts) == 1 else 'runs'}"
    if all(counts):
        one, many = ("device", "devices") if all(c.devices for c in report.columns) else _hosts(report)
        ends = " to ".join(dict.fromkeys(f"{count:,}" for count in (counts[0], counts[-1])))
        said += f", {ends} {one if counts[-1] == 1 else many}"
    if report.kind:
        said = f"{report.kind} scaling over {said}"
    reached = next((row.values[-1] for block in report.blocks for row in block.rows if row.metric == "scaling_efficiency"), None)
    if reached is not None:
        said += f": scaling efficiency {factor(reached)}"
    return f"{said}\n{_fall(report)}" if report.fall is not None else said


def _hosts(report: ScalingReport) -> tuple[Resource, str]:
    """Return what the hosts' resources are, one and many: what more than processes they are in any run."""
    seen = {column.host for column in report.columns}
    one = next(resource for resource in reversed(RESOURCES) if resource in seen)
    return one, RESOURCES[one]


def _fall(report: ScalingReport) -> str:
    if report.fall is None:
        return ""
    root, worst = report.fall.root, report.fall.factor
    side = "device" if root.metric.startswith("device") else "host"
    falls = "" if root is worst else f", {lowered(worst.label)} falls most ({_course(worst, report.reference)})"
    return f"{side} {lowered(root.label)} {_course(root, report.reference)}{falls}"


def table(report: ScalingReport) -> str:
    """Return the table alone: a block for hosts, one for devices, then how they scale; a column a run."""
    names = _distinct([c.name for c in report.columns])
    lines: list[tuple[str, str, list[str]]] = [("Metrics" if report.unit == "run" else "", "", names), *_facts(report)]
    for block in report.blocks:
        labels = glyphs([row.depth for row in block.rows])
        for number, (row, branch) in enumerate(zip(block.rows, labels, strict=True)):
            lines.append((block.label if number == 0 else "", branch + row.label, [cell(node) for node in row.nodes]))
    first, second = (max(len(line[place]) for line in [("Metrics", ""), *lines]) + 2 for place in (0, 1))
    head = [] if report.unit == "run" else ["Metrics".ljust(first + second) + harmless(report.unit, NAME)]
    return "\n".join([*head, *_written(lines, first, second)])


def short(name: str, most: int = NAME) -> str:
    """Return a run's name made harmless and, if it is long, cut in its middle: both ends tell runs apart.

    >>> short("gpt-training-on-four-nodes.json", 16)
    'gpt-trai…es.json'
    """
    name = harmless(name, 1000)
    return name if len(name) <= most else f"{name[: most // 2]}…{name[len(name) - (most - most // 2 - 1) :]}"


def glyphs(depths: Sequence[int]) -> list[str]:
    """Return the lines that tie each row of a tree to its parent, from the depths of its rows, parents first.

    >>> glyphs([0, 1, 2, 2, 1])
    ['', '├─ ', '│  ├─ ', '│  └─ ', '└─ ']
    """
    ties = []
    for row, depth in enumerate(depths):
        tie = ""
        for level in range(1, depth + 1):
            later = next((d for d in depths[row + 1 :] if d <= level), 0)
            goes_on = later == level
            tie += ("├─ " if goes_on else "└─ ") if level == depth else ("│  " if goes_on else "   ")
        ties.append(tie)
    return ties


def cell(node: Node | None) -> str:
    """Return a value with two digits, or the bounds between which it lies.

    >>> cell(Node("a", "A", 0.5, 0.5, 0.5)), cell(Node("a", "A", 0.5, 0.05, 0.95)), cell(None)
    ('0.50', '0.05–0.95', '–')
    """
    if node is None or node.value is None:
        return UNKNOWN
    low, high = factor(node.low), factor(node.high)
    return factor(node.value) if low == high else f"{low}–{high}"


def record(report: ScalingReport) -> dict[str, Any]:
    """Return the runs and the rows as plain data: ratios, times in s, None for what is not known."""
    return {
        "kind": report.kind,
        "kind_told_by": None if report.told is None else report.told.basis or None,
        "kind_exponent": None if report.told is None else report.told.exponent,
        "kind_sure": None if report.kind is None else report.told is None or report.told.sure,
        "reference": report.columns[report.reference].name,
        "runs": [
            {"name": c.name, "devices": c.devices, "processes": None, RESOURCES[c.host].lower(): c.processes}
            | {"elapsed_s": c.elapsed / 1e9 if c.elapsed else None}
            for c in report.columns
        ],
        "rows": [_row(block, row) for block in report.blocks for row in block.rows],
        "notes": list(report.notes),
    }


def _row(block: Block, row: Row) -> dict[str, Any]:
    return {
        "block": block.name,
        "metric": row.metric,
        "label": row.label,
        "depth": row.depth,
        "values": list(row.values),
        "low": [None if node is None else node.low for node in row.nodes],
        "high": [None if node is None else node.high for node in row.nodes],
    }


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names cut as short as they still differ, and at 100 characters in any case."""
    for most in (NAME, 2 * NAME):
        cut = [short(name, most) for name in names]
        if len(set(cut)) == len(set(names)):
            return cut
    return [short(name, 100) for name in names]


def _facts(report: ScalingReport) -> Iterator[tuple[str, str, list[str]]]:
    if any(c.devices for c in report.columns):
        yield "Devices", "", [f"{c.devices:,}" if c.devices else UNKNOWN for c in report.columns]
    if any(c.processes for c in report.columns):
        many = _hosts(report)[1]
        yield f"{many[:1].upper()}{many[1:]}", "", [f"{c.processes:,}" if c.processes else UNKNOWN for c in report.columns]
    if any(c.elapsed for c in report.columns):
        yield "Elapsed", "", [seconds(c.elapsed or None) for c in report.columns]


def _written(lines: Sequence[tuple[str, str, list[str]]], first: int, second: int) -> Iterator[str]:
    widths = [max(len(cells[column]) for _, _, cells in lines) for column in range(len(lines[0][2]))]
    for title, label, cells in lines:
        values = "  ".join(value.rjust(wide) for value, wide in zip(cells, widths, strict=True))
        yield f"{title.ljust(first)}{label.ljust(second)}{values}".rstrip()


def _course(row: Row, reference: int) -> str:
    return " to ".join(
        factor(value) if value is None or value >= 0.1 else f"{value:.2g}" for value in (row.values[reference], row.values[-1])
    )


def lowered(label: str) -> str:
    """Return a label as it stands within a sentence.

    >>> lowered("Load balance"), lowered("MPI parallel efficiency")
    ('load balance', 'MPI parallel efficiency')
    """
    return label if label[:2].isupper() else label[:1].lower() + label[1:]
