"""CUDA C++ around `tcgen05.mma`, the product that one thread starts for its SM: A and B in shared memory, D in tensor memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Labels, Output, Quantity, Target
from ullage.benches.operands import Accumulator, Operand, cancelling, product, tolerance
from ullage.benches.ptx_mma import CYCLES
from ullage.benches.ptx_wgmma import LAYOUT, STEP

ROWS = 128  # of A: one for each lane of tensor memory
SLICES, ROUNDS = 2, 4  # slices of k in shared memory, and how often a trip goes through them
THREADS = 128  # four warps, each of which can read its 32 lanes of tensor memory

# PTX ISA, tcgen05 instruction descriptor: kind, number of the type of A and B, number of the type of D
KINDS: dict[str, tuple[str, int, int]] = {
    "f16": ("f16", 0, 1),
    "bf16": ("f16", 1, 1),
    "tf32": ("tf32", 2, 1),
    "e4m3": ("f8f6f4", 0, 1),
    "e5m2": ("f8f6f4", 1, 1),
    "s8": ("i8", 1, 2),
}


@dataclass(frozen=True)
class Tcgen05:
    """One `tcgen05.mma` of one SM (`cta_group::1`): its formats and n."""

    operand: Operand
    accumulator: Accumulator
    n: int = 256

    @property
    def k(self) -> int:
        """The k of an instruction: 32 bytes of a row."""
        return 8 * STEP // self.operand.bits

    @property
    def kind(self) -> str:
        """PTX's word for the family of types."""
        return KINDS[self.operand.ptx][0]

    @property
    def flops(self) -> int:
        """Operations of one issue."""
        return 2 * ROWS * self.n * self.k

    @property
    def shape(self) -> str:
        """The shape in PTX's manner."""
        return f"m{ROWS}n{self.n}k{self.k}"

    @property
    def opcode(self) -> str:
        """How its opcode begins in machine code."""
        return {"i8": "UTCIMMA", "f8f6f4": "UTCQMMA"}.get(self.kind, "UTCHMMA")

    @property
    def descriptor(self) -> int:
        """The instruction descriptor: both operands along k, nothing negated.

        >>> from ullage.benches.operands import BF16, FP32
        >>> hex(Tcgen05(BF16, FP32).descriptor)
        '0x8400490'
        """
        _, operand, result = KINDS[self.operand.ptx]
        return result << 4 | operand << 7 | operand << 10 | (self.n >> 3) << 17 | (ROWS >> 4) << 24


# What every kernel of these products needs: to wait for an mbarrier, one thread of a warp, the two mbarriers and operands that tensor
# cores see, and the rows of D, of which each warp reads its 32 lanes.
COMMON = (
    LAYOUT
    + r"""
__device__ __forceinline__ void await(u32 barrier, u32 parity)
{
    u32 done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    } while (!done);
}
__device__ __forceinline__ bool elected()
{
    u32 chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
    return chosen;
}
__device__ __forceinline__ void prepare_products(u32 barrier)
{
    if (threadIdx.x == 0)
        for (int which = 0; which < 2; ++which)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(barrier + 8 * which) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
}
__device__ __forceinline__ void write_sums(u32 *d, u32 sums, int columns)
{
    const int warp = threadIdx.x / 32;
    for (int column = 0; column < columns; ++column) {
        u32 bits;
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(bits) : "r"(sums + (warp << 21) + column));
        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
        d[threadIdx.x * columns + column] = bits;
    }
}
"""
)
# A trip's instructions report to one of two barriers; the trip after next waits for it, so the tensor cores always have work in
# store. Bits 46 to 48 of a shared memory descriptor are 1 (PTX ISA, tcgen05 shared memory descriptor); the rest is as for wgmma.
_KERNEL = r"""
extern "C" __global__ void __launch_bounds__({threads}, 1) tcgen05(u64 *clocks, const u32 *a, const u32 *b, {output} *d, int trips)
{{
    extern __shared__ __align__(128) u32 tile[];
    __shared__ __align__(16) u64 barriers[2];
    __shared__ u32 given;
    u32 *const tile_a = tile, *const tile_b = tile + {rows} * {words};
    const u32 barrier = ullage_shared(barriers);
    const int warp = threadIdx.x / 32;
    lay_out(tile_a, a, {rows}, {words});
    lay_out(tile_b, b, {n}, {words});
    if (warp == 0) {{
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], {n};" :: "r"(ullage_shared(&given)) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    }}
    prepare_products(barrier);
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    const u32 sums = *(volatile u32 *)&given;
    const u64 version = 1ull << 46;
    const u64 describes_a = described(tile_a, {rows}) | version, describes_b = described(tile_b, {n}) | version;
    ULLAGE_BEGIN
    if (__shfl_sync(0xffffffff, warp, 0) == 0 && elected()) {{  // said so, the compiler need not look for the one thread at each product
        #pragma unroll 1
        for (int trip = 0; trip < trips; ++trip) {{
            if (trip >= 2) await(barrier + trip % 2 * 8, (trip / 2 - 1) % 2);
            #pragma unroll
            for (int round = 0; round < {rounds}; ++round)
                #pragma unroll
                for (int slice = 0; slice < {slices}; ++slice)
                    asm volatile("{{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::1.kind::{kind} [%0], %1, %2, %3, p; }}"
                        :: "r"(sums), "l"(describes_a + slice * 2 * {rows}), "l"(describes_b + slice * 2 * {n}), "r"({descriptor}u),
                           "r"(round | slice ? 1 : trip) : "memory");
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                :: "r"(barrier + trip % 2 * 8) : "memory");
        }}
        for (int trip = trips < 2 ? 0 : trips - 2; trip < trips; ++trip) await(barrier + trip % 2 * 8, trip / 2 % 2);
        asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    }}
    ULLAGE_END
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    if (blockIdx.x == 0) write_sums((u32 *)d, sums, {n});
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    if (warp == 0) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, {n};" :: "r"(sums));
}}
"""


def source(mma: Tcgen05) -> str:
    """Return the kernel `tcgen05`: A [128, k] and B [n, k] row by row, D [128, n]; k is that of all slices."""
    return COMMON + _KERNEL.format(
        threads=THREADS,
        output=mma.accumulator.output[0],
        rows=ROWS,
        words=SLICES * STEP // 4,
        n=mma.n,
        rounds=ROUNDS,
        slices=SLICES,
        kind=mma.kind,
        descriptor=mma.descriptor,
    )


def latency(mma: Tcgen05, labels: Labels, architectures: tuple[str, ...] = ()) -> Case:
    """Return the case of one SM whose every `tcgen05.mma` adds to the sum of the one before: the pace of a chain."""
    return _case(mma, labels, architectures, grid=1, trips=CYCLES // 8 // _pace(mma), quantities=("latency",), data="zero")


def throughput(mma: Tcgen05, labels: Labels, target: Target, data: Data, architectures: tuple[str, ...] = ()) -> Case:
    """Return the case of the same on every SM."""
    return _case(mma, labels, architectures, grid=target.sms, trips=CYCLES // _pace(mma), quantities=("throughput",), data=data)


def _pace(mma: Tcgen05) -> int:
    """Return about how many cycles a trip takes: 128 × 256 × 16 of FP16 take 128 at 8192 FLOP a cycle."""
    return SLICES * ROUNDS * max(mma.n // 2, 32)


def _case(
    mma: Tcgen05, labels: Labels, architectures: tuple[str, ...], *, grid: int, trips: int, quantities: tuple[Quantity, ...], data: Data
) -> Case:
    width = SLICES * mma.k

    def inputs(generator: np.random.Generator, filled: Data) -> Arrays:
        return tuple(mma.operand.matrix(generator, filled, rows, width) for rows in (ROWS, mma.n))

    return Case(
        labels=labels,
        source=source(mma),
        entry="tcgen05",
        grid=grid,
        block=THREADS,
        trips=trips,
        inputs=inputs,
        timed_inputs=lambda arrays: cancelling(arrays, SLICES),
        outputs=(Output((ROWS, mma.n), mma.accumulator.output[1]),),
        reference=lambda arrays, times: product(mma.operand, mma.accumulator, arrays, times * ROUNDS),
        quantities=quantities,
        shared=SLICES * STEP * (ROWS + mma.n),
        data=data,
        check_trips=5,  # more than the two trips that are in flight
        tolerance=tolerance(mma.operand, mma.accumulator),
        flops=mma.flops * SLICES * ROUNDS * trips * grid,
        steps=SLICES * ROUNDS,
        issues={mma.opcode: SLICES * ROUNDS},
        architectures=architectures,
        precision=mma.operand.precision,
    )
