"""The sections that show a report beside another one: the headline's figures, the chain, and each row."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.errors import harmless
from ullage.reports.fleet.comparison import ChangedGroup, FigureChange, FleetComparison
from ullage.views import notation
from ullage.views.notation import GPU_HOURS, GPUS, PERCENT_1, PERCENTAGE_POINTS, Notation
from ullage.views.numbers import span
from ullage.views.view import Cell, Column, Section, Table, Value

WITHIN = "within error"
_POINTS = notation.change(PERCENTAGE_POINTS)
_HOURS = notation.change(GPU_HOURS)
_GPUS = notation.change(GPUS)
_KWH = Notation("kWh", GPU_HOURS.write)


def against_sections(found: FleetComparison | None, *, top: int) -> Iterator[Section]:
    """Yield the sections of a comparison; none where nothing is compared."""
    if found is None:
        return
    whole = [_figures(found), *([_steps(found)] if found.steps else [])]
    yield Section("against", f"Beside {found.named}", whole, _HOW.format(window=span(found.before.window)), headed=True)
    if found.groups:
        yield Section("against-rows", f"Every {found.by} beside {found.named}", [_groups(found, top)], _ROWS, long=True)


def _figures(found: FleetComparison) -> Table:
    rows: list[list[Value | Cell]] = [
        _row("OFU", found.ofu, PERCENT_1, points=True),
        _row("ullage, GPU-hours", found.ullage, GPU_HOURS),
        _row("GPU-hours observed", found.gpu_hours, GPU_HOURS),
        ["GPUs", *_before_and_now(found.gpus, GPUS), change_cell(found.gpus, how=_GPUS)],
        _row("GPU utilization", found.gpu_util, PERCENT_1, points=True),
        _row("energy, kWh", found.kwh, _KWH),
    ]
    columns = [Column("figure"), *(Column(heading, notation.FIGURES) for heading in ("before", "now", "change"))]
    known = [row for row, one in zip(rows, _all(found), strict=True) if one.before is not None or one.now is not None]
    return Table("against", columns, known)


def _all(found: FleetComparison) -> list[FigureChange]:
    return [found.ofu, found.ullage, found.gpu_hours, found.gpus, found.gpu_util, found.kwh]


def _row(name: str, figure: FigureChange, how: Notation, *, points: bool = False) -> list[Value | Cell]:
    return [name, *_before_and_now(figure, how), change_cell(figure, points=points)]


def _before_and_now(figure: FigureChange, how: Notation) -> list[Cell]:
    values = [None if one is None else one.value for one in (figure.before, figure.now)]
    return [Cell(value, how.words(value)) for value in values]


def change_cell(figure: FigureChange, *, points: bool = False, how: Notation = _HOURS) -> Cell:
    """Return a change with its sign; that it is within the stated errors; "–" where a figure is not known."""
    if figure.before is None or figure.now is None:
        return Cell(None)
    if figure.change is None:
        return Cell(None, WITHIN)
    return Cell(figure.change, _POINTS.words(figure.change * 100) if points else how.words(figure.change))


def _steps(found: FleetComparison) -> Table:
    columns = [
        Column("where it goes"),
        Column("lost before", GPU_HOURS),
        Column("lost now", GPU_HOURS),
        Column("change, GPU-hours", _HOURS),
        Column("share before", PERCENT_1),
        Column("share now", PERCENT_1),
        Column("change, points", _POINTS),
    ]
    rows: list[list[Value | Cell]] = [
        [
            step.label,
            *_before_and_now(step.lost, GPU_HOURS),
            change_cell(step.lost),
            *_before_and_now(step.share, PERCENT_1),
            change_cell(step.share, points=True),
        ]
        for step in found.steps
    ]
    return Table("against_chain", columns, rows)


def _groups(found: FleetComparison, top: int) -> Table:
    columns = [
        Column(found.by),
        Column("GPU-hours before", GPU_HOURS),
        Column("now", GPU_HOURS, key="GPU-hours now"),
        Column("OFU before", PERCENT_1),
        Column("now", PERCENT_1, key="OFU now"),
        Column("change, points", _POINTS),
        Column("ullage before", GPU_HOURS),
        Column("now", GPU_HOURS, key="ullage now"),
        Column("change, GPU-hours", _HOURS),
    ]
    return Table("against_groups", columns, [_group(one) for one in found.groups], brief=top, elsewhere="--top shows them")


def _group(one: ChangedGroup) -> list[Value | Cell]:
    apart = None if one.presence == "both" else Cell(None, one.presence)
    return [
        harmless(one.key),
        *_before_and_now(one.gpu_hours, GPU_HOURS),
        *_before_and_now(one.ofu, PERCENT_1),
        apart or change_cell(one.ofu, points=True),
        *_before_and_now(one.ullage, GPU_HOURS),
        apart or change_cell(one.ullage),
    ]


_HOW = (
    "“Before” is {window}. A change is told where it exceeds the stated errors of both figures: clock samples bound OFU, and samples of "
    "power bound energy. “Share” is of the GPU-hours whose OFU is known."
)
_ROWS = "Those whose ullage changed most first. What is in one of the two only is new or gone."
