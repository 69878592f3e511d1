"""CUDA C++ around `wgmma`, the asynchronous product of a warp group: dense and sparse, A from shared memory (SS) or registers (RS)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Labels, Output, Quantity, Target
from ullage.benches.operands import Accumulator, Operand, cancelling, metadata, product, tolerance
from ullage.benches.ptx_mma import CYCLES, HALF

ROWS = 64  # of A in an instruction, whatever its type
STEP = 32  # bytes of a row of A in an instruction: 16 of FP16, 8 of TF32, 32 of FP8; the kept half if sparse


@dataclass(frozen=True)
class Wgmma:
    """One `wgmma` instruction: its formats, n, whether A is sparse, and whence A comes ("SS": shared memory, "RS": registers)."""

    operand: Operand
    accumulator: Accumulator
    n: int
    mode: str = "SS"
    sparse: bool = False

    @property
    def real_k(self) -> int:
        """The k of the product, zeros included."""
        return 8 * STEP // self.operand.bits * (2 if self.sparse else 1)

    @property
    def flops(self) -> int:
        """Operations of one issue, zeros included."""
        return 2 * ROWS * self.n * self.real_k

    @property
    def shape(self) -> str:
        """The shape as the paper's tables print it: here the real k."""
        return f"{'sp.' if self.sparse else ''}m64n{self.n}k{self.real_k}"

    @property
    def opcode(self) -> str:
        """How its opcode begins in machine code."""
        root = {"int8": "IGMMA", "fp8": "QGMMA"}.get(self.operand.precision, "HGMMA")
        return f"{root}.{'SP.' if self.sparse else ''}64x{self.n}x{self.real_k}"

    @property
    def registers(self) -> int:
        """Registers of the accumulator in each thread."""
        return self.n // 2 // self.accumulator.packed

    @property
    def slices(self) -> int:
        """How many slices of k lie in shared memory: as many as keep two warp groups below 48 KiB."""
        return 2 if self.sparse else 4

    @property
    def rounds(self) -> int:
        """How often a trip goes through the slices: narrow instructions need more of them to hide the loop around."""
        return min(8, 256 // self.n) * (2 if self.sparse else 1)

    @property
    def issues(self) -> int:
        """Instructions that a warp group issues in a trip."""
        return self.slices * self.rounds

    @property
    def ptx(self) -> str:
        """The instruction's name."""
        kind = "mma_async.sp" if self.sparse else "mma_async"
        return f"wgmma.{kind}.sync.aligned.m64n{self.n}k{self.real_k}.{self.accumulator.ptx}.{self.operand.ptx}.{self.operand.ptx}"


# Shared memory holds A and B without swizzle, k along the rows (PTX ISA, canonical layouts, K-major): a core matrix is 8 rows of 16 B
# in one piece of 128 B; 8 rows further is 128 B on (stride offset), 16 B further along k is 16 B times all rows on (leading offset).
# One such column of core matrices after the other, byte c of row r lies at (c / 16) · 16 · rows + 16 · r + c % 16.
LAYOUT = r"""
__device__ __forceinline__ void lay_out(u32 *to, const u32 *from, int rows, int words)
{
    for (int i = threadIdx.x; i < rows * words; i += blockDim.x) {
        const int row = i / words, word = i % words;
        to[word / 4 * rows * 4 + row * 4 + word % 4] = from[i];
    }
}
__device__ __forceinline__ u64 described(const void *start, int rows)
{
    const u64 address = ullage_shared(start) >> 4, leading = rows, stride = 128 >> 4;
    return address | leading << 16 | stride << 32;
}
"""

# Two groups of instructions are in flight at most: the tensor cores never wait for the loop, and sums pass from one instruction
# to the next without the registers being touched.
_KERNEL = r"""
extern "C" __global__ void __launch_bounds__({threads}, 1) wgmma(
    u64 *clocks, const u32 *a, const u32 *b,{pattern} {output} *d, int trips)
{{
    extern __shared__ __align__(128) u32 tile[];
    u32 *const tile_a = tile, *const tile_b = tile + {rows} * {a_words};
    lay_out(tile_a, a, {rows}, {a_words});
    lay_out(tile_b, b, {n}, {b_words});
    asm volatile("fence.proxy.async;" ::: "memory");  // the barrier that belongs to it is in ULLAGE_BEGIN
    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
    const int row = 16 * warp + group;  // a warp holds 16 rows of D, a warp group 64
    const u32 kept = {kept};
    const int which = __shfl_sync(0xffffffff, warp / 4, 0);  // the compiler then knows that it is one for all, and so the descriptors
    const u64 describes_a = described(tile_a + which * 64 * 4, {rows}), describes_b = described(tile_b, {n});
    {fragments}
    {register} sum[{registers}];
    #pragma unroll
    for (int r = 0; r < {registers}; ++r) sum[r] = 0;
    ULLAGE_BEGIN
    #pragma unroll 1
    for (int trip = 0; trip < trips; ++trip) {{
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        #pragma unroll
        for (int round = 0; round < {rounds}; ++round)
            #pragma unroll
            for (int slice = 0; slice < {slices}; ++slice)
                {statement}
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }}
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    #pragma unroll
    for (int r = 0; r < {registers}; ++r) asm volatile("" : "+{letter}"(sum[r]) :: "memory");  // nothing reads a sum before the wait
    ULLAGE_END
    if (blockIdx.x) return;
    #pragma unroll
    for (int i = 0; i < {results}; ++i)
        d[(row + 8 * (i / 2 % 2)) * {n} + 8 * (i / 4) + 2 * place + i % 2] = {result};
}}
"""

# PTX ISA, register fragments of wgmma: as those of mma with rows of 32 bytes.
_FRAGMENTS = r"""
    u32 fa[{slices}][4];
    #pragma unroll
    for (int slice = 0; slice < {slices}; ++slice)
        for (int r = 0; r < 4; ++r)
            fa[slice][r] = a[(row + 8 * (r % 2)) * {a_words} + 8 * slice + 4 * (r / 2) + place];
"""


def source(wgmma: Wgmma, groups: int) -> str:
    """Return the kernel `wgmma` for `groups` warp groups: A [64 · groups, k] and B [n, k] row by row, D [64 · groups, n].

    Here k is that of all slices.
    """
    packed = wgmma.accumulator.packed == 2
    words = {"slices": wgmma.slices, "a_words": wgmma.slices * STEP // 4}
    filled = _KERNEL.format(
        threads=128 * groups,
        pattern=" const u32 *pattern," if wgmma.sparse else "",
        kept="pattern[0]" if wgmma.sparse else "0",
        output=wgmma.accumulator.output[0],
        rows=ROWS * groups,
        n=wgmma.n,
        b_words=words["a_words"] * (2 if wgmma.sparse else 1),
        fragments=_FRAGMENTS.format(**words).strip() if wgmma.mode == "RS" else "",
        register=wgmma.accumulator.register,
        registers=wgmma.registers,
        letter=wgmma.accumulator.letter,
        rounds=wgmma.rounds,
        statement=_statement(wgmma, ROWS * groups),
        results=wgmma.n // 2,
        result="half_of(sum[i / 2], i % 2)" if packed else "sum[i]",
        **words,
    )
    return LAYOUT + (HALF if packed else "") + filled


def _statement(wgmma: Wgmma, rows: int) -> str:
    """Return the inline assembly of one instruction on slice `slice`: a slice is two columns of core matrices of A, two or four of B."""
    count = wgmma.registers
    places = (f"%{number}" for number in range(count, count + 7))
    sums = ", ".join(f"%{r}" for r in range(count))
    if wgmma.mode == "RS":
        a, given = "{" + ", ".join(next(places) for _ in range(4)) + "}", [f'"r"(fa[slice][{r}])' for r in range(4)]
    else:
        a, given = next(places), [f'"l"(describes_a + slice * {2 * rows})']
    b = next(places)
    given.append(f'"l"(describes_b + slice * {(4 if wgmma.sparse else 2) * wgmma.n})')
    sparsity = ""
    if wgmma.sparse:
        sparsity = f", {next(places)}, 0"
        given.append('"r"(kept)')
    registers = ", ".join(f'"+{wgmma.accumulator.letter}"(sum[{r}])' for r in range(count))
    instruction = f"{wgmma.ptx} {{{sums}}}, {a}, {b}{sparsity}, p{_signs(wgmma)};"
    return f'asm volatile("{{ .reg .pred p; setp.eq.u32 p, 1, 1; {instruction} }}" : {registers} : {", ".join(given)});'


def _signs(wgmma: Wgmma) -> str:
    """Return the operands behind scale-d: signs of A and B but for integers, transposition only of 16-bit operands in shared memory."""
    if wgmma.operand.precision == "int8":
        return ""
    if wgmma.operand.bits != 16:
        return ", 1, 1"
    return ", 1, 1, 0" if wgmma.mode == "RS" else ", 1, 1, 0, 0"


def latency(wgmma: Wgmma, labels: Labels) -> Case:
    """Return the case of one warp group whose every `wgmma` needs the sum of the one before, without a wait in between.

    This is the pace of a chain, as the paper's latencies are (128 cycles for 64 × 256 × 16 is just the time that its products take).
    """
    return _case(wgmma, labels, groups=1, grid=1, trips=CYCLES // 8 // _pace(wgmma), quantities=("latency",), data="zero")


def throughput(wgmma: Wgmma, labels: Labels, target: Target, data: Data, quantities: tuple[Quantity, ...] = ("throughput",)) -> Case:
    """Return the case of two warp groups on every SM, with an A each and one B."""
    return _case(wgmma, labels, groups=2, grid=target.sms, trips=CYCLES // 2 // _pace(wgmma), quantities=quantities, data=data)


def _pace(wgmma: Wgmma) -> int:
    """Return about how many cycles a warp group needs for a trip."""
    return wgmma.issues * max(wgmma.n // 2, 16)


def _case(wgmma: Wgmma, labels: Labels, *, groups: int, grid: int, trips: int, quantities: tuple[Quantity, ...], data: Data) -> Case:
    rows, width = ROWS * groups, wgmma.slices * wgmma.real_k

    def inputs(generator: np.random.Generator, filled: Data) -> Arrays:
        a = wgmma.operand.matrix(generator, filled, rows, width // (2 if wgmma.sparse else 1))
        b = wgmma.operand.matrix(generator, filled, wgmma.n, width)
        return (a, b, metadata(wgmma.operand, generator)) if wgmma.sparse else (a, b)

    return Case(
        labels=labels,
        source=source(wgmma, groups),
        entry="wgmma",
        grid=grid,
        block=128 * groups,
        trips=trips,
        inputs=inputs,
        timed_inputs=lambda arrays: cancelling(arrays, wgmma.slices),
        outputs=(Output((rows, wgmma.n), wgmma.accumulator.output[1]),),
        reference=lambda arrays, times: product(wgmma.operand, wgmma.accumulator, arrays, times * wgmma.rounds),
        quantities=quantities,
        shared=wgmma.slices * STEP * (rows + wgmma.n * (2 if wgmma.sparse else 1)),
        data=data,
        check_trips=2,
        tolerance=tolerance(wgmma.operand, wgmma.accumulator),
        flops=wgmma.flops * wgmma.issues * groups * trips * grid,
        steps=wgmma.issues,
        issues={wgmma.opcode: wgmma.issues},
        precision=wgmma.operand.precision,
        sparse=wgmma.sparse,
    )
