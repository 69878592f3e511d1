"""The padding of matrix products as text and as plain data for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ullage.errors import harmless
from ullage.kernels.tiling import Pair
from ullage.reports.gemm import GemmReport
from ullage.views.numbers import UNKNOWN, percent
from ullage.views.numbers import flops as counted
from ullage.views.table import table

ROWS = 40  # of a sweep's table; JSON has them all


def text(report: GemmReport) -> str:
    """Return the report as text: tile efficiency first, then dimension by dimension, then waves and what MFU they leave."""
    parts = [_headline(report), _dimensions(report), _use(report), _notes(report.notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(report: GemmReport) -> str:
    cover = report.cover
    lines = [
        f"tile efficiency {percent(cover.efficiency, 1)} of {shape(report)}, {report.dtype}: overhead {percent(cover.overhead, 2)}",
        f"tile {report.tiling.words}, cluster {cluster(report)}, {whence(report)}",
    ]
    return "\n".join(lines)


def shape(report: GemmReport) -> str:
    """Return a product's size in words: "4096 × 4096 × 8192", with its batch where it has one."""
    p = report.product
    return f"{p.m} × {p.n} × {p.k}" + (f", batch {p.batch:,}" if p.batch > 1 else "")


def pair(sizes: Pair) -> str:
    """Return two sizes as names of kernels have them: "2x1"."""
    return f"{sizes[0]}x{sizes[1]}"


def cluster(report: GemmReport) -> str:
    """Return the cluster in words."""
    return "unknown" if "cluster" in report.unknown else pair(report.tiling.cluster)


def whence(report: GemmReport) -> str:
    """Return where the tile is from, in words."""
    words = {"name": "from the kernel's name", "given": "as given", "predicted": "predicted by"}[report.source.whose]
    return words if report.source.whose == "given" else f"{words} {harmless(report.source.by, 160)}"


def _dimensions(report: GemmReport) -> str:
    cover, product = report.cover, report.product
    step = report.tiling.k_tile
    pieces = [f"{count:,} tiles of {size}" for count, size in zip(cover.tiles, report.tiling.tile, strict=True)]
    pieces.append("steps unknown" if step is None else f"{cover.effective[2] // step:,} steps of {step}")
    rows = [
        [name, f"{need:,}", f"{done:,}", percent(overhead, 2), cut]
        for name, need, done, overhead, cut in zip(
            "MNK", (product.m, product.n, product.k), cover.effective, _overheads(report), pieces, strict=True
        )
    ]
    rows.append(["FLOPs", counted(product.flops, ""), counted(cover.executed, ""), percent(cover.overhead, 2), ""])
    return table(["", "needed", "executed", "overhead", "cut into"], rows)


def _overheads(report: GemmReport) -> tuple[float, ...]:
    """Return by how much tiles lengthen M, N and K."""
    needed = (report.product.m, report.product.n, report.product.k)
    return tuple((done - need) / need for done, need in zip(report.cover.effective, needed, strict=True))


def _use(report: GemmReport) -> str:
    lines = [_blocks(report), f"arithmetic intensity {report.intensity:,.0f} FLOP/B" + _ridge(report)]
    if report.kernel is not None:
        lines.append(_kernel(report))
    if report.mfu_ceiling is not None:
        clock = ", at the GPU's highest clock" if report.clock_headroom > 1 else ""
        lines.append(f"MFU at most {percent(report.mfu_ceiling, 1)}: what padding, the last wave and memory leave{clock}")
    if report.adjusted_ofu is not None:
        lines.append(f"OFU {percent(report.ofu, 1)} adjusted for the padding: {percent(report.adjusted_ofu, 1)}, the MFU to expect")
    return "\n".join(line for line in lines if line)


def _blocks(report: GemmReport) -> str:
    cover, slices = report.cover, report.tiling.split_k
    cut = f" in {slices} slices of K" if slices > 1 else ""
    blocks = f"{cover.blocks:,} block{'' if cover.blocks == 1 else 's'}{cut}"
    if report.chip is None:
        return f"{blocks}; waves are not known without --gpu"
    waves = f"{report.waves:,} wave{'' if report.waves == 1 else 's'} of {cover.slots(report.chip.sms)}"
    return f"{blocks} in {waves} on {report.chip.name} ({report.chip.sms} SMs): wave efficiency {percent(report.wave_efficiency, 1)}"


def _ridge(report: GemmReport) -> str:
    if report.chip is None or report.ridge is None:
        return ""
    return f", {'below' if report.memory_bound else 'above'} the {report.ridge:,.0f} at which {report.chip.name} reaches its peak"


def _kernel(report: GemmReport) -> str:
    kernel = report.kernel
    assert kernel is not None
    known = [kernel.library, kernel.architecture, kernel.unit, None if kernel.stages is None else f"{kernel.stages} stages"]
    told = "kernel: " + ", ".join(word for word in known if word)
    return told if report.legacy is None else f"{told}\nlegacy: {report.legacy}"


def _notes(notes: Sequence[str]) -> str:
    return "\n".join(f"note: {harmless(note, 1000)}" for note in notes)


def record(report: GemmReport) -> dict[str, Any]:
    """Return the report as plain data: integers for FLOPs and sizes, ratios in [0, 1]; what is not known is null."""
    cover, product = report.cover, report.product
    return {
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "batch": product.batch,
        "dtype": report.dtype,
        "theoretical_flops": product.flops,
        "executed_flops": cover.executed,
        "overhead": cover.overhead,
        "tile_efficiency": cover.efficiency,
        "effective": list(cover.effective),
        "tile": list(report.tiling.tile),
        "k_tile": report.tiling.k_tile,
        "cluster": None if "cluster" in report.unknown else list(report.tiling.cluster),
        "split_k": None if "split_k" in report.unknown else report.tiling.split_k,
        "source": report.source.whose,
        "source_detail": report.source.by,
        "tiles": list(cover.tiles),
        "k_steps": None if report.tiling.k_tile is None else cover.effective[2] // report.tiling.k_tile,
        "overheads": list(_overheads(report)),
        "blocks": cover.blocks,
        "gpu": None if report.chip is None else report.chip.name,
        "sms": None if report.chip is None else report.chip.sms,
        "blocks_a_wave": None if report.chip is None else cover.slots(report.chip.sms),
        "ridge": report.ridge,
        "waves": report.waves,
        "wave_efficiency": report.wave_efficiency,
        "arithmetic_intensity": report.intensity,
        "memory_bound": report.memory_bound,
        "mfu_ceiling": report.mfu_ceiling,
        "legacy": report.legacy,
        "ofu": report.ofu,
        "adjusted_ofu": report.adjusted_ofu,
        "notes": list(report.notes),
    }


def sweep_text(reports: Sequence[GemmReport]) -> str:
    """Return a sweep as text: mean and worst overhead first, then a row a product, evenly chosen where there are many."""
    overheads = [report.cover.overhead for report in reports]
    worst = max(reports, key=lambda report: report.cover.overhead)
    head = (
        f"overhead {percent(sum(overheads) / len(overheads), 1)} on average over {len(reports):,} products, "
        f"at most {percent(worst.cover.overhead, 1)} ({shape(worst)}), {worst.dtype}"
    )
    shown = thinned(reports)
    rows = [
        [
            *(f"{size:,}" for size in (r.product.m, r.product.n, r.product.k)),
            r.tiling.words,
            cluster(r),
            percent(r.cover.overhead, 2),
            percent(r.cover.efficiency, 1),
            UNKNOWN if r.waves is None else f"{r.waves:,}",
            percent(r.wave_efficiency, 1),
        ]
        for r in shown
    ]
    titles = ["M", "N", "K", "tile", "cluster", "overhead", "tile efficiency", "waves", "wave efficiency"]
    told = list(dict.fromkeys(note for report in reports for note in report.notes))
    if len(shown) < len(reports):
        told.append(f"{len(shown)} of {len(reports):,} products are listed; --json has all")
    sources = list(dict.fromkeys(whence(report) for report in reports))
    return "\n\n".join(part for part in (f"{head}\ntiles {'; '.join(sources)}", table(titles, rows, left=0), _notes(told)) if part) + "\n"


def thinned(reports: Sequence[GemmReport], most: int = ROWS) -> list[GemmReport]:
    """Return at most `most` reports, the first and the last among them, evenly chosen."""
    if len(reports) <= most:
        return list(reports)
    return [reports[round(i * (len(reports) - 1) / (most - 1))] for i in range(most)]


def sweep_record(reports: Sequence[GemmReport]) -> dict[str, Any]:
    """Return a sweep as plain data: every product's own record, and the mean and the greatest overhead."""
    overheads = [report.cover.overhead for report in reports]
    return {
        "count": len(reports),
        "mean_overhead": sum(overheads) / len(overheads),
        "max_overhead": max(overheads),
        "products": [record(report) for report in reports],
    }
