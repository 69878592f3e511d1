"""Copies of tiles by tensor maps: the TMA unit works out where the elements of a box lie, and can bring it to several SMs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Labels, Output, TableLayout, Target, TensorMap, bench
from ullage.benches.bulk_copy import RING
from ullage.benches.shared_cluster import CLUSTER

ARCHITECTURES = ("sm_90a", "sm_100a", "sm_103a", "sm_120a")
MULTICASTING = ARCHITECTURES[:-1]  # for sm_120a PTX's multicast becomes a copy to one block
ACROSS = 4  # boxes beside one another in each dimension but the outermost
IN_FLIGHT = 64 * 1024  # bytes that a block has asked for and not yet got
PER_BLOCK = 16 * 2**20  # bytes that a block gets in a launch
ALIGNED = 1024  # bytes after which a swizzle begins anew
THREADS = 128
RANKS = (1, 2, 3)

# One thread does it all, as in `bulk_copy`. Stages begin where a swizzle does, and the mbarriers lie behind them.
_COMMON = r"""
extern __shared__ __align__(1024) char stage[];
__device__ __forceinline__ void expect(u32 arrived, u32 size) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(arrived), "r"(size) : "memory");
}
__device__ __forceinline__ void acquire(const void *map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" :: "l"(map) : "memory");
}
"""
_LOAD = r"""
__device__ __forceinline__ void ask_RANK(u32 at, const void *map, u32 box, u32 arrived, int b0, int b1, int b2) {
    asm volatile("cp.async.bulk.tensor.RANKd.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {PLACES}], [%2];"
        :: "r"(at), "l"(map), "r"(arrived), COORDINATES : "memory");
}
extern "C" __global__ void tensor_load_RANK(
    u64 *clocks, const u64 *values, u64 *found, const void *map, int trips, int size, int stages, int pieces, int b0, int b1, int b2) {
    const u32 at = (ullage_shared(stage) + ALIGNED - 1) / ALIGNED * ALIGNED, arrived = at + stages * size;
    u32 parity = 0;
    int piece = 0, now = 0;
    prepare(arrived, stages, 1);
    ULLAGE_BEGIN
    if (ullage_first()) {
        acquire(map);
        #pragma unroll 1
        for (int i = 0; i < stages && i < trips; i++) {
            expect(arrived + 8 * i, size);
            ask_RANK(at + i * size, map, piece * gridDim.x + blockIdx.x, arrived + 8 * i, b0, b1, b2);
            NEXT(piece, pieces)
        }
        #pragma unroll 1
        for (int trip = 0; trip < trips; trip++) {
            await(arrived + 8 * now, parity);
            if (trip + stages < trips) {
                expect(arrived + 8 * now, size);
                ask_RANK(at + now * size, map, piece * gridDim.x + blockIdx.x, arrived + 8 * now, b0, b1, b2);
                NEXT(piece, pieces)
            }
            NEXT(now, stages)
            if (now == 0) parity ^= 1;
        }
    }
    ULLAGE_END
    const u64 *const image = (const u64 *)(stage + (at - ullage_shared(stage)));
    for (int i = threadIdx.x; i < stages * size / 8; i += blockDim.x) found[(u64)blockIdx.x * stages * size / 8 + i] = image[i];
}
"""
# The blocks of a cluster get the same boxes; which of them asks for one goes by its stage. It may ask when all blocks have told it that
# the stage is free, which they do as soon as they got what was in it. It does not wait for that at once, but `lag` trips later: to tell
# another SM takes longer than a box.
_MULTICAST = r"""
__device__ __forceinline__ void tell(u32 barrier, u32 rank) {
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;"
        " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }" :: "r"(barrier), "r"(rank) : "memory");
}
__device__ __forceinline__ void await_others(u32 barrier, u32 parity) {
    u32 done = 0;
    for (u32 tries = 0; !done && tries < 1u << 20; tries++)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
}
__device__ __forceinline__ void ask_for_all(u32 at, const void *map, u32 box, u32 arrived, u16 blocks, int b0, int b1) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%4, %5}], [%2], %3;"
        :: "r"(at), "l"(map), "r"(arrived), "h"(blocks), "r"(box % ACROSS * b0), "r"(box / ACROSS * b1) : "memory");
}
extern "C" __global__ void tensor_multicast(
    u64 *clocks, const u64 *values, u64 *found, const void *map, int trips, int size, int stages, int pieces, int b0, int b1, int lag) {
    const u32 at = (ullage_shared(stage) + ALIGNED - 1) / ALIGNED * ALIGNED, arrived = at + stages * size, free = arrived + 8 * stages;
    const u32 rank = cluster_rank(), size_of_cluster = cluster_size(), clusters = gridDim.x / size_of_cluster;
    const u16 blocks = (1u << size_of_cluster) - 1;
    u32 parity = 0, late_parity = 0, piece = 0;
    int now = 0, late = 0;
    prepare(arrived, stages, 1);
    prepare(free, stages, size_of_cluster);
    ULLAGE_BEGIN
    if (ullage_first()) {
        acquire(map);
        #pragma unroll 1
        for (int i = 0; i < stages && i < trips; i++) expect(arrived + 8 * i, size);
    }
    cluster_sync();
    if (ullage_first()) {
        #pragma unroll 1
        for (int i = 0; i < stages && i < trips; i++) {
            if (i % size_of_cluster == rank)
                ask_for_all(at + i * size, map, piece * clusters + blockIdx.x / size_of_cluster, arrived + 8 * i, blocks, b0, b1);
            NEXT(piece, pieces)
        }
        #pragma unroll 1
        for (int trip = 0; trip < trips; trip++) {
            await(arrived + 8 * now, parity);
            if (trip + stages < trips) {
                expect(arrived + 8 * now, size);
                tell(free + 8 * now, now % size_of_cluster);
            }
            NEXT(now, stages)
            if (now == 0) parity ^= 1;
            if (trip >= lag && trip - lag + stages < trips) {
                if (late % size_of_cluster == rank) {
                    await_others(free + 8 * late, late_parity);
                    ask_for_all(at + late * size, map, piece * clusters + blockIdx.x / size_of_cluster, arrived + 8 * late, blocks, b0, b1);
                }
                NEXT(piece, pieces)
                NEXT(late, stages)
                if (late == 0) late_parity ^= 1;
            }
        }
    }
    ULLAGE_END
    const u64 *const image = (const u64 *)(stage + (at - ullage_shared(stage)));
    for (int i = threadIdx.x; i < stages * size / 8; i += blockDim.x) found[(u64)blockIdx.x * stages * size / 8 + i] = image[i];
    cluster_sync();
}
"""
_COORDINATES = {
    1: '"r"(box * b0)',
    2: '"r"(box % ACROSS * b0), "r"(box / ACROSS * b1)',
    3: '"r"(box % ACROSS * b0), "r"(box / ACROSS % ACROSS * b1), "r"(box / (ACROSS * ACROSS) * b2)',
}


def _source() -> Iterator[str]:
    yield from (RING, CLUSTER, _COMMON)
    for rank in RANKS:
        places = ", ".join(f"%{3 + dimension}" for dimension in range(rank))
        yield _LOAD.replace("RANK", str(rank)).replace("PLACES", places).replace("COORDINATES", _COORDINATES[rank])
    yield _MULTICAST


SOURCE = "".join(_source()).replace("ACROSS", str(ACROSS)).replace("ALIGNED", str(ALIGNED))


@dataclass(frozen=True)
class MappedTile:
    """A box of elements of 8 bytes, the innermost dimension first, and the span (bytes) within which its 16-byte chunks are swizzled."""

    box: tuple[int, ...]
    swizzle: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of a box.

        >>> MappedTile((16, 64)).bytes
        8192
        """
        return 8 * int(np.prod(self.box))

    @property
    def labels(self) -> Labels:
        """How a table names it."""
        return {"box": " × ".join(map(str, self.box)), "swizzle": f"{self.swizzle} B" if self.swizzle else "none"}

    def shape(self, boxes: int) -> tuple[int, ...]:
        """Return the tensor that is made of so many boxes, the innermost dimension first.

        >>> MappedTile((16, 8, 2)).shape(32)
        (64, 32, 4)
        """
        inner = tuple(ACROSS * extent for extent in self.box[:-1])
        return (*inner, boxes // ACROSS ** len(inner) * self.box[-1])

    def boxes(self, tensor: np.ndarray) -> np.ndarray:
        """Return a tensor's boxes (box × element) as they lie in shared memory, in the order of their numbers."""
        sides = [side for extent in reversed(self.box) for side in (ACROSS, extent)]
        counted, within = range(0, len(sides), 2), range(1, len(sides), 2)
        plain = tensor.reshape(-1, *sides[1:]).transpose(*counted, *within).reshape(-1, self.bytes // 8)
        return self._swizzled(plain)

    def _swizzled(self, boxes: np.ndarray) -> np.ndarray:
        """Return boxes with their chunks of 16 bytes where the swizzle puts them: PTX ISA, tensor swizzling modes."""
        chunk = np.arange(self.bytes // 16)
        lines = {0: 0, 32: 1, 64: 3, 128: 7}[self.swizzle]
        image = np.empty_like(boxes).reshape(len(boxes), -1, 2)
        image[:, chunk ^ (chunk // 8 & lines)] = boxes.reshape(len(boxes), -1, 2)
        return image.reshape(boxes.shape)


SMALL = (MappedTile((256,)), MappedTile((16, 16)), MappedTile((16, 8, 2)))  # 2 KiB each: the most of one dimension
LARGE = (
    MappedTile((16, 64)),
    MappedTile((16, 8, 8)),
    MappedTile((4, 256), 32),
    MappedTile((8, 128), 64),
    MappedTile((16, 64), 128),
)  # 8 KiB each
CLUSTERS = (2, 4)


@bench(
    "tensor-copy",
    title="Copies of tiles by tensor maps (TMA)",
    source="PTX ISA, cp.async.bulk.tensor; not in the Hopper paper",
    layout=TableLayout(rows=("path", "box", "swizzle", "blocks")),
    architectures=ARCHITECTURES,
    seconds=12,
)
def tensor_copy(target: Target, quick: bool) -> Iterator[Case]:
    """B/s of `cp.async.bulk.tensor` by the shape of a box, its swizzle and how many blocks get it; SM cycles of a copy alone.

    A box has one to three dimensions of elements of 8 bytes, and is cut out of a tensor four boxes wide, so that its rows lie apart. One
    thread of a block an SM asks for boxes, 64 KiB on the way, and waits at an mbarrier for each. 2 KiB is the most of a box of one
    dimension: compare boxes of one size with one another and with `bulk-copy`, whose bytes lie in one piece. A swizzle costs nothing if its
    rows bring what those without do; its boxes are as wide as its span allows.

    "blocks": a box goes to all blocks of a cluster at once (multicast, not on sm_120a), each block asking for its share; bytes count where
    they arrive, so that B/s may pass what the L2 gives. "L2 → shared" rereads what the L2 holds, "global → shared" goes over eight times
    the L2. "alone" is a copy from asking to the end of the wait, on one SM.
    """
    for tile in (LARGE[0], LARGE[-1]) if quick else (*SMALL, *LARGE):
        yield loads("L2 → shared", tile, target.sms, _fitting(tile))
    for tile in (LARGE[0], LARGE[-1]):
        yield loads("global → shared", tile, target.sms, _beyond(tile, target))
    for cluster in () if quick else CLUSTERS:
        yield multicast(LARGE[-1], cluster, target)
    for tile in SMALL[1:2] if quick else SMALL:
        yield loads("L2 → shared, alone", tile, 1, _fitting(tile), alone=True)


def _fitting(tile: MappedTile) -> int:
    """Return the boxes of a block that it rereads; a multiple of those that lie beside one another."""
    return max(ACROSS**2, IN_FLIGHT // tile.bytes)


def _beyond(tile: MappedTile, target: Target) -> int:
    pieces = min(8 * target.l2, target.memory // 4) // (tile.bytes * target.sms)
    return max(1, pieces // ACROSS**2) * ACROSS**2


def loads(path: str, tile: MappedTile, grid: int, pieces: int, alone: bool = False) -> Case:
    """Return the case of loads of a tile; alone: each is waited for before the next, and the cycles of one are the result."""
    rank, stages, trips = len(tile.box), *((1, 4096) if alone else (IN_FLIGHT // tile.bytes, PER_BLOCK // tile.bytes))
    box = (*tile.box, 1, 1)[:3]
    return Case(
        {"path": path, **tile.labels, "blocks": 1}, SOURCE, f"tensor_load_{rank}", grid, THREADS, trips,
        (Output((grid * stages * tile.bytes // 8,), "uint64"),), _left(tile, grid, stages, pieces),
        ("latency",) if alone else ("bandwidth", "bytes_per_cycle_sm"), _values(tile, pieces * grid),
        maps=(TensorMap(0, tile.shape(pieces * grid), tile.box, tile.swizzle),), scalars=(tile.bytes, stages, pieces, *box),
        shared=_shared(tile, stages), check_trips=2 * stages + 3, bytes=0 if alone else grid * PER_BLOCK,
        issues={f"UTMALDG.{rank}D": 1}, architectures=ARCHITECTURES,
    )  # fmt: skip


def multicast(tile: MappedTile, cluster: int, target: Target) -> Case:
    """Return the case of loads of a tile each of which goes to all blocks of a cluster; clusters of four are on 7/8 of the SMs."""
    grid = (target.sms if cluster <= 2 else target.sms * 7 // 8) // cluster * cluster
    stages, pieces = IN_FLIGHT // tile.bytes, _fitting(tile)
    return Case(
        {"path": "L2 → shared", **tile.labels, "blocks": cluster}, SOURCE, "tensor_multicast", grid, THREADS, PER_BLOCK // tile.bytes,
        (Output((grid * stages * tile.bytes // 8,), "uint64"),), _left(tile, grid, stages, pieces, cluster),
        ("bandwidth", "bytes_per_cycle_sm"), _values(tile, pieces * grid // cluster),
        maps=(TensorMap(0, tile.shape(pieces * grid // cluster), tile.box, tile.swizzle),),
        scalars=(tile.bytes, stages, pieces, *tile.box, stages // 2), cluster=cluster, shared=_shared(tile, stages),
        check_trips=2 * stages + 3, bytes=grid * PER_BLOCK, issues={"UTMALDG.2D.MULTICAST": 1}, architectures=MULTICASTING,
    )  # fmt: skip


def _shared(tile: MappedTile, stages: int) -> int:
    """Return the shared memory of a block: room to begin where a swizzle does, the stages, and two barriers for each."""
    return ALIGNED + stages * (tile.bytes + 16)


def _left(tile: MappedTile, grid: int, stages: int, pieces: int, cluster: int = 1) -> Callable[[Arrays, int], Arrays]:
    """Return what the stages hold at the end: in each the last of the trips that use it."""

    def reference(arrays: Arrays, trips: int) -> Arrays:
        boxes = tile.boxes(arrays[0]).reshape(pieces, grid // cluster, -1)
        last = [stage + (trips - 1 - stage) // stages * stages for stage in range(stages)]
        held = np.stack([boxes[trip % pieces] for trip in last], axis=1)
        return (np.repeat(held, cluster, axis=0).ravel(),)

    return reference


def _values(tile: MappedTile, boxes: int) -> Callable[[np.random.Generator, Data], Arrays]:
    count = boxes * tile.bytes // 8

    def inputs(generator: np.random.Generator, data: Data) -> Arrays:
        return (np.zeros(count, np.uint64) if data == "zero" else generator.integers(0, 2**64, count, np.uint64),)

    return inputs
