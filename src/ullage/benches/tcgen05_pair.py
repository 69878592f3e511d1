"""`tcgen05.mma` of two SMs: each holds its rows of A and D and half of B, and one thread of the first starts the product of both."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Labels, Output, Quantity, TableLayout, Target, bench
from ullage.benches.operands import BF16, FP8, FP16, FP32, TF32, cancelling, product, tolerance
from ullage.benches.ptx_mma import CYCLES
from ullage.benches.ptx_tcgen05 import COMMON, ROUNDS, ROWS, SLICES, THREADS, Tcgen05
from ullage.benches.ptx_wgmma import STEP
from ullage.benches.shared_cluster import CLUSTER

ARCHITECTURES = ("sm_100a", "sm_103a")
OPERANDS = (FP16, BF16, TF32, FP8)
SIZES = (256, 128, 64)
BARRIERS = 32  # bytes behind the operands: two mbarriers, and where tensor memory begins

# As in `ptx_tcgen05`, but for what the pair shares: tensor memory is allocated by both, both have their operands laid out before the first
# product, and the second waits at the cluster's barrier until the first knows that the last is done.
_KERNEL = r"""
extern "C" __global__ void __launch_bounds__({threads}, 1) tcgen05_pair(u64 *clocks, const u32 *a, const u32 *b, float *d, int trips)
{{
    extern __shared__ __align__(128) u32 tile[];
    u32 *const tile_a = tile, *const tile_b = tile_a + {rows} * {words}, *const behind = tile_b + {half} * {words};
    const u32 barrier = ullage_shared(behind), rank = cluster_rank();
    const int warp = threadIdx.x / 32;
    lay_out(tile_a, a + rank * {rows} * {words}, {rows}, {words});
    lay_out(tile_b, b + rank * {half} * {words}, {half}, {words});
    if (warp == 0) {{
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], {n};" :: "r"(barrier + 16) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;");
    }}
    prepare_products(barrier);
    cluster_sync();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    const u32 sums = ((volatile u32 *)behind)[4];
    const u64 version = 1ull << 46;
    const u64 describes_a = described(tile_a, {rows}) | version, describes_b = described(tile_b, {half}) | version;
    ULLAGE_BEGIN
    if (rank == 0 && __shfl_sync(0xffffffff, warp, 0) == 0 && elected()) {{
        #pragma unroll 1
        for (int trip = 0; trip < trips; ++trip) {{
            if (trip >= 2) await(barrier + trip % 2 * 8, (trip / 2 - 1) % 2);
            #pragma unroll
            for (int round = 0; round < {rounds}; ++round)
                #pragma unroll
                for (int slice = 0; slice < {slices}; ++slice)
                    asm volatile("{{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::2.kind::{kind} [%0], %1, %2, %3, p; }}"
                        :: "r"(sums), "l"(describes_a + slice * 2 * {rows}), "l"(describes_b + slice * 2 * {half}), "r"({descriptor}u),
                           "r"(round | slice ? 1 : trip) : "memory");
            asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                :: "r"(barrier + trip % 2 * 8) : "memory");
        }}
        for (int trip = trips < 2 ? 0 : trips - 2; trip < trips; ++trip) await(barrier + trip % 2 * 8, trip / 2 % 2);
        asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    }}
    cluster_sync();
    ULLAGE_END
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    if (blockIdx.x < 2) write_sums((u32 *)d + rank * {rows} * {n}, sums, {n});
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    cluster_sync();
    if (warp == 0) asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, {n};" :: "r"(sums));
}}
"""


def source(mma: Tcgen05) -> str:
    """Return the kernel `tcgen05_pair`: A [256, k] and B [n, k] row by row, D [256, n]; k is that of all slices."""
    return COMMON + CLUSTER + _KERNEL.format(
        threads=THREADS, rows=ROWS, words=SLICES * STEP // 4, n=mma.n, half=mma.n // 2, rounds=ROUNDS, slices=SLICES, kind=mma.kind,
        descriptor=descriptor(mma),
    )  # fmt: skip


def descriptor(mma: Tcgen05) -> int:
    """Return the instruction descriptor of a product of twice the rows.

    >>> hex(descriptor(Tcgen05(BF16, FP32)))
    '0x10400490'
    """
    return mma.descriptor + (ROWS >> 4 << 24)


@bench(
    "tcgen05-pair",
    title="tcgen05.mma of two SMs: zeros or random data",
    source="not in the Hopper paper; PTX ISA, tcgen05.mma with cta_group::2",
    layout=TableLayout(rows=("A/B", "C/D", "instruction"), across=("data",)),
    architectures=ARCHITECTURES,
    seconds=8,
)
def tcgen05_pair(target: Target, quick: bool) -> Iterator[Case]:
    """SM cycles of one m256 `tcgen05.mma` of a pair of SMs in a chain, and FLOP/s of the whole GPU on zeros and on random data.

    A cluster of two blocks is a pair. Each SM holds 128 rows of A and of D, and half of the columns of B, which both read: an SM's shared
    memory gives half of B that it gives in `tcgen05`, whose m128 does half of the work. A pair is as fast as two SMs alone where its
    cycles are those of `tcgen05` with the same N. Otherwise all is as there.
    """
    for operand in OPERANDS:
        for n in SIZES[:1] if quick or operand is not BF16 else SIZES:
            mma = Tcgen05(operand, FP32, n)
            names = {"A/B": operand.name, "C/D": FP32.name, "instruction": f"m{2 * ROWS}n{n}k{mma.k}"}
            yield latency(mma, {**names, "data": "zero"})
            yield throughput(mma, {**names, "data": "zero"}, target, "zero")
            yield throughput(mma, {**names, "data": "random"}, target, "random")


def latency(mma: Tcgen05, labels: Labels) -> Case:
    """Return the case of one pair whose every product adds to the sum of the one before."""
    return _case(mma, labels, 2, CYCLES // 8 // _pace(mma), ("latency",), "zero")


def throughput(mma: Tcgen05, labels: Labels, target: Target, data: Data) -> Case:
    """Return the case of the same on every pair of SMs."""
    return _case(mma, labels, target.sms // 2 * 2, CYCLES // _pace(mma), ("throughput",), data)


def _pace(mma: Tcgen05) -> int:
    """Return about how many cycles a trip takes."""
    return SLICES * ROUNDS * max(mma.n // 2, 32)


def _case(mma: Tcgen05, labels: Labels, grid: int, trips: int, quantities: tuple[Quantity, ...], data: Data) -> Case:
    width = SLICES * mma.k

    def inputs(generator: np.random.Generator, filled: Data) -> Arrays:
        return tuple(mma.operand.matrix(generator, filled, rows, width) for rows in (2 * ROWS, mma.n))

    return Case(
        labels=labels,
        source=source(mma),
        entry="tcgen05_pair",
        grid=grid,
        block=THREADS,
        cluster=2,
        trips=trips,
        inputs=inputs,
        timed_inputs=lambda arrays: cancelling(arrays, SLICES),
        outputs=(Output((2 * ROWS, mma.n), "float32"),),
        reference=lambda arrays, times: product(mma.operand, FP32, arrays, times * ROUNDS),
        quantities=quantities,
        shared=SLICES * STEP * (ROWS + mma.n // 2) + BARRIERS,
        data=data,
        check_trips=5,  # more than the two trips that are in flight
        tolerance=tolerance(mma.operand, FP32),
        flops=mma.flops * SLICES * ROUNDS * trips * grid,  # of an SM's half: as much as an m128 does
        steps=SLICES * ROUNDS,
        issues={mma.opcode: SLICES * ROUNDS},
        precision=mma.operand.precision,
    )
