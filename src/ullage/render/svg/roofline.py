"""The roofline: FLOP/s over FLOPs per byte, both logarithmic; measured roofs solid, stated ones dashed, kernels as points.

Where roofs were sustained, what bursts reached is dotted above them.

The names of the roofs stand in a gutter to the right, pushed apart where they would meet, each tied to its line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ullage.render.svg.kit import legend, stroke
from ullage.reports.bench.roofline import Roof, Roofline, RooflinePoint
from ullage.views.draw import SMALL, WIDE, Scale, caption, extent, fit, line, picture, text
from ullage.views.markup import Markup, element
from ullage.views.numbers import short_tera

_HEIGHT, _LEFT, _TOP, _BELOW = 360.0, 52.0, 52.0, 46.0
_TIE, _ROW = 22.0, 16.0  # between the chart and the names; from one name to the next
_DASHES = {"stated": "5 4", "burst": "1.5 3"}
_KINDS = ("sustained", "burst", "stated")
_SPAN = 1e6  # from one edge to the other at most: what lies beyond is drawn at the edge


@dataclass(frozen=True)
class _Frame:
    """Where values lie in the picture: intensities and FLOP/s of its edges, and the maps to pixels."""

    left: float
    right: float
    low: float
    high: float
    end: float  # pixel of the right edge of the chart

    def x(self, intensity: float) -> float:
        return Scale(math.log10(self.left), math.log10(self.right), _LEFT, self.end)(math.log10(intensity))

    def y(self, rate: float) -> float:
        return Scale(math.log10(self.low), math.log10(self.high), _TOP + _HEIGHT, _TOP)(math.log10(rate))


def roofline(found: Roofline, *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of a device's roofs, measured and stated, and of the products below them (named on hover)."""
    flats, slopes = [r for r in found.roofs if not r.slope], [r for r in found.roofs if r.slope]
    names = list(_names(flats))
    frame = _frame(flats, slopes, found.points, width - max(extent(name, SMALL) for _, name in names) - _TIE - 6)
    fastest, widest = max(r.value for r in flats), max(r.value for r in slopes)
    body = [*_legend(found), *_grid(frame)]
    dashes = _dashes(found.roofs)
    body += [mark for roof in slopes for mark in _slope(roof, slopes, fastest, frame, dashes[roof.kind])]
    body += [_flat(roof, widest, frame, dashes[roof.kind]) for roof in flats]
    body += _labels(names, frame)
    body += [_point(p, frame) for p in found.points]
    told = "; ".join(f"{r.name} {r.kind} {_worth(r)}" for r in found.roofs)
    return picture("roofline", f"Roofline of {found.gpu}", told, (width, _TOP + _HEIGHT + _BELOW), *body, standalone=standalone)


def _frame(flats: Sequence[Roof], slopes: Sequence[Roof], points: Sequence[RooflinePoint], end: float) -> _Frame:
    """Return edges a factor beyond the first and the last bend of the roofs, and beyond every point."""
    lowest, highest = min(r.value for r in flats), max(r.value for r in flats)
    left = min([lowest / max(r.value for r in slopes) / 4, *(p.intensity for p in points)])
    right = max([highest / min(r.value for r in slopes) * 4, *(p.intensity for p in points)])
    low = min([left * min(r.value for r in slopes), *(p.rate for p in points)])
    high = max([highest, *(p.rate for p in points)]) * 1.5
    return _Frame(max(left, right / _SPAN), right, max(low, high / _SPAN), high, end)


def _worth(roof: Roof) -> str:
    """
    >>> _worth(Roof("global memory", 4.8e12, slope=True, kind="stated")), _worth(Roof("bf16", 989.4e12, slope=False, kind="stated"))
    ('4.8 TB/s', '989 TFLOP/s')
    """
    return f"{short_tera(roof.value)} {'TB/s' if roof.slope else 'TFLOP/s'}"


def _dashes(roofs: Sequence[Roof]) -> dict[str, str | None]:
    """Return how the line of each kind is broken: that of bursts only where something sustained lies below it."""
    solid = "sustained" if any(roof.kind == "sustained" for roof in roofs) else "burst"
    return {kind: None if kind == solid else _DASHES.get(kind) for kind in _KINDS}


def _legend(found: Roofline) -> Iterator[Markup]:
    """Yield what solid, dotted and dashed lines and a dot mean, as far as they occur."""
    kinds = [kind for kind in _KINDS if any(roof.kind == kind for roof in found.roofs)]
    dashes = _dashes(found.roofs)
    yield from legend([(stroke("pale" if kind == "stated" else "ofu", 2, dashes[kind]), kind) for kind in kinds], 8.0, math.inf)[0]
    if found.points:
        x = sum(46 + extent(kind, SMALL) for kind in kinds)
        yield element("circle", cx=x + 4, cy=8, r=4, class_="f-loss")
        yield text(x + 14, 12, "a kernel", size=SMALL)


def _grid(frame: _Frame) -> Iterator[Markup]:
    for power in range(math.ceil(math.log10(frame.low)), math.floor(math.log10(frame.high)) + 1):
        y = frame.y(10.0**power)
        yield line(_LEFT, y, frame.end, y)
        yield caption(_LEFT - 6, y + 4, f"{10.0 ** (power - 12):,g}", "end")
    free = 0.0
    for power in range(math.ceil(math.log10(frame.left)), math.floor(math.log10(frame.right)) + 1):
        x = frame.x(10.0**power)
        yield line(x, _TOP, x, _TOP + _HEIGHT)
        if x < free:
            continue
        free = x + 40
        yield caption(x, _TOP + _HEIGHT + 18, f"{10.0**power:,g}", "middle")
    yield caption(frame.end, _TOP + _HEIGHT + 38, "FLOPs per byte", "end")
    yield caption(0, _TOP - 12, "TFLOP/s")


def _slope(roof: Roof, slopes: Sequence[Roof], fastest: float, frame: _Frame, dash: str | None) -> Iterator[Markup]:
    """Yield a bandwidth: intensity × B/s, up to the fastest roof; a level of memory is named once, with what is stated of it.

    The fastest level's name stands above its line, the others' below theirs.
    """
    start = max(frame.left, frame.low / roof.value)
    x1, y1, x2, y2 = frame.x(start), frame.y(start * roof.value), frame.x(fastest / roof.value), frame.y(fastest)
    yield line(x1, y1, x2, y2, _colour(roof), stroke_width=1.6, stroke_dasharray=dash)
    alike = [one for one in slopes if one.name == roof.name]
    if roof is not alike[0]:
        return
    above = max(slopes, key=lambda one: one.value).name == roof.name
    edge = (max if above else min)(one.value for one in alike)
    beside = "".join(f" of {short_tera(one.value)}" for one in alike[1:] if one.kind == "stated")
    words = f"{roof.name} {short_tera(roof.value)}{beside} TB/s{' stated' if roof.kind == 'stated' else ''}"
    tilt, long = math.degrees(math.atan2(y2 - y1, x2 - x1)), math.hypot(x2 - x1, y2 - y1)
    at = max(frame.left, frame.low / edge) * 1.15
    put = text(0, -6 if above else 15, fit(words, long * 0.9, SMALL), size=SMALL)
    yield element("g", put, transform=f"translate({frame.x(at):.1f} {frame.y(at * edge):.1f}) rotate({tilt:.1f})")


def _flat(roof: Roof, widest: float, frame: _Frame, dash: str | None) -> Markup:
    """Return a ceiling from the steepest slope to the right edge."""
    y = frame.y(roof.value)
    return line(frame.x(roof.value / widest), y, frame.end, y, _colour(roof), stroke_width=1.6, stroke_dasharray=dash)


def _names(flats: Sequence[Roof]) -> Iterator[tuple[float, str]]:
    """Yield (FLOP/s, name) of the ceilings from the highest down; a precision has one, that of its sustained roof, else of its burst."""
    stated = {roof.name: roof.value for roof in flats if roof.kind == "stated"}
    measured = {roof.name: roof.value for kind in ("burst", "sustained") for roof in flats if roof.kind == kind}
    both: dict[tuple[float, str], list[str]] = {}
    for name in dict.fromkeys([*measured, *stated]):
        beside = f" of {short_tera(stated[name])}" if name in measured and name in stated else "" if name in measured else " stated"
        value = measured.get(name, stated.get(name, 0.0))
        both.setdefault((value, f"{short_tera(value)}{beside}"), []).append(name)
    yield from ((value, f"{', '.join(names)}  {words}") for (value, words), names in sorted(both.items(), reverse=True))


def _labels(names: Sequence[tuple[float, str]], frame: _Frame) -> Iterator[Markup]:
    """Yield the names in the gutter, each at its line's height or as near below the one before as there is room, and tied to it."""
    y = -math.inf
    for value, words in names:
        at = frame.y(value)
        y = max(at, y + _ROW)
        yield element("path", d=Markup(f"M{frame.end:.1f} {at:.1f} L{frame.end + _TIE - 4:.1f} {y:.1f}"), fill="none", class_="s-muted")
        yield text(frame.end + _TIE, y + 4, words, size=SMALL)


def _colour(roof: Roof) -> str:
    return "pale" if roof.kind == "stated" else "ofu" if not roof.slope else "gain"


def _point(point: RooflinePoint, frame: _Frame) -> Markup:
    told = element("title", f"{point.name}: {point.intensity:,.3g} FLOP/B, {point.rate / 1e12:,.3g} TFLOP/s")
    return element("circle", told, cx=frame.x(point.intensity), cy=frame.y(point.rate), r=4, class_="f-loss")
