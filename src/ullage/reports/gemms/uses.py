"""One kernel of a trace and the matrix product that it computed: its name decoded, the operator's sizes laid over its tiles."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ullage.errors import UllageError
from ullage.gpus.chip import Chip
from ullage.gpus.precision import canonical
from ullage.kernels.family import family
from ullage.kernels.gemms.gemm import GemmName, decode
from ullage.kernels.gemms.legacy import legacy_on
from ullage.kernels.tiling import LARGEST, Cover, Tiling, executed_at_most
from ullage.kernels.tiling import TiledProduct as Asked
from ullage.metrics.metric import ratio
from ullage.metrics.tiles import tile_efficiency
from ullage.product import REASONS, Product, multiplied, product
from ullage.sums.lanes.products import KernelProduct

# What libraries launch beside a product: sums over slices of K, their first zeros.
_BESIDE = re.compile(r"splitK_?reduce|PostGSU|^Cijk_(?!A)", re.IGNORECASE)
_ROW_MAJOR = ("triton", "deepgemm", "trtllm")  # written for row-major matrices; BLAS and what is called through it are column-major
_STREAM_K = re.compile(r"_SK[1-9]")  # Tensile: as many blocks as the GPU holds, whatever the tiles


@dataclass(frozen=True)
class GemmUse:
    """A kernel and the product that it computed `count` times in `time` ns (summed over streams and devices), in one layer.

    `product` counts as the operator does, row-major; None where it is not known, and then `why` may say why (a word of
    `ullage.product`). `decoded` is what the name says, None for a name of no known scheme. FLOPs are of all `count`;
    `executed_flops` None where tile or product are not known; `executed_at_most` is more where the name is silent on clusters.
    `peak` is that of its precision on this GPU in FLOP/s, `legacy` why such a kernel cannot reach it (None: it can, or not known).
    """

    kernel: str
    decoded: GemmName | None
    product: Product | None
    why: str
    layer: str
    precision: str | None
    count: int
    time: int
    theoretical_flops: int | None
    executed_flops: int | None
    executed_at_most: int | None
    peak: float | None
    legacy: str | None

    @property
    def tile_efficiency(self) -> float | None:
        """The share of the executed FLOPs that is no padding."""
        value: float | None = None if self.executed_flops is None else tile_efficiency(self.theoretical_flops, self.executed_flops)
        return value

    @property
    def padding(self) -> float | None:
        """The time in ns that goes by on padding: time × (1 − tile efficiency)."""
        return None if self.tile_efficiency is None else self.time * (1 - self.tile_efficiency)

    @property
    def rate(self) -> float | None:
        """FLOP/s while it ran, padding not counted."""
        value: float | None = None if self.theoretical_flops is None else ratio(self.theoretical_flops, self.time / 1e9)
        return value

    @property
    def share_of_peak(self) -> float | None:
        """The MFU of this kernel while it ran."""
        return None if self.rate is None or self.peak is None else ratio(self.rate, self.peak)


def gemm_use(row: KernelProduct, chip: Chip | None) -> GemmUse | None:
    """Return what a row says of a matrix product, None for kernels that are none."""
    decoded = decode(row.kernel)
    if is_beside(row.kernel) or (decoded is None and family(row.kernel) != "gemm"):
        return None
    asked = product(row.product)
    precision = _precision(decoded, asked)
    return GemmUse(
        kernel=row.kernel,
        decoded=decoded,
        product=asked,
        why=row.product if row.product in REASONS else several.kind if (several := multiplied(row.product)) is not None else "",
        layer=row.layer,
        precision=precision,
        count=row.count,
        time=row.time,
        theoretical_flops=None if asked is None else row.count * asked.flops,
        executed_flops=_executed(row, asked, decoded),
        executed_at_most=_executed(row, asked, decoded, at_most=True),
        peak=chip.peak(precision) if chip is not None and precision is not None and precision in chip.precisions else None,
        legacy=legacy_on(decoded, chip.compute_capability) if decoded and chip is not None and chip.vendor == "NVIDIA" else None,
    )


def _executed(row: KernelProduct, asked: Product | None, decoded: GemmName | None, *, at_most: bool = False) -> int | None:
    cover = cover_of(asked, decoded, row.blocks)
    if cover is None or decoded is None:
        return None
    return row.count * (executed_at_most(cover.product, cover.tiling) if at_most and decoded.silent_on_cluster else cover.executed)


def is_beside(kernel: str) -> bool:
    """Return whether a library launches this kernel beside a product, and it multiplies nothing itself.

    >>> is_beside("void cublasLt::splitKreduce_kernel<32, 16, int>()"), is_beside("volta_sgemm_128x64_nn")
    (True, False)
    """
    return _BESIDE.search(kernel) is not None


def is_stream_k(decoded: GemmName) -> bool:
    """Return whether a kernel shares its work out evenly among as many blocks as the GPU holds: such a kernel has no waves.

    >>> is_stream_k(decode("Cijk_Alik_Bljk_BBS_BH_MT256x256x64_MI16x16x1_SK3"))
    True
    """
    return _STREAM_K.search(decoded.name) is not None


def cover_of(asked: Product | None, decoded: GemmName | None, blocks: int) -> Cover | None:
    """Return a product as the tiles of a kernel cover it, None where product or tile are not known, or no library has such sizes."""
    if asked is None or decoded is None or decoded.tile is None or max(asked.batch, asked.m, asked.n, asked.k) > LARGEST:
        return None
    return _cover(kernels_own(asked, decoded, blocks), decoded)


def kernels_own(asked: Product, decoded: GemmName, blocks: int) -> Product:
    """Return a product as the kernel counts it: M and N of a row-major operator change places for a column-major library.

    Where the grid has as many `blocks` as tiles cover the product the other way round, and none that fits this way, it is that way round
    (a product whose result lies transposed). Kernels that stay on the GPU have a grid that tells nothing.

    >>> tall = decode("volta_sgemm_128x64_nn")
    >>> kernels_own(Product(1, 1024, 64, 512), tall, 16).m, kernels_own(Product(1, 1024, 64, 512), tall, 8).m
    (64, 1024)
    """
    usual = asked if decoded.library in _ROW_MAJOR else asked.transposed
    other = usual.transposed
    if decoded.tile is None or blocks < 1 or decoded.unit in ("wgmma", "tcgen05") or is_stream_k(decoded):
        return usual
    turned = blocks == _cover(other, decoded).blocks and blocks % _cover(usual, decoded).blocks != 0
    return other if turned else usual


def _cover(own: Product, decoded: GemmName) -> Cover:
    assert decoded.tile is not None
    return Cover(Asked(own.m, own.n, own.k, own.batch), Tiling(decoded.tile, decoded.k_tile, decoded.cluster or (1, 1)))


def _precision(decoded: GemmName | None, asked: Product | None) -> str | None:
    """Return the precision that is multiplied in: the kernel's where its name tells, else the operator's."""
    word = (decoded.a if decoded is not None else None) or (asked.precision if asked is not None else None)
    try:
        return canonical(word) if word else None
    except UllageError:
        return word  # "fp32" and complex numbers: no tensor core has them, and no peak
