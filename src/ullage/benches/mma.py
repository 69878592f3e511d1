"""`mma`, the warp-wide product: latency and throughput, dense and sparse, by shape and type."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.benches.bench import Case, Figure, TableLayout, Target, bench
from ullage.benches.operands import BF16, FP8, FP16, FP16_SUM, FP32, INT8, INT32, TF32, Accumulator, Operand
from ullage.benches.ptx_mma import Mma, labels, latency, throughput

A100, RTX_4090, H800 = "NVIDIA A100-PCIE-40GB", "NVIDIA GeForce RTX 4090", "NVIDIA H800 PCIe"
KINDS = ("dense", "sparse")

# Latency in cycles and TFLOP/s or TOP/s, by GPU: dense, then sparse. Shapes are compressed: the k of a sparse instruction is twice that.
TABLE_7: dict[tuple[str, str, str], dict[str, tuple[tuple[float, float], tuple[float, float]]]] = {
    ("FP16", "FP16", "m16n8k8"): {
        A100: ((17.7, 310.0), (17.3, 408.4)),
        RTX_4090: ((17.7, 355.3), (17.3, 713.2)),
        H800: ((16.0, 368.6), (16.0, 493.8)),
    },
    ("FP16", "FP16", "m16n8k16"): {
        A100: ((24.6, 310.6), (24.5, 622.8)),
        RTX_4090: ((24.6, 357.6), (24.5, 711.8)),
        H800: ((24.1, 494.4), (24.0, 722.8)),
    },
    ("FP16", "FP32", "m16n8k8"): {
        A100: ((17.5, 299.6), (18.0, 394.1)),
        RTX_4090: ((18.8, 177.8), (18.8, 357.4)),
        H800: ((16.0, 363.7), (16.0, 488.7)),
    },
    ("FP16", "FP32", "m16n8k16"): {
        A100: ((26.0, 303.4), (24.5, 603.3)),
        RTX_4090: ((33.0, 178.9), (33.0, 356.0)),
        H800: ((24.1, 490.7), (24.0, 721.8)),
    },
    ("TF32", "FP32", "m16n8k4"): {
        A100: ((17.8, 149.5), (18.2, 196.8)),
        RTX_4090: ((19.2, 89.0), (19.0, 178.0)),
        H800: ((16.5, 180.6), (16.4, 240.7)),
    },
    ("TF32", "FP32", "m16n8k8"): {
        A100: ((26.3, 151.5), (26.7, 301.5)),
        RTX_4090: ((33.4, 89.0), (33.3, 178.7)),
        H800: ((24.5, 246.4), (24.4, 363.3)),
    },
    ("INT8", "INT32", "m16n8k16"): {
        A100: ((17.6, 594.8), (18.0, 788.5)),
        RTX_4090: ((17.3, 707.6), (17.3, 1412)),
        H800: ((16.1, 730.3), (16.1, 970.0)),
    },
    ("INT8", "INT32", "m16n8k32"): {
        A100: ((26.0, 607.6), (26.6, 1210)),
        RTX_4090: ((24.5, 711.7), (24.6, 1423)),
        H800: ((24.0, 977.9), (24.2, 1435)),
    },
}
# Operand, accumulator, compressed k; the last two are not in the paper, and FP8 is native in few chips: others emulate it
PAIRS: tuple[tuple[Operand, Accumulator, int], ...] = (
    (FP16, FP16_SUM, 8), (FP16, FP16_SUM, 16), (FP16, FP32, 8), (FP16, FP32, 16), (TF32, FP32, 4), (TF32, FP32, 8),
    (INT8, INT32, 16), (INT8, INT32, 32), (BF16, FP32, 16), (FP8, FP32, 32),
)  # fmt: skip
WITH_FP8 = ("sm_89", "sm_120a")
QUICK = {(FP16, 16), (BF16, 16), (TF32, 8), (INT8, 32), (FP8, 32)}


def _figures() -> Iterator[Figure]:
    for (operand, accumulator, shape), by_gpu in TABLE_7.items():
        for gpu, pairs in by_gpu.items():
            for kind, (cycles, tera) in zip(KINDS, pairs, strict=True):
                names = {"A/B": operand, "C/D": accumulator, "shape": shape, "kind": kind}
                yield Figure(gpu, names, "latency", cycles)
                yield Figure(gpu, names, "throughput", tera * 1e12)


@bench(
    "mma",
    title="Latency and throughput of mma, dense and sparse",
    source="Hopper paper, table VII",
    layout=TableLayout(rows=("A/B", "C/D", "shape"), across=("kind",)),
    figures=_figures(),
    seconds=15,
)
def mma(target: Target, quick: bool) -> Iterator[Case]:
    """SM cycles from one `mma` to the next that needs its sum, and FLOP/s of the whole GPU with many sums at once.

    Latency: one warp, one accumulator, 16 instructions a trip, each on the sum of the one before. Throughput: eight warps on every SM,
    each with a tile of 2 × 4 accumulators from two fragments of A (of four sets in turn) and four of B, in registers: nothing but `mma`
    in the loop. What two sets add the other two subtract, so that sums stay small and go on changing, in FP16 too.

    Shapes are compressed as in the paper: a sparse m16n8k16 is PTX's m16n8k32, and its zeros are counted as work, as makers do.
    Its pattern (which two of four are kept) is the same everywhere and drawn anew for each check.

    On Hopper `mma` reaches about 63 % of the peak: only `wgmma` feeds the tensor cores fully. FP8 is timed where it is native (Ada,
    consumer Blackwell); elsewhere it is unpacked and multiplied as FP16. Not the paper's: BF16 and FP8.
    """
    for operand, accumulator, k in PAIRS:
        if quick and ((operand, k) not in QUICK or accumulator is FP16_SUM):
            continue
        for kind in KINDS:
            instruction = Mma(operand, accumulator, k, kind == "sparse")
            where = WITH_FP8 if operand is FP8 else ()
            yield latency(instruction, labels(instruction), where)
            yield throughput(instruction, labels(instruction), target, where)
