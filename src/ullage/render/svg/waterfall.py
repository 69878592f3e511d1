"""The waterfall as a picture: 100 % at the left, MFU at the right, each factor a step with its points, its cost and its owner.

A whisker at the foot of a step shows between which levels it ends; a dashed line is the measured ceiling. A step whose
factors could not be told apart is hatched; a ring marks a level that a second source puts elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ullage.metrics.evidence import Measured
from ullage.render.svg.kit import captions, filled
from ullage.render.waterfall import bounds, headline
from ullage.reports.waterfall.waterfall import Cost, WaterfallReport
from ullage.views.draw import SIZE, SMALL, WIDE, Scale, box, extent, fit, hatch, line, picture, text, wrap
from ullage.views.markup import Markup, element
from ullage.views.notation import FACTOR_3, PERCENTAGE_POINTS, change
from ullage.views.numbers import hours, money, percent, signed

PLOT, TOP = 280.0, 62.0
LEAST = 74.0  # pixels of a column; a picture that is too narrow for them puts the steps in rows instead
ROW = 46.0


@dataclass(frozen=True)
class _Bar:
    """A bar from one level to another, what stands above it, and below it."""

    label: str
    start: float
    end: float
    whisker: tuple[float, float] | None
    value: str
    cost: str
    whose: str
    fill: str
    told: str
    others: tuple[float, ...] = ()  # levels at which a second source puts the step's end


def waterfall(report: WaterfallReport, *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of a waterfall; narrow ones have a row for each step instead of a column."""
    bars = _bars(report)
    draw = _rows if width / len(bars) < LEAST else _columns
    body, height = draw(report, bars, width)
    told = "; ".join(bar.told for bar in bars)
    title = str(headline(report))
    return picture(
        "job-waterfall",
        fit(title, width, 17) if standalone else title,
        f"{told}.",
        (width, height),
        hatch(_key(width), "loss"),
        body,
        standalone=standalone,
    )


def _key(width: float) -> str:
    """Return the id of the hatching; a page holds a picture in two widths, and one that is not shown lends nothing to the other."""
    return f"merged-{width:.0f}"


def _amount(value: float, words: Callable[[float], str]) -> str:
    """Return an amount in few letters: large ones in millions and above.

    >>> _amount(7_442_000_000, hours), _amount(12.3, hours), _amount(1e-5, hours)
    ('7.44 G', '12.3', '< 0.001')
    """
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{hours(value / size)} {prefix}"
    return "< 0.001" if 0 < value < 5e-4 else words(value)


def _taken(lost: float, words: Callable[[float], str]) -> str:
    """Return an amount that a step takes as a change, in few letters."""
    return "0" if abs(lost) < 5e-4 else signed(-lost, lambda value: _amount(value, words))


def _bars(report: WaterfallReport) -> list[_Bar]:
    whole = "" if report.gpu_hours is None else f"{_amount(report.gpu_hours, hours)} GPU-hours"
    first = _Bar("peak", 0.0, 1.0, None, "100 %", whole, "", "pale", "the peak 100 %")
    end = report.chain.end
    used = "" if report.gpu_hours is None else f"{_amount(report.gpu_hours * end.value, hours)} GPU-hours"
    last = _Bar(
        report.chain.ends,
        0.0,
        end.value,
        _whisker(end),
        percent(end.value, 1),
        used,
        "",
        "ofu",
        f"{report.chain.ends} {percent(end.value, 1)}",
    )
    others = {d.what: d.other.value for d in report.chain.disagreements if not d.agree}
    if "MFU" in others:
        last = replace(last, others=(others["MFU"],))
    return [first, *(_bar(cost, others) for cost in report.costs), last]


# which step ends where, by another source: what is compared, and the factor with which the step ends
_COMPARED = {"OFU": "clock", "tile": "tile", "model": "model"}


def _bar(cost: Cost, others: Mapping[str, float]) -> _Bar:
    step = cost.step
    fill = "doubt" if step.impossible else "gain" if step.factor.value > 1 else "merged" if len(step.names) > 1 else "loss"
    price = "" if cost.gpu_hours is None else f"{_taken(cost.gpu_hours, hours)} h"
    spent = "" if cost.money is None else _taken(cost.money, money)
    value = f"{change(PERCENTAGE_POINTS).words(-cost.points)} pt"
    told = f"{step.label} × {FACTOR_3.words(step.factor.value)} ({bounds(step.factor)}), {value} {price}"
    return _Bar(
        step.short,
        step.before.value,
        step.after.value,
        _whisker(step.after),
        value,
        " · ".join(p for p in (price, spent) if p),
        cost.whose,
        fill,
        told.strip(),
        tuple(
            value if what == "OFU" else step.before.value * value for what, value in others.items() if _COMPARED.get(what) == step.names[-1]
        ),
    )


def _whisker(level: Measured) -> tuple[float, float] | None:
    return None if level.low is None or level.high is None or level.high - level.low < 1e-3 else (level.low, level.high)


def _drawn(x: float, y: float, width: float, height: float, fill: str, key: str) -> Markup:
    return filled(x, y, width, height, fill, key if fill == "merged" else "")


def _highest(report: WaterfallReport, bars: Sequence[_Bar]) -> float:
    return max(1.0, report.ceiling_share or 0.0, *(max(bar.start, bar.end, *(bar.whisker or (0.0,))) for bar in bars))


def _columns(report: WaterfallReport, bars: list[_Bar], width: int) -> tuple[list[Markup | None], float]:
    column = width / len(bars)
    up = Scale(0.0, _highest(report, bars), TOP + PLOT, TOP)
    size = SIZE if column > 96 else SMALL - 1
    labels = [wrap(bar.label, column - 6, size) for bar in bars]
    owners = [wrap(bar.whose, column - 6, SMALL - 1) for bar in bars]
    below = TOP + PLOT + 20
    own = below + max(len(rows) for rows in labels) * (size + 4) + 4
    foot = own + max(len(rows) for rows in owners) * (SMALL + 3) + 12
    middles = [column * (number + 0.5) for number in range(len(bars))]
    body: list[Markup | None] = [line(0, up(0.0), width, up(0.0), "muted")]
    body += [_column(bar, x, column, up, _key(width), joined=bar is not bars[-1]) for bar, x in zip(bars, middles, strict=True)]
    body += _ceiling(report, up, width)  # in front of the bars, behind their words
    body += [_words(bar, x, column, up, size) for bar, x in zip(bars, middles, strict=True)]
    for x, named, whose in zip(middles, labels, owners, strict=True):
        body += [text(x, below + r * (size + 4), row, anchor="middle", size=size) for r, row in enumerate(named)]
        body += [text(x, own + r * (SMALL + 3), row, anchor="middle", colour="muted", size=SMALL - 1) for r, row in enumerate(whose)]
    signs = ["h: GPU-hours"] if report.gpu_hours is not None else []
    signs += [f"below them {report.terms.heading_with_price('money')}"] if report.gpu_hours is not None and report.price is not None else []
    return _explained(body, foot, bars, width, signs)


def _column(bar: _Bar, x: float, column: float, up: Scale, key: str, *, joined: bool) -> Markup:
    wide = column * 0.36  # half of the bar's width
    high, low = up(max(bar.start, bar.end)), up(min(bar.start, bar.end))
    joint = line(x + wide, up(bar.end), x + column - wide, up(bar.end), "muted", stroke_dasharray="2 2") if joined else None
    return element("g", element("title", bar.told), _drawn(x - wide, high, 2 * wide, max(low - high, 1.5), bar.fill, key), joint)


def _words(bar: _Bar, x: float, column: float, up: Scale, size: int) -> Markup:
    """Return what stands above a bar, on paper so that no line crosses it, and the marks of what is not certain."""
    parts = bar.cost.split(" · ") if extent(bar.cost, SMALL - 1) > column - 4 else [bar.cost]
    rows = [fit(row, column + 8, SMALL - 1) for row in parts if row]
    top = up(max(bar.start, bar.end)) if bar.whisker is None else min(up(max(bar.start, bar.end)), up(bar.whisker[1]))
    first = top - 8 - len(rows) * (SMALL + 2)
    wide = max(extent(bar.value, size), *(extent(row, SMALL - 1) * 0.9 for row in rows), 0.0)
    return element(
        "g",
        box(x - wide / 2, first - size, wide, top - first + size - 4, "paper"),
        text(x, first, bar.value, anchor="middle", bold=True, size=size),
        [text(x, first + (n + 1) * (SMALL + 2), row, anchor="middle", colour="muted", size=SMALL - 1) for n, row in enumerate(rows)],
        _mark(x, bar.whisker, up) if bar.whisker is not None else None,
        [element("circle", cx=x + column * 0.36, cy=up(level), r=5, class_="f-paper s-doubt", stroke_width=2) for level in bar.others],
    )


def _mark(x: float, whisker: tuple[float, float], up: Scale) -> list[Markup]:
    low, high = up(whisker[0]), up(whisker[1])
    return [line(x, low, x, high, "ink", stroke_width=1.5), line(x - 5, low, x + 5, low, "ink"), line(x - 5, high, x + 5, high, "ink")]


def _ceiling(report: WaterfallReport, up: Scale, width: float) -> list[Markup]:
    if report.ceiling_share is None:
        return []
    y = up(report.ceiling_share)
    words = f"measured ceiling, {percent(report.ceiling_share, 1)} of peak"
    dashes = line(0, y, width, y, "gain", stroke_dasharray="6 3", stroke_width=1.5)
    return [dashes, text(width, y - 5, words, anchor="end", colour="gain", size=SMALL)]


def _explained(body: list[Markup | None], y: float, bars: Sequence[_Bar], width: int, more: list[str]) -> tuple[list[Markup | None], float]:
    """Return a picture and its height with what its signs mean below it: only of those that are in it."""
    signs = ["pt: points of the peak", *more]
    signs += ["hatched: factors that could not be told apart"] if any(bar.fill == "merged" for bar in bars) else []
    signs += ["red: what can't be"] if any(bar.fill == "doubt" for bar in bars) else []
    signs += ["whisker: between which levels a step ends"] if any(bar.whisker is not None for bar in bars) else []
    signs += ["ring: where another source puts it"] if any(bar.others for bar in bars) else []
    below, end = captions("; ".join(signs), y, width, SMALL + 4, 10.0)
    return [*body, *below], end + 4


def _rows(report: WaterfallReport, bars: list[_Bar], width: int) -> tuple[list[Markup | None], float]:
    """Return a row for each step, for a phone: what it is and what it costs above a bar on the scale from 0 to the peak."""
    across = Scale(0.0, _highest(report, bars), 0.0, width)
    body: list[Markup | None] = []
    for number, bar in enumerate(bars):
        y = number * ROW
        left, right = across(min(bar.start, bar.end)), across(max(bar.start, bar.end))
        body += [
            text(0, y + 14, fit(bar.label, width * 0.62, SMALL), size=SMALL),
            text(width, y + 14, bar.value, anchor="end", bold=True, size=SMALL),
            box(0, y + 20, width, 16, "full"),
            _drawn(left, y + 20, max(right - left, 1.5), 16, bar.fill, _key(width)),
        ]
        body += [element("circle", cx=across(level), cy=y + 28, r=5, class_="f-paper s-doubt", stroke_width=2) for level in bar.others]
        if bar.whisker is not None:
            low, high = (across(edge) for edge in bar.whisker)
            body.append(line(low, y + 28, high, y + 28, "ink", stroke_width=1.5))
    height = len(bars) * ROW
    if report.ceiling_share is not None:
        x = across(report.ceiling_share)
        body += [
            line(x, 20, x, height - 6, "gain", stroke_dasharray="6 3", stroke_width=1.5),
            text(0, height + 10, f"measured ceiling, {percent(report.ceiling_share, 1)} of peak", colour="gain", size=SMALL),
        ]
        height += 18
    return _explained(body, height + 2, bars, width, [])
