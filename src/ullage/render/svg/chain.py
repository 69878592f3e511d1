"""The telemetry tree as a waterfall: 100 % at the left, OFU at the right, each factor a step with the GPU-hours it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ullage.metrics.telemetry import TelemetryTree
from ullage.reports.fleet.fleet import FleetReport
from ullage.views.draw import SIZE, SMALL, WIDE, Scale, box, caption, extent, fit, line, picture, text, wrap
from ullage.views.markup import Markup, element, known
from ullage.views.numbers import UNKNOWN, factor, hours, part_read, percent

PLOT, TOP = 170.0, 44.0
LEAST = 60.0  # pixels of a column; a picture that is too narrow for them puts the steps in rows instead
ROW = 42.0


@dataclass(frozen=True)
class _Step:
    """A bar from one level to another, what stands below it and whose work it is, and the two lines above it."""

    label: str
    start: float
    end: float
    value: str
    cost: str
    colour: str
    whose: str = ""


def of_fleet(report: FleetReport) -> str:
    """Return the one picture of a fleet report that stands for it alone: from full down to OFU, as an SVG file."""
    caveat = part_read(report.complete, report.read_until).rstrip(": ")
    return waterfall(report.tree, report.counted_hours, caveat=caveat)


def waterfall(tree: TelemetryTree, gpu_hours: float, *, width: int = WIDE, standalone: bool = True, caveat: str = "") -> Markup:
    """Return the picture of a telemetry tree over `gpu_hours`: from full down to OFU, a falling step for each factor.

    A step's height is the share of all GPU-hours that it takes, and below its name stands whose work it is; a factor above 1 (a clock
    above the one that the peak is stated at) rises. A merged factor says so in its label. Factors that are not known are named and take
    nothing. A `caveat` stands below. A narrow picture has a row for each step instead of a column.
    """
    steps = _steps(tree, gpu_hours)
    unknown = [f.label for f in tree.factors if known(f.value) is None]
    remarks = [*([f"not known: {', '.join(unknown)}"] if unknown else []), *([caveat] if caveat else [])]
    body, height = (_rows if width / len(steps) < LEAST else _columns)(steps, width)
    return picture(
        "waterfall",
        "Where the shortfall goes, in GPU-hours",
        _described(steps, unknown) + (f" It is {caveat}." if caveat else ""),
        (width, height + 22 * len(remarks)),
        body,
        [caption(0, height + 14 + 22 * row, remark) for row, remark in enumerate(remarks)] or None,
        standalone=standalone,
    )


def _columns(steps: Sequence[_Step], width: int) -> tuple[list[Markup], float]:
    """Return a column for each step, and how high the picture is."""
    column, up = width / len(steps), Scale(0.0, _highest(steps), TOP + PLOT, TOP)
    size, below = SIZE if column > 90 else SMALL - 1, TOP + PLOT + 20
    words = [(wrap(step.label, column - 2, size), wrap(step.whose, column - 2, size - 1)) for step in steps]
    body = [_column(step, after, column * n, column, up, size) for n, (step, after) in enumerate(zip_longest(steps, steps[1:]))]
    body += [row for n, (names, owners) in enumerate(words) for row in _below(names, owners, column * (n + 0.5), below, size)]
    height = below + max(len(names) + len(owners) for names, owners in words) * (size + 4) + 6
    return [*body, line(0, up(0.0), width, up(0.0), "muted")], height


def _rows(steps: Sequence[_Step], width: int) -> tuple[list[Markup], float]:
    """Return a row for each step, for a phone: what it is, whose work and what it costs, above a bar on the scale from 0 to full."""
    across, body = Scale(0.0, _highest(steps), 0.0, width), []
    for number, step in enumerate(steps):
        y, amount = number * ROW, f"{step.value}, {step.cost}"
        label, left = fit(step.label, width * 0.6, SMALL), across(min(step.start, step.end))
        room = width - extent(label, SMALL) - extent(amount, SMALL) - 24
        body += [
            text(0, y + 14, label, size=SMALL),
            text(
                extent(label, SMALL) + 8, y + 14, fit(step.whose, room, SMALL - 1) if room > LEAST else "", colour="muted", size=SMALL - 1
            ),
            text(width, y + 14, amount, anchor="end", bold=True, size=SMALL),
            box(0, y + 20, width, 14, "full"),
            box(left, y + 20, max(across(max(step.start, step.end)) - left, 1.5), 14, step.colour or "unknown"),
        ]
    return body, len(steps) * ROW


def _highest(steps: Sequence[_Step]) -> float:
    return max(1.0, *(max(step.start, step.end) for step in steps))


def _steps(tree: TelemetryTree, gpu_hours: float) -> list[_Step]:
    level, steps = 1.0, [_Step("full", 0.0, 1.0, "100 %", hours(known(gpu_hours)), "pale")]
    whole = TelemetryTree(tree.ofu, tuple(f for f in tree.factors if known(f.value) is not None))
    for step, lost in whole.losses(gpu_hours):
        value = step.value or 0.0
        colour = "loss" if value <= 1 else "gain"
        cost = f"{'−' if lost >= 0 else '+'}{hours(abs(lost))}" if known(lost) is not None else UNKNOWN
        steps.append(_Step(step.label, level, level * value, f"× {factor(value)}", cost, colour, step.whose))
        level *= value
    ofu = known(tree.ofu)
    kept = known(gpu_hours * ofu) if ofu is not None else None
    return [
        *steps,
        _Step("OFU", 0.0, ofu or 0.0, percent(ofu) if ofu is not None else "unknown", hours(kept), "ofu" if ofu is not None else ""),
    ]


def _below(names: Sequence[str], owners: Sequence[str], x: float, y: float, size: int) -> list[Markup]:
    """Return the lines below a bar: what it is, then whose work, smaller."""
    rows = [(name, "ink", size) for name in names] + [(owner, "muted", size - 1) for owner in owners]
    return [text(x, y + n * (size + 4), words, anchor="middle", colour=colour, size=high) for n, (words, colour, high) in enumerate(rows)]


def _column(step: _Step, after: _Step | None, x: float, column: float, up: Scale, size: int) -> Markup:
    gap = column * 0.11
    high, low = up(max(step.start, step.end)), up(min(step.start, step.end))
    middle = x + column / 2
    joint = (
        None
        if after is None or not after.colour
        else line(x + column - gap, up(step.end), x + column + gap, up(step.end), "muted", stroke_dasharray="2 2")
    )
    cost = step.cost if extent(step.cost, size) <= column else _compact(step.cost)
    return element(
        "g",
        element("title", f"{step.label}: {step.value}, {step.cost} GPU-hours"),
        box(x + gap, high, column - 2 * gap, max(low - high, 1.5), step.colour) if step.colour else None,
        text(middle, high - 8 - size - 4, step.value, anchor="middle", bold=True, size=size),
        text(middle, high - 8, cost, anchor="middle", colour=step.colour if step.colour in ("loss", "gain") else "muted", size=size),
        joint,
    )


def _compact(amount: str) -> str:
    """Return a number of GPU-hours in thousands or millions, for columns too narrow for it.

    >>> _compact("−1,234,567"), _compact("+12,345"), _compact("12.3")
    ('−1.23 M', '+12 k', '12.3')
    """
    groups = amount.split(",")
    if len(groups) < 2:
        return amount
    if len(groups) == 2:
        return f"{groups[0]} k"
    sign = amount[0] if amount[0] in "−+" else ""
    return f"{sign}{int(''.join(groups).lstrip('−+')) / 1e6:,.2f} M"


def _described(steps: list[_Step], unknown: list[str]) -> str:
    told = "; ".join(f"{step.label} {step.value} ({step.cost} GPU-hours)" for step in steps)
    return f"From full to OFU: {told}." + (f" Not known: {', '.join(unknown)}." if unknown else "")
