"""Distributed shared memory: what it costs to reach another SM's shared memory within a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Figure, Output, TableLayout, Target, bench
from ullage.benches.result import CaseRow

PAPER_GPU = "NVIDIA H800 PCIe"
CLUSTERED = ("sm_90a", "sm_100a", "sm_103a", "sm_120a")
LINKS, HOPS = 256, 16  # elements of a chain, and dependent loads of a trip
LOADS = (1, 2, 4)  # of a thread that do not depend on one another
ROW = 1024  # words from one load of a thread to the next: the widest block
TRIPS = 2048

# Addresses are generic ones: loads of .shared::cluster addresses become the same instruction, LD.E, after each address has been
# widened, which would stand between two hops of a chain.
CLUSTER = r"""
__device__ __forceinline__ u32 cluster_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ u32 cluster_size() { u32 n; asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n)); return n; }
__device__ __forceinline__ u64 of_block(const void *own, u32 rank) {
  u64 there; asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(own), "r"(rank)); return there;
}
__device__ __forceinline__ u64 of_next(const void *own) { return of_block(own, (cluster_rank() + 1) % cluster_size()); }
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
"""
# Each block walks its neighbour's chain, whose links are addresses: a load's result is the next load's address. No block ends before
# its neighbour has read the last of it.
_CHASE = r"""
extern "C" __global__ void chase(u64 *clocks, const int *next, int *out, int trips) {
  extern __shared__ u64 chain[];
  const u64 own = of_block(chain, cluster_rank()), there = of_next(chain);
  for (int i = threadIdx.x; i < LINKS; i += blockDim.x) chain[i] = own + 8 * next[i];
  cluster_sync();
  u64 at = there;
  ULLAGE_BEGIN
  #pragma unroll 1
  for (int t = 0; t < trips; t++) {
    #pragma unroll
    for (int i = 0; i < HOPS; i++) asm volatile("ld.u64 %0, [%0];" : "+l"(at) :: "memory");
  }
  ULLAGE_END
  out[blockIdx.x * blockDim.x + threadIdx.x] = (int)(at - there) / 8;
  cluster_sync();
}
"""
# Each thread adds what lies at its place in the next block's shared memory: DEEP independent loads a trip, by turns from two pages,
# because the assembler takes a load that would always find the same out of the loop, `volatile` or not.
_RING = r"""
extern "C" __global__ void __launch_bounds__(ROW) ring_DEEP(u64 *clocks, const int *values, int *out, int trips) {
  extern __shared__ u32 mine[];
  for (int j = 0; j < 2 * DEEP; j++) mine[j * ROW + threadIdx.x] = values[(j * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x];
  cluster_sync();
  const u64 there = of_next(mine + threadIdx.x);
  u32 sum[DEEP];
  for (int j = 0; j < DEEP; j++) sum[j] = 0;
  ULLAGE_BEGIN
  #pragma unroll 1
  for (int t = 0; t < trips; t++) {
    const u64 page = there + (t & 1) * (4 * DEEP * ROW);
    #pragma unroll
    for (int j = 0; j < DEEP; j++) {
      u32 found; asm volatile("ld.u32 %0, [%1];" : "=r"(found) : "l"(page + 4 * ROW * j) : "memory");
      sum[j] += found;
    }
  }
  ULLAGE_END
  for (int j = 0; j < DEEP; j++) out[(j * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x] = sum[j];
  cluster_sync();
}
"""
_NUMBERS = {"LINKS": LINKS, "HOPS": HOPS, "ROW": ROW}


def _filled(text: str, numbers: Mapping[str, int]) -> str:
    for word, number in numbers.items():
        text = text.replace(word, str(number))
    return text


SOURCE = CLUSTER + _filled(_CHASE + "".join(_filled(_RING, {"DEEP": deep}) for deep in LOADS), _NUMBERS)


def alone(target: Target) -> int:
    """Return how much shared memory a block asks for to have its SM to itself: just above half of the SM's.

    >>> alone(Target("sm_90a", shared_per_sm=228 * 1024)) // 1024
    115
    """
    return target.shared_per_sm // 2 + 1024


def at_once(target: Target, cluster: int) -> int:
    """Return a number of blocks that run at once in clusters, each block on an SM of its own.

    SMs come in pairs, so clusters of 2 fill them all. Larger ones lie within a GPC, of which a chip has some of 14, some of 16 and
    some of 18 SMs: where they are cut differs from chip to chip, and a cluster more than fit would double the time. So 7/8 of the SMs.

    >>> [at_once(Target("sm_90a", sms=132), cluster) for cluster in (2, 4, 8)]
    [132, 112, 112]
    """
    return (target.sms if cluster <= 2 else target.sms * 7 // 8) // cluster * cluster


def _permutation(generator: np.random.Generator, data: Data) -> Arrays:  # noqa: ARG001 - a chain has no zeros
    """One cycle through all links, in random order."""
    order = generator.permutation(LINKS)
    following = np.empty(LINKS, np.int32)
    following[order] = np.roll(order, -1)
    return (following,)


def _walked(inputs: Arrays, trips: int) -> Arrays:
    at = 0
    for _ in range(trips * HOPS):
        at = int(inputs[0][at])
    return (np.full(2, at, np.int32),)


@bench(
    "cluster-latency",
    title="Latency of another SM's shared memory",
    source="Hopper paper, section IV-E: 180 cycles",
    layout=TableLayout(rows=("memory",)),
    architectures=CLUSTERED,
    figures=[Figure(PAPER_GPU, {"memory": "another SM's shared"}, "latency", 180.0)],
    seconds=2,
    drift=True,
)
def cluster_latency(target: Target, quick: bool) -> Iterable[Case]:  # noqa: ARG001 - one case
    """SM cycles of one dependent load from the shared memory of the other block of a cluster of two, one thread each.

    The links are generic addresses, so a hop is one LD.E.64 and nothing else. Each block asks for more than half of an SM's shared
    memory, so that the two are on different SMs. Both walk at once, and the figure is the mean of the two.
    """
    yield Case(
        labels={"memory": "another SM's shared"},
        source=SOURCE,
        entry="chase",
        grid=2,
        block=1,
        cluster=2,
        shared=alone(target),
        trips=256,
        inputs=_permutation,
        outputs=(Output((2,), "int32"),),
        reference=_walked,
        check_trips=3,
        quantities=("latency",),
        steps=HOPS,
        issues={"LD.E": HOPS},
    )


def _ring_values(blocks: int, threads: int, deep: int) -> Callable[[np.random.Generator, Data], Arrays]:
    def make(generator: np.random.Generator, data: Data) -> Arrays:
        size = 2 * deep * blocks * threads
        return (np.zeros(size, np.int32) if data == "zero" else generator.integers(-(2**31), 2**31, size, np.int64).astype(np.int32),)

    return make


def _ring_reference(blocks: int, cluster: int, threads: int, deep: int) -> Callable[[Arrays, int], Arrays]:
    def right(inputs: Arrays, trips: int) -> Arrays:
        pages = inputs[0].reshape(2, deep, blocks // cluster, cluster, threads).astype(np.int64)
        even, odd = np.roll(pages, -1, axis=3)
        return ((even * ((trips + 1) // 2) + odd * (trips // 2)).astype(np.int32).reshape(-1),)  # wraps around as the GPU's sums do

    return right


def crowded(rows: Sequence[CaseRow]) -> tuple[str, ...]:
    """Return for which cluster sizes the blocks did not all run at once, so that B/s is too low; nothing where they did.

    How many SMs were busy on average follows from the rate of all and the rate of one: (B/s) / (B per cycle and SM × cycles/s).
    """
    late = set()
    for row in rows:
        clock = row.stamp.sm_clock if row.stamp else None
        if clock and {"bandwidth", "bytes_per_cycle_sm"} <= row.values.keys():
            busy = row.values["bandwidth"].value / (row.values["bytes_per_cycle_sm"].value * clock)
            if busy < 0.75 * float(str(row.labels["blocks"])):
                late.add(int(str(row.labels["cluster"])))
    return tuple(f"clusters of {size} did not all run at once: B/s is too low, B/cycle/SM is right" for size in sorted(late))


@bench(
    "cluster-ring",
    title="Throughput of SM to SM: each block reads the next one's shared memory, round the cluster",
    source="Hopper paper, figure 8 (its text has the two peaks)",
    layout=TableLayout(rows=("cluster", "block"), across=("loads",), plot=("block", "bandwidth", ("cluster", "loads"))),
    architectures=CLUSTERED,
    figures=[
        Figure(PAPER_GPU, {"cluster": 2, "block": 1024, "loads": 4}, "bandwidth", 3.27e12),
        Figure(PAPER_GPU, {"cluster": 4, "block": 1024, "loads": 4}, "bandwidth", 2.65e12),
    ],
    findings=crowded,
    seconds=15,
)
def cluster_ring(target: Target, quick: bool) -> Iterable[Case]:
    """B/s of all blocks, by cluster size, threads of a block and independent loads of a thread; one block an SM, 4 bytes a load.

    Larger blocks and more loads in flight fill the network; larger clusters share it among more blocks. Clusters of 2 are on all
    SMs, larger ones on 7/8 of them, because not every chip has room for more at once: compare clusters by B/cycle/SM. The paper
    names a peak for clusters of 2 and of 4 and says that larger blocks and more loads are faster: it stands beside the largest.
    """
    for cluster in (2, 4) if quick else (2, 4, 8):
        for threads in (1024,) if quick else (128, 256, 512, 1024):
            for deep in (4,) if quick else LOADS:
                yield from _ring(target, cluster, threads, deep)


def _ring(target: Target, cluster: int, threads: int, deep: int) -> Iterable[Case]:
    blocks = at_once(target, cluster)
    if not blocks:
        return
    yield Case(
        labels={"cluster": cluster, "block": threads, "loads": deep, "blocks": blocks},
        source=SOURCE,
        entry=f"ring_{deep}",
        grid=blocks,
        block=threads,
        cluster=cluster,
        shared=max(alone(target), 4 * 2 * deep * ROW),
        trips=TRIPS,
        inputs=_ring_values(blocks, threads, deep),
        outputs=(Output((deep * blocks * threads,), "int32"),),
        reference=_ring_reference(blocks, cluster, threads, deep),
        check_trips=3,
        quantities=("bandwidth", "bytes_per_cycle_sm"),
        bytes=4 * deep * blocks * threads * TRIPS,
        issues={"LD.E": deep},
    )
