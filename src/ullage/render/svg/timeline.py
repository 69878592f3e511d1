"""What every process and device was doing when, as lanes over time (TALP paper, figures 4 to 16).

While spans can be told apart each is drawn where it was. Of a long run a strip shows the whole, and the lanes below it
the part worth a closer look; what is too fine for the eye is summed exactly in each column of pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ullage.recording import Mode
from ullage.render.svg.axis import ticks
from ullage.render.svg.kit import captions, legend, square
from ullage.render.svg.marks import ALONG, marks
from ullage.render.svg.strips import WORDS, described, pieces, shares, stacked, strip
from ullage.sums.lanes import timeline as reduction
from ullage.sums.lanes.run import Run
from ullage.sums.lanes.timeline import TimelineLane
from ullage.views.draw import SMALL, WIDE, Scale, caption, extent, fit, hatch, line, picture, text
from ullage.views.markup import Markup, element, number
from ullage.views.numbers import percent
from ullage.views.times import seconds

MOST_LANES = 16
EXACT = 800  # spans that are drawn one by one
CLOSER = 500  # spans to look for when a part is chosen
COLUMNS = 6_000  # columns of all lanes together: beyond, they are wider than a pixel
TITLE = "What processes and devices did when"
_TELLING = {"process": "useful", "device": "kernel"}  # whose share stands beside a lane


@dataclass(frozen=True)
class _Plot:
    """Where lanes lie: their scale of time, their height, and whether names stand beside them (else above)."""

    x: Scale
    lane: float
    beside: bool
    width: float
    key: str

    @property
    def low(self) -> int:
        """The first moment, in ns."""
        return int(self.x.low)

    @property
    def high(self) -> int:
        """The last moment, in ns."""
        return int(self.x.high)


def timeline(run: Run, *, window: tuple[int, int] | None = None, width: int = WIDE, mode: Mode = "talp", standalone: bool = True) -> Markup:
    """Return the picture of a run's lanes; in `ai` mode collectives have a colour of their own, in `talp` they count as kernels.

    `window` (ns on the clock of the run's steps) says what to look at closely; without it, all of a short run is shown, and
    of a long one its median step, or where devices at work idle most. Of more than 16 lanes the worst, the median and the best
    processes are shown. However long the trace, the picture stays below 300 kB.
    """
    found = reduction.lanes(run, mode)
    low, high = reduction.extent(run)
    shown, words = reduction.told(run, found, MOST_LANES)
    begin, end, why = _looked(run, shown, (low, high), window)
    key = f"timeline-{width}-unknown"
    beside = width > 600
    left, right = (118.0, width - 92.0) if beside else (0.0, float(width))
    plot = _Plot(Scale(begin, end, left, right), 24.0, beside, float(width), key)
    parts: list[Markup] = []
    y = _legend(parts, shown, width, key)
    if (begin, end) != (low, high):
        y = _overview(parts, found, _Plot(Scale(low, high, left, right), 12.0, beside, float(width), key), (begin, end), why, y)
    y = _lanes(parts, run, shown, words, plot, y, low)
    y = _rest(parts, len(found) - len(shown), bool(words), width, y)
    if not found:
        parts.append(text(0, y + 14, "nothing was recorded", colour="muted"))
        y += 22
    told = "; ".join(described(lane, shares(lane, begin, end)) for lane in shown)
    about = f"{seconds(end - begin)}{' of ' + seconds(high - low) if why else ''}. {told or 'Nothing was recorded'}."
    defs = element("defs", hatch(key, "unknown"))
    zoom = " ".join(number(edge) for edge in (left, right, begin - low, end - low)) if found else None
    return picture("timeline", TITLE, about, (width, y), defs, parts, standalone=standalone, data_zoom=zoom)


def _looked(run: Run, shown: Sequence[TimelineLane], whole: tuple[int, int], window: tuple[int, int] | None) -> tuple[int, int, str]:
    low, high = whole
    if window is not None:
        begin, end = max(window[0], low), min(window[1], high)
        return (begin, end, "as asked") if begin < end else (low, high, "")
    if sum(pieces(lane, low, high) for lane in shown) <= EXACT:
        return low, high, ""
    begin, end, why = reduction.closer(run, shown, low, high, CLOSER)
    begin, end = max(begin, low), min(end, high)
    return (begin, end, why) if begin < end else (low, high, "")


def _legend(parts: list[Markup], shown: Sequence[TimelineLane], width: int, key: str) -> float:
    """Add a line of colours for hosts and one for devices, and return where the next thing stands."""
    y = 0.0
    for kind, title in (("process", "host"), ("device", "device")):
        states = list(dict.fromkeys(name for lane in shown if lane.kind == kind for name, s in lane.states.items() if s.pieces))
        if not states:
            continue
        parts.append(caption(0, y + 12, title))
        entries = ((square(state, key if state == "unknown" else ""), WORDS[state]) for state in states)
        drawn, middle = legend(entries, y + 8, width + 14, left=52.0, indent=18.0, gap=14.0, step=19.0)
        parts += drawn
        y = middle - 8
        y += 21
    return y + 9


def _overview(parts: list[Markup], found: Sequence[TimelineLane], plot: _Plot, looked: tuple[int, int], why: str, y: float) -> float:
    """Add the whole run as one strip of all processes and one of all devices, and what ties it to the lanes below."""
    span = f"The whole run is {seconds(plot.high - plot.low)}; below, {seconds(looked[1] - looked[0])} of it"
    drawn, y = captions(f"{span}: {fit(why, 500, SMALL)}", y, plot.width, first=11.0)
    parts += drawn
    y = _axis(parts, plot, plot.low, y + 4, y + 18, above=True)
    top = y
    for kind, one, many in (("process", "process", "processes"), ("device", "GPU", "GPUs")):
        mine = [lane for lane in found if lane.kind == kind]
        if not mine:
            continue
        name = f"{len(mine):,} {one if len(mine) == 1 else many}"
        y = _named(parts, name, "", plot, y)
        pixels = int(plot.x.end - plot.x.start)
        full = (plot.high - plot.low) * len(mine) / pixels
        covered = reduction.together(mine, plot.low, plot.high, pixels)
        strip_ = stacked(covered, full, plot.x.start, (plot.x.end - plot.x.start) / pixels, y, plot.lane, plot.key)
        parts.append(element("g", element("title", f"{name}, the whole run"), strip_))
        y += plot.lane + 4
    first, last = plot.x(looked[0]), plot.x(looked[1])
    last = max(last, first + 2)
    frame = {"fill": "none", "stroke_width": 1.5}
    parts.append(element("rect", x=first, y=top - 2, width=last - first, height=y - top, class_="s-ink", **frame))
    corners = ((first, y - 2), (plot.x.start, y + 20), (plot.x.end, y + 20), (last, y - 2))
    parts.append(element("polygon", points=" ".join(f"{number(a)},{number(b)}" for a, b in corners), class_="f-full"))
    return y + 26


def _lanes(
    parts: list[Markup], run: Run, shown: Sequence[TimelineLane], words: Mapping[int, str], plot: _Plot, y: float, zero: int
) -> float:
    """Add the marks of steps and regions, the lanes, and the axis below them."""
    exact = sum(pieces(lane, plot.low, plot.high) for lane in shown) <= EXACT
    column = max(1.0, len(shown) * (plot.x.end - plot.x.start) / COLUMNS)
    above, height = marks(run, shown, plot.x, y, plot.beside)
    rows: list[Markup] = []
    top = y + height
    y = top
    for lane in shown:
        y += 10 if lane.kind == "process" and y > top else 0
        of = shares(lane, plot.low, plot.high)
        telling = _TELLING[lane.kind]
        name = lane.name + (f", {words[lane.number]}" if lane.kind == "process" and lane.number in words else "")
        name += ", shared" if lane.kind == "device" and len(lane.owners) > 1 else ""
        y = _named(rows, name, f"{percent(of[telling])} {WORDS[telling]}" if telling in of else "", plot, y)
        drawn = strip(lane, plot.x, y, plot.lane, exact=exact, column=column, key=plot.key)
        rows.append(element("g", element("title", described(lane, of)), drawn, class_=ALONG))
        y += plot.lane + 4
    axis: list[Markup] = []
    below = _axis(axis, plot, zero, top - 2, y + 2, above=False)  # its lines go behind the lanes
    parts += [element("g", axis, class_=ALONG), *above, *rows]
    return below


def _named(parts: list[Markup], name: str, said: str, plot: _Plot, y: float) -> float:
    """Add a lane's name and what is said of it, beside it or above it, and return where the lane begins."""
    if plot.beside:
        base = y + plot.lane / 2 + 4.5
        parts.append(text(0, base, fit(name, plot.x.start - 8, SMALL), size=SMALL))
        parts.append(caption(plot.width, base, said, "end"))
        return y
    parts += [text(0, y + 13, fit(name, plot.width - 130, SMALL), size=SMALL)]
    parts += [caption(plot.width, y + 13, said, "end")]
    return y + 18


def _axis(parts: list[Markup], plot: _Plot, zero: int, top: float, bottom: float, *, above: bool) -> float:
    """Add round moments since `zero` along an edge: lines from `top` to `bottom`, labels at the end; return what comes below."""
    moments, relative = ticks(plot.low - zero, plot.high - zero, max(2, int((plot.x.end - plot.x.start) / 95)))
    y = top + 10 if above else bottom + 15
    for moment, label in moments:
        x = plot.x(moment + zero)
        long = extent(label, SMALL) / 2
        anchor = "start" if x - long < 0 else "end" if x + long > plot.width else "middle"
        parts.append(line(x, bottom - 3 if above else top, x, bottom + 1 if above else bottom + 3))
        parts.append(caption(x, y, label, anchor=anchor))
    if relative:
        parts.append(caption(plot.x.start, y + 16, f"from {seconds(plot.low - zero)} on"))
    return bottom + 2 if above else bottom + (40 if relative else 24)


def _rest(parts: list[Markup], more: int, processes: bool, width: int, y: float) -> float:
    if more <= 0:
        return y
    chosen = "processes whose devices compute least (worst), at the median, and most (best)"
    chosen = chosen if processes else "devices that compute least, at the median, and most"
    drawn, y = captions(f"+ {more:,} more lanes; shown are the {chosen}", y, width)
    parts += drawn
    return y + 4
