"""Sparse `wgmma` by type."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.benches.bench import Case, Target, bench
from ullage.benches.operands import FP16, FP32
from ullage.benches.ptx_wgmma import Wgmma
from ullage.benches.wgmma import LAYOUT, PAIRS, Table, cases, figures

TABLE_9: Table = {
    ("FP16", "FP16", "sp.m64n256k32"): ((144.0, 1308.0), (128.0, 1472.0), 1257.8, 1362.3),
    ("FP16", "FP32", "sp.m64n256k32"): ((144.0, 1312.3), (128.0, 1476.2), 1194.3, 1277.5),
    ("TF32", "FP32", "sp.m64n256k16"): ((144.0, 656.8), (128.0, 735.4), 644.9, 721.7),
    ("FP8", "FP16", "sp.m64n256k64"): ((144.0, 2619.9), (128.0, 2945.0), 2588.6, 2782.4),
    ("FP8", "FP32", "sp.m64n256k64"): ((144.0, 2622.8), (128.0, 2931.0), 2588.7, 2722.3),
    ("INT8", "INT32", "sp.m64n256k64"): ((144.0, 2612.4), (128.0, 2933.0), 2593.9, 2898.3),
}


@bench(
    "wgmma-sparse",
    title="Sparse wgmma: A from shared memory or registers, zeros or random data",
    source="Hopper paper, table IX",
    layout=LAYOUT,
    architectures=("sm_90a",),
    figures=figures(TABLE_9),
    seconds=30,
)
def wgmma_sparse(target: Target, quick: bool) -> Iterator[Case]:
    """As `wgmma`, with A at 2:4 sparsity: its kept half and metadata; zeros are counted as work, as makers count them.

    With A in shared memory the kept half (64 rows of 32 B) and B (256 rows of 64 B) are 18 KiB for an instruction, 144 cycles at 128 B
    a cycle: that is the paper's latency, and why "SS" falls short of twice the dense rate while "RS" does not.
    The pattern of kept elements is one for all and drawn anew for each check.
    """
    for operand, accumulator in ((FP16, FP32),) if quick else PAIRS:
        for mode in ("SS", "RS"):
            yield from cases(Wgmma(operand, accumulator, 256, mode, sparse=True), target)
