"""OFU beside the MFU of known products: the OFU paper's table II as text, as HTML, and as plain data for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ullage.errors import harmless
from ullage.render.svg.gemm_ofu import errors, overheads, speedups
from ullage.reports.gemm_ofu import BASE, GemmOfuReport, Row
from ullage.reports.gemm_ofu_estimates import Estimate
from ullage.views.markup import Child, Markup, element
from ullage.views.numbers import UNKNOWN, percent
from ullage.views.page import document, figure, section
from ullage.views.table import table

HEAD = ("GPU", "precision", "estimator", "GEMMs", "MAE, pp", "bias, pp", "within 2 pp", "within 5 pp")


def text(report: GemmOfuReport) -> str:
    """Return the answer, table II with the paper's rows below the measured ones, the speedups, and the notes."""
    notes = "\n".join(f"note: {harmless(note, 1000)}" for note in report.notes)
    rows = [cells(row) for row in report.rows]
    parts = [headline(report), table(HEAD, rows, left=3) if rows else "", _speedups(report), notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(report: GemmOfuReport) -> str:
    """Return how near the best estimator comes to MFU, on which GPU."""
    found = [row for row in report.rows if not row.paper and row.exact == report.exact]
    chosen = [row for row in found if row.adjusted] or found
    count = sum(row.statistics.count for row in chosen)
    if not count:
        return f"nothing was measured on {harmless(report.recording.gpu, 80)}: no product has both OFU and MFU"
    within = sum(row.statistics.within_2 * row.statistics.count for row in chosen) / count
    error = sum(row.statistics.error * row.statistics.count for row in chosen) / count
    name = "adjusted OFU" if chosen[0].adjusted else "OFU"
    return (
        f"{name} is within 2 points of MFU for {percent(within)} of {count:,} products on {harmless(report.recording.gpu, 80)} "
        f"(mean absolute error {error * 100:.2f} points)"
    )


def cells(row: Row) -> list[str]:
    """Return a row of table II in words."""
    told = row.statistics
    bias = UNKNOWN if told.bias is None else f"{told.bias * 100:+.2f}".replace("-", "−")
    return [
        f"{row.gpu} (paper)" if row.paper else row.gpu,
        row.precision.upper(),
        estimator(row),
        f"{told.count:,}",
        f"{told.error * 100:.2f}",
        bias,
        percent(told.within_2),
        percent(told.within_5),
    ]


def estimator(row: Row) -> str:
    """Return how a row's OFU was had."""
    name = "adjusted OFU" if row.adjusted else "OFU"
    return name if row.exact is None else f"{name}, {'cycle counters' if row.exact else 'sampled clock'}"


def _speedups(report: GemmOfuReport) -> str:
    rows = [[f"{one.size:,}", one.precision.upper(), f"{one.measured:.2f}", f"{one.by_ofu:.2f}"] for one in report.speedups]
    return table(["M = N = K", "precision", f"speedup over {BASE.upper()}", "by OFU × peak"], rows, left=2) if rows else ""


def html(report: GemmOfuReport) -> str:
    """Return the page: the table, then the pictures; it loads nothing from anywhere."""
    answer = headline(report)
    title = element("h1", answer[:1].upper() + answer[1:])
    body: list[Child] = [element("header", element("p", "OFU against MFU", class_="eyebrow"), title)]
    body += list(_sections(report))
    body.append(section("notes", "Notes", "", element("ul", [element("li", harmless(note, 2000)) for note in report.notes])))
    return document("OFU against MFU on known products", *body)


def _sections(report: GemmOfuReport) -> Iterator[Markup]:
    how = "Each product's OFU beside its MFU (FLOPs timed, over the peak of its precision), and the paper's own. MAE: mean absolute error."
    yield section("table", "Table II", how, _table(report))
    for name, title, how, draw in (
        ("errors", "Distribution of errors", "Each dot is a product. The paper's figure 4.", errors),
        ("overheads", "Padding over size", "What squares execute beyond need, by the kernel's name. The paper's figure 1.", overheads),
        ("speedups", "Speedup by precision", "Solid: measured; dashed: as OFU × peak tells it. The paper's figure 3.", speedups),
    ):
        if draw(report) is not None:
            yield section(name, title, how, figure(lambda w, draw=draw: draw(report, width=w, standalone=False) or Markup("")))  # type: ignore[misc]


def _table(report: GemmOfuReport) -> Markup:
    head = [element("th", name, scope="col", class_=_kind(place)) for place, name in enumerate(HEAD)]
    rows = [element("tr", [element("td", cell, class_=_kind(place)) for place, cell in enumerate(cells(row))]) for row in report.rows]
    return element("div", element("table", element("thead", element("tr", head)), element("tbody", rows)), class_="scroll")


def _kind(place: int) -> str | None:
    return "words" if place < 3 else None


def record(report: GemmOfuReport) -> dict[str, Any]:
    """Return table, pictures' data and every product as plain data: ratios, None for what is not known."""
    return {
        "gpu": report.recording.gpu,
        "date": report.recording.date,
        "machine": dict(report.recording.machine),
        "settings": dict(report.recording.settings),
        "rows": [
            {
                "gpu": row.gpu, "paper": row.paper, "precision": row.precision, "exact": row.exact, "adjusted": row.adjusted,
                "count": row.statistics.count, "mean_absolute_error": row.statistics.error, "bias": row.statistics.bias,
                "within_2_points": row.statistics.within_2, "within_5_points": row.statistics.within_5,
            }
            for row in report.rows
        ],
        "speedups": [vars(one) for one in report.speedups],
        "overheads": {precision: [list(point) for point in points] for precision, points in report.overheads.items()},
        "gemms": [_gemm(one) for one in report.estimates],
        "notes": list(report.notes),
    }  # fmt: skip


def _gemm(one: Estimate) -> dict[str, Any]:
    return {
        **vars(one.gemm),
        "mfu": one.mfu,
        "sampled_ofu": one.sampled,
        "exact_ofu": one.exact,
        "tile_efficiency": one.efficiency,
        "tile": None if one.cover is None else one.cover.tiling.words,
        "unknown": one.unknown or None,
    }
