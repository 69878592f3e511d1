"""A histogram whose bins lie in the shared memory of all blocks of a cluster: what distributed shared memory is for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Output, TableLayout, Target, bench
from ullage.benches.shared_cluster import CLUSTER, CLUSTERED

CLUSTERS = (1, 2, 4, 8)
BLOCKS = (128, 512)  # threads
BINS = (256, 512, 1024, 2048, 4096)
COPIES = 4  # histograms of a block, so that its warps meet less often: one for each warp of 128 threads, for every four of 512
TRIPS = 128
EACH = 8  # elements of 16 bits in one load
STORED = 8 * 2**20  # bytes of elements: any L2 of a GPU with clusters holds them, and no L1
PER_SM = 16 * 1024  # threads that an SM runs in all, many times what it holds at once: the last ones to end cost little
POISONED = -1  # what the outputs hold before a launch that is checked

# The next power of two divides the bins among the blocks: a bin's lowest bits name the block. With one block nothing is remote, and
# plain shared memory does.
_KERNEL = r"""
__device__ __forceinline__ void count_CLUSTER(u32 copy, u32 bin) {
  const u32 at = copy + bin / CLUSTER * 4;
#if CLUSTER == 1
  asm volatile("red.shared.add.u32 [%0], 1;" :: "r"(at) : "memory");
#else
  u32 there; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(bin % CLUSTER));
  asm volatile("red.shared::cluster.add.u32 [%0], 1;" :: "r"(there) : "memory");
#endif
}
extern "C" __global__ void __launch_bounds__(512) histogram_CLUSTER(
    u64 *clocks, const uint4 *values, u32 *counts, int trips, int bins, int pieces) {
  extern __shared__ u32 mine[];
  const int own = bins / CLUSTER;
  for (int i = threadIdx.x; i < COPIES * own; i += blockDim.x) mine[i] = 0;
  cluster_sync();
  const u32 copy = ullage_shared(mine) + threadIdx.x / 32 % COPIES * own * 4;
  const uint4 *from = values + (u64)(blockIdx.x % pieces) * trips * blockDim.x + threadIdx.x;
  ULLAGE_BEGIN
  #pragma unroll 1
  for (int t = 0; t < trips; t++) {
    const uint4 some = from[(u64)t * blockDim.x];
    const u32 words[4] = {some.x, some.y, some.z, some.w};
    #pragma unroll
    for (int i = 0; i < 4; i++) { count_CLUSTER(copy, words[i] & 0xffff); count_CLUSTER(copy, words[i] >> 16); }
  }
  ULLAGE_END
  cluster_sync();
  for (int i = threadIdx.x; i < own; i += blockDim.x) {
    u32 sum = 0;
    for (int k = 0; k < COPIES; k++) sum += mine[k * own + i];
    atomicAdd(counts + i * CLUSTER + cluster_rank(), sum);
  }
}
"""
# The name of the cluster's size stands in names and in #if alike
_SIZED = "".join(_KERNEL.replace("_CLUSTER", f"_{size}").replace("CLUSTER", str(size)) for size in CLUSTERS)
SOURCE = CLUSTER + _SIZED.replace("COPIES", str(COPIES))


def _elements(bins: int) -> Callable[[np.random.Generator, Data], Arrays]:
    def make(generator: np.random.Generator, data: Data) -> Arrays:
        size = STORED // 2
        return (np.zeros(size, np.uint16) if data == "zero" else generator.integers(0, bins, size, np.uint16),)

    return make


def _counted(blocks: int, threads: int, bins: int, pieces: int) -> Callable[[Arrays, int], Arrays]:
    """Blocks take the pieces in turn, and add to what lies in the output."""

    def right(inputs: Arrays, trips: int) -> Arrays:
        size = trips * threads * EACH
        times = np.bincount(np.arange(blocks) % pieces, minlength=pieces)
        found = [np.bincount(inputs[0][piece * size : (piece + 1) * size], minlength=bins) for piece in range(pieces)]
        return ((times @ np.array(found) + POISONED).astype(np.uint32),)

    return right


@bench(
    "cluster-histogram",
    title="Histogram with its bins distributed over the blocks of a cluster",
    source="Hopper paper, figure 9 (drawn only: there are no numbers to compare with)",
    layout=TableLayout(rows=("block", "cluster"), across=("bins",), plot=("bins", "rate", ("block", "cluster"))),
    architectures=CLUSTERED,
    seconds=20,
)
def cluster_histogram(target: Target, quick: bool) -> Iterable[Case]:
    """Elements/s that are counted, over the bins, by threads of a block and blocks of a cluster.

    Elements are random, 16 bits wide, and come from the L2 cache. A block of a cluster holds its part of the bins, four times: each
    quarter of the warps has its own. A cluster of 1 counts by ATOMS in its own shared memory; in larger ones a bin is anywhere in
    the cluster, and is reached by mapa and a remote increment, which the machine does by ATOM.E.

    What to look for: with 128 threads and a cluster of 1, from 1024 to 2048 bins the shared memory (16, then 32 KiB a block) begins
    to limit the blocks of an SM (on an H100 from 13 to 6, where 16 have room), and the rate falls; distributed over a cluster the
    bins take less of each SM. The paper's block of 512 is limited by its threads up to 2048 bins. Against that stands the
    network between SMs: larger clusters go through it more often.
    """
    for threads in BLOCKS[:1] if quick else BLOCKS:
        for cluster in (1, 2, 4) if quick else CLUSTERS:
            for bins in (1024, 2048) if quick else BINS:
                yield _case(target, threads, cluster, bins)


def _case(target: Target, threads: int, cluster: int, bins: int) -> Case:
    blocks, pieces = target.sms * PER_SM // threads, STORED // (TRIPS * threads * EACH * 2)
    return Case(
        labels={"block": threads, "cluster": cluster, "bins": bins},
        source=SOURCE,
        entry=f"histogram_{cluster}",
        grid=blocks,
        block=threads,
        cluster=cluster,
        shared=4 * COPIES * bins // cluster,
        trips=TRIPS,
        inputs=_elements(bins),
        outputs=(Output((bins,), "uint32"),),
        scalars=(bins, pieces),
        reference=_counted(blocks, threads, bins, pieces),
        check_trips=3,
        quantities=("rate",),
        items=blocks * threads * TRIPS * EACH,
        issues={"LDG": 1, "ATOMS" if cluster == 1 else "ATOM.E": EACH},
    )
