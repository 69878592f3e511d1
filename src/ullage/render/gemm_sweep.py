"""The view of a sweep of matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ullage.render.gemm import PADDING, GemmDocument, cluster, declared, shape, whence
from ullage.reports.gemms.gemm import GemmReport, GemmSweep
from ullage.views.declared import Document, plain
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form
from ullage.views.markup import Markup
from ullage.views.notation import COUNT, FIGURES, PERCENT_1, PERCENT_2
from ullage.views.numbers import percent
from ullage.views.view import Column, Headline, Picture, Section, Table, Value, View

ROWS = 40  # of the table on a terminal; files and JSON have them all


def view(sweep: GemmSweep) -> View:
    """Return a sweep as data: mean and worst overhead first, then a row a product; a terminal shows some, evenly chosen."""
    reports = sweep.reports
    overheads = [report.cover.overhead for report in reports]
    worst = max(reports, key=lambda report: report.cover.overhead)
    over = f" on average over {len(reports):,} products, at most {percent(worst.cover.overhead, 1)} ({shape(worst)}), {worst.dtype}"
    columns = [*(Column(name, COUNT) for name in "MNK"), Column("tile", FIGURES), Column("cluster", FIGURES), Column("overhead", PERCENT_2)]
    columns += [Column("tile efficiency", PERCENT_1), Column("waves", COUNT), Column("wave efficiency", PERCENT_1)]
    chosen = thinned(len(reports))
    elsewhere = f"{len(chosen)} of {len(reports):,} are listed, and --json has all"
    table = Table("products", columns, [_swept(report) for report in reports], chosen=chosen, elsewhere=elsewhere)
    return View(
        kind="gemm-sweep",
        subject="Padding of matrix products",
        headline=Headline(f"overhead {percent(sum(overheads) / len(overheads), 1)}", over),
        basis=[f"tiles {'; '.join(dict.fromkeys(whence(report) for report in reports))}"],
        sections=[Section("products", "Product by product", [Picture(lambda width: _curve(reports, width)), table], PADDING)],
        notes=[*dict.fromkeys(note for report in reports for note in report.notes)],
    )


def _curve(reports: Sequence[GemmReport], width: int) -> Markup:
    from ullage.render.svg.gemm import curve

    return curve(reports, width=width, standalone=False)


def _swept(report: GemmReport) -> list[Value]:
    product, cover = report.product, report.cover
    tile = [report.tiling.words, cluster(report)]
    return [product.m, product.n, product.k, *tile, cover.overhead, cover.efficiency, report.waves, report.wave_efficiency]


def thinned(count: int, most: int = ROWS) -> list[int]:
    """Return at most `most` of so many numbers from 0 on, the first and the last among them, evenly chosen.

    >>> thinned(3), thinned(101, most=3)
    ([0, 1, 2], [0, 50, 100])
    """
    return [*range(count)] if count <= most else [round(number * (count - 1) / (most - 1)) for number in range(most)]


class GemmSweepDocument(Document):
    """The answer of `ullage gemm` over a range of sizes."""

    count: int
    mean_overhead: float
    max_overhead: float
    products: list[GemmDocument]


def record(sweep: GemmSweep) -> dict[str, Any]:
    """Return a sweep as plain data: every product's own record, and the mean and the greatest overhead."""
    overheads = [report.cover.overhead for report in sweep.reports]
    products = [declared(report) for report in sweep.reports]
    mean = sum(overheads) / len(overheads)
    return plain(GemmSweepDocument(count=len(products), mean_overhead=mean, max_overhead=max(overheads), products=products))


FORMS = (*VIEW_FORMS, ".svg")


def more_forms(sweep: GemmSweep, made: View) -> dict[str, Form]:  # noqa: ARG001 - a question's `more_forms`
    """Return what makes the forms of files that other reports do not have: the overhead over the sizes as a picture."""
    from ullage.render.svg.gemm import curve

    return {".svg": lambda: str(curve(sweep.reports))}
