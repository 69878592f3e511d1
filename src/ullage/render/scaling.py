"""Runs beside each other, in the form of the TALP paper's tables 1 to 3, and as plain data for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from ullage.errors import harmless
from ullage.metrics.tree import Node
from ullage.reports.trace.scaling import ScalingReport, ScalingRow, TreeRows
from ullage.totals import RESOURCES, Resource
from ullage.views.declared import At, Document, Made, Ratio, Seconds, Words, filled, plain_data
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form
from ullage.views.markup import Markup
from ullage.views.names import lowered
from ullage.views.notation import COUNT, FACTOR, TIME, Notation
from ullage.views.numbers import UNKNOWN, counted, factor
from ullage.views.view import Cell, Column, Headline, Picture, Section, Table, Value, View

NAME = 24  # characters of a run's name above its column


def view(report: ScalingReport) -> View:
    """Return the answer, what loses most, the table and its picture."""

    def picture(width: int) -> Markup:
        from ullage.render.svg.scaling import scaling

        return scaling(report, width=width, standalone=False)

    said, fall = headline(report), lost(report)
    return View(
        kind="trace-scaling",
        subject="Runs beside one another",
        headline=Headline(said[:1].upper() + said[1:]),
        lede=[f"{fall[:1].upper()}{fall[1:]}."] if fall else [],
        sections=[Section("runs", "Efficiencies and scalability", [Picture(picture), table(report)], _HOW)],
        notes=[harmless(note, 1000) for note in report.notes],
    )


def headline(report: ScalingReport) -> str:
    """Return how the runs scale."""
    counts = [c.resources for c in report.columns]
    said = counted(len(counts), "run")
    if all(counts):
        one, many = ("device", "devices") if all(c.devices for c in report.columns) else _hosts(report)
        ends = " to ".join(dict.fromkeys(f"{count:,}" for count in (counts[0], counts[-1])))
        said += f", {ends} {one if counts[-1] == 1 else many}"
    if report.kind:
        said = f"{report.kind} scaling over {said}"
    reached = next((row.values[-1] for block in report.blocks for row in block.rows if row.metric == "scaling_efficiency"), None)
    if reached is not None:
        said += f": scaling efficiency {factor(reached)}"
    return said


def _hosts(report: ScalingReport) -> tuple[Resource, str]:
    """Return what the hosts' resources are, one and many: what more than processes they are in any run."""
    seen = {column.host for column in report.columns}
    one = next(resource for resource in reversed(RESOURCES) if resource in seen)
    return one, RESOURCES[one]


def lost(report: ScalingReport) -> str:
    """Return what loses most; "" where that is not known."""
    if report.fall is None:
        return ""
    root, worst = report.fall.root, report.fall.factor
    side = "device" if root.metric.startswith("device") else "host"
    falls = "" if root is worst else f", {lowered(worst.label)} falls most ({_course(worst, report.reference)})"
    return f"{side} {lowered(root.label)} {_course(root, report.reference)}{falls}"


def table(report: ScalingReport) -> Table:
    """Return the table alone: a block for hosts, one for devices, then how they scale; a column a run."""
    columns = [Column("Metrics", key="block"), Column("" if report.unit == "run" else harmless(report.unit, NAME), key="metric")]
    columns += [Column(name, FACTOR) for name in _distinct([c.name for c in report.columns])]
    rows = [*_facts(report)]
    for block in report.blocks:
        rows += [[block.label, Cell(row.label, depth=row.depth), *map(_cell, row.nodes)] for row in block.rows]
    return Table("runs", columns, rows, brief=len(rows), drawn=True, grid=1)


def short(name: str, most: int = NAME) -> str:
    """Return a run's name made harmless and, if it is long, cut in its middle: both ends tell runs apart.

    >>> short("gpt-training-on-four-nodes.json", 16)
    'gpt-trai…es.json'
    """
    name = harmless(name, 1000)
    return name if len(name) <= most else f"{name[: most // 2]}…{name[len(name) - (most - most // 2 - 1) :]}"


def cell(node: Node | None) -> str:
    """Return a value with two digits, or the bounds between which it lies.

    >>> cell(Node("a", "A", 0.5, 0.5, 0.5)), cell(Node("a", "A", 0.5, 0.05, 0.95)), cell(None)
    ('0.50', '0.05–0.95', '–')
    """
    if node is None or node.value is None:
        return UNKNOWN
    low, high = factor(node.low), factor(node.high)
    return factor(node.value) if low == high else f"{low}–{high}"


def _cell(node: Node | None) -> Cell:
    return Cell(None) if node is None else Cell(node.value, cell(node), level=node.value if node.exact else None)


FORMS = (*VIEW_FORMS, ".svg")


def more_forms(report: ScalingReport, made: View) -> dict[str, Form]:  # noqa: ARG001 - a question's `more_forms`
    """Return what makes the forms of files that other reports do not have: the runs as a picture."""
    from ullage.render.svg.scaling import scaling

    return {".svg": lambda: str(scaling(report))}


class ScalingRunDocument(Document, kw_only=True):
    """A run of a study; the host's resources are processes, threads or CPUs."""

    name: str
    devices: int | None
    processes: int | None
    threads: int | UnsetType | None = UNSET
    cpus: int | UnsetType | None = UNSET
    elapsed_s: Annotated[Seconds | None, At("elapsed"), Made(lambda nanoseconds: nanoseconds / 1e9 if nanoseconds else None)]


class ScalingRowDocument(Document):
    """An efficiency over the runs, with its bounds."""

    block: str
    metric: str
    label: str
    depth: int
    values: list[Ratio | None]
    low: list[Ratio | None]
    high: list[Ratio | None]


class TraceScalingDocument(Document):
    """The answer of `ullage trace scaling`."""

    kind: str | None
    kind_told_by: Annotated[Words, At("told.basis")]
    kind_exponent: Annotated[float | None, At("told.exponent")]
    kind_sure: bool | None
    reference: str
    runs: list[ScalingRunDocument]
    rows: list[ScalingRowDocument]
    notes: list[str]


def record(report: ScalingReport) -> dict[str, Any]:
    """Return the runs and the rows as plain data: ratios, times in s, None for what is not known."""
    runs = [filled(ScalingRunDocument, c, **({"processes": None} | {RESOURCES[c.host].lower(): c.processes})) for c in report.columns]
    return plain_data(
        TraceScalingDocument,
        report,
        kind_sure=None if report.kind is None else report.told is None or report.told.sure,
        reference=report.columns[report.reference].name,
        runs=runs,
        rows=[_document_row(block, row) for block in report.blocks for row in block.rows],
    )


def _document_row(block: TreeRows, row: ScalingRow) -> ScalingRowDocument:
    low, high = ([None if node is None else getattr(node, bound) for node in row.nodes] for bound in ("low", "high"))
    return filled(ScalingRowDocument, row, block=block.name, low=low, high=high)


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names cut as short as they still differ, and at 100 characters in any case."""
    for most in (NAME, 2 * NAME):
        cut = [short(name, most) for name in names]
        if len(set(cut)) == len(set(names)):
            return cut
    return [short(name, 100) for name in names]


def _facts(report: ScalingReport) -> Iterator[list[Value | Cell]]:
    many = _hosts(report)[1]
    facts: tuple[tuple[str, list[int | None], Notation], ...] = (
        ("Devices", [c.devices for c in report.columns], COUNT),
        (f"{many[:1].upper()}{many[1:]}", [c.processes for c in report.columns], COUNT),
        ("Elapsed", [c.elapsed for c in report.columns], TIME),
    )
    for name, values, notation in facts:
        if any(values):
            yield [name, "", *(Cell(value or None, notation.words(value or None)) for value in values)]


def _course(row: ScalingRow, reference: int) -> str:
    return " to ".join(
        factor(value) if value is None or value >= 0.1 else f"{value:.2g}" for value in (row.values[reference], row.values[-1])
    )


_HOW = (
    "Each efficiency is the product of those that hang from it. Scalability is held against the reference run: above 1 a run does better."
)
