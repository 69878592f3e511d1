"""The view of a product's padding, and of a sweep of products."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ullage.errors import harmless
from ullage.kernels.tiling import Pair
from ullage.reports.gemms.gemm import GemmReport, squares
from ullage.views.draw import NARROW
from ullage.views.markup import Markup
from ullage.views.notation import COUNT, FIGURES, PERCENT_1, PERCENT_2
from ullage.views.numbers import counted, flops, percent
from ullage.views.view import Cell, Column, Headline, Item, ItemList, Picture, Section, Table, Value, View

ROWS = 40  # of a sweep's table; files and JSON have them all


def view(report: GemmReport) -> View:
    """Return the answer as data: tile efficiency first, then dimension by dimension, then waves and what MFU they leave."""
    cover = report.cover
    return View(
        kind="gemm",
        subject="Padding of a matrix product",
        headline=Headline(
            f"tile efficiency {percent(cover.efficiency, 1)}",
            f" of {shape(report)}, {report.dtype}: overhead {percent(cover.overhead, 2)}",
        ),
        basis=[f"tile {report.tiling.words}, cluster {cluster(report)}, {whence(report)}"],
        sections=[
            Section("padding", "Padding", [Picture(lambda width: _cover(report, width)), _dimensions(report)], _PADDING),
            Section("use", "What is left of the peak", [ItemList([Item(line) for line in _use(report)])]),
        ],
        notes=report.notes,
    )


def _cover(report: GemmReport, width: int) -> Markup:
    from ullage.render.svg.gemm import cover

    return cover(report, squares(report) if width > NARROW else (), width=width, standalone=False)


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


def _dimensions(report: GemmReport) -> Table:
    cover, product, step = report.cover, report.product, report.tiling.k_tile
    pieces = [f"{count:,} tiles of {size}" for count, size in zip(cover.tiles, report.tiling.tile, strict=True)]
    pieces.append("steps unknown" if step is None else f"{cover.effective[2] // step:,} steps of {step}")
    sizes = zip("MNK", (product.m, product.n, product.k), cover.effective, _overheads(report), pieces, strict=True)
    total = [Cell(value, flops(value, "")) for value in (product.flops, cover.executed)]
    columns = [Column("", key="dimension"), Column("needed", COUNT), Column("executed", COUNT), Column("overhead", PERCENT_2)]
    rows: list[Sequence[Value | Cell]] = [*sizes, ["FLOPs", *total, cover.overhead, ""]]
    return Table("padding", [*columns, Column("cut into", FIGURES)], rows)


def _overheads(report: GemmReport) -> tuple[float, ...]:
    """Return by how much tiles lengthen M, N and K."""
    needed = (report.product.m, report.product.n, report.product.k)
    return tuple((done - need) / need for done, need in zip(report.cover.effective, needed, strict=True))


def _use(report: GemmReport) -> Iterator[str]:
    yield _blocks(report)
    yield f"arithmetic intensity {report.intensity:,.0f} FLOP/B" + _ridge(report)
    if (kernel := report.kernel) is not None:
        known = [kernel.library, kernel.architecture, kernel.unit, None if kernel.stages is None else f"{kernel.stages} stages"]
        yield "kernel: " + ", ".join(word for word in known if word)
    if report.legacy is not None:
        yield f"legacy: {report.legacy}"
    if report.mfu_ceiling is not None:
        clock = ", at the GPU's highest clock" if report.clock_headroom > 1 else ""
        yield f"MFU at most {percent(report.mfu_ceiling, 1)}: what padding, the last wave and memory leave{clock}"
    if report.adjusted_ofu is not None:
        yield f"OFU {percent(report.ofu, 1)} adjusted for the padding: {percent(report.adjusted_ofu, 1)}, the MFU to expect"


def _blocks(report: GemmReport) -> str:
    cover, slices = report.cover, report.tiling.split_k
    blocks = counted(cover.blocks, "block") + (f" in {slices} slices of K" if slices > 1 else "")
    if report.chip is None:
        return f"{blocks}; waves are not known without --gpu"
    waves = f"{counted(report.waves or 0, 'wave')} of {cover.slots(report.chip.sms)}"
    return f"{blocks} in {waves} on {report.chip.name} ({report.chip.sms} SMs): wave efficiency {percent(report.wave_efficiency, 1)}"


def _ridge(report: GemmReport) -> str:
    if report.chip is None or report.ridge is None:
        return ""
    return f", {'below' if report.memory_bound else 'above'} the {report.ridge:,.0f} at which {report.chip.name} reaches its peak"


def sweep_view(reports: Sequence[GemmReport]) -> View:
    """Return a sweep as data: mean and worst overhead first, then a row a product; a terminal shows some, evenly chosen."""
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
        sections=[Section("products", "Product by product", [Picture(lambda width: _curve(reports, width)), table], _PADDING)],
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


def sweep_record(reports: Sequence[GemmReport]) -> dict[str, Any]:
    """Return a sweep as plain data: every product's own record, and the mean and the greatest overhead."""
    overheads = [report.cover.overhead for report in reports]
    return {
        "count": len(reports),
        "mean_overhead": sum(overheads) / len(overheads),
        "max_overhead": max(overheads),
        "products": [record(report) for report in reports],
    }


_PADDING = "What whole tiles execute beyond what is needed; needed over executed is the tile efficiency."
