"""OFU over time, and "GPU utilization" as the pale line above it: the contrast is the point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from ullage.render.svg.calendar import HOUR, ticks
from ullage.render.svg.kit import levels
from ullage.reports.fleet.course import CoursePoint, course_width
from ullage.views.declared import iso
from ullage.views.draw import SMALL, WIDE, Scale, caption, extent, line, picture, text
from ullage.views.markup import Markup, element, known, number
from ullage.views.numbers import percent, span
from ullage.views.times import whole_units

Step = tuple[float, float, float]  # from x, to x, at y
TOP, PLOT, STRIP = 34.0, 250.0, 26.0


def course(points: Sequence[CoursePoint], window: tuple[int, int] | None = None, *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of OFU and "GPU utilization" over time, and below it how many GPU-hours stand behind each mean.

    Each step is the mean over one span of time; where nothing was measured the line stops. `points` in order of time;
    `window` (ms) is the whole axis, by default what the points cover.
    """
    length = bucket(points, window)
    start, end = window or ((points[0].time, points[-1].time + length) if points else (0, length))
    left, right = 44.0, width - 16.0
    across = Scale(start, end, left, right)
    highest = max((known(value) or 0.0 for point in points for value in (point.ofu, point.gpu_util)), default=0.0)
    up = Scale(0.0, 1.0 if highest <= 1.0 else 1.1, TOP + PLOT, TOP)
    edges = {point.time: (across(max(point.time, start)), across(min(point.time + length, end))) for point in points}
    ofu = _runs(points, edges, length, up, lambda point: point.ofu)
    busy = _runs(points, edges, length, up, lambda point: point.gpu_util)
    return picture(
        "course",
        "OFU over time",
        _described(points, (start, end)),
        (width, TOP + PLOT + STRIP + 66),
        _legend(left, bool(ofu), bool(busy)),
        caption(right, 16, f"{whole_units(length)} steps, UTC" if width > 600 and points else "UTC", "end"),
        levels(up, left, right, (0.0, 0.25, 0.5, 0.75, 1.0), percent),
        [_area(run, up(0.0)) for run in ofu],
        [_path(run, "pale", 2.0) for run in busy],
        [_path(run, "ofu", 2.4) for run in ofu],
        _observed(points, edges, length, left, right),
        _axis(across, start, end, most=7 if width > 600 else 4),
        None
        if ofu or busy
        else text((left + right) / 2, TOP + PLOT * 0.4, "OFU is not known at any time in this window", anchor="middle", colour="muted"),
        standalone=standalone,
        data_names="OFU;GPU utilization" if points else None,
        data_plot=f"{number(TOP)} {number(TOP + PLOT)}" if points else None,
        data_values=Markup("|".join(_value(point, edges[point.time]) for point in points)) or None,
    )


def _value(point: CoursePoint, edge: tuple[float, float]) -> str:
    """Return what a page says of a step where it is pointed at, and where the step is."""
    told = ["unknown" if value is None else percent(value, 1) for value in (known(point.ofu), known(point.gpu_util))]
    return ";".join([number((edge[0] + edge[1]) / 2), iso(point.time)[:16].replace("T", " "), *told])


def bucket(points: Sequence[CoursePoint], window: tuple[int, int] | None = None) -> int:
    """Return the span of time, in ms, that each point stands for: the least distance of two; for a single one what the report would choose.

    >>> bucket([CoursePoint(0, 0.3, 0.6, 1.0), CoursePoint(60_000, 0.3, 0.6, 1.0), CoursePoint(300_000, 0.3, 0.6, 1.0)])
    60000
    """
    distances = [after.time - before.time for before, after in pairwise(points)]
    if distances:
        return max(1, min(distances))
    return course_width(window) if window else HOUR


def _runs(
    points: Sequence[CoursePoint],
    edges: dict[int, tuple[float, float]],
    length: int,
    up: Scale,
    value: Callable[[CoursePoint], float | None],
) -> list[list[Step]]:
    """Return the stretches without a gap, each a list of steps."""
    runs: list[list[Step]] = []
    due = None
    for point in points:
        height = known(value(point))
        if height is None:
            continue
        step = (*edges[point.time], up(height))
        if runs and point.time == due:
            runs[-1].append(step)
        else:
            runs.append([step])
        due = point.time + length
    return runs


def _corners(run: list[Step]) -> str:
    return " L".join(f"{number(a)} {number(y)} L{number(b)} {number(y)}" for a, b, y in run)


def _path(run: list[Step], colour: str, thick: float) -> Markup:
    return element("path", d=Markup(f"M{_corners(run)}"), fill="none", stroke_width=thick, stroke_linejoin="round", class_=f"s-{colour}")


def _area(run: list[Step], floor: float, colour: str = "ofu", opacity: float = 0.14) -> Markup:
    d = f"M{number(run[0][0])} {number(floor)} L{_corners(run)} L{number(run[-1][1])} {number(floor)} Z"
    return element("path", d=Markup(d), fill_opacity=opacity, class_=f"f-{colour}")


def _legend(left: float, ofu: bool, busy: bool) -> list[Markup]:
    marks, x = [], left
    for name, colour, thick, shown in (("OFU", "ofu", 2.4, ofu), ("GPU utilization", "pale", 2.0, busy)):
        if shown:
            marks += [line(x, 12, x + 22, 12, colour, stroke_width=thick + 0.6), text(x + 28, 16, name, bold=colour == "ofu")]
            x += 28 + extent(name) + 24
    return marks


def _observed(points: Sequence[CoursePoint], edges: dict[int, tuple[float, float]], length: int, left: float, right: float) -> list[Markup]:
    top = TOP + PLOT + 8
    most = max((known(point.gpu_hours) or 0.0 for point in points), default=0.0)
    runs = _runs(points, edges, length, Scale(0.0, most, top + STRIP, top), lambda point: point.gpu_hours) if most > 0 else []
    label = caption(left - 8, top + STRIP, "hours", "end")
    return [*(_area(run, top + STRIP, "unknown", 0.45) for run in runs), label, line(left, top + STRIP, right, top + STRIP, "rule")]


def _axis(across: Scale, start: int, end: int, most: int) -> list[Markup]:
    top = TOP + PLOT + 8 + STRIP
    marks = []
    for tick in ticks(start, end, most):
        x = across(tick.time)
        marks.append(line(x, top, x, top + 5, "muted"))
        middle = min(max(x, across.start + 4), across.end - 14)  # a label at the rim must not be cut
        marks.append(caption(middle, top + 19, tick.label, "middle"))
        if tick.below:
            marks.append(caption(max(middle, extent(tick.below, SMALL) / 2), top + 35, tick.below, "middle"))
    return marks


def _described(points: Sequence[CoursePoint], window: tuple[int, int]) -> str:
    def told(name: str, values: list[float | None]) -> str:
        found = [value for value in map(known, values) if value is not None]
        return f"{name} between {percent(min(found))} and {percent(max(found))}" if found else f"{name} unknown"

    both = told("OFU", [point.ofu for point in points]), told("GPU utilization", [point.gpu_util for point in points])
    return f"{span(window)}: {both[0]}; {both[1]}."
