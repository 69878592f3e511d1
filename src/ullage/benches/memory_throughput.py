"""Throughput of L1, shared memory and L2 by type."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.benches.bench import Case, Figure, Quantity, TableLayout, Target, bench
from ullage.benches.reading import LEVELS, WIDTHS, blocks, reading

PAPER = "Hopper paper, table V"
# B per cycle (L1: and SM) for FP32, FP64 and FP32.v4. The paper gives one figure for shared memory and names no type: it stands with FP32.
TABLE_5: dict[str, dict[str, tuple[float, ...]]] = {
    "NVIDIA GeForce RTX 4090": {"L1 cache": (63.7, 13.3, 121.2), "L2 cache": (1622.2, 1500.8, 1708.0), "shared memory": (127.9,)},
    "NVIDIA A100-PCIE-40GB": {"L1 cache": (99.5, 120.0, 106.8), "L2 cache": (1853.7, 1990.4, 2007.9), "shared memory": (128.0,)},
    "NVIDIA H800 PCIe": {"L1 cache": (125.8, 16.0, 124.1), "L2 cache": (4472.3, 1817.3, 3942.4), "shared memory": (127.9,)},
}
TRIPS = {"L1 cache": 4096, "L2 cache": 512, "shared memory": 4096}


def _quantity(level: str) -> Quantity:
    return "bytes_per_cycle" if level == "L2 cache" else "bytes_per_cycle_sm"


def _figures() -> Iterator[Figure]:
    for gpu, table in TABLE_5.items():
        for level, row in table.items():
            for width, value in zip(WIDTHS, row, strict=False):  # types that the paper lacks come last
                yield Figure(gpu, {"level": level, "type": width}, _quantity(level), value)


@bench(
    "memory-throughput",
    title="Throughput of caches and shared memory",
    source=PAPER,
    layout=TableLayout(rows=("level",), across=("type",)),
    figures=_figures(),
    seconds=10,
)
def memory_throughput(target: Target, quick: bool) -> Iterator[Case]:
    """Bytes per cycle that loads bring: of an SM from L1 and shared memory, of the whole GPU from L2.

    L1 and shared memory: one block of 1,024 threads rereads 32 KiB on one SM; the first of its 4,096 trips fills the L1. L2: as many
    blocks as the GPU holds at once reread 32 KiB each with `ld.global.cg`, which passes the L1 by.

    The types are the paper's, whose kernels add what they load so that no load is left out. An addition in FP64 is slow on RTX
    cards and on the H800 (16 B per cycle and SM): there the row "FP64" measures the adder, as the paper says of its own. On an A100,
    H100 or H200, which add 64 or 32 FP64 values a cycle, it does not. "64 bits" loads the same width and folds by exclusive or, so it
    measures memory everywhere. FP32.v4 is one load of four values (16 B).
    """
    for level in LEVELS:
        for width in ("FP32.v4",) if quick else WIDTHS:
            grid = blocks(target) if level == "L2 cache" else 1
            yield reading({"level": level, "type": width}, level, width, grid, TRIPS[level], (_quantity(level),))
