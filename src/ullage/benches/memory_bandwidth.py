"""Bandwidth of global memory: reads, writes, copies, and the paper's mix of them, beside the L2's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Figure, Output, TableLayout, Target, bench
from ullage.benches.reading import THREADS, blocks, reading
from ullage.benches.result import CaseRow

PAPER = "Hopper paper, table V"
# B/s, and how many times that the paper's L2 gives
GLOBAL = {"NVIDIA GeForce RTX 4090": (929.8e9, 4.67), "NVIDIA A100-PCIE-40GB": (1407.2e9, 2.01), "NVIDIA H800 PCIe": (1861.5e9, 4.23)}
MIXED = "5 reads : 1 write"
ROW = 16 * THREADS  # bytes of a load or store of all threads of a block
SWEEPS = 8  # times that a launch goes through memory
WHOLE = 2**24  # whole numbers up to this FP32 holds exactly

# A block takes pieces of its own, one a trip, and begins again when it has had them all.
_KERNEL = """
extern "C" __global__ void __launch_bounds__(1024, 2) {entry}(u64 *clocks, {parameters}, int trips, int pieces) {{
    int piece = 0;
    float4 sum = make_float4(0, 0, 0, 0);
    ULLAGE_BEGIN
    #pragma unroll 1
    for (int trip = 0; trip < trips; trip++) {{
        u64 block = (u64)piece * gridDim.x + blockIdx.x;
        {body}
        piece = piece + 1 == pieces ? 0 : piece + 1;
    }}
    ULLAGE_END
    {end}
}}
"""
_READ = """float4 value[{reads}];
        for (int i = 0; i < {reads}; i++) value[i] = values[(block * {reads} + i) * 1024 + threadIdx.x];"""
_ADD = "for (int i = 0; i < {reads}; i++) {{ sum.x += value[i].x; sum.y += value[i].y; sum.z += value[i].z; sum.w += value[i].w; }}"


@dataclass(frozen=True)
class Mix:
    """What a thread does in a trip: loads and stores of 16 bytes; `body` and `end` in C++."""

    reads: int
    writes: int
    body: str
    end: str = ""

    @property
    def entry(self) -> str:
        """The kernel's name."""
        return f"stream_{self.reads}_{self.writes}"

    @property
    def source(self) -> str:
        """The kernel's source."""
        arrays = (["const float4 *values"] if self.reads else []) + ["float4 *found"]
        return _KERNEL.format(entry=self.entry, parameters=", ".join(arrays), body=self.body.format(reads=self.reads), end=self.end)


MIXES = {
    "read": Mix(4, 0, _READ + _ADD, "found[blockIdx.x * 1024 + threadIdx.x] = sum;"),
    "write": Mix(0, 4, "for (int i = 0; i < 4; i++) {{ float at = (blockIdx.x * 4 + i) * 1024 + threadIdx.x; "
                       "found[(block * 4 + i) * 1024 + threadIdx.x] = make_float4(at, piece, at, piece); }}"),
    "copy": Mix(4, 4, _READ + "for (int i = 0; i < 4; i++) found[(block * 4 + i) * 1024 + threadIdx.x] = value[i];"),
    MIXED: Mix(5, 1, _READ + "sum = make_float4(0, 0, 0, 0);" + _ADD + "found[block * 1024 + threadIdx.x] = sum;"),
}  # fmt: skip
SOURCE = "".join(mix.source for mix in MIXES.values())


def against_l2(rows: Sequence[CaseRow]) -> tuple[str, ...]:
    """Return how many times the bandwidth of global memory the L2's is, beside the paper's figures; nothing unless both are measured."""
    found = {(row.labels["level"], row.labels["mix"]): row.values["bandwidth"].value for row in rows if "bandwidth" in row.values}
    l2, memory = found.get(("L2 cache", "read")), found.get(("global memory", MIXED))
    if not l2 or not memory:
        return ()
    paper = ", ".join(f"{times:.2f} on {gpu.removeprefix('NVIDIA ')}" for gpu, (_, times) in GLOBAL.items())
    return (f"the L2 gives {l2 / memory:.2f} times the bandwidth of global memory (the paper: {paper})",)


@bench(
    "memory-bandwidth",
    title="Bandwidth of global memory",
    source=PAPER,
    layout=TableLayout(rows=("level", "mix")),
    figures=[Figure(gpu, {"level": "global memory", "mix": MIXED}, "bandwidth", value) for gpu, (value, _) in GLOBAL.items()],
    findings=against_l2,
    seconds=20,
    drift=True,
)
def memory_bandwidth(target: Target, quick: bool) -> Iterator[Case]:
    """B/s between global memory and the SMs, loads and stores of 16 bytes over eight times the L2, and the L2's beside it.

    Bytes are those read plus those written: a copy of n bytes counts 2 n. The paper's figure is the mix of five reads and one write
    a thread; HBM loses time whenever it turns from reads to writes, so pure reads come out above it and copies below. About 90 % of
    the stated bandwidth is usual (the paper: 90 to 92 %).
    """
    yield stream(target, MIXED)
    yield stream(target, "read")
    if not quick:
        yield stream(target, "write")
        yield stream(target, "copy")
    yield reading({"level": "L2 cache", "mix": "read"}, "L2 cache", "FP32.v4", blocks(target), 512, ("bandwidth",))


def stream(target: Target, name: str) -> Case:
    """Return the case of a mix (of `MIXES`) over eight times the L2, or a quarter of the memory where that is less."""
    mix, grid = MIXES[name], blocks(target)
    moved = grid * ROW * (mix.reads + mix.writes)  # in a trip of all blocks
    pieces = max(1, min(8 * target.l2, target.memory // 4) // moved)
    values, written = pieces * grid * mix.reads * THREADS * 4, pieces * grid * mix.writes * THREADS * 4
    highest = min(2**15, WHOLE // max(1, pieces * mix.reads))  # as many bits flip as may, and yet every sum over a sweep is exact

    def inputs(generator: np.random.Generator, data: Data) -> Arrays:
        if not values:
            return ()
        return (np.zeros(values, np.float32) if data == "zero" else generator.integers(0, highest, values, np.uint16).astype(np.float32),)

    def reference(arrays: Arrays, trips: int) -> Arrays:
        return (_expected(name, mix, grid, pieces, arrays, trips),)

    return Case(
        {"level": "global memory", "mix": name}, SOURCE, mix.entry, grid, THREADS, SWEEPS * pieces,
        (Output((written or grid * THREADS * 4,), "float32"),), reference, ("bandwidth",), inputs, scalars=(pieces,),
        check_trips=pieces, bytes=SWEEPS * pieces * moved, issues={"LDG": mix.reads, "STG": mix.writes},
    )  # fmt: skip


def _expected(name: str, mix: Mix, grid: int, pieces: int, arrays: Arrays, trips: int) -> np.ndarray:
    """Return what a launch of whole rounds leaves: `trips` is a multiple of `pieces`."""
    if name == "write":
        at = np.arange(grid * mix.writes * THREADS, dtype=np.float32)
        return np.stack([np.stack([at, np.full_like(at, piece)] * 2, axis=1) for piece in range(pieces)]).ravel()
    if name == "copy":
        return arrays[0]
    values = arrays[0].reshape(pieces, grid, mix.reads, THREADS, 4)
    if name == "read":
        return np.ravel(values.sum(axis=(0, 2)) * np.float32(trips // pieces))
    return np.ravel(values.sum(axis=2))
