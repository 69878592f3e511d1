"""Kernels that read a level of memory again and again: what Table V of the Hopper paper measures.

In a trip each thread loads 32 bytes, by elements of one width, and folds them into its sums, which are stored at the end so that no
load can be left out. A block reads a piece of its own, 32 KiB, so that one block finds its piece in its L1, and all of them together
theirs in the L2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Labels, Output, Quantity, Target

THREADS = 1024
BYTES = 32  # that a thread loads in a trip


@dataclass(frozen=True)
class Width:
    """How a load reads: the element in C++, in PTX and in NumPy, the PTX constraint, the elements of a load, how they are folded."""

    element: str
    ptx: str
    dtype: str
    constraint: str
    lanes: int = 1
    fold: str = "+"

    @property
    def words(self) -> int:
        """Elements that a thread loads in a trip."""
        return BYTES // np.dtype(self.dtype).itemsize


# "64 bits" is folded by exclusive or, at the rate of integers: where FP64 additions are few (RTX, H800) it shows what FP64 can't.
WIDTHS = {
    "FP32": Width("float", "f32", "float32", "f"),
    "FP64": Width("double", "f64", "float64", "d"),
    "FP32.v4": Width("float", "f32", "float32", "f", lanes=4),
    "64 bits": Width("u64", "u64", "uint64", "l", fold="^"),
}
LEVELS = {"L1 cache": "ld.global.ca", "L2 cache": "ld.global.cg", "shared memory": "ld.shared"}

# A load whose address stays the same would be lifted out of the loop, `volatile` or not: the address moves by `step`, which is 0, but
# only the launch knows that.
_KERNEL = """
extern "C" __global__ void __launch_bounds__(1024, 2) {entry}(
    u64 *clocks, const {element} *values, {element} *found, int trips, int step) {{
    {element} value[{words}], sum[{words}] = {{}};
    {begin}
    ULLAGE_BEGIN
    #pragma unroll 1
    for (int trip = 0; trip < trips; trip++) {{
        {loads}
        for (int i = 0; i < {words}; i++) sum[i] = sum[i] {fold} value[i];
        at += step;
    }}
    ULLAGE_END
    for (int i = 1; i < {words}; i++) sum[0] = sum[0] {fold} sum[i];
    found[blockIdx.x * 1024 + threadIdx.x] = sum[0];
}}
"""
_GLOBAL = "const {element} *at = values + (u64)blockIdx.x * {piece} + threadIdx.x * {lanes};"
_SHARED = """__shared__ __align__(16) {element} copy[{piece}];
    for (int i = threadIdx.x; i < {piece}; i += 1024) copy[i] = values[(u64)blockIdx.x * {piece} + i];
    u32 at = ullage_shared(copy + threadIdx.x * {lanes});"""


def entry(level: str, width: str) -> str:
    """Return a kernel's name.

    >>> entry("L1 cache", "FP32.v4")
    'read_l1_fp32_v4'
    """
    return f"read_{level.split()[0]}_{width}".lower().replace(".", "_").replace(" ", "_")


def _source() -> Iterator[str]:
    for level, load in LEVELS.items():
        for name, width in WIDTHS.items():
            shape = {"element": width.element, "lanes": width.lanes, "piece": THREADS * width.words, "words": width.words}
            begin = (_SHARED if level == "shared memory" else _GLOBAL).format(**shape)
            yield _KERNEL.format(entry=entry(level, name), begin=begin, loads=_loads(load, width), fold=width.fold, **shape)


def _loads(load: str, width: Width) -> str:
    """Return the loads of a trip: each thread takes `lanes` neighbouring elements, and all threads a row of them."""
    vector, address = (f".v{width.lanes}" if width.lanes > 1 else ""), "r" if "shared" in load else "l"
    row = THREADS * width.lanes * np.dtype(width.dtype).itemsize
    lines = []
    for number in range(width.words // width.lanes):
        places = ",".join(f"%{lane}" for lane in range(width.lanes))
        values = ",".join(f'"={width.constraint}"(value[{number * width.lanes + lane}])' for lane in range(width.lanes))
        places = f"{{{places}}}" if vector else places
        lines.append(f'asm volatile("{load}{vector}.{width.ptx} {places}, [%{width.lanes}+{number * row}];" : {values} : "{address}"(at));')
    return "\n        ".join(lines)


SOURCE = "".join(_source())


def blocks(target: Target) -> int:
    """Return how many blocks of 1,024 threads fill a target: two an SM, one where an SM takes 1,536 threads (Ada, RTX Blackwell).

    >>> blocks(Target("sm_90a", sms=132)), blocks(Target("sm_89", sms=128))
    (264, 128)
    """
    return target.sms * (1 if target.architecture in ("sm_89", "sm_120a") else 2)


def reading(labels: Labels, level: str, name: str, grid: int, trips: int, quantities: tuple[Quantity, ...]) -> Case:
    """Return the case of reading a level with elements of a width (names of `LEVELS` and `WIDTHS`)."""
    width = WIDTHS[name]
    loads = width.words // width.lanes

    def inputs(generator: np.random.Generator, data: Data) -> Arrays:
        size = grid * THREADS * width.words
        return (np.zeros(size, width.dtype) if data == "zero" else generator.integers(0, 8, size).astype(width.dtype),)

    def reference(arrays: Arrays, trips: int) -> Arrays:
        pieces = arrays[0].reshape(grid, loads, THREADS, width.lanes)
        if width.fold == "^":
            return (np.bitwise_xor.reduce(pieces, axis=(1, 3)).ravel() * np.uint64(trips % 2),)
        return (pieces.sum(axis=(1, 3), dtype=width.dtype).ravel() * np.dtype(width.dtype).type(trips),)

    return Case(
        labels, SOURCE, entry(level, name), grid, THREADS, trips, (Output((grid * THREADS,), width.dtype),), reference, quantities, inputs,
        scalars=(0,), check_trips=3, bytes=grid * THREADS * BYTES * trips, issues={"LDS" if level == "shared memory" else "LDG": loads},
    )  # fmt: skip
