"""The tiles to expect of a model step's products, as text and as plain data for JSON."""

from __future__ import annotations

from typing import Any

from ullage.errors import harmless
from ullage.render.gemm import pair
from ullage.reports.gemm_ledger import TiledGemm, TilesReport, efficiency
from ullage.views.numbers import percent
from ullage.views.table import table


def text(report: TilesReport) -> str:
    """Return the report as text: the tile efficiency to expect, then a row a term and pass, its largest product standing for it."""
    whole = percent(report.efficiency, 1)
    covered = f"over {percent(report.share, 1)} of the step's FLOPs, predicted for {report.gpu}"
    head = f"tile efficiency {whole} to expect, {covered} by {'; '.join(report.sources) or 'nobody'}"
    rows = [_row(name, pass_, members) for (name, pass_), members in report.terms.items()]
    titles = ["term", "pass", "M", "N", "K", "products", "tile", "cluster", "efficiency"]
    body = table(titles, rows, left=2) if rows else ""
    notes = [*report.notes, "M and N as cuBLAS counts them; attention, scans and convolutions run in kernels of their own and are left out"]
    return "\n\n".join(part for part in (head, body, "\n".join(f"note: {harmless(note, 1000)}" for note in notes)) if part) + "\n"


def _row(name: str, pass_: str, members: list[TiledGemm]) -> list[str]:
    largest = max(members, key=lambda row: row.gemm.flops)
    product, tiling = largest.cover.product, largest.cover.tiling
    sizes = [f"{size:,}" for size in (product.m, product.n, product.k)]
    count = f"{sum(row.gemm.count for row in members):,}"
    return [harmless(name, 60), pass_, *sizes, count, tiling.words, pair(tiling.cluster), percent(efficiency(members), 1)]


def record(report: TilesReport) -> dict[str, Any]:
    """Return the report as plain data: a product a row, ratios in [0, 1]; null where there is no product."""
    return {
        "tile_efficiency": report.efficiency,
        "share": report.share,
        "gpu": report.gpu,
        "source": "predicted",
        "source_detail": list(report.sources),
        "products": [
            {
                "name": row.gemm.name,
                "pass": row.gemm.pass_,
                "precision": row.gemm.precision,
                "m": row.gemm.m,
                "n": row.gemm.n,
                "k": row.gemm.k,
                "count": row.gemm.count,
                "theoretical_flops": row.gemm.flops,
                "executed_flops": row.executed,
                "tile": list(row.cover.tiling.tile),
                "k_tile": row.cover.tiling.k_tile,
                "cluster": list(row.cover.tiling.cluster),
                "tile_efficiency": row.cover.efficiency,
            }
            for row in report.rows
        ],
        "notes": list(report.notes),
    }
