"""Pictures of OFU beside MFU: the distribution of errors, padding over size, the speedup of precisions (OFU paper, figures 4, 1, 3)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ullage.benches.gemm_ofu_plan import PRECISIONS
from ullage.render.svg.plot import Curve, chart
from ullage.reports.gemms.ofu import BASE, GemmOfuReport
from ullage.views.draw import SMALL, WIDE, Scale, box, caption, line, picture, text
from ullage.views.markup import Markup, element

_ROW, _TOP, _LABELS, _BIN = 54.0, 26.0, 150.0, 5.0
_WIDEST = 15.0  # points: what lies further out is drawn at the end
_SMALLEST = 1024  # below it padding is so large that nothing else would be seen; JSON has all sizes


def errors(report: GemmOfuReport, *, width: int = WIDE, standalone: bool = True) -> Markup | None:
    """Return each product's error as a dot, a row a precision and estimator; the bands are 2 and 5 points. None without any."""
    rows = [
        (f"{precision.upper()} {'adjusted' if adjusted else 'OFU'}", [100 * error for error in found], adjusted)
        for precision in PRECISIONS
        for adjusted in (False, True)
        if (found := report.errors(precision, adjusted))
    ]
    if not rows:
        return None
    highest = min(_WIDEST, max(6.0, *(math.ceil(max(map(abs, found))) for _, found, _ in rows)))
    left = _LABELS if width > 600 else 104.0
    across = Scale(-highest, highest, left, width - 16.0)
    bottom = _TOP + _ROW * len(rows)
    bands = [box(across(-limit), _TOP, across(limit) - across(-limit), bottom - _TOP, "full", fill_opacity=0.6) for limit in (5.0, 2.0)]
    told = "; ".join(f"{name}: {len(found)} products, {min(found):+.1f} to {max(found):+.1f} points" for name, found, _ in rows)
    return picture(
        "gemm-errors",
        "OFU minus MFU, in percentage points",
        told,
        (width, bottom + 44),
        *bands,
        line(across(0.0), _TOP, across(0.0), bottom, "muted"),
        *(mark for place, row in enumerate(rows) for mark in _row(row, across, _TOP + _ROW * (place + 0.5))),
        *_axis(across, bottom, sum(abs(error) > highest for _, found, _ in rows for error in found)),
        standalone=standalone,
    )


def _row(row: tuple[str, Sequence[float], bool], across: Scale, middle: float) -> Iterator[Markup]:
    """Yield a row's name, and its dots heaped up around its middle."""
    name, found, adjusted = row
    yield text(0, middle + 4, name, bold=adjusted, size=SMALL)
    heaps: dict[int, int] = {}
    bins = [round(across(error) / _BIN) for error in sorted(found, key=abs)]
    tallest = max(map(bins.count, set(bins)))
    step = min(_BIN, (_ROW - 10) / tallest)
    for place in bins:
        height = heaps.get(place, 0)
        heaps[place] = height + 1
        y = middle + (height + 1) // 2 * step * (1 if height % 2 else -1)
        yield element("circle", cx=place * _BIN, cy=y, r=2.2, class_=f"f-{'ofu' if adjusted else 'loss'}", fill_opacity=0.75)


def _axis(across: Scale, bottom: float, beyond: int) -> Iterator[Markup]:
    for tick in (-10, -5, -2, 0, 2, 5, 10):
        if abs(tick) <= across.high:
            words = f"{tick:+d}".replace("-", "−") if tick else "0"
            yield caption(across(tick), bottom + 18, words, "middle")
    yield caption(across.end, bottom + 38, "points above MFU →", "end")
    if beyond:
        yield caption(0, bottom + 38, f"{beyond:,} further out, drawn at the ends")


def overheads(report: GemmOfuReport, *, width: int = WIDE, standalone: bool = True) -> Markup | None:
    """Return what squares from 1024 on execute beyond need, a line a precision; None where no kernel's name tells it, or there is none."""
    curves = [
        Curve(precision.upper(), tuple((float(size), overhead * 100) for size, overhead in points if size >= _SMALLEST))
        for precision, points in report.overheads.items()
    ]
    curves = [curve for curve in curves if len(curve.points) > 1]
    if not any(y for curve in curves for _, y in curve.points):
        return None
    title = "FLOPs executed beyond need, over the size of squares"
    return chart("gemm-overheads", title, curves, ("M = N = K", "%"), width=width, standalone=standalone)


def speedups(report: GemmOfuReport, *, width: int = WIDE, standalone: bool = True) -> Markup | None:
    """Return the rate of each precision over TF32's, measured and by OFU, over the size of squares; None with fewer than two sizes."""
    curves = [
        Curve(f"{precision.upper()}{', by OFU' if by_ofu else ''}", points, dashed=by_ofu)
        for by_ofu in (False, True)
        for precision in PRECISIONS
        if len(points := _course(report, precision, by_ofu)) > 1
    ]
    if not curves:
        return None
    title = f"Speedup over {BASE.upper()}, measured and by OFU"
    return chart("gemm-speedups", title, curves, ("M = N = K", "×"), width=width, standalone=standalone)


def _course(report: GemmOfuReport, precision: str, by_ofu: bool) -> tuple[tuple[float, float], ...]:
    return tuple(
        (float(one.size), one.by_ofu if by_ofu else one.measured)
        for one in sorted(report.speedups, key=lambda one: one.size)
        if one.precision == precision
    )
