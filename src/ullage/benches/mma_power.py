"""Power and energy efficiency of `mma`."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.benches.bench import Case, Figure, TableLayout, Target, bench
from ullage.benches.mma import A100, H800, KINDS, RTX_4090
from ullage.benches.operands import FP16, FP16_SUM, FP32, INT8, INT32, TF32
from ullage.benches.ptx_mma import Mma, labels, throughput

# Watts and TFLOP/s a watt, by GPU
TABLE_11: dict[tuple[str, str, str, str], dict[str, tuple[float, float]]] = {
    ("FP16", "FP16", "m16n8k16", "dense"): {A100: (173.4, 1.79), H800: (188.6, 2.62), RTX_4090: (189.1, 1.89)},
    ("FP16", "FP16", "m16n8k16", "sparse"): {A100: (198.8, 3.13), H800: (187.2, 3.86), RTX_4090: (214.0, 3.33)},
    ("FP16", "FP32", "m16n8k16", "dense"): {A100: (188.5, 1.61), H800: (196.7, 2.49), RTX_4090: (154.1, 1.16)},
    ("FP16", "FP32", "m16n8k16", "sparse"): {A100: (216.1, 2.79), H800: (194.9, 3.70), RTX_4090: (165.9, 2.15)},
    ("TF32", "FP32", "m16n8k8", "dense"): {A100: (214.7, 0.71), H800: (254.9, 0.97), RTX_4090: (174.3, 0.51)},
    ("TF32", "FP32", "m16n8k8", "sparse"): {A100: (235.7, 1.28), H800: (232.5, 1.56), RTX_4090: (187.9, 0.95)},
    ("INT8", "INT32", "m16n8k32", "dense"): {A100: (178.4, 3.41), H800: (165.3, 5.92), RTX_4090: (201.4, 3.53)},
    ("INT8", "INT32", "m16n8k32", "sparse"): {A100: (193.9, 6.24), H800: (163.3, 8.79), RTX_4090: (219.8, 6.47)},
}
LARGEST = ((FP16, FP16_SUM, 16), (FP16, FP32, 16), (TF32, FP32, 8), (INT8, INT32, 32))
LONG = 3.0  # seconds: NVML's power is a mean over one second on most boards


def _figures() -> Iterator[Figure]:
    for (operand, accumulator, shape, kind), by_gpu in TABLE_11.items():
        names = {"A/B": operand, "C/D": accumulator, "shape": shape, "kind": kind}
        for gpu, (watts, tera) in by_gpu.items():
            yield Figure(gpu, names, "power", watts)
            yield Figure(gpu, names, "efficiency", tera * 1e12)


@bench(
    "mma-power",
    title="Power and energy efficiency of mma",
    source="Hopper paper, table XI",
    layout=TableLayout(rows=("A/B", "C/D", "shape"), across=("kind",)),
    figures=_figures(),
    seconds=40,
)
def mma_power(target: Target, quick: bool) -> Iterator[Case]:
    """Watts while the largest `mma` of each type runs on random data for some seconds, and FLOP/s a watt.

    The kernel is that of `mma`'s throughput: operands stay in registers, so this is the tensor cores and their registers, no memory.
    Power is the board's, by the driver. The paper does not say what its matrices held; random numbers draw more than zeros,
    and sums that change more than sums that stand still: products are subtracted again (see `mma`).
    """
    for operand, accumulator, k in LARGEST[1:2] if quick else LARGEST:
        for kind in KINDS:
            instruction = Mma(operand, accumulator, k, kind == "sparse")
            yield throughput(instruction, labels(instruction), target, quantities=("throughput", "power", "efficiency"), seconds=LONG)
