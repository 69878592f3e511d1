"""`tcgen05.mma`, Blackwell's product, by type and N."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.benches.bench import Case, TableLayout, Target, bench
from ullage.benches.operands import BF16, FP8, FP8_E5M2, FP16, FP32, INT8, INT32, TF32, Accumulator, Operand
from ullage.benches.ptx_tcgen05 import Tcgen05, latency, throughput

ARCHITECTURES = ("sm_100a", "sm_103a")
ONLY_B200 = ("sm_100a",)  # B300 has no kind::i8
PAIRS: tuple[tuple[Operand, Accumulator, tuple[str, ...]], ...] = (
    (FP16, FP32, ()), (BF16, FP32, ()), (TF32, FP32, ()), (FP8, FP32, ()), (FP8_E5M2, FP32, ()), (INT8, INT32, ONLY_B200),
)  # fmt: skip
SIZES = (256, 128, 64, 32)


@bench(
    "tcgen05",
    title="tcgen05.mma of one SM: zeros or random data",
    source="not in the Hopper paper; PTX ISA, tcgen05.mma",
    layout=TableLayout(rows=("A/B", "C/D", "instruction"), across=("data",)),
    architectures=ARCHITECTURES,
    seconds=12,
)
def tcgen05(target: Target, quick: bool) -> Iterator[Case]:
    """SM cycles of one m128 `tcgen05.mma` in a chain, and FLOP/s of the whole GPU on zeros and on random data.

    One thread of each SM starts the products; A and B lie in shared memory without swizzle, D in tensor memory. Two trips are in
    flight. Latency is the pace of a chain, as for `wgmma`. Products that two SMs share (`cta_group::2`) are measured by
    `tcgen05-pair`, block scales (MX, NVFP4) by `tcgen05-scaled`.
    """
    for operand, accumulator, where in PAIRS:
        for n in SIZES[:1] if quick or operand is not BF16 else SIZES:
            instruction = Tcgen05(operand, accumulator, n)
            names = {"A/B": operand.name, "C/D": accumulator.name, "instruction": instruction.shape}
            yield latency(instruction, {**names, "data": "zero"}, where)
            yield throughput(instruction, {**names, "data": "zero"}, target, "zero", where)
            yield throughput(instruction, {**names, "data": "random"}, target, "random", where)
