"""A pointer chase: a ring of pointers in memory, the kernel that makes it and follows it with one thread, and where it must arrive.

Each word of the ring is the address of the next, so that a hop is one load and nothing else: no address is computed, and no two
loads overlap. The time of a hop is the latency of the memory that holds the ring.

The ring is made on the GPU. `ring_lines` tells at which line the chase is after so many hops, without a table: the host follows a ring of
any size in some kilobytes.
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
KEYS = 6  # one a round: with six, distances from line to line are spread as those of a random order are, with four they were not yet
FACTORS = 0x9E3779B1, 0x85EBCA77  # odd numbers whose bits have no pattern: the first two primes of xxHash (Collet, XXH32)
SHIFTS = 15, 13  # and its avalanche's

# The step's number is cut into two halves, and each in turn is changed by what the other hashes to: whatever the hash, no two numbers of so
# many bits come to the same (Luby and Rackoff 1988, after Feistel). What leaves the ring, whose length need not be a power of two, is
# changed again until it is inside: still no two steps come to the same line (Black and Rogaway 2002, cycle walking).
_LINES = f"""
__device__ __forceinline__ u32 hashed(u32 value) {{
    value *= {FACTORS[0]:#x}u;
    value = (value ^ value >> {SHIFTS[0]}) * {FACTORS[1]:#x}u;
    return value ^ value >> {SHIFTS[1]};
}}
__device__ __forceinline__ u32 ring_line(u32 step, const u32 *keys, u32 span, u32 bits) {{
    const u32 page = step / span, low_bits = bits / 2, low_mask = (1u << low_bits) - 1, high_mask = (1u << (bits - low_bits)) - 1;
    u32 line = step - page * span;
    do {{
        u32 low = line & low_mask, high = line >> low_bits;
        #pragma unroll
        for (int round = 0; round < {KEYS}; round += 2) {{
            high = (high ^ hashed(low + (page << 16) + keys[round])) & high_mask;
            low = (low ^ hashed(high + (page << 16) + keys[round + 1])) & low_mask;
        }}
        line = high << low_bits | low;
    }} while (line >= span);
    return page * span + line;
}}
"""
# A word that is 0 is not made yet. Every block makes all that it finds so, the same as the others would; a launch over a ring that an
# earlier one made changes nothing. The sweep also brings the ring into the L2 cache (or flushes it, where the ring is larger) and its
# pages into the TLB.
_GLOBAL = """
extern "C" __global__ void __launch_bounds__(1024) {entry}(
    u64 *clocks, const u32 *keys, u64 *ring, u64 *found, int trips, int entries, int span, int bits, int rounds) {{
    for (int step = threadIdx.x; step < entries; step += blockDim.x) {{
        u64 *word = ring + (u64)ring_line(step, keys, span, bits) * {stride};
        if (!*word) *word = (u64)(ring + (u64)ring_line(step + 1 < entries ? step + 1 : 0, keys, span, bits) * {stride});
    }}
    __syncthreads();
    u64 at = (u64)(ring + (u64)ring_line((u64)blockIdx.x * entries / gridDim.x, keys, span, bits) * {stride});
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
extern "C" __global__ void chase_shared(u64 *clocks, const u32 *keys, u64 *found, int trips, int entries, int span, int bits) {{
    __shared__ u64 words[{most}];
    for (int step = threadIdx.x; step < entries; step += blockDim.x)
        words[ring_line(step, keys, span, bits)] = ullage_shared(words + ring_line(step + 1 < entries ? step + 1 : 0, keys, span, bits));
    u32 at = ullage_shared(words + ring_line(0, keys, span, bits));
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
    yield _LINES
    for name in ("ca", "cg"):
        hop = f'asm volatile("ld.global.{name}.u64 %0, [%0];" : "+l"(at));'
        yield _GLOBAL.format(entry=f"chase_{name}", hop=hop, hops=hop * STEPS, stride=LINE // WORD)
    yield _SHARED.format(hops='asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at));' * STEPS, most=SHARED_WORDS)


SOURCE = "".join(_source())


def ring_lines(steps: np.ndarray, keys: np.ndarray, span: int) -> np.ndarray:
    """Return at which line a ring is after so many steps, as the kernel has it: at every line once in as many steps as there are lines.

    `steps` are less than the ring's length, which is a multiple of `span`. The ring goes through `span` lines in an order that can't be
    foreseen before it goes to the next `span`. `keys` are `KEYS` numbers of 32 bits that choose the order.

    >>> ring_lines(np.arange(8), np.arange(KEYS), span=4).tolist()
    [1, 2, 3, 0, 6, 4, 5, 7]
    """
    low_bits = np.uint32(_bits(span) // 2)
    low_mask, high_mask = (np.uint32((1 << int(bits)) - 1) for bits in (low_bits, _bits(span) - int(low_bits)))
    numbers = np.asarray(keys, np.uint32)
    page, lines = np.divmod(np.asarray(steps, np.uint32), np.uint32(span))
    outside = np.arange(lines.size)
    while outside.size:
        low, high, above = lines[outside] & low_mask, lines[outside] >> low_bits, page[outside] << np.uint32(16)
        for one, other in zip(numbers[::2], numbers[1::2], strict=True):
            high = (high ^ _hashed(low + above + one)) & high_mask
            low = (low ^ _hashed(high + above + other)) & low_mask
        lines[outside] = high << low_bits | low
        outside = outside[lines[outside] >= span]
    return np.asarray(page * np.uint32(span) + lines)


def _hashed(values: np.ndarray) -> np.ndarray:
    values = values * np.uint32(FACTORS[0])
    values = (values ^ values >> np.uint32(SHIFTS[0])) * np.uint32(FACTORS[1])
    return np.asarray(values ^ values >> np.uint32(SHIFTS[1]))


def _bits(span: int) -> int:
    """Return how many bits the numbers below `span` have."""
    return (span - 1).bit_length()


def chase(labels: Labels, memory: str, footprint: int, *, trips: int = 512, rounds: int = 0, page: int = 0, blocks: int = 1) -> Case:
    """Return the case of a chase through `footprint` bytes of "ca" (L1 and all below), "cg" (L2 and all below) or "shared" memory.

    `rounds` are whole rounds of the ring before the clock starts, which warm the cache that is measured. With `page` (in bytes) the ring
    goes page by page, and in no order that could be foreseen only within: a miss of the TLB then comes once a page. Several `blocks`
    begin at places spread over the ring, so that they seldom meet at a line.
    """
    shared = memory == "shared"
    apart = WORD if shared else LINE
    entries = footprint // apart
    span = page // apart or entries

    def inputs(generator: np.random.Generator, data: Data) -> Arrays:  # noqa: ARG001
        keys = generator.integers(0, 2**32, KEYS, np.uint32)
        return (keys,) if shared else (keys, np.broadcast_to(np.uint64(0), entries * (LINE // WORD)))

    def reference(arrays: Arrays, trips: int) -> Arrays:
        starts = np.arange(blocks, dtype=np.int64) * entries // blocks
        return (ring_lines((starts + trips * STEPS) % entries, arrays[0], span).astype(np.uint64) * np.uint64(apart),)

    shape = (entries, span, _bits(span))
    return Case(
        labels, SOURCE, f"chase_{memory}", blocks, THREADS, trips, (Output((blocks,), "uint64"),), reference, ("latency",), inputs,
        scalars=shape if shared else (*shape, rounds), check_trips=CHECKED, steps=STEPS, issues={"LDS" if shared else "LDG": STEPS},
    )  # fmt: skip
