"""What a GPU does for hours: the fastest product of each precision and the memory, under load for seconds, on random data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ullage.benches import dmma, ptx_mma, ptx_tcgen05, ptx_wgmma
from ullage.benches.bench import Case, Data, LibraryCase, TableLayout, Target, bench
from ullage.benches.best_gemm import product_case, whole_waves
from ullage.benches.memory_bandwidth import stream
from ullage.benches.mma import WITH_FP8
from ullage.benches.operands import BF16, FP8, FP16, FP32, FP64, FP64_SUM, INT8, INT32, TF32, Accumulator, Operand
from ullage.benches.result import SETTLED, SUSTAINED
from ullage.benches.tcgen05 import ARCHITECTURES as TCGEN05
from ullage.benches.tcgen05 import ONLY_B200
from ullage.kernels.tiling import TiledProduct

MARGIN = 1.06  # so that a clock that rises a little does not make a run too short to count
SECONDS, SETTLE = MARGIN * SUSTAINED, MARGIN * SETTLED
OPERANDS = (BF16, FP8, FP16, TF32, INT8, FP64)  # what most jobs multiply comes first
LIBRARY = ("bf16", "fp8")  # what PyTorch multiplies, too
SIDE = 8192


@bench(
    "sustained-ceilings",
    title="Throughput that holds: products and memory under load for seconds",
    source="not in the Hopper paper, whose runs are short",
    layout=TableLayout(rows=("what", "by"), conditions=True),
    seconds=65,
)
def sustained_ceilings(target: Target, quick: bool) -> Iterator[Case | LibraryCase]:
    """FLOP/s and B/s on random data over five seconds, after a second that does not count, with the clock and the power meanwhile.

    A product of a fraction of a second runs at a clock that the board can't hold: power is limited as a mean over tens of milliseconds
    and more, and a board that is warm draws more. These are the ceilings that a job of hours is held against. A row a precision is the
    instruction that reaches its peak (`wgmma` with A in registers, `tcgen05.mma`, else `mma`), as `wgmma`, `tcgen05` and `mma` time it in
    a burst; PyTorch's product is 8192 deep, and its tiles fill every SM in whole waves. In five seconds power and clock settle, and the
    temperature does not: where cooling is the limit, an hour gets less.
    """
    for operand in OPERANDS[:1] if quick else OPERANDS:
        case = fastest_product(operand, target, "random")
        if case is not None:
            yield _lasting(replace(case, labels={"what": operand.name, "by": instruction(operand, target)}))
            if operand.precision in LIBRARY:
                shape = TiledProduct(*whole_waves(target.sms, SIDE), SIDE)
                yield _lasting(product_case(shape, operand.precision, {"what": operand.name, "by": "PyTorch"}))
        if operand is OPERANDS[0]:
            yield _lasting(replace(stream(target, "read"), labels={"what": "global memory", "by": "reads"}))


def _lasting(case: Case | LibraryCase) -> Case | LibraryCase:
    """Return a case that runs for so long and tells its power; a product without its bytes, which would make it a point of the roofline."""
    told = {"quantities": ("throughput", "power", "efficiency"), "bytes": 0} if case.flops else {"quantities": ("bandwidth", "power")}
    return replace(case, **told, seconds=SECONDS, settle=SETTLE)


def instruction(operand: Operand, target: Target) -> str:
    """Return the instruction by which a target multiplies a precision fastest.

    >>> instruction(BF16, Target("sm_90a")), instruction(FP64, Target("sm_90a")), instruction(BF16, Target("sm_80"))
    ('wgmma', 'mma', 'mma')
    """
    if operand is FP64:
        return "mma"
    return "wgmma" if target.architecture == "sm_90a" else "tcgen05.mma" if target.architecture in TCGEN05 else "mma"


def fastest_product(operand: Operand, target: Target, data: Data) -> Case | None:
    """Return the throughput of the instruction that multiplies a precision fastest, on all SMs of a target, with sums of 32 bits or more.

    None where the target has no such instruction, or emulates it.
    """
    how, labels = instruction(operand, target), dict[str, str]()
    accumulator = _accumulator(operand)
    if how == "wgmma":
        return ptx_wgmma.throughput(ptx_wgmma.Wgmma(operand, accumulator, 256, "RS"), labels, target, data)
    if how == "tcgen05.mma":
        if operand is INT8 and target.architecture not in ONLY_B200:
            return None
        return ptx_tcgen05.throughput(ptx_tcgen05.Tcgen05(operand, accumulator), labels, target, data)
    mma = _mma(operand, accumulator, target.architecture)
    return None if mma is None else replace(ptx_mma.throughput(mma, labels, target), data=data)


def _accumulator(operand: Operand) -> Accumulator:
    return INT32 if operand is INT8 else FP64_SUM if operand is FP64 else FP32


def _mma(operand: Operand, accumulator: Accumulator, architecture: str) -> ptx_mma.Mma | None:
    """Return the largest `mma` of a precision; None where it is emulated, or FP64 is a token."""
    if operand is FP64:
        shapes = [(m, k) for m, k, where in dmma.SHAPES if architecture in (where or dmma.ARCHITECTURES)]
        return ptx_mma.Mma(operand, accumulator, shapes[-1][1], m=shapes[-1][0]) if shapes else None
    if operand is FP8 and architecture not in WITH_FP8:
        return None
    return ptx_mma.Mma(operand, accumulator, 256 // operand.bits)  # 32 bytes of a row of A
