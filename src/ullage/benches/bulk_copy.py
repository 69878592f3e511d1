"""Bulk copies by the TMA unit between global and shared memory: bandwidth over the size of a copy, and the latency of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Output, TableLayout, Target, bench

ARCHITECTURES = ("sm_90a", "sm_100a", "sm_103a", "sm_120a")
IN_FLIGHT = 64 * 1024  # bytes that a block has asked for and not yet got
PER_BLOCK = 16 * 2**20  # bytes that a block copies in a launch
SIZES = (1024, 2048, 4096, 8192, 16384, 32768)
LATENCY_SIZES = (128, 1024, 8192)
LATENCY_PIECES = 64
THREADS = 128

# One thread does it all; the others wait at the barriers of the preamble. A proxy fence follows the making of the mbarriers, because PTX
# before version 9.3 does not say by which proxy a copy reaches them. Stages are a ring: while one copy is waited for, the others
# are on their way. `pieces` is after how many trips a block begins again. A wait gives up in the end: a copy that never arrives shall
# give a wrong result, not hang.
RING = r"""
__device__ __forceinline__ void await(u32 arrived, u32 parity) {
    u32 done = 0;
    for (u32 tries = 0; !done && tries < 1u << 20; tries++)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(done) : "r"(arrived), "r"(parity) : "memory");
}
__device__ __forceinline__ void prepare(u32 barrier, int count, int arrivals) {
    #pragma unroll 1
    for (int i = ullage_first() ? 0 : count; i < count; i++)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier + 8 * i), "r"(arrivals) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}
#define NEXT(count, limit) count = count + 1 == limit ? 0 : count + 1;
"""
SOURCE = (
    RING
    + r"""
extern __shared__ __align__(128) char stage[];
__device__ __forceinline__ void ask(u32 at, const char *from, u32 size, u32 arrived) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(arrived), "r"(size) : "memory");
    asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        :: "r"(at), "l"(from), "r"(size), "r"(arrived) : "memory");
}

extern "C" __global__ void bulk_load(u64 *clocks, const char *values, char *found, int trips, int size, int stages, int pieces) {
    __shared__ u64 barriers[64];
    u32 arrived = ullage_shared(barriers), at = ullage_shared(stage), parity = 0;
    int piece = 0, now = 0;
    prepare(arrived, stages, 1);
    ULLAGE_BEGIN
    if (ullage_first()) {
        #pragma unroll 1
        for (int i = 0; i < stages && i < trips; i++) {
            ask(at + i * size, values + ((u64)piece * gridDim.x + blockIdx.x) * size, size, arrived + 8 * i);
            NEXT(piece, pieces)
        }
        #pragma unroll 1
        for (int trip = 0; trip < trips; trip++) {
            await(arrived + 8 * now, parity);
            if (trip + stages < trips) {
                ask(at + now * size, values + ((u64)piece * gridDim.x + blockIdx.x) * size, size, arrived + 8 * now);
                NEXT(piece, pieces)
            }
            NEXT(now, stages)
            if (now == 0) parity ^= 1;
        }
    }
    ULLAGE_END
    for (int i = threadIdx.x; i < stages * size; i += blockDim.x) found[(u64)blockIdx.x * stages * size + i] = stage[i];
}

extern "C" __global__ void bulk_copy(u64 *clocks, const char *values, char *found, int trips, int size, int stages, int pieces) {
    __shared__ u64 barriers[64];
    u32 arrived = ullage_shared(barriers), at = ullage_shared(stage), parity = 0;
    int piece = 0, written = 0, now = 0, before = stages - 1;
    prepare(arrived, stages, 1);
    ULLAGE_BEGIN
    if (ullage_first()) {
        #pragma unroll 1
        for (int i = 0; i < stages - 1 && i < trips; i++) {
            ask(at + i * size, values + ((u64)piece * gridDim.x + blockIdx.x) * size, size, arrived + 8 * i);
            NEXT(piece, pieces)
        }
        #pragma unroll 1
        for (int trip = 0; trip < trips; trip++) {
            await(arrived + 8 * now, parity);
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                :: "l"(found + ((u64)written * gridDim.x + blockIdx.x) * size), "r"(at + now * size), "r"(size) : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            NEXT(written, pieces)
            if (trip + stages - 1 < trips) {
                asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
                ask(at + before * size, values + ((u64)piece * gridDim.x + blockIdx.x) * size, size, arrived + 8 * before);
                NEXT(piece, pieces)
            }
            before = now;
            NEXT(now, stages)
            if (now == 0) parity ^= 1;
        }
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    ULLAGE_END
}
"""
)


@bench(
    "bulk-copy",
    title="Bulk copies (TMA)",
    source="PTX ISA, cp.async.bulk; not in the Hopper paper",
    layout=TableLayout(rows=("path",), across=("size",), plot=("size", "bandwidth", ("path",))),
    architectures=ARCHITECTURES,
    seconds=20,
)
def bulk_copy(target: Target, quick: bool) -> Iterator[Case]:
    """B/s of `cp.async.bulk` over the bytes of one copy, one block an SM with 64 KiB on the way; SM cycles of a copy alone.

    One thread of a block asks the TMA unit for pieces and waits at an mbarrier for each; no register sees the data. "L2 → shared":
    each block rereads 64 KiB; "global → shared": over eight times the L2; "global → shared → global": over four times the L2 each
    way, and bytes count twice (read and written). Small copies show what asking costs, large ones what the memory gives: compare
    with `memory-bandwidth`, which needs 2,048 threads an SM for the same. "one at a time": a copy from the L2 to the shared memory
    of one block, from asking to the end of the wait; its cycles include the asking.
    """
    for size in (8192, 32768) if quick else SIZES:
        yield loads("global → shared", size, target.sms, _pieces(8 * target.l2, size, target))
        if not quick:
            yield loads("L2 → shared", size, target.sms, IN_FLIGHT // size)
            yield copies(size, target.sms, _pieces(4 * target.l2, size, target))
    for size in (1024,) if quick else LATENCY_SIZES:
        yield loads("L2 → shared, one at a time", size, 1, LATENCY_PIECES, alone=True)


def _pieces(footprint: int, size: int, target: Target) -> int:
    return max(1, min(footprint, target.memory // 4) // (size * target.sms))


def loads(path: str, size: int, grid: int, pieces: int, alone: bool = False) -> Case:
    """Return the case of loads of `size` bytes; alone: each is waited for before the next, and the cycles of one are the result."""
    stages = 1 if alone else IN_FLIGHT // size
    trips = 4096 if alone else PER_BLOCK // size

    def reference(arrays: Arrays, trips: int) -> Arrays:
        """Return what the stages hold at the end: in each the last of the trips that use it."""
        values = arrays[0].reshape(pieces, grid, size)
        last = [stage + (trips - 1 - stage) // stages * stages for stage in range(stages)]
        return (np.stack([values[trip % pieces] for trip in last], axis=1).ravel(),)

    return Case(
        {"path": path, "size": size}, SOURCE, "bulk_load", grid, THREADS, trips, (Output((grid * stages * size,), "uint8"),), reference,
        ("latency",) if alone else ("bandwidth", "bytes_per_cycle_sm"), _bytes(pieces * grid * size), scalars=(size, stages, pieces),
        shared=stages * size, check_trips=2 * stages + 3, bytes=grid * size * trips, issues={"UBLKCP": 1}, architectures=ARCHITECTURES,
    )  # fmt: skip


def copies(size: int, grid: int, pieces: int) -> Case:
    """Return the case of copies through shared memory; every byte of the copy is checked."""
    stages, trips = IN_FLIGHT // size, PER_BLOCK // size
    return Case(
        {"path": "global → shared → global", "size": size}, SOURCE, "bulk_copy", grid, THREADS, trips,
        (Output((pieces * grid * size,), "uint8"),), lambda arrays, trips: (arrays[0],), ("bandwidth", "bytes_per_cycle_sm"),  # noqa: ARG005
        _bytes(pieces * grid * size), scalars=(size, stages, pieces), shared=stages * size, check_trips=pieces,
        bytes=2 * grid * size * trips, issues={"UBLKCP": 2}, architectures=ARCHITECTURES,
    )  # fmt: skip


def _bytes(count: int) -> Callable[[np.random.Generator, Data], Arrays]:
    def inputs(generator: np.random.Generator, data: Data) -> Arrays:
        return (np.zeros(count, np.uint8) if data == "zero" else generator.integers(0, 2**64, count // 8, np.uint64).view(np.uint8),)

    return inputs
