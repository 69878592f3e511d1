"""The view of a product's padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from ullage.errors import harmless
from ullage.kernels.tiling import Pair
from ullage.reports.gemms.gemm import GemmReport, squares
from ullage.views.declared import At, Document, Flops, Ratio, filled, plain
from ullage.views.draw import NARROW
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form
from ullage.views.markup import Markup
from ullage.views.notation import COUNT, FIGURES, PERCENT_2
from ullage.views.numbers import counted, flops, percent
from ullage.views.view import Cell, Column, Headline, Item, ItemList, Picture, Section, Table, Value, View


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
            Section("padding", "Padding", [Picture(lambda width: _cover(report, width)), _dimensions(report)], PADDING),
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


FORMS = (*VIEW_FORMS, ".svg")


def more_forms(report: GemmReport, made: View) -> dict[str, Form]:  # noqa: ARG001 - a question's `more_forms`
    """Return what makes the forms of files that other reports do not have: the tiles of the product as a picture."""
    from ullage.render.svg.gemm import cover

    return {".svg": lambda: str(cover(report, squares(report)))}


class GemmDocument(Document):
    """The answer of `ullage gemm`: what tiles, clusters and waves cost a matrix product."""

    m: Annotated[int, At("product.m")]
    n: Annotated[int, At("product.n")]
    k: Annotated[int, At("product.k")]
    batch: Annotated[int, At("product.batch")]
    dtype: str
    theoretical_flops: Annotated[Flops, At("product.flops")]
    executed_flops: Annotated[Flops, At("cover.executed")]
    overhead: Annotated[float, At("cover.overhead")]
    tile_efficiency: Annotated[Ratio, At("cover.efficiency")]
    effective: Annotated[list[int], At("cover.effective")]
    tile: Annotated[list[int], At("tiling.tile")]
    k_tile: Annotated[int | None, At("tiling.k_tile")]
    cluster: list[int] | None
    split_k: int | None
    source: Annotated[str, At("source.whose")]
    source_detail: Annotated[str, At("source.by")]
    tiles: Annotated[list[int], At("cover.tiles")]
    k_steps: int | None
    overheads: list[float]
    blocks: Annotated[int, At("cover.blocks")]
    gpu: Annotated[str | None, At("chip.name")]
    sms: Annotated[int | None, At("chip.sms")]
    blocks_a_wave: int | None
    ridge: float | None
    waves: int | None
    wave_efficiency: Ratio | None
    arithmetic_intensity: Annotated[float, At("intensity")]
    memory_bound: bool | None
    mfu_ceiling: Ratio | None
    legacy: str | None
    ofu: Ratio | None
    adjusted_ofu: Ratio | None
    notes: list[str]


def record(report: GemmReport) -> dict[str, Any]:
    """Return the report as plain data: integers for FLOPs and sizes, ratios in [0, 1]; what is not known is null."""
    return plain(declared(report))


def declared(report: GemmReport) -> GemmDocument:
    """Return the report as a document."""
    cover, tiling, chip = report.cover, report.tiling, report.chip
    return filled(
        GemmDocument,
        report,
        cluster=None if "cluster" in report.unknown else list(tiling.cluster),
        split_k=None if "split_k" in report.unknown else tiling.split_k,
        k_steps=None if tiling.k_tile is None else cover.effective[2] // tiling.k_tile,
        overheads=list(_overheads(report)),
        blocks_a_wave=None if chip is None else cover.slots(chip.sms),
    )


PADDING = "What whole tiles execute beyond what is needed; needed over executed is the tile efficiency."
