"""CUDA C++ around the warp-wide `mma`: dense and sparse, a chain of one (latency) or a tile of many (throughput)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Labels, Output, Plain, Quantity, Target
from ullage.benches.operands import Accumulator, Operand, metadata, opposed, product, tolerance

CYCLES = 16_000_000  # about 9 ms of a throughput run at 1.8 GHz, if the tensor cores reach Hopper's peak; longer where they don't


@dataclass(frozen=True)
class Mma:
    """One `mma` instruction: its formats, its m and n, `k` as A holds it (half of the real one if sparse)."""

    operand: Operand
    accumulator: Accumulator
    k: int
    sparse: bool = False
    m: int = 16
    n: int = 8

    @property
    def real_k(self) -> int:
        """The k of the product, zeros included."""
        return self.k * (2 if self.sparse else 1)

    @property
    def flops(self) -> int:
        """Operations of one issue, zeros included."""
        return 2 * self.m * self.n * self.real_k

    @property
    def shape(self) -> str:
        """The shape as the paper's tables print it: compressed."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def opcode(self) -> str:
        """How its opcode begins in machine code: DMMA's shape is written in more than one way."""
        root = {"fp64": "DMMA", "int8": "IMMA", "fp8": "QMMA"}.get(self.operand.precision, "HMMA")
        return root if root == "DMMA" else f"{root}.{'SP.' if self.sparse else ''}{self.m}{self.n}{self.real_k}"

    @property
    def cell(self) -> int:
        """Bits of a register of A and B."""
        return max(self.operand.bits, 32)

    @property
    def registers(self) -> tuple[int, int, int]:
        """Registers that a thread gives to A, B and C."""
        a, b = (rows * k * self.operand.bits // self.cell // 32 for rows, k in ((self.m, self.k), (self.n, self.real_k)))
        return a, b, self.m * self.n // self.accumulator.packed // 32

    @property
    def ptx(self) -> str:
        """The instruction's name. Ordered metadata is the form that runs at full speed from sm_90 on (PTX ISA, mma.sp)."""
        c, a = self.accumulator.ptx, self.operand.ptx
        kind = "mma.sp::ordered_metadata" if self.sparse else "mma"
        return f"{kind}.sync.aligned.m{self.m}n{self.n}k{self.real_k}.row.col.{c}.{a}.{a}.{c}"


@dataclass(frozen=True)
class Tile:
    """What a block does in one trip: each of `warps` holds m × n accumulators and multiplies into each of them `passes` times.

    The passes take `sets` different A in turn; timed, the second half of them takes away what the first adds (`operands.opposed`).
    """

    warps: int
    m: int
    n: int
    passes: int
    sets: int = 4

    @property
    def issues(self) -> int:
        """Instructions that a warp issues in a trip."""
        return self.m * self.n * self.passes


CHAIN = Tile(1, 1, 1, 16)
BROAD = Tile(8, 2, 4, 4)  # two warps on each quarter of an SM, eight independent sums each: enough to hide 33 cycles
BROAD_FP64 = Tile(8, 2, 2, 8)  # with more sums the compiler moves fragments within the loop

_KERNEL = r"""
extern "C" __global__ void __launch_bounds__({threads}, 1) mma(
    u64 *clocks, const {cell} *a, const {cell} *b,{pattern} {output} *d, int trips)
{{
    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
    {cell} fa[{sets}][{tile_m}][{a_registers}], fb[{tile_n}][{b_registers}];
    {register} sum[{tile_m}][{tile_n}][{c_registers}];
    const u32 kept = {kept};
    // PTX ISA, matrix fragments of mma: a row is cut into groups of four cells; thread `place` of a quad holds one cell of each group
    #pragma unroll
    for (int s = 0; s < {sets}; ++s)
        #pragma unroll
        for (int i = 0; i < {tile_m}; ++i)
            #pragma unroll
            for (int r = 0; r < {a_registers}; ++r)
                fa[s][i][r] = a[(((warp * {tile_m} + i) * {m} + group + 8 * (r % {halves})) * {sets} + s) * {a_cells}
                                + 4 * (r / {halves}) + place];
    #pragma unroll
    for (int j = 0; j < {tile_n}; ++j)
        #pragma unroll
        for (int r = 0; r < {b_registers}; ++r)
            fb[j][r] = b[(j * 8 + group) * {b_cells} + 4 * r + place];
    #pragma unroll
    for (int i = 0; i < {tile_m}; ++i)
        #pragma unroll
        for (int j = 0; j < {tile_n}; ++j)
            #pragma unroll
            for (int r = 0; r < {c_registers}; ++r)
                sum[i][j][r] = 0;
    ULLAGE_BEGIN
    #pragma unroll 1
    for (int trip = 0; trip < trips; ++trip) {{
        #pragma unroll
        for (int pass = 0; pass < {passes}; ++pass)
            #pragma unroll
            for (int i = 0; i < {tile_m}; ++i)
                #pragma unroll
                for (int j = 0; j < {tile_n}; ++j)
                    {statement}
    }}
    ULLAGE_END
    if (blockIdx.x) return;
    #pragma unroll
    for (int i = 0; i < {tile_m}; ++i)
        #pragma unroll
        for (int j = 0; j < {tile_n}; ++j)
            #pragma unroll
            for (int r = 0; r < {results}; ++r) {{
                const int row = (warp * {tile_m} + i) * {m} + group + 8 * (r / 2), column = 8 * j + 2 * place + r % 2;
                d[row * {width} + column] = {result};
            }}
}}
"""

# Halves of a packed register, as numbers.
HALF = r"""
__device__ __forceinline__ float half_of(u32 pair, int which)
{
    float wide; const u16 half = which ? pair >> 16 : pair & 0xffff;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(half));
    return wide;
}
"""


def source(mma: Mma, tile: Tile) -> str:
    """Return the kernel `mma`: A [warps · tile.m · m, tile.sets · k] and B [tile.n · n, k] row by row, D of the same rows and columns."""
    packed = mma.accumulator.packed == 2
    a_registers, b_registers, c_registers = mma.registers
    filled = _KERNEL.format(
        threads=32 * tile.warps,
        cell="double" if mma.cell == 64 else "u32",
        pattern=" const u32 *pattern," if mma.sparse else "",
        kept="pattern[0]" if mma.sparse else "0",
        output=mma.accumulator.output[0],
        register=mma.accumulator.register,
        tile_m=tile.m,
        tile_n=tile.n,
        passes=tile.passes,
        sets=tile.sets,
        m=mma.m,
        halves=mma.m // 8,
        a_registers=a_registers,
        b_registers=b_registers,
        c_registers=c_registers,
        a_cells=mma.k * mma.operand.bits // mma.cell,
        b_cells=mma.real_k * mma.operand.bits // mma.cell,
        statement=_statement(mma, tile),
        results=mma.m * mma.n // 32,
        result="half_of(sum[i][j][r / 2], r % 2)" if packed else "sum[i][j][r]",
        width=mma.n * tile.n,
    )
    return (HALF if packed else "") + filled


def _statement(mma: Mma, tile: Tile) -> str:
    """Return the inline assembly that multiplies fragment i of the pass's set by fragment j into sum[i][j]."""
    counts = (mma.registers[2], *mma.registers[:2])
    starts = (0, counts[0], counts[0] + counts[1])
    c, a, b = ("{" + ", ".join(f"%{start + r}" for r in range(count)) + "}" for start, count in zip(starts, counts, strict=True))
    letter = "d" if mma.cell == 64 else "r"
    results = ", ".join(f'"+{mma.accumulator.letter}"(sum[i][j][{r}])' for r in range(counts[0]))
    given = [f'"{letter}"(fa[pass % {tile.sets}][i][{r}])' for r in range(counts[1])]
    given += [f'"{letter}"(fb[j][{r}])' for r in range(counts[2])]
    sparsity = ""
    if mma.sparse:
        sparsity = f", %{sum(counts)}, 0x0"
        given.append('"r"(kept)')
    return f'asm volatile("{mma.ptx} {c}, {a}, {b}, {c}{sparsity};" : {results} : {", ".join(given)});'


def labels(mma: Mma) -> dict[str, Plain]:
    """Return the labels of an instruction's row and column.

    >>> from ullage.benches.operands import FP16, FP32
    >>> labels(Mma(FP16, FP32, 16, sparse=True))
    {'A/B': 'FP16', 'C/D': 'FP32', 'shape': 'm16n8k16', 'kind': 'sparse'}
    """
    kind = "sparse" if mma.sparse else "dense"
    return {"A/B": mma.operand.name, "C/D": mma.accumulator.name, "shape": mma.shape, "kind": kind}


def latency(mma: Mma, labels: Labels, architectures: tuple[str, ...] = ()) -> Case:
    """Return the case of one warp whose every `mma` needs the sum of the one before."""
    return _case(mma, CHAIN, labels, architectures, grid=1, trips=2_000, quantities=("latency",))


def throughput(
    mma: Mma,
    labels: Labels,
    target: Target,
    architectures: tuple[str, ...] = (),
    quantities: tuple[Quantity, ...] = ("throughput",),
    seconds: float = 0.0,
) -> Case:
    """Return the case of a block of eight warps on every SM, each warp with eight independent sums."""
    wide = mma.operand.bits == 64
    tile, rate = (BROAD_FP64, 256) if wide else (BROAD, 65536 // mma.operand.bits * (2 if mma.sparse else 1))  # FLOP a cycle, Hopper's SM
    trips = CYCLES * rate // (mma.flops * tile.issues * tile.warps)
    return _case(mma, tile, labels, architectures, grid=target.sms, trips=trips, quantities=quantities, seconds=seconds)


def _case(
    mma: Mma,
    tile: Tile,
    labels: Labels,
    architectures: tuple[str, ...],
    *,
    grid: int,
    trips: int,
    quantities: tuple[Quantity, ...],
    seconds: float = 0.0,
) -> Case:
    rows, columns = tile.warps * tile.m * mma.m, tile.n * mma.n

    def inputs(generator: np.random.Generator, data: Data) -> Arrays:
        a = mma.operand.matrix(generator, data, rows, tile.sets * mma.k)
        b = mma.operand.matrix(generator, data, columns, mma.real_k)
        return (a, b, metadata(mma.operand, generator)) if mma.sparse else (a, b)

    def reference(arrays: Arrays, trips: int) -> Arrays:
        a, b, *pattern = arrays
        return product(mma.operand, mma.accumulator, (a, np.tile(b, (1, tile.sets)), *pattern), trips * tile.passes // tile.sets)

    return Case(
        labels=labels,
        source=source(mma, tile),
        entry="mma",
        grid=grid,
        block=32 * tile.warps,
        trips=trips,
        inputs=inputs,
        outputs=(Output((rows, columns), mma.accumulator.output[1]),),
        timed_inputs=lambda arrays: (opposed(arrays[0], tile.sets), *arrays[1:]),
        reference=reference,
        quantities=quantities,
        check_trips=2,
        tolerance=tolerance(mma.operand, mma.accumulator),
        flops=mma.flops * tile.issues * tile.warps * trips * grid,
        steps=tile.passes,
        issues={mma.opcode: tile.issues},
        architectures=architectures,
        precision=mma.operand.precision,
        sparse=mma.sparse,
        seconds=seconds,
    )
