"""The matrix products of a run as text, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ullage.errors import harmless
from ullage.metrics.tiles import adjusted_ofu
from ullage.product import Product, product
from ullage.reports.gemm_uses import GemmUse
from ullage.reports.gemms import GemmGroup, GemmSummary
from ullage.sums.lanes.code.layers import BETWEEN
from ullage.views.numbers import UNKNOWN, percent
from ullage.views.table import table
from ullage.views.times import seconds

_NAMES = 3  # of a layer's path, innermost ones, that a table shows
_KERNELS = ["kernel", "M × N × K", "precision", "tile", "count", "time", "share", "tile eff.", "padding", "TFLOP/s", "of peak"]
_PRODUCTS = ["M × N × K", "precision", "kernels", "count", "time", "share", "tile eff.", "padding", "TFLOP/s"]
_LAYERS = ["layer", "kernels", "count", "time", "share", "known", "tile eff.", "padding", "TFLOP/s"]


def text(found: GemmSummary, top: int = 20, by: str = "kernel", ofu: float | None = None) -> str:
    """Return the answer in a line, then each kernel with its product, each product, or each layer, most time first."""
    listed, head, words = {
        "kernel": ([_kernel(use, found.time) for use in found.rows[:top]], _KERNELS, 4),
        "product": ([_product(group, found.time) for group in found.products[:top]], _PRODUCTS, 2),
        "layer": ([_layer(group, found.time) for group in found.layers[:top]], _LAYERS, 1),
    }[by]
    count = len({"kernel": found.rows, "product": found.products, "layer": found.layers}[by])
    more = [f"… and {count - top:,} more"] if count > top else []
    notes = [f"note: {note}" for note in found.notes]
    answer = [*([] if ofu is None else [adjusted(found, ofu)]), summary(found)]
    return "\n".join([*answer, "", table(head, listed, left=words), *more, "", *notes]).rstrip() + "\n"


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


def _kernel(use: GemmUse, whole: int) -> list[str]:
    decoded = use.decoded
    tile = UNKNOWN if decoded is None or decoded.tile is None else "x".join(map(str, decoded.tile))
    known = [
        _short(harmless(use.kernel, 400), 48),
        sizes(use.product),
        use.precision or UNKNOWN,
        tile + (" (legacy)" if use.legacy else ""),
    ]
    return [*known, f"{use.count:,}", *_lost(use, whole), _speed(use.rate), percent(use.share_of_peak)]


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-(most // 2 - 1) :]}"


def _product(group: GemmGroup, whole: int) -> list[str]:
    known = [sizes(product(group.name)), group.precision or UNKNOWN, f"{group.kernels:,}", f"{group.count:,}"]
    return [*known, *_lost(group, whole), _speed(group.rate)]


def _layer(group: GemmGroup, whole: int) -> list[str]:
    path = [_short(name, 40) for name in harmless(group.name, 2000).split(BETWEEN)]
    name = BETWEEN.join((["…"] if len(path) > _NAMES else []) + path[-_NAMES:]) or "(no layer)"
    share, efficiency, padding = _lost(group, whole)[1:]
    time = seconds(group.time)
    return [name, f"{group.kernels:,}", f"{group.count:,}", time, share, percent(group.covered), efficiency, padding, _speed(group.rate)]


def _lost(found: GemmUse | GemmGroup, whole: int) -> list[str]:
    """Return the time, its share of all, and what tiles take of it."""
    efficiency = UNKNOWN if found.tile_efficiency is None else f"{found.tile_efficiency:.4f}"
    padding = UNKNOWN if found.tile_efficiency is None else seconds(found.padding)
    return [seconds(found.time), percent(found.time / whole if whole else None, 1), efficiency, padding]


def _speed(rate: float | None) -> str:
    return UNKNOWN if rate is None else f"{rate / 1e12:,.1f}"


def record(found: GemmSummary, ofu: float | None = None) -> dict[str, Any]:
    """Return it as JSON: times in s, FLOPs as integers."""
    given = {} if ofu is None else {"ofu": ofu, "adjusted_ofu": _times(ofu, found.tile_efficiency)}
    return {
        **given,
        **_sums(found),
        "unshaped_s": {why or "other": time / 1e9 for why, time in found.unshaped.items()},
        "gemms": [_use(use) for use in found.rows],
        "products": [{**_sizes(product(group.name)), "precision": group.precision, **_sums(group)} for group in found.products],
        "layers": [{"layer": group.name, **_sums(group)} for group in found.layers],
        "notes": list(found.notes),
    }


def _times(ofu: float, efficiency: float | None) -> float | None:
    return None if efficiency is None else float(adjusted_ofu(ofu, efficiency))


def _sums(found: GemmSummary | GemmGroup) -> dict[str, Any]:
    return {
        "count": found.count,
        "time_s": found.time / 1e9,
        "tile_efficiency": found.tile_efficiency,
        "theoretical_flops": found.theoretical_flops,
        "executed_flops": found.executed_flops,
        "executed_at_most": found.executed_at_most,
        "covered": found.covered,
        "padding_s": found.padding / 1e9,
        "legacy_s": found.legacy_time / 1e9,
        "flops_per_second": found.rate,
    }


def _sizes(asked: Product | None) -> dict[str, int]:
    return {} if asked is None else {"batch": asked.batch, "m": asked.m, "n": asked.n, "k": asked.k}


def _use(use: GemmUse) -> dict[str, Any]:
    decoded = None if use.decoded is None else {name: value for name, value in asdict(use.decoded).items() if value not in (None, (), "")}
    return {
        "kernel": use.kernel,
        **_sizes(use.product),
        "precision": use.precision,
        "count": use.count,
        "time_s": use.time / 1e9,
        "theoretical_flops": use.theoretical_flops,
        "executed_flops": use.executed_flops,
        "executed_at_most": use.executed_at_most,
        "tile_efficiency": use.tile_efficiency,
        "flops_per_second": use.rate,
        "share_of_peak": use.share_of_peak,
        "legacy": use.legacy,
        "unshaped": use.why or None,
        "decoded": decoded,
    }
