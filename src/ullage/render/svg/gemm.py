"""A product under its tiles: the matrix with its padding shaded, and the overhead over the size of square products."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.render.gemm import cluster, shape, whence
from ullage.render.svg.kit import filled, levels, polyline
from ullage.reports.gemms.gemm import GemmReport
from ullage.views.draw import NARROW, SMALL, WIDE, Scale, box, caption, extent, fit, hatch, line, picture, text
from ullage.views.markup import Markup, element
from ullage.views.numbers import percent

TOP, SIDE = 72.0, 330.0
_LINES = 48  # tile edges drawn along one side; of more, every second, fourth, … one
_FAINT = 12  # tiles along a side from which on their edges are drawn thinner


def cover(report: GemmReport, squares: Sequence[GemmReport] = (), *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of C under its tiles, to scale, M downwards and N to the right, what is only padding hatched.

    `squares` are reports of square products of growing size on the same terms: their overhead is drawn beside it where there is room.
    """
    title = f"{shape(report)}, {report.dtype}: tile efficiency {percent(report.cover.efficiency, 1)}"
    m, n, k = report.cover.effective
    told = f"Executed as {m} × {n} × {k} in tiles of {report.tiling.words}, cluster {cluster(report)}, {whence(report)}."
    left = 58.0 if width > NARROW else 2.0
    body = _matrix(report, left, min(SIDE, width - left - 2.0), f"padding-{width}")
    if len(squares) > 1 and width > NARROW:
        body += _course(squares, left + SIDE + 96, width - 24.0)
    return picture("gemm", title, told, (width, TOP + SIDE + 62), *body, standalone=standalone)


def curve(reports: Sequence[GemmReport], *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of a sweep: overhead over the size that varies (OFU paper, figure 1)."""
    most = max(report.cover.overhead for report in reports)
    title = f"Overhead of tiles: {percent(most, 1)} at most over {len(reports):,} products, {reports[0].dtype}"
    body = _course(reports, 58.0, width - 24.0)
    return picture("gemm-curve", title, f"Tiles {whence(reports[0])}.", (width, TOP + SIDE + 62), *body, standalone=standalone)


def _matrix(report: GemmReport, left: float, side: float, key: str) -> list[Markup]:
    """Return C, `side` pixels long; `key` names the hatching: a picture that a page doesn't show lends nothing to another width's."""
    m, n, _ = report.cover.effective
    longest = max(m, n)
    across = Scale(0, n, left, left + max(side * n / longest, 14.0))
    down = Scale(0, m, TOP, TOP + max(side * m / longest, 14.0))
    right, bottom = across(report.product.n), down(report.product.m)
    marks = [
        element("defs", hatch(key, "loss")),
        box(left, TOP, right - left, bottom - TOP, "pale", fill_opacity=0.45),
        filled(right, TOP, across.end - right, down.end - TOP, "", key),
        filled(left, bottom, right - left, down.end - bottom, "", key),
        *_edges(report, across, down),
    ]
    return marks + _labels(report, across, down, key)


def _edges(report: GemmReport, across: Scale, down: Scale) -> list[Markup]:
    """Return the edges of tiles; those of clusters are stronger."""
    marks = []
    spans = ((0, across, down), (1, down, across))
    for axis, scale, other in spans:
        count, size, grouped = report.cover.tiles[1 - axis], report.tiling.tile[1 - axis], report.tiling.cluster[1 - axis]
        step = _step(count)
        for index in range(0, count + 1, step):
            at, strong = scale(index * size), index % grouped == 0 and grouped > 1 and step == 1
            ends = (at, other.start, at, other.end) if axis == 0 else (other.start, at, other.end, at)
            marks.append(line(*ends, "ink", stroke_width=1.3 if strong else 0.8 if count <= _FAINT else 0.5, stroke_opacity=0.8))
    return marks


def _step(count: int) -> int:
    """Return how many tiles lie between two drawn edges: a power of two.

    >>> _step(48), _step(49), _step(200)
    (1, 2, 8)
    """
    step = 1
    while count > step * _LINES:
        step *= 2
    return step


def _labels(report: GemmReport, across: Scale, down: Scale, hatching: str) -> list[Markup]:
    m, n, _ = report.cover.effective
    tiles = report.cover.tiles
    steps = [_step(count) for count in tiles]
    drawn = "" if max(steps) == 1 else f"; a line every {max(steps)} tiles"
    key = across.start
    words = f"C: {tiles[0]:,} × {tiles[1]:,} tiles of {report.tiling.tile[0]} × {report.tiling.tile[1]}{drawn}"
    return [
        text(0, 14, fit(words, NARROW), bold=True),
        box(key, 30, 14, 14, "pale", fill_opacity=0.45),
        caption(key + 20, 42, "needed"),
        filled(key + 84, 30, 14, 14, "", hatching),
        caption(key + 104, 42, f"padding: overhead {percent(report.cover.overhead, 2)}, K included"),
        caption(across.start, down.end + 20, f"N → {report.product.n:,}, executed {n:,}"),
        caption(across.start, down.end + 38, f"M ↓ {report.product.m:,}, executed {m:,}"),
    ]


def _course(reports: Sequence[GemmReport], left: float, right: float) -> list[Markup]:
    sizes = [_varying(report, reports) for report in reports]
    highest = _round(max(report.cover.overhead for report in reports))
    across, up = Scale(min(sizes), max(sizes), left, right), Scale(0.0, highest, TOP + SIDE, TOP)
    points = [(across(size), up(report.cover.overhead)) for size, report in zip(sizes, reports, strict=True)]
    square = all(report.product.m == report.product.n == report.product.k for report in reports)
    head = "Overhead of square products" if square else "Overhead over size"
    told = fit(f"tiles {whence(reports[0])}", right - left + 40, SMALL)
    drawn = [polyline(points, "ofu", 1.8, stroke_linejoin="round")]
    heads = [text(left - 40, 14, head, bold=True), caption(left - 40, 42, told)]
    return [*heads, *_grid(across, up, highest), *drawn, *_sizes(across, reports)]


def _varying(report: GemmReport, reports: Sequence[GemmReport]) -> int:
    """Return the first dimension that is not the same in all of the reports."""
    first, last = reports[0].product, reports[-1].product
    if first.m != last.m:
        return report.product.m
    return report.product.n if first.n != last.n else report.product.k


def _round(highest: float) -> float:
    """Return where the axis of overhead ends, from 1 % to 100 %: more than that stands at the end of the axis.

    >>> _round(0.09), _round(0.0), _round(0.31), _round(15)
    (0.1, 0.01, 0.5, 1.0)
    """
    return next((end for end in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5) if highest <= end), 1.0)


def _grid(across: Scale, up: Scale, highest: float) -> list[Markup]:
    ticks = [highest * part / 5 for part in range(6)]
    return levels(up, across.start, across.end, ticks, lambda value: percent(value, 1 if highest < 0.05 else 0))


def _sizes(across: Scale, reports: Sequence[GemmReport]) -> list[Markup]:
    low, high = int(across.low), int(across.high)
    room = max(2, int((across.end - across.start) / (extent("16,384", SMALL) + 26)))
    step = next(s for s in (2**power for power in range(40)) if (high - low) <= s * room)
    values = sorted({low, *range(-(-low // step) * step, high + 1, step)})
    values = [value for value in values if value == low or across(value) - across.start > extent("16,384", SMALL) + 8]
    marks = [caption(across(v), TOP + SIDE + 20, f"{v:,}", "middle") for v in values]
    name = "".join(d for d, a, b in zip("MNK", _triple(reports[0]), _triple(reports[-1]), strict=True) if a != b)
    label = "M = N = K" if name == "MNK" else " and ".join(name)
    return [*marks, text(across.end, TOP + SIDE + 42, f"{label} →", anchor="end")]


def _triple(report: GemmReport) -> tuple[int, int, int]:
    return report.product.m, report.product.n, report.product.k
