"""The fastest matrix product that the library makes of any shape: the ceiling that real work can reach (MAMF)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ullage.benches import products
from ullage.benches.bench import Data, Labels, LibraryCase, Prepared, TableLayout, Target, bench
from ullage.benches.linear import has_fp8
from ullage.kernels.tiling import TiledProduct

DTYPES = ("bf16", "fp16", "tf32", "fp8")
SQUARES = (2048, 4096, 6144, 8192, 12288, 16384)
DEPTHS = (2048, 4096, 8192, 16384)
TILE = (128, 256)  # the largest that one warp group pair of Hopper, and one SM of Blackwell, keeps its sums of
_BYTES = {"bf16": 2, "fp16": 2, "tf32": 4, "fp8": 1}


@bench(
    "best-gemm",
    title="Best achievable matrix product over shapes",
    source="the search is Bekman's maximum achievable matmul FLOPS (ML Engineering, compute/accelerator); no figures of the Hopper paper",
    layout=TableLayout(rows=("m", "n", "k"), across=("dtype",)),
    needs="torch",
    seconds=120,
)
def cases(target: Target, quick: bool) -> Iterator[LibraryCase]:
    """Throughput of PyTorch's matrix product over a grid of shapes, in BF16, FP16, TF32 and FP8; the best of a column is the ceiling.

    Squares, then shapes whose tiles fill every SM in whole waves, each over several depths K: the best shape differs by
    chip and precision, and is seldom the largest. Data are normal random numbers (zeros draw less power and clock higher),
    FP8 sums up fast. Products run back to back: L2 is *not* flushed between them, as it is not in a model; from
    8192 on the operands are larger than any L2, so that it makes no difference there. Bytes, for the roofline, count each
    operand and the result once.
    """
    for shape in shapes(target.sms, quick):
        for dtype in DTYPES:
            need = _BYTES[dtype] * (shape.m * shape.k + shape.k * shape.n) + 4 * shape.m * shape.n
            if 2 * need > target.memory or (dtype == "fp8" and not has_fp8(target)):
                continue
            yield product_case(shape, dtype, {"m": shape.m, "n": shape.n, "k": shape.k, "dtype": dtype})


def product_case(shape: TiledProduct, dtype: str, labels: Labels) -> LibraryCase:
    """Return the case of one product; its bytes count each operand and the result once."""
    moved = _BYTES[dtype] * (shape.m * shape.k + shape.k * shape.n) + (4 if dtype == "tf32" else 2) * shape.m * shape.n
    return LibraryCase(labels, partial(_prepare, shape, dtype), ("throughput",), flops=shape.flops, bytes=moved, precision=dtype)


def shapes(sms: int, quick: bool) -> list[TiledProduct]:
    """Return the shapes to try on a chip of so many SMs.

    >>> [(shape.m, shape.n, shape.k) for shape in shapes(132, quick=True)]
    [(4096, 4096, 4096), (8192, 8192, 8192), (16384, 16384, 16384), (7680, 8448, 8192)]
    """
    if quick:
        return [*(TiledProduct(n, n, n) for n in (4096, 8192, 16384)), TiledProduct(*whole_waves(sms, 8192), 8192)]
    full = [whole_waves(sms, side) for side in (4096, 8192, 16384)]
    deep = [TiledProduct(m, n, k) for m, n in [*full, (8192, 8192)] for k in DEPTHS]
    return list(dict.fromkeys([*(TiledProduct(n, n, n) for n in SQUARES), *deep]))


def whole_waves(sms: int, side: int) -> tuple[int, int]:
    """Return an M × N near `side` × `side` whose tiles of 128 × 256 are a multiple of the SMs, so that no wave is half empty.

    132 SMs are 12 × 11: 60 × 33 tiles are 15 whole waves.

    >>> whole_waves(132, 8192)
    (7680, 8448)
    """
    down = min((d for d in range(1, sms + 1) if sms % d == 0), key=lambda d: abs(d * d - sms) / d)
    steps = max(down, sms // down) * TILE[0], min(down, sms // down) * TILE[1]
    m, n = (max(1, round(side / step)) * step for step in steps)
    return m, n


def _prepare(shape: TiledProduct, dtype: str, torch: Any, data: Data) -> Prepared:
    return products.product(torch, shape, dtype, data, fast=True)
