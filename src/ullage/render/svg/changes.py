"""A course with its change marked: the levels before and after it, when it began, and what lies between as what was lost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ullage.courses.course import TimeCourse
from ullage.render.svg.calendar import ticks
from ullage.render.svg.kit import DASHES, levels, polyline
from ullage.render.svg.plot import round_ticks
from ullage.reports.watch.measures import MEASURES
from ullage.reports.watch.watched_changes import WatchedChange
from ullage.views.draw import SMALL, WIDE, Scale, box, caption, extent, line, picture, text
from ullage.views.markup import Markup
from ullage.views.notation import FACTOR, Notation
from ullage.views.numbers import moment

TOP, PLOT, AXIS, LEFT, RIGHT = 34.0, 200.0, 44.0, 56.0, 16.0
MOST_POINTS = 600  # of a line: what is finer no screen shows


def change_picture(change: WatchedChange, *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of a change in its course."""
    course = change.course
    assert course is not None
    notation = FACTOR if change.scope == "fleet" else MEASURES[change.measure].notation
    start, end = int(course.times[0]), int(course.times[-1]) + course.bucket_ms
    across = Scale(start, end, LEFT, width - RIGHT)
    heights = round_ticks(float(np.nanmax(course.values)))
    up = Scale(0.0, heights[-1], TOP + PLOT, TOP)
    label = MEASURES[change.measure].label
    until = end if change.until is None else change.until
    return picture(
        f"change-{change.scope}-{change.measure}-{change.jobs[0] if change.jobs else ''}-{change.start}",
        f"{label} of {change.where}",
        f"{label} changed at {moment(change.start)} UTC from {notation.words(change.before)} to {notation.words(change.after)}.",
        (width, TOP + PLOT + AXIS),
        levels(up, LEFT, width - RIGHT, heights, notation.words),
        _between(across, up, change, until),
        [polyline(run, "ofu", 1.8) for run in _lines(course, across, up)],
        polyline([(across(start), up(change.before)), (across(until), up(change.before))], "muted", 1.6, DASHES),
        polyline([(across(change.settled), up(change.after)), (across(until), up(change.after))], "loss", 2.2, DASHES),
        _marks(change, across, notation, float(width)),
        _axis(across, start, end, 7 if width > 600 else 4),
        standalone=standalone,
    )


def _between(across: Scale, up: Scale, change: WatchedChange, until: int) -> Markup:
    high, low = (up(max(change.before, change.after)), up(min(change.before, change.after)))
    colour = "loss" if change.after < change.before else "gain"
    return box(across(change.start), high, across(until) - across(change.start), low - high, colour, fill_opacity=0.16)


def _lines(course: TimeCourse, across: Scale, up: Scale) -> Iterator[list[tuple[float, float]]]:
    """Yield the stretches of a course without a gap, as points; of many buckets each point is the mean of some."""
    known = course.known
    breaks = np.flatnonzero(np.diff(course.times[known]) > 1.5 * course.bucket_ms) + 1
    each = -(-len(known) // MOST_POINTS)
    for run in np.split(known, breaks):
        parts = [run[at : at + each] for at in range(0, len(run), each)]
        points = [
            (across(float(course.times[p].mean()) + course.bucket_ms / 2), up(float(course.values[p].mean()))) for p in parts if len(p)
        ]
        if len(points) > 1:
            yield points


def _marks(change: WatchedChange, across: Scale, notation: Notation, width: float) -> list[Markup]:
    x = across(change.start)
    words = f"{moment(change.start)[11:]}: {notation.words(change.before)} → {notation.words(change.after)}"
    half = extent(words, SMALL) / 2 + 4
    marks = [line(x, TOP - 8, x, TOP + PLOT, "loss" if change.after < change.before else "gain", stroke_width=1.6)]
    marks.append(text(min(max(x, half), width - half), TOP - 14, words, anchor="middle", size=SMALL, bold=True))
    if change.until is not None:
        marks.append(line(across(change.until), TOP - 8, across(change.until), TOP + PLOT, "muted", stroke_dasharray=DASHES))
    return marks


def _axis(across: Scale, start: int, end: int, most: int) -> list[Markup]:
    marks: list[Markup] = []
    floor = TOP + PLOT
    for tick in ticks(start, end, most):
        x = across(tick.time)
        marks += [line(x, floor, x, floor + 5, "muted"), caption(min(max(x, 30), across.end - 14), floor + 19, tick.label, "middle")]
        if tick.below:
            marks.append(caption(min(max(x, extent(tick.below, SMALL) / 2), across.end - 30), floor + 35, tick.below, "middle"))
    return marks
