"""The L2 cache as an SM sees it: what its nearest and its farthest lines cost, in cycles and in bytes a cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Labels, Output, TableLayout, Target, bench
from ullage.benches.result import CaseRow

LINE, WORD = 128, 8  # bytes of a cache line, and of a pointer
LINES = 512  # that each block times: enough that a quarter of them lies in either partition
KEPT = LINES // 4  # of which the nearest or the farthest are gone through
PARTS = {"near": 0, "far": LINES - KEPT}  # rank of the first that is kept, from the nearest
PROBES = 8  # dependent accesses by which a line is timed
HOPS = 30  # of a trip: no multiple of KEPT, or a trip would end where it began
THREADS = 1024
DEEP = 4  # independent loads of a thread in a trip
ALIKE = 0.05  # how far two parts may differ and count as one

# No table says in which slice a line lies: each block finds its own near and far lines. It times every line, which points to itself
# meanwhile, and ranks them; lines of one time stand in the order of their addresses. What a probe found is written back: it is what lies
# there already, but else the assembler would leave the loads out.
_CHOOSE = """
__device__ __forceinline__ void choose_{access}(u64 *own, u32 *cycles, u32 *kept, int first) {{
    for (int line = threadIdx.x; line < {lines}; line += blockDim.x) own[line * {words}] = (u64)(own + line * {words});
    __syncthreads();
    #pragma unroll 1
    for (int line = ullage_first() ? 0 : {lines}; line < {lines}; line++) {{
        u64 at = (u64)(own + line * {words});
        {hop}
        const u64 begin = ullage_cycles();
        {probes}
        cycles[line] = ullage_cycles() - begin;
        own[line * {words}] = at;
    }}
    __syncthreads();
    for (int line = threadIdx.x; line < {lines}; line += blockDim.x) {{
        int rank = 0;
        for (int other = 0; other < {lines}; other++)
            rank += cycles[other] < cycles[line] || (cycles[other] == cycles[line] && other < line);
        if (rank >= first && rank < first + {most}) kept[rank - first] = line;
    }}
    __syncthreads();
}}
extern "C" __global__ void __launch_bounds__({threads}) l2_chase_{access}(u64 *clocks, u64 *lines, u64 *found, int trips, int first) {{
    __shared__ u32 cycles[{lines}], kept[{most}];
    u64 *const own = lines + (u64)blockIdx.x * {lines} * {words};
    choose_{access}(own, cycles, kept, first);
    for (int place = threadIdx.x; place < {most}; place += blockDim.x) {{
        own[kept[place] * {words}] = (u64)(own + kept[(place + 1) % {most}] * {words});
        own[kept[place] * {words} + 1] = place;
    }}
    __syncthreads();
    u64 at = (u64)(own + kept[0] * {words});
    ULLAGE_BEGIN
    if (ullage_first()) {{
        #pragma unroll 1
        for (int trip = 0; trip < trips; trip++) {{
            {hops}
        }}
    }}
    ULLAGE_END
    if (ullage_first()) found[blockIdx.x] = ((u64 *)at)[1];
}}
"""
# Eight threads read a line, 16 bytes each; all threads read all lines that are kept, several at once. The addresses move by `step`, which
# is 0, but only the launch knows that: else the loads would be lifted out of the loop.
_READ = """
extern "C" __global__ void __launch_bounds__({threads}) l2_read(
    u64 *clocks, u64 *lines, const u32 *values, u32 *found, int trips, int first, int step) {{
    __shared__ u32 cycles[{lines}], kept[{most}];
    u64 *const own = lines + (u64)blockIdx.x * {lines} * {words};
    choose_load(own, cycles, kept, first);
    for (int word = threadIdx.x; word < {most} * 32; word += blockDim.x)
        ((u32 *)(own + kept[word / 32] * {words}))[word % 32] = values[word];
    __syncthreads();
    u64 at[{deep}];
    for (int load = 0; load < {deep}; load++)
        at[load] = (u64)(own + kept[(threadIdx.x / 8 + load * {most} / {deep}) % {most}] * {words}) + threadIdx.x % 8 * 16;
    u32 sum = 0;
    ULLAGE_BEGIN
    #pragma unroll 1
    for (int trip = 0; trip < trips; trip++) {{
        uint4 value[{deep}];
        #pragma unroll
        for (int load = 0; load < {deep}; load++)
            asm volatile("ld.global.cg.v4.u32 {{%0, %1, %2, %3}}, [%4];"
                : "=r"(value[load].x), "=r"(value[load].y), "=r"(value[load].z), "=r"(value[load].w) : "l"(at[load]) : "memory");
        #pragma unroll
        for (int load = 0; load < {deep}; load++) {{
            sum += value[load].x + value[load].y + value[load].z + value[load].w;
            at[load] += step;
        }}
    }}
    ULLAGE_END
    found[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}}
"""
_HOP = {
    "load": 'asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at) :: "memory");',
    "atomic": 'asm volatile("atom.global.or.b64 %0, [%0], %1;" : "+l"(at) : "l"(0ull) : "memory");',
}


def _source() -> Iterator[str]:
    shape = {"lines": LINES, "words": LINE // WORD, "most": KEPT, "threads": THREADS, "deep": DEEP}
    for access, hop in _HOP.items():
        yield _CHOOSE.format(access=access, hop=hop, probes=hop * PROBES, hops=hop * HOPS, **shape)
    yield _READ.format(**shape)


SOURCE = "".join(_source())


def distances(rows: Sequence[CaseRow]) -> tuple[str, ...]:
    """Return in a sentence for each kind of access how much farther the far lines are; nothing where a part was not measured."""
    cycles = {(row.labels["access"], row.labels["part"]): row.values["latency"].value for row in rows if "latency" in row.values}
    pairs = {access: [cycles.get((access, part)) for part in PARTS] for access in dict.fromkeys(access for access, _ in cycles)}
    return tuple(f"the L2 by {access}s: {_compared(near, far)}" for access, (near, far) in pairs.items() if near and far)


def _compared(near: float, far: float) -> str:
    if far <= (1 + ALIKE) * near:
        return f"all lines are about as near, {near:,.0f} cycles"
    return f"the farthest quarter of the lines takes {far:,.0f} cycles, {far / near:.2f} times the {near:,.0f} of the nearest"


@bench(
    "l2-partitions",
    title="Near and far lines of the L2 cache",
    source="not in the Hopper paper",
    layout=TableLayout(rows=("part",), across=("access",)),
    findings=distances,
    seconds=5,
)
def l2_partitions(target: Target, quick: bool) -> Iterator[Case]:
    """SM cycles of an access to the L2, and bytes a cycle and SM, over the quarter of lines that are nearest to each SM and the farthest.

    An L2 is cut into slices, which on A100, Hopper and Blackwell lie in two partitions, and no document says which address lies where. So
    each SM times 512 lines of its own one by one, ranks them, and then goes through its nearest or its farthest 128. That second pass is
    what is measured: a line that was slow by chance is not slow again, and without near and far the two rows are alike.

    Latency: a pointer chase of one thread on every SM at once, the median SM's. "load" is `ld.global.cg`, which may be answered by a copy
    that the near partition keeps of a far line; "atomic" is an `or` with 0, which must go to where the line is at home. Bandwidth: 1,024
    threads on every SM, four loads of 16 B each in flight, all at once; its time is that of the slowest SM.
    """
    for part in PARTS:
        for access in ("load",) if quick else _HOP:
            yield chase(part, access, target)
        if not quick:
            yield reading(part, target)


def _labels(part: str, access: str) -> Labels:
    return {"part": part, "access": access}


def _alone(target: Target) -> int:
    """Return the dynamic shared memory (bytes) that keeps a second block off an SM."""
    return target.shared_per_sm // 2


def _lines(blocks: int) -> np.ndarray:
    return np.broadcast_to(np.uint64(0), blocks * LINES * LINE // WORD)


def chase(part: str, access: str, target: Target) -> Case:
    """Return the case of one thread an SM that follows pointers through the lines of a part."""

    def reference(arrays: Arrays, trips: int) -> Arrays:  # noqa: ARG001
        return (np.full(target.sms, trips * HOPS % KEPT, np.uint64),)

    return Case(
        _labels(part, access), SOURCE, f"l2_chase_{access}", target.sms, THREADS, 512, (Output((target.sms,), "uint64"),), reference,
        ("latency",), lambda generator, data: (_lines(target.sms),), scalars=(PARTS[part],), shared=_alone(target),  # noqa: ARG005
        check_trips=5, steps=HOPS, issues={"LDG" if access == "load" else "ATOMG": HOPS},
    )  # fmt: skip


def reading(part: str, target: Target) -> Case:
    """Return the case of all threads of all SMs that read the lines of a part."""

    def inputs(generator: np.random.Generator, data: Data) -> Arrays:
        shape = KEPT * LINE // 4
        return _lines(target.sms), np.zeros(shape, np.uint32) if data == "zero" else generator.integers(0, 2**32, shape, np.uint32)

    def reference(arrays: Arrays, trips: int) -> Arrays:
        quads = arrays[1].reshape(KEPT, 8, 4).sum(axis=2, dtype=np.uint32)
        thread = np.arange(THREADS)
        places = [(thread // 8 + load * KEPT // DEEP) % KEPT for load in range(DEEP)]
        sums = np.sum([quads[place, thread % 8] for place in places], axis=0, dtype=np.uint32) * np.uint32(trips)
        return (np.tile(sums, target.sms),)

    trips = 4096
    return Case(
        _labels(part, "load"), SOURCE, "l2_read", target.sms, THREADS, trips, (Output((target.sms * THREADS,), "uint32"),), reference,
        ("bytes_per_cycle_sm",), inputs, scalars=(PARTS[part], 0), shared=_alone(target), check_trips=3,
        bytes=target.sms * THREADS * DEEP * 16 * trips, issues={"LDG": DEEP},
    )  # fmt: skip
