"""Which tile a library would choose, when no kernel's name tells: a small model of our own, for an estimate of padding.

The model: a kernel's time is its waves × the time of one tile, and the library takes the candidate with the least.

    time of a tile  = filling the pipeline + steps of K × max(mathematics, feeding) + writing the tile
    mathematics     = 2 T_M T_N T_K / FLOPs per cycle and SM            feeding = bytes of a step / bytes of L2 per cycle and SM

A cluster shares what its blocks read, so its tiles are fed with less: A's part is read once for all blocks along n. Of two
candidates within 2 % of each other, the larger tile is taken: it reads less. The candidates and the rates are below with
their sources. Left out: DRAM (the same for all candidates), the order of tiles, power. It is made to
tell how much is padded, not which kernel runs: how far it agrees with NVIDIA's own is measured by benchmarks/tile_prediction.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from ullage.kernels.gemms.gemm import Unit
from ullage.kernels.tiling import Cover, Pair, TiledProduct, Tiling

BITS = {"fp64": 64, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4}
# What a kernel's result is stored in: as its inputs are, but sums of 8-bit integers need 32 bits, and FP8 and FP4 give BF16.
RESULT_BITS = {**BITS, "int8": 32, "fp8": 16, "fp4": 16}


@dataclass(frozen=True)
class PredictionMachine:
    """What the model knows of a GPU. `feed` is bytes that L2 gives an SM per cycle, `latency` cycles to global memory."""

    unit: Unit
    sms: int
    flops_per_cycle: float
    feed: float
    latency: float


@dataclass(frozen=True)
class Class:
    """The tiles that kernels of one instruction class come in: bytes of a step in K, tiles m × n, clusters."""

    step_bytes: int
    tiles: tuple[Pair, ...]
    clusters: tuple[Pair, ...]


def _grid(sides: tuple[int, ...], ends: tuple[int, ...], most: int) -> tuple[Pair, ...]:
    """Return the tiles of `sides` × `ends` either way round, whose accumulators fit into the registers (`most` elements)."""
    either = {pair for m in sides for n in ends for pair in ((m, n), (n, m)) if m * n <= most}
    return tuple(sorted(either))


# wgmma and tcgen05: K steps of 128 bytes, tiles and clusters as names of nvjet kernels have them (docs/gemm.md); an instruction takes
# 64 rows, so one side is a multiple of 64. mma: as CUTLASS 2 and cuBLAS name theirs. mfma: as Tensile names its macro tiles.
CLASSES: dict[str, Class] = {
    "wgmma": Class(128, _grid((64, 128, 192, 256), (8, 16, 32, 64, 96, 128, 160, 192, 256), 40_960), ((1, 1), (2, 1), (1, 2))),
    "tcgen05": Class(128, _grid((64, 128, 256), (8, 16, 32, 64, 96, 128, 160, 192, 256), 32_768), ((1, 1), (2, 1), (1, 2))),
    "mma": Class(64, _grid((64, 128, 256), (32, 64, 128), 32_768), ((1, 1),)),
    "mfma": Class(128, _grid((32, 64, 128, 256), (16, 32, 64, 96, 128, 192, 256), 65_536), ((1, 1),)),
}

# Bytes of L2 per cycle and SM, and cycles to global memory: Luo et al. (arXiv:2501.12084), tables V and IV. A100: 2,008 B on 108 SMs;
# RTX 4090: 1,708 on 128; H800 PCIe: 4,472 on 114. Of Blackwell's and AMD's nothing is known to us: Hopper's are taken.
_FEEDS = {"7": 18.6, "8": 18.6, "8.9": 13.3, "9": 39.2, "12": 13.3}
_OTHER_FEED, LATENCY = 39.2, 479.0
_NEAR = 1.02  # two candidates whose times differ by less are equal to a model this coarse


def machine(capability: str, sms: int, flops_per_cycle: float, dtype: str = "bf16") -> PredictionMachine:
    """Return what the model knows of a GPU by its compute capability ("9.0", "gfx942"), its SMs and FLOPs per cycle and SM.

    FP64 has no instruction newer than mma (PTX ISA), so that its tiles are mma's on every NVIDIA GPU.

    >>> machine("9.0", 132, 4096).unit, machine("8.9", 128, 512).unit
    ('wgmma', 'mma')
    """
    major = capability.partition(".")[0]
    own: Unit = "wgmma" if major == "9" else "tcgen05" if major in ("10", "11") else "mma"
    unit: Unit = "mfma" if capability.startswith("gfx") else "mma" if dtype == "fp64" else own
    return PredictionMachine(unit, sms, flops_per_cycle, _FEEDS.get(capability, _FEEDS.get(major, _OTHER_FEED)), LATENCY)


def suited(on: PredictionMachine, product: TiledProduct, dtype: str) -> PredictionMachine:
    """Return the machine as a product finds it: where rows in memory are no multiple of 16 bytes, with the kernels of older generations.

    wgmma's and tcgen05's kernels are fed by TMA, whose strides are multiples of 16 bytes (CUDA C++ Programming Guide, tensor maps). Rows
    are those of a linear layer: A and B lie along K, C along M. 16 bytes are 8 elements of BF16:

    >>> suited(machine("9.0", 132, 4096), TiledProduct(50257, 4096, 768), "bf16").unit
    'mma'
    """
    rows = (product.k * BITS[dtype], product.m * RESULT_BITS[dtype])
    fetched = on.unit not in ("wgmma", "tcgen05") or dtype not in ("bf16", "fp16", "tf32") or not any(bits % 128 for bits in rows)
    return on if fetched else replace(on, unit="mma")


@lru_cache(maxsize=65536)
def predict(product: TiledProduct, dtype: str, on: PredictionMachine) -> Tiling:
    """Return the tiling that the model takes for a product at a precision ("bf16", …) on a machine.

    4224 × 1024 is 33 × 4 tiles of 128 × 256, so that one wave on 132 SMs does it without padding:

    >>> predict(TiledProduct(4224, 1024, 4096), "bf16", machine("9.0", 132, 4096)).tile
    (128, 256)
    """
    timed = [(cycles(Cover(product, tiling), dtype, on), tiling) for tiling in candidates(dtype, on)]
    least = min(time for time, _ in timed)
    return min(
        (t for time, t in timed if time <= least * _NEAR),
        key=lambda t: (-t.tile[0] * t.tile[1], Cover(product, t).executed, sum(t.tile), t.cluster),
    )


def candidates(dtype: str, on: PredictionMachine) -> Iterator[Tiling]:
    """Yield the tilings that the machine's kernels come in."""
    family = CLASSES[on.unit]
    for tile in family.tiles:
        for cluster in family.clusters:
            yield Tiling(tile, family.step_bytes * 8 // BITS[dtype], cluster)


def cycles(cover: Cover, dtype: str, on: PredictionMachine) -> float:
    """Return the model's time of a product under a tiling, in cycles of the SMs."""
    (tile_m, tile_n), (cluster_m, cluster_n) = cover.tiling.tile, cover.tiling.cluster
    step = cover.tiling.k_tile or 1
    mathematics = 2 * tile_m * tile_n * step / on.flops_per_cycle
    read = (tile_m / cluster_n + tile_n / cluster_m) * step * BITS[dtype] / 8
    written = tile_m * tile_n * RESULT_BITS[dtype] / 8
    steps = cover.effective[2] // step
    tile = on.latency + steps * max(mathematics, read / on.feed) + written / on.feed
    return cover.waves(on.sms) * tile
