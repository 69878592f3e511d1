"""FP64 on tensor cores."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.benches.bench import Case, TableLayout, Target, bench
from ullage.benches.operands import FP64, FP64_SUM
from ullage.benches.ptx_mma import Mma, labels, latency, throughput

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a")
HOPPER = ("sm_90a",)
SHAPES = ((8, 4, ()), (16, 4, HOPPER), (16, 8, HOPPER), (16, 16, HOPPER))  # m, k and where


@bench(
    "dmma",
    title="Latency and throughput of mma in FP64",
    source="not in the Hopper paper; PTX ISA, mma with .f64",
    layout=TableLayout(rows=("A/B", "C/D", "shape"), across=("kind",)),
    architectures=ARCHITECTURES,
    seconds=3,
)
def dmma(target: Target, quick: bool) -> Iterator[Case]:
    """SM cycles from one FP64 `mma` to the next that needs its sum, and FLOP/s of the whole GPU.

    Measured as `mma` is. On Hopper the old shape m8n8k4 and the wide ones are instructions of their own, and only the wide ones may reach
    the stated peak; other chips issue a wide one as several m8n8k4. Chips whose FP64 is a token (Ada, B300, boards for games) are left out.
    """
    for m, k, where in SHAPES[-1:] if quick and target.architecture in HOPPER else SHAPES:
        instruction = Mma(FP64, FP64_SUM, k, m=m)
        yield latency(instruction, labels(instruction), where)
        yield throughput(instruction, labels(instruction), target, where)
