"""Dense `wgmma`, Hopper's warp-group-wide product, by type."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.benches.bench import Case, Figure, TableLayout, Target, bench
from ullage.benches.mma import H800
from ullage.benches.operands import BF16, FP8, FP8_E5M2, FP16, FP16_SUM, FP32, INT8, INT32, TF32, Accumulator, Operand
from ullage.benches.ptx_wgmma import Wgmma, latency, throughput

# Cycles and TFLOP/s with A and B in shared memory and zeros, the same with A in registers, then TFLOP/s of both on random data.
Table = dict[tuple[str, str, str], tuple[tuple[float, float], tuple[float, float], float, float]]
TABLE_8: Table = {
    ("FP16", "FP16", "m64n256k16"): ((128.0, 729.3), (128.0, 729.2), 704.5, 703.7),
    ("FP16", "FP32", "m64n256k16"): ((128.0, 728.5), (128.0, 731.9), 665.4, 667.5),
    ("TF32", "FP32", "m64n256k8"): ((128.0, 364.4), (128.0, 364.6), 357.1, 357.3),
    ("FP8", "FP16", "m64n256k32"): ((128.0, 1448.4), (128.0, 1448.0), 1439.2, 1440.3),
    ("FP8", "FP32", "m64n256k32"): ((128.0, 1447.5), (128.0, 1455.0), 1417.2, 1419.8),
    ("INT8", "INT32", "m64n256k32"): ((128.0, 1448.7), (128.0, 1447.9), 1442.3, 1442.2),
}
PAIRS: tuple[tuple[Operand, Accumulator], ...] = (
    (FP16, FP16_SUM), (FP16, FP32), (TF32, FP32), (FP8, FP16_SUM), (FP8, FP32), (INT8, INT32), (BF16, FP32), (FP8_E5M2, FP32),
)  # fmt: skip
QUICK = ((FP16, FP32), (BF16, FP32), (TF32, FP32), (FP8, FP32), (INT8, INT32))
LAYOUT = TableLayout(rows=("A/B", "C/D", "instruction"), across=("A from", "data"))


def figures(table: Table) -> Iterator[Figure]:
    """Yield the figures of table VIII or IX."""
    for (operand, accumulator, instruction), (shared, registers, *random) in table.items():
        for mode, (cycles, tera), drawn in zip(("SS", "RS"), (shared, registers), random, strict=True):
            names = {"A/B": operand, "C/D": accumulator, "instruction": instruction, "A from": mode}
            yield Figure(H800, {**names, "data": "zero"}, "latency", cycles)
            yield Figure(H800, {**names, "data": "zero"}, "throughput", tera * 1e12)
            yield Figure(H800, {**names, "data": "random"}, "throughput", drawn * 1e12)


def cases(instruction: Wgmma, target: Target) -> Iterator[Case]:
    """Yield latency and throughput on zeros, and throughput on random data, as the paper's tables stand."""
    names = {
        "A/B": instruction.operand.name,
        "C/D": instruction.accumulator.name,
        "instruction": instruction.shape,
        "A from": instruction.mode,
    }
    yield latency(instruction, {**names, "data": "zero"})
    yield throughput(instruction, {**names, "data": "zero"}, target, "zero")
    yield throughput(instruction, {**names, "data": "random"}, target, "random")


@bench(
    "wgmma",
    title="Dense wgmma: A from shared memory or registers, zeros or random data",
    source="Hopper paper, table VIII",
    layout=LAYOUT,
    architectures=("sm_90a",),
    figures=figures(TABLE_8),
    seconds=30,
    drift=True,
)
def wgmma(target: Target, quick: bool) -> Iterator[Case]:
    """SM cycles of one m64n256 `wgmma` in a chain, and FLOP/s of the whole GPU on zeros and on random data.

    Latency: one warp group, one accumulator, nothing waited for between instructions. 128 cycles is just what 64 × 256 × 16 products
    take at 4096 FLOP a cycle: this is the pace of a chain. Throughput: two warp groups on every SM with 64 rows of A each and one B.

    Both go through four slices of k in shared memory, laid out without swizzle; "RS" keeps A in registers. On random data two slices
    subtract what the other two add, so that sums stay small and go on changing, in FP16 too. What zeros reach and random
    numbers don't is lost to power: see the clock of each number. Not the paper's: BF16, and FP8 as E5M2 (the paper's FP8 is taken as E4M3).
    """
    if quick:
        for operand, accumulator in QUICK:
            every = list(cases(Wgmma(operand, accumulator, 256), target))
            yield from every if operand is FP16 else every[1:] if operand is BF16 else every[2:]
        return
    for operand, accumulator in PAIRS:
        for mode in ("SS", "RS"):
            yield from cases(Wgmma(operand, accumulator, 256, mode), target)
