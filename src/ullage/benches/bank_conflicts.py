"""Conflicts in the banks of shared memory: what loads bring, and how long one takes, when threads of a warp meet in a bank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Figure, Labels, Output, TableLayout, Target, bench

GUIDE = "CUDA C++ Programming Guide, shared memory: 32 banks, each 32 bits a cycle"
WARP, BANKS, WORD = 32, 32, 4  # threads, banks, bytes of a bank's word
ROWS, ROW = 8, 1024  # places that a thread reads in turn, and words from one to the next: as many as 32 ways need
HOPS = 30  # dependent loads of a trip; no multiple of the rows, or a trip would end where it began
THREADS = 1024
WIDTHS = (1, 2, 4)  # words of a load

# A thread reads its element of each row; from thread to thread lie `ways` elements. The address moves by `step`, which is 0, but only the
# launch knows that: else the loads would be lifted out of the loop.
_LOADS = """
extern "C" __global__ void __launch_bounds__({threads}) conflict_load_{bits}(
    u64 *clocks, const u32 *values, u32 *found, int trips, int ways, int step) {{
    __shared__ __align__(16) u32 words[{rows} * {row}];
    for (int i = threadIdx.x; i < {rows} * {row}; i += blockDim.x) words[i] = values[i];
    u32 at = ullage_shared(words + threadIdx.x % {warp} * ways * {width}), sum[{width}] = {{}};
    ULLAGE_BEGIN
    #pragma unroll 1
    for (int trip = 0; trip < trips; trip++) {{
        u32 value[{rows} * {width}];
        {loads}
        for (int i = 0; i < {rows} * {width}; i++) sum[i % {width}] ^= value[i];
        at += step;
    }}
    ULLAGE_END
    for (int i = 1; i < {width}; i++) sum[0] ^= sum[i];
    found[threadIdx.x] = sum[0];
}}
"""
# The first word of each element is the address of the same element in the next row; the others are folded beside the chain, or the load
# would be made narrower.
_CHASE = """
extern "C" __global__ void conflict_chase_{bits}(u64 *clocks, const u32 *values, const int *next, u32 *found, int trips, int ways) {{
    __shared__ __align__(16) u32 words[{rows} * {row}];
    for (int i = threadIdx.x; i < {rows} * {row}; i += blockDim.x)
        words[i] = i % {width} ? values[i] : ullage_shared(words + next[i / {row}] * {row} + i % {row});
    u32 at = ullage_shared(words + threadIdx.x % {warp} * ways * {width}), value[4] = {{}}, sum = 0;
    ULLAGE_BEGIN
    #pragma unroll 1
    for (int trip = 0; trip < trips; trip++) {{
        #pragma unroll
        for (int hop = 0; hop < {hops}; hop++) {{
            {load}
            sum ^= value[1] ^ value[2] ^ value[3];
        }}
    }}
    ULLAGE_END
    found[threadIdx.x] = (at - ullage_shared(words)) ^ sum;
}}
"""


def _load(names: Sequence[str], offset: int) -> str:
    """Return the statement of a load of as many neighbouring words as there are names."""
    places = ", ".join(f"%{number}" for number in range(len(names)))
    vector, places = (f".v{len(names)}", f"{{{places}}}") if len(names) > 1 else ("", places)
    outputs = ", ".join(f'"=r"({name})' for name in names)
    return f'asm volatile("ld.shared{vector}.u32 {places}, [%{len(names)}+{offset}];" : {outputs} : "r"(at) : "memory");'


def _source() -> Iterator[str]:
    for width in WIDTHS:
        shape = {"bits": 32 * width, "width": width, "rows": ROWS, "row": ROW, "warp": WARP, "threads": THREADS, "hops": HOPS}
        loads = [_load([f"value[{row * width + word}]" for word in range(width)], row * ROW * WORD) for row in range(ROWS)]
        yield _LOADS.format(loads="\n        ".join(loads), **shape)
        yield _CHASE.format(load=_load(["at", *(f"value[{word}]" for word in range(1, width))], 0), **shape)


SOURCE = "".join(_source())
GPUS = ("NVIDIA A100-PCIE-40GB", "NVIDIA GeForce RTX 4090", "NVIDIA H200")


def ways_of(width: int) -> tuple[int, ...]:
    """Return by how many ways loads of so many words can conflict: half as many threads are served at once when each loads twice as much.

    >>> ways_of(1), ways_of(4)
    ((1, 2, 4, 8, 16, 32), (1, 2, 4, 8))
    """
    return tuple(2**n for n in range((WARP // width).bit_length()))


def _labels(ways: int, width: int) -> Labels:
    return {"ways": ways, "width": f"{32 * width} bits"}


def _figures() -> Iterator[Figure]:
    for gpu in GPUS:
        for width in WIDTHS:
            yield from (Figure(gpu, _labels(ways, width), "bytes_per_cycle_sm", BANKS * WORD / ways) for ways in ways_of(width))


@bench(
    "bank-conflicts",
    title="Conflicts in the banks of shared memory",
    source=GUIDE,
    layout=TableLayout(rows=("ways",), across=("width",), plot=("ways", "bytes_per_cycle_sm", ("width",))),
    figures=_figures(),
    seconds=10,
)
def bank_conflicts(target: Target, quick: bool) -> Iterator[Case]:  # noqa: ARG001
    """Bytes a cycle and SM that loads bring, and SM cycles of one load of a warp, over how many words it wants of a bank at once.

    A load of a warp is served in as many passes as the busiest bank has words to give. With 32 bits a thread all 32 threads can be
    served in one, with 64 bits half of them, with 128 bits a quarter: a load without conflicts takes 1, 2 or 4 passes, and one of n
    ways n times as many, up to 32. Elements of neighbouring threads lie n elements apart: the banks then give 128 B / n a cycle.

    Throughput: one block of 1,024 threads, eight loads of each in flight. Latency: one warp, in which each load gives the address of
    the next; 32 bits in one way is the shared memory of `memory-latency`, where one thread loads.
    """
    for width in WIDTHS:
        for ways in ways_of(width):
            if not quick or ways in (1, WARP // width):
                yield chase(ways, width)
                yield loads(ways, width)


def _opcode(width: int) -> str:
    return f"LDS.{32 * width}" if width > 1 else "LDS"


def _elements(values: np.ndarray, ways: int, width: int) -> np.ndarray:
    """Return the words that each thread of a warp reads in each row: rows × threads × words."""
    elements = values.reshape(ROWS, ROW // width, width)
    return elements[:, np.arange(WARP) * ways]


def loads(ways: int, width: int) -> Case:
    """Return the case of loads of `width` words by all warps of an SM, which conflict in so many ways."""
    trips = 4096 // (ways * width)

    def inputs(generator: np.random.Generator, data: Data) -> Arrays:
        return (_values(generator, data),)

    def reference(arrays: Arrays, trips: int) -> Arrays:
        folded = np.bitwise_xor.reduce(_elements(arrays[0], ways, width), axis=(0, 2)) * np.uint32(trips % 2)
        return (np.tile(folded, THREADS // WARP),)

    return Case(
        _labels(ways, width), SOURCE, f"conflict_load_{32 * width}", 1, THREADS, trips, (Output((THREADS,), "uint32"),), reference,
        ("bytes_per_cycle_sm",), inputs, scalars=(ways, 0), check_trips=3, bytes=ROWS * THREADS * width * WORD * trips,
        issues={_opcode(width): ROWS},
    )  # fmt: skip


def chase(ways: int, width: int) -> Case:
    """Return the case of a warp's loads of `width` words, each the address of the next, which conflict in so many ways."""

    def inputs(generator: np.random.Generator, data: Data) -> Arrays:
        order = generator.permutation(ROWS).astype(np.int32)
        following = np.empty(ROWS, np.int32)
        following[order] = np.roll(order, -1)  # one cycle through all rows
        return _values(generator, data), following

    def reference(arrays: Arrays, trips: int) -> Arrays:
        others, at, folded = _elements(arrays[0], ways, width)[:, :, 1:], 0, np.zeros(WARP, np.uint32)
        for _ in range(trips * HOPS):
            folded = folded ^ np.bitwise_xor.reduce(others[at], axis=1)
            at = int(arrays[1][at])
        place = (at * ROW + np.arange(WARP) * ways * width) * WORD
        return (place.astype(np.uint32) ^ folded,)

    return Case(
        _labels(ways, width), SOURCE, f"conflict_chase_{32 * width}", 1, WARP, 512, (Output((WARP,), "uint32"),), reference,
        ("latency",), inputs, scalars=(ways,), check_trips=1, steps=HOPS, issues={_opcode(width): HOPS},
    )  # fmt: skip


def _values(generator: np.random.Generator, data: Data) -> np.ndarray:
    return np.zeros(ROWS * ROW, np.uint32) if data == "zero" else generator.integers(0, 2**32, ROWS * ROW, np.uint32)
