"""A microbenchmark's curve: a quantity over a label (size, N, blocks) or another quantity (power), a line a series, the paper's dashed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ullage.benches.bench import Quantity
from ullage.render.bench_words import BYTES, Unit, short, units, word
from ullage.render.svg.kit import DASHES, legend, levels, polyline, spaced, stroke
from ullage.reports.bench.bench import QUANTITIES, BenchLine, BenchNumber, BenchTable
from ullage.views.draw import SMALL, WIDE, Scale, caption, extent, fit, picture
from ullage.views.markup import Markup, element
from ullage.views.numbers import binary_size, short_count

COLOURS = ("ofu", "loss", "gain", "doubt", "shared", "free", "collective", "memory")
MOST_SERIES = 16
WIDELY = 300.0  # from the lowest to the highest: a linear axis would show the low ones as nothing
_HEIGHT, _AXIS, _LEFT, _RIGHT = 240.0, 44.0, 64.0, 24.0
Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """A named line through points (x, y) in shown units, ascending in x; lines of one `series` (else: name) have one colour.

    `paper` says whose a published line is.
    """

    name: str
    points: tuple[Point, ...]
    dashed: bool = False
    series: str = ""
    paper: str = ""

    @property
    def key(self) -> str:
        """What the line's colour goes by."""
        return self.series or self.name


def curves(table: BenchTable) -> tuple[Curve, ...]:
    """Return the lines that a bench's layout asks for: measured ones first, then those published for the nearest GPU (or for all)."""
    if table.member.layout.plot is None:
        return ()
    gpu = short(table.result.gpu) if table.result else ""
    found = [
        Curve(name or gpu, points, series=name)
        for name, points in _series(table, lambda cell: None if cell.value is None else cell.value.value).items()
    ]
    for one in (table.nearest,) if table.nearest else table.published:
        theirs = _series(table, lambda cell, one=one: cell.published.get(one))  # type: ignore[misc]
        paper = f"{short(one)}, paper"
        found += [
            Curve(f"{name}, {paper}" if name else paper, points, dashed=True, series=name, paper=paper) for name, points in theirs.items()
        ]
    return tuple(curve for curve in found if len(curve.points) > 1)[:MOST_SERIES]


def _series(table: BenchTable, value: Callable[[BenchNumber], float | None]) -> dict[str, tuple[Point, ...]]:
    assert table.member.layout.plot is not None
    x, quantity, series = table.member.layout.plot
    scales = units(table)
    found: dict[str, list[Point]] = {}
    for one in table.lines:
        for (column, name), cell in one.cells.items():
            labels = _labels(table, one, column)
            height = value(cell) if name == quantity else None
            place = _shown(one.cells.get((column, x)), value, scales) if x in QUANTITIES else labels.get(x)
            if isinstance(place, int | float) and height is not None:
                words = " ".join(filter(None, (word(labels.get(label), label) for label in series)))
                found.setdefault(words, []).append((float(place), height / scales[name].scale))
    return {name: tuple(sorted(points)) for name, points in found.items()}


def _shown(cell: BenchNumber | None, value: Callable[[BenchNumber], float | None], scales: Mapping[Quantity, Unit]) -> float | None:
    """Return a number in its unit, with the four digits that an axis has room for."""
    number = None if cell is None else value(cell)
    return None if cell is None or number is None else float(f"{number / scales[cell.quantity].scale:.4g}")


def _labels(table: BenchTable, one: BenchLine, column: Sequence[Any]) -> dict[str, Any]:
    layout = table.member.layout
    return {**dict(zip(layout.rows, one.labels, strict=True)), **dict(zip(layout.across, column, strict=True))}


def plot(table: BenchTable, *, width: int = WIDE, standalone: bool = True) -> Markup | None:
    """Return a bench's curve, None where its layout asks for none or fewer than two points are known."""
    drawn = curves(table)
    if not drawn or table.member.layout.plot is None:
        return None
    x, quantity, _ = table.member.layout.plot
    scales = units(table)
    axes = (scales[x].name if x in QUANTITIES else x, scales[quantity].name)
    return chart(f"plot-{table.member.name}", table.member.title, drawn, axes, width=width, standalone=standalone)


def chart(name: str, title: str, drawn: Sequence[Curve], axes: tuple[str, str], *, width: int, standalone: bool) -> Markup:
    """Return a chart of lines over `axes` (what x is, the unit of y).

    x is logarithmic where most of its values lie in the lowest third, y where it spans more than `WIDELY`; else y begins at 0.
    """
    xs = sorted({x for curve in drawn for x, _ in curve.points})
    place: Callable[[float], float] = math.log2 if xs[0] > 0 and xs[len(xs) // 2] < xs[-1] / 3 else float
    across = Scale(place(xs[0]), place(xs[-1]), _LEFT, width - _RIGHT)
    legend, top = _legend(drawn, float(width))
    up, ticks = _upwards([y for curve in drawn for _, y in curve.points], top)
    marks = levels(up, _LEFT, width - _RIGHT, ticks, lambda tick: f"{tick:,g}")
    marks += [caption(0, top - 12, axes[1])]
    marks += _below(xs, lambda x: across(place(x)), top + _HEIGHT, float(width), axes[0])
    colours = _colours(drawn)
    marks += [_drawn(curve, colours[curve.key], lambda x: across(place(x)), up, axes[0]) for curve in drawn]
    told = "; ".join(f"{curve.name}: {', '.join(f'{y:.4g} at {x:,g}' for x, y in curve.points)}" for curve in drawn)
    return picture(name, title, told, (width, top + _HEIGHT + _AXIS), *legend, *marks, standalone=standalone)


def _upwards(heights: Sequence[float], top: float) -> tuple[Callable[[float], float], list[float]]:
    """Return the scale of y and its ticks."""
    low, high = min(heights), max(heights)
    if low > 0 and high / low > WIDELY:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        scale = Scale(powers[0], powers[-1], top + _HEIGHT, top)
        return lambda y: scale(math.log10(y)), [10.0**power for power in powers]
    ticks = round_ticks(high)
    return Scale(0.0, ticks[-1], top + _HEIGHT, top), ticks


def _colours(drawn: Sequence[Curve]) -> dict[str, str]:
    """Return a colour for each series: a published line has that of the measured one."""
    return {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(dict.fromkeys(curve.key for curve in drawn))}


def _legend(drawn: Sequence[Curve], width: float) -> tuple[list[Markup], float]:
    """Return the legend, and where the chart begins below it."""
    lines = ((stroke(colour, 2.4, DASHES if dashed else None), words) for words, dashed, colour in _entries(drawn))
    marks, y = legend(((mark, fit(words, width - 40, SMALL)) for mark, words in lines), 8.0, width)
    return marks, y + 44


def _entries(drawn: Sequence[Curve]) -> Iterator[tuple[str, bool, str]]:
    """Yield (name, dashed, colour) for the legend; dashed lines of series that are there solid, too, are told as one."""
    colours, solid = _colours(drawn), {curve.key for curve in drawn if not curve.dashed}
    yield from ((curve.name, curve.dashed, colours[curve.key]) for curve in drawn if not curve.dashed or curve.key not in solid)
    yield from ((name, True, "muted") for name in dict.fromkeys(c.paper for c in drawn if c.dashed and c.key in solid and c.paper))


def round_ticks(highest: float) -> list[float]:
    """Return from 0 at most seven round values that reach over the highest.

    >>> round_ticks(728.5)
    [0.0, 200.0, 400.0, 600.0, 800.0]
    """
    if highest <= 0:
        return [0.0, 1.0]
    step = 10.0 ** math.floor(math.log10(highest))
    step = next(step * part for part in (0.2, 0.5, 1.0, 2.0) if highest / (step * part) <= 6)
    return [float(f"{n * step:.12g}") for n in range(math.ceil(highest / step - 1e-9) + 1)]


def _tick(value: float, name: str) -> str:
    """Return a value of x as the axis has it."""
    return binary_size(value) if name in BYTES else short_count(value)


def _below(values: Sequence[float], across: Callable[[float], float], floor: float, width: float, name: str) -> list[Markup]:
    """Return the values under the axis, and what they are."""
    ticks = ((across(value), _tick(value, name)) for value in values if across(value) + extent(_tick(value, name), SMALL) / 2 <= width)
    return [*spaced(ticks, floor, width, ticked=True), caption(width - _RIGHT, floor + 36, name, "end")]


def _drawn(curve: Curve, colour: str, across: Callable[[float], float], up: Callable[[float], float], of: str) -> Markup:
    places = [(across(x), up(y), f"{curve.name}: {y:,.4g} at {of} {_tick(x, of)}") for x, y in curve.points]
    path = polyline([(x, y) for x, y, _ in places], colour, 2, DASHES if curve.dashed else None)
    dots = [element("circle", element("title", told), cx=x, cy=y, r=2.6, class_=f"f-{colour}") for x, y, told in places]
    return element("g", element("title", curve.name), path, *([] if curve.dashed or len(places) > 60 else dots))
