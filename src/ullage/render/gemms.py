"""The matrix products of a run, and the same as plain data for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import UNSET, UnsetType, field

from ullage.errors import harmless
from ullage.metrics.tiles import adjusted_ofu
from ullage.product import Product, product
from ullage.reports.gemms.gemms import GemmGroup, GemmSummary
from ullage.reports.gemms.uses import GemmUse
from ullage.sums.lanes.code.layers import BETWEEN
from ullage.views.declared import Document, Flops, Rate, Ratio, Seconds, Words, filled, plain
from ullage.views.notation import COUNT, FACTOR_4, KERNEL, PERCENT, PERCENT_1, TERAFLOPS, TIME
from ullage.views.numbers import UNKNOWN, percent
from ullage.views.times import seconds
from ullage.views.view import Cell, Column, Headline, Section, Table, Value, View

By = Literal["kernel", "product", "layer"]
_NAMES = 3  # of a layer's path, innermost ones, that a table shows


def view(found: GemmSummary, top: int = 20, by: By = "kernel") -> View:
    """Return the answer, then each kernel with its product, each product and each layer, most time first; short forms show those that are
    asked for."""
    ofu = found.ofu
    answer = summary(found) if ofu is None else adjusted(found, ofu)
    tables = {
        "kernel": Table("kernels", _KERNELS, [_kernel(use, found.time) for use in found.rows], brief=top),
        "product": Table("products", _PRODUCTS, [_product(group, found.time) for group in found.products], brief=top),
        "layer": Table("layers", _LAYERS, [_layer(group, found.time) for group in found.layers], brief=top),
    }
    order = sorted(tables, key=lambda name: name != by)
    return View(
        kind="trace-gemms",
        subject="Matrix products of a run",
        headline=Headline(answer[:1].upper() + answer[1:]),
        lede=[] if ofu is None else [f"{summary(found)[:1].upper()}{summary(found)[1:]}."],
        sections=[Section(f"by-{name}", f"By {name}", [tables[name]], detail=name != by) for name in order],
        notes=[harmless(note, 1000) for note in found.notes],
    )


_SPENT = [Column("time", TIME), Column("share", PERCENT_1)]
_LOST = [Column("tile eff.", FACTOR_4, key="tile efficiency"), Column("padding", TIME), Column("TFLOP/s", TERAFLOPS, key="FLOP/s")]
_KERNELS = [
    *(Column("kernel", KERNEL), Column("M × N × K"), Column("precision"), Column("tile")),
    *(Column("count", COUNT), *_SPENT, *_LOST, Column("of peak", PERCENT)),
]
_PRODUCTS = [Column("M × N × K"), Column("precision"), Column("kernels", COUNT), Column("count", COUNT), *_SPENT, *_LOST]
_LAYERS = [Column("layer", room=60), Column("kernels", COUNT), Column("count", COUNT), *_SPENT, Column("known", PERCENT), *_LOST]


def adjusted(found: GemmSummary, ofu: float) -> str:
    """Return adjusted OFU in a line, or that it is not known."""
    if found.tile_efficiency is None:
        return f"adjusted OFU is not known: no tile efficiency to set against OFU {percent(ofu, 1)}"
    value = adjusted_ofu(ofu, found.tile_efficiency)
    return f"adjusted OFU {percent(value, 1)}: OFU {percent(ofu, 1)} × tile efficiency {found.tile_efficiency:.4f}"


def summary(found: GemmSummary) -> str:
    """Return what tiles cost in a line."""
    if found.tile_efficiency is None:
        return f"GEMMs take {seconds(found.time)}; their tile efficiency is not known"
    legacy = f"; {percent(found.legacy_time / found.time)} of it in legacy kernels" if found.legacy_time and found.time else ""
    return f"tile efficiency {found.tile_efficiency:.4f} over {percent(found.covered)} of {seconds(found.time)} in GEMMs{legacy}"


def sizes(asked: Product | None) -> str:
    """Return a product's sizes in words.

    >>> sizes(Product(1, 8, 16, 4)), sizes(Product(3, 8, 16, 4)), sizes(None)
    ('8 × 16 × 4', '3 × 8 × 16 × 4', '–')
    """
    if asked is None:
        return UNKNOWN
    return f"{f'{asked.batch} × ' if asked.batch > 1 else ''}{asked.m} × {asked.n} × {asked.k}"


def _kernel(use: GemmUse, whole: int) -> Sequence[Value | Cell]:
    decoded = use.decoded
    tile = UNKNOWN if decoded is None or decoded.tile is None else "x".join(map(str, decoded.tile))
    known = [use.kernel, sizes(use.product), use.precision or UNKNOWN, tile + (" (legacy)" if use.legacy else "")]
    return [*known, use.count, *_spent(use, whole), *_lost(use), use.share_of_peak]


def _product(group: GemmGroup, whole: int) -> Sequence[Value | Cell]:
    known = [sizes(product(group.name)), group.precision or UNKNOWN]
    return [*known, group.kernels, group.count, *_spent(group, whole), *_lost(group)]


def _layer(group: GemmGroup, whole: int) -> Sequence[Value | Cell]:
    path = group.name.split(BETWEEN)
    name = BETWEEN.join((["…"] if len(path) > _NAMES else []) + [harmless(part, 40) for part in path[-_NAMES:]]) or "(no layer)"
    return [Cell(group.name, name), group.kernels, group.count, *_spent(group, whole), group.covered, *_lost(group)]


def _spent(found: GemmUse | GemmGroup, whole: int) -> list[Value]:
    return [found.time, found.time / whole if whole else None]


def _lost(found: GemmUse | GemmGroup) -> list[Value]:
    """Return what tiles take of the time, and how fast it went."""
    return [found.tile_efficiency, None if found.tile_efficiency is None else found.padding, found.rate]


class GemmSumsDocument(Document):
    """What matrix products come to: times in s, FLOPs, and what tiles pad."""

    count: int
    time: Seconds = field(name="time_s")
    tile_efficiency: Ratio | None
    theoretical_flops: Flops
    executed_flops: Flops
    executed_at_most: Flops
    covered: Ratio
    padding: Seconds = field(name="padding_s")
    legacy_time: Seconds = field(name="legacy_s")
    rate: Rate | None = field(name="flops_per_second")


class GemmProductDocument(GemmSumsDocument, kw_only=True):
    """The products of one size."""

    batch: int | UnsetType = UNSET
    m: int | UnsetType = UNSET
    n: int | UnsetType = UNSET
    k: int | UnsetType = UNSET
    precision: str | None


class GemmLayerDocument(GemmSumsDocument):
    """The products of one layer."""

    name: str = field(name="layer")


class GemmNameDocument(Document, kw_only=True):
    """What a kernel's name says of its matrix product; what it does not say is missing."""

    name: str
    library: str
    unit: str | UnsetType = UNSET
    architecture: str | UnsetType = UNSET
    instruction: list[int] | UnsetType = UNSET
    a: str | UnsetType = UNSET
    b: str | UnsetType = UNSET
    accumulator: str | UnsetType = UNSET
    result: str | UnsetType = UNSET
    tile: list[int] | UnsetType = UNSET
    k_tile: int | UnsetType = UNSET
    stages: int | UnsetType = UNSET
    cluster: list[int] | UnsetType = UNSET
    warps: list[int] | UnsetType = UNSET
    two_cta: bool
    split: bool
    split_k: int | UnsetType = UNSET
    layout: str | UnsetType = UNSET
    align: int | UnsetType = UNSET
    features: list[str] | UnsetType = UNSET
    doubts: list[str] | UnsetType = UNSET


class GemmUseDocument(Document, kw_only=True):
    """A kernel on products of one size."""

    kernel: str
    batch: int | UnsetType = UNSET
    m: int | UnsetType = UNSET
    n: int | UnsetType = UNSET
    k: int | UnsetType = UNSET
    precision: str | None
    count: int
    time: Seconds = field(name="time_s")
    theoretical_flops: Flops | None
    executed_flops: Flops | None
    executed_at_most: Flops | None
    tile_efficiency: Ratio | None
    rate: Rate | None = field(name="flops_per_second")
    share_of_peak: Ratio | None
    legacy: str | None
    why: Words = field(name="unshaped")
    decoded: GemmNameDocument | None


class GemmsDocument(GemmSumsDocument, kw_only=True):
    """The answer of `ullage trace gemms`: the matrix products of a trace."""

    ofu: Ratio | UnsetType = UNSET
    adjusted_ofu: Ratio | UnsetType | None = UNSET
    unshaped_s: dict[str, float]
    gemms: list[GemmUseDocument]
    products: list[GemmProductDocument]
    layers: list[GemmLayerDocument]
    notes: list[str]


def record(found: GemmSummary) -> dict[str, Any]:
    """Return it as JSON: times in s, FLOPs as integers."""
    return plain(declared(found))


def declared(found: GemmSummary) -> GemmsDocument:
    """Return it as a document."""
    given: dict[str, Any] = dict.fromkeys(("ofu", "adjusted_ofu"), UNSET)
    if found.ofu is not None:
        given = {"ofu": found.ofu, "adjusted_ofu": _times(found.ofu, found.tile_efficiency)}
    return filled(
        GemmsDocument,
        found,
        unshaped_s={why or "other": time / 1e9 for why, time in found.unshaped.items()},
        gemms=[_use(use) for use in found.rows],
        products=[filled(GemmProductDocument, group, **_sizes(product(group.name))) for group in found.products],
        **given,
    )


def _times(ofu: float, efficiency: float | None) -> float | None:
    return None if efficiency is None else float(adjusted_ofu(ofu, efficiency))


def _sizes(asked: Product | None) -> dict[str, int]:
    return {} if asked is None else {"batch": asked.batch, "m": asked.m, "n": asked.n, "k": asked.k}


def _use(use: GemmUse) -> GemmUseDocument:
    said = {} if use.decoded is None else {name: value for name, value in vars(use.decoded).items() if value not in (None, (), "")}
    decoded = None if use.decoded is None else GemmNameDocument(**said)
    return filled(GemmUseDocument, use, decoded=decoded, **_sizes(use.product))
