"""Latency of L1, shared memory, L2 and global memory."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.benches.bench import Case, Figure, TableLayout, Target, bench
from ullage.benches.chase import SHARED_WORDS, WORD, chase

PAPER = "Hopper paper, table IV"
LEVELS = ("L1 cache", "shared memory", "L2 cache", "global memory")
# SM cycles, by GPU in the order of LEVELS
TABLE_4 = {
    "NVIDIA GeForce RTX 4090": (43.4, 30.1, 273.0, 541.5),
    "NVIDIA A100-PCIE-40GB": (37.9, 29.0, 261.5, 466.3),
    "NVIDIA H800 PCIe": (40.7, 29.0, 263.0, 478.8),
}
L1_FOOTPRINT = 16 * 1024
L2_FOOTPRINT = 2 * 2**20
PAGE = 2 * 2**20  # bytes that one entry of the TLB reaches


@bench(
    "memory-latency",
    title="Latency of each level of memory",
    source=PAPER,
    layout=TableLayout(rows=("level",)),
    figures=[
        Figure(gpu, {"level": level}, "latency", value) for gpu, row in TABLE_4.items() for level, value in zip(LEVELS, row, strict=True)
    ],
    seconds=5,
    drift=True,
)
def memory_latency(target: Target, quick: bool) -> Iterator[Case]:  # noqa: ARG001
    """SM cycles from a load to its value, by a pointer chase of one thread in each level.

    Every word holds the address of the next, so a hop is one load with no arithmetic; the order is random, the words lie a cache
    line (128 B) apart. L1: `ld.global.ca` in 16 KiB; L2: `ld.global.cg` in 2 MiB; both went round once before the clock starts.
    Global: four times the L2, page by page (2 MiB) and random within, after a sweep that flushes the L2 and warms the TLB; the
    paper's fixed stride has the same aim. What a miss of the TLB costs on top shows in `memory-curve`.

    An L2 in two partitions (A100, Hopper, Blackwell) is nearer to an SM by one than by the other, and SMs differ too. So every SM
    chases through the L2, one thread each, and the figure is the mean over lines of both partitions for the median SM. The others
    are measured on one SM.

    Cycles don't depend on the SM clock for L1 and shared memory. The L2 and the memory have clocks of their own: there, compare
    runs at like clocks.
    """
    yield chase({"level": "L1 cache"}, "ca", L1_FOOTPRINT, rounds=1)
    yield chase({"level": "shared memory"}, "shared", SHARED_WORDS * WORD)
    yield chase({"level": "L2 cache"}, "cg", L2_FOOTPRINT, rounds=1, blocks=target.sms)
    yield chase({"level": "global memory"}, "cg", beyond_l2(target), trips=1024, page=PAGE)


def beyond_l2(target: Target) -> int:
    """Return four times the L2 in bytes, in whole pages; less where memory is short, and never less than a page.

    >>> beyond_l2(Target("sm_90a", l2=50 * 2**20)) // 2**20
    200
    """
    return max(1, min(4 * target.l2, target.memory // 4) // PAGE) * PAGE
