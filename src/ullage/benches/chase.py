"""A pointer chase: a ring of pointers in memory, the kernel that follows it with one thread, and where it must arrive.

Each word of the ring is the address of the next, so that a hop is one load and nothing else: no address is computed, and no two
loads overlap. The time of a hop is the latency of the memory that holds the ring.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Labels, Output

LINE = 128  # bytes of a cache line: hops are at least as far apart, so that none finds what another fetched
WORD = 8  # bytes of a pointer
STEPS = 32  # hops of a trip
THREADS = 1024  # all but one only help to set up
CHECKED = 64  # trips that are followed on the host
SHARED_WORDS = 1024

# The host can't know the ring's address: its words are offsets, marked by a set lowest bit, and the kernel makes pointers of those
# that are still marked. A launch over memory that an earlier one prepared thus changes nothing. The sweep also brings the ring into
# the L2 cache (or flushes it, where the ring is larger) and its pages into the TLB.
_GLOBAL = """
extern "C" __global__ void __launch_bounds__(1024) {entry}(
    u64 *clocks, u64 *ring, u64 *found, int trips, int entries, int stride, int rounds) {{
    for (int i = threadIdx.x; i < entries; i += blockDim.x) {{
        u64 *word = ring + (u64)i * stride;
        if (*word & 1) *word = (u64)ring + *word - 1;
    }}
    __syncthreads();
    u64 at = (u64)(ring + (u64)blockIdx.x * entries / gridDim.x * stride);
    #pragma unroll 1
    for (int hop = ullage_first() ? rounds * entries : 0; hop > 0; hop--) {hop}
    ULLAGE_BEGIN
    if (ullage_first()) {{
        #pragma unroll 1
        for (int trip = 0; trip < trips; trip++) {{
            {hops}
        }}
    }}
    ULLAGE_END
    if (ullage_first()) found[blockIdx.x] = at - (u64)ring;
}}
"""
_SHARED = """
extern "C" __global__ void chase_shared(u64 *clocks, const u64 *ring, u64 *found, int trips, int entries) {{
    __shared__ u64 words[1024];
    for (int i = threadIdx.x; i < entries; i += blockDim.x) words[i] = ullage_shared(words) + (ring[i] - 1);
    u32 at = ullage_shared(words);
    ULLAGE_BEGIN
    if (ullage_first()) {{
        #pragma unroll 1
        for (int trip = 0; trip < trips; trip++) {{
            {hops}
        }}
    }}
    ULLAGE_END
    if (ullage_first()) *found = at - ullage_shared(words);
}}
"""


def _source() -> Iterator[str]:
    for name in ("ca", "cg"):
        hop = f'asm volatile("ld.global.{name}.u64 %0, [%0];" : "+l"(at));'
        yield _GLOBAL.format(entry=f"chase_{name}", hop=hop, hops=hop * STEPS)
    yield _SHARED.format(hops='asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at));' * STEPS)


SOURCE = "".join(_source())


def ring(generator: np.random.Generator, entries: int, stride: int, page: int = 0) -> np.ndarray:
    """Return a ring of `entries` words, `stride` words apart, that visits all of them in random order: one cycle.

    A word is the offset of the next in bytes, plus 1. With `page`, entries are visited page by page (each of that many entries, in
    order), at random only within: a miss of the TLB then comes once a page. What lies between the entries is 0.

    Of two entries each leads to the other, 16 words (128 bytes) apart:

    >>> ring(np.random.default_rng(0), entries=2, stride=16)[[0, 16]].tolist()
    [129, 1]
    """
    order = np.arange(entries)
    order = generator.permuted(order.reshape(-1, page), axis=1).ravel() if page else generator.permutation(order)
    words = np.zeros(entries * stride, np.uint64)
    words[order * stride] = np.roll(order, -1) * stride * WORD + 1
    return words


def arrival(words: np.ndarray, hops: int, at: int = 0) -> int:
    """Return the offset in bytes at which a chase of so many hops from the offset `at` arrives.

    >>> arrival(np.array([9, 17, 1], np.uint64), hops=2)
    16
    """
    for _ in range(hops):
        at = int(words[at // WORD]) - 1
    return at


def chase(labels: Labels, memory: str, footprint: int, *, trips: int = 512, rounds: int = 0, page: int = 0, blocks: int = 1) -> Case:
    """Return the case of a chase through `footprint` bytes of "ca" (L1 and all below), "cg" (L2 and all below) or "shared" memory.

    `rounds` are whole rounds of the ring before the clock starts, which warm the cache that is measured. `page` is in bytes. Several
    `blocks` begin at places spread over the ring, so that they seldom meet at a line.
    """
    shared = memory == "shared"
    stride = 1 if shared else LINE // WORD
    entries = footprint // (stride * WORD)

    def inputs(generator: np.random.Generator, data: Data) -> Arrays:  # noqa: ARG001
        return (ring(generator, entries, stride, page // LINE),)

    def reference(arrays: Arrays, trips: int) -> Arrays:
        starts = (block * entries // blocks * stride * WORD for block in range(blocks))
        return (np.array([arrival(arrays[0], trips * STEPS, start) for start in starts], np.uint64),)

    return Case(
        labels, SOURCE, f"chase_{memory}", blocks, THREADS, trips, (Output((blocks,), "uint64"),), reference, ("latency",), inputs,
        scalars=(entries,) if shared else (entries, stride, rounds), check_trips=CHECKED, steps=STEPS,
        issues={"LDS" if shared else "LDG": STEPS},
    )  # fmt: skip
