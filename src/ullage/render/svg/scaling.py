"""Efficiencies over several runs: every factor as a cell coloured by what it loses, and below it the lines over the resources."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from ullage.metrics.tree import Node
from ullage.render.scaling import cell, headline, lost
from ullage.render.svg.kit import legend, polyline, spaced, stroke
from ullage.reports.trace.scaling import ScalingReport, ScalingRow, TreeRows
from ullage.views.draw import SMALL, WIDE, Scale, box, caption, extent, fit, line, picture, text
from ullage.views.markup import Markup, element, known
from ullage.views.numbers import factor

_STEP, _INDENT = 22.0, 12.0
_PLOT, _AXIS = 190.0, 40.0
# what is drawn as a line: metric, block, words, colour, dashes
_LINES = (
    ("device_parallel_efficiency", "device", "device parallel efficiency", "ofu", None),
    ("device_global_efficiency", "device_scaling", "device global efficiency", "ofu", "5 4"),
    ("host_parallel_efficiency", "host", "host parallel efficiency", "loss", None),
    ("global_efficiency", "host_scaling", "host global efficiency", "loss", "5 4"),
)
_Line = tuple[ScalingRow, str, str, str | None]


def scaling(report: ScalingReport, *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of several runs: a table with a column a run, and lines of the parallel efficiencies over the resources.

    A cell is the darker the more its factor loses; above 1 it has the colour of a gain. Dashed lines have the scaling of the work
    in them (global efficiency). What is not known has no colour and no point.
    """
    names = width * (0.36 if width > 600 else 0.42)
    columns = Scale(0.0, float(len(report.columns)), names, min(float(width), names + 110.0 * len(report.columns)))
    body, bottom = _table(report, columns)
    drawn = _drawn(report)
    lines: list[Markup] = []
    if drawn and len(report.columns) > 1:
        top, legend = _legend(drawn, bottom + 26, float(width))
        lines = [*legend, *_plot(report, drawn, top, float(width))]
        bottom = top + _PLOT + _AXIS
    told = "; ".join(f"{row.label} {', '.join(map(cell, row.nodes))}" for block in report.blocks for row in block.rows if row.depth == 0)
    return picture(
        "scaling",
        "Efficiencies over runs",
        f"{'; '.join(filter(None, (headline(report), lost(report))))}. {told}",
        (width, bottom),
        *body,
        *lines,
        standalone=standalone,
    )


def _table(report: ScalingReport, columns: Scale) -> tuple[list[Markup], float]:
    wide = columns(1.0) - columns(0.0)
    body: list[Markup] = [] if report.unit == "run" else [caption(columns.start, 12, fit(report.unit, 200.0))]
    y = 32.0
    for place, column in enumerate(report.columns):
        name = fit(column.name, wide - 4, SMALL)
        body.append(text(columns(place + 0.5), y, name, anchor="middle", size=SMALL, bold=place == report.reference))
    for block in report.blocks:
        y += 24
        body.append(text(0, y, block.label, bold=True))
        y += 8
        for row in block.rows:
            body.append(_row(block, row, y, columns, report))
            y += _STEP
    return body, y


def _row(block: TreeRows, row: ScalingRow, top: float, columns: Scale, report: ScalingReport) -> Markup:
    short = row.label.removesuffix(" efficiency") if columns.start < 200 else row.label  # on a phone
    label = fit(short, columns.start - _INDENT * (row.depth + 1) - 4)
    cells = []
    wide = columns(1.0) - columns(0.0)
    for place, node in enumerate(row.nodes):
        told = f"{block.label}, {row.label}, {report.columns[place].name}: {cell(node)}"
        words = _short(node)
        cells.append(
            element(
                "g",
                element("title", told),
                _tint(node, columns(place) + 1, top + 1, wide - 2),
                text(columns(place + 0.5), top + 15, words, anchor="middle") if extent(words) < wide else None,
            )
        )
    return element("g", text(_INDENT * (row.depth + 1), top + 15, label), *cells)


def _short(node: Node | None) -> str:
    return "?" if node is not None and not node.certain else factor(_short_value(node))


def _short_value(node: Node | None) -> float | None:
    return known(node.value) if node is not None and node.certain else None


def _tint(node: Node | None, x: float, y: float, wide: float) -> Markup:
    """Return a cell's ground: half transparent at most, so that what is written on it can be read."""
    value = _short_value(node)
    if value is None:
        return box(x, y, wide, _STEP - 2, "full", fill_opacity=0.5)
    colour, strength = ("loss", 1 - max(value, 0.0)) if value <= 1 else ("gain", min(value - 1, 1.0))
    return box(x, y, wide, _STEP - 2, colour, fill_opacity=0.03 + 0.47 * strength)


def _drawn(report: ScalingReport) -> list[_Line]:
    rows = {(block.name, row.metric): row for block in report.blocks for row in block.rows}
    return [(rows[block, metric], words, colour, dash) for metric, block, words, colour, dash in _LINES if (block, metric) in rows]


def _legend(drawn: Sequence[_Line], top: float, width: float) -> tuple[float, list[Markup]]:
    """Return where the plot begins, and the lines' names above it."""
    marks, y = legend(((stroke(colour, 2.6, dash), words) for _, words, colour, dash in drawn), top, width, gap=20.0)
    return y + 20, marks


def _plot(report: ScalingReport, drawn: Sequence[_Line], top: float, width: float) -> list[Markup]:
    left, right = 44.0, width - 24.0
    places = _places(report)
    across = Scale(places[0], places[-1], left + 20, right - 20)
    highest = max((value for row, *_ in drawn for value in map(_short_value, row.nodes) if value is not None), default=1.0)
    up = Scale(0.0, max(1.0, math.ceil(highest * 4) / 4), top + _PLOT, top)
    marks = [line(left, up(tick), right, up(tick), "muted" if tick == 0 else "rule") for tick in (0.0, 0.25, 0.5, 0.75, 1.0)]
    marks += [caption(left - 8, up(tick) + 4, factor(tick), "end") for tick in (0.0, 0.5, 1.0)]
    for row, words, colour, dash in drawn:
        marks.append(_line(row, words, colour, dash, [across(place) for place in places], up))
    return [*marks, *_names(report, [across(place) for place in places], top + _PLOT, width)]


def _places(report: ScalingReport) -> list[float]:
    """Return where the runs stand along the axis: by the logarithm of their resources if these differ, else one after the other."""
    counts = [column.resources or 0 for column in report.columns]
    if all(before < after for before, after in pairwise(counts)) and counts[0] > 0:
        return [math.log2(count) for count in counts]
    return [float(place) for place in range(len(counts))]


def _line(row: ScalingRow, words: str, colour: str, dash: str | None, xs: Sequence[float], up: Scale) -> Markup:
    marks: list[Markup] = []
    runs: list[list[tuple[float, float]]] = [[]]
    for x, node in zip(xs, row.nodes, strict=True):
        value = _short_value(node)
        if node is not None and not node.exact and node.low is not None and node.high is not None:
            marks.append(line(x, up(node.low), x, up(node.high), colour, stroke_width=1.4))
        if value is None:
            runs.append([])
            continue
        runs[-1].append((x, up(value)))
        marks.append(element("circle", cx=x, cy=up(value), r=3.4, class_=f"f-{colour}"))
    paths = [polyline(run, colour, 2.2, dash) for run in runs if len(run) > 1]
    return element("g", element("title", f"{words}: {', '.join(map(cell, row.nodes))}"), *paths, *marks)


def _names(report: ScalingReport, xs: Sequence[float], floor: float, width: float) -> list[Markup]:
    """Return the runs' names below the axis."""
    return spaced(((x, fit(column.name, 110.0, SMALL)) for x, column in zip(xs, report.columns, strict=True)), floor, width, gap=4.0)
