"""Copies from global to shared memory with and without the thread waiting: a tiled matrix product either way."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Figure, Output, TableLayout, Target, bench

DEPTH = 2048  # the width of A and the height of B, as in the paper
BLOCKS = (1, 2, 4, 8, 16, 32)  # thread blocks for each SM
SIDES = (8, 16, 32)  # of a thread block, and so of its tile

_BOUNDS = 'extern "C" __global__ void __launch_bounds__(SIDE * SIDE)'
_HEAD = r"""
(u64 *clocks, const float *a, const float *b, float *c, int trips, int wide) {
  const int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * SIDE + x, row = blockIdx.y * SIDE + y;
  const float *from_a = a + (long long)row * DEPTH + x, *from_b = b + (long long)y * wide + column;
  float sum = 0;
"""
_TAIL = r"""
  ULLAGE_END
  c[(long long)row * wide + column] = sum;
}
"""
# every thread loads its two elements into registers, stores them, and all wait for one another
_WAITING = (
    f"{_BOUNDS} waiting_SIDE{_HEAD}"
    + r"""
  __shared__ float tile_a[SIDE][SIDE], tile_b[SIDE][SIDE];
  ULLAGE_BEGIN
  #pragma unroll 1
  for (int t = 0; t < trips; t++) {
    tile_a[y][x] = from_a[t * SIDE]; tile_b[y][x] = from_b[(long long)t * SIDE * wide];
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < SIDE; k++) sum += tile_a[y][k] * tile_b[k][x];
    __syncthreads();
  }
"""
    + _TAIL
)
# two stages: while one is multiplied, the copies of the next are under way
_PIPELINED = (
    f"{_BOUNDS} pipelined_SIDE{_HEAD}"
    + r"""
  __shared__ float tile_a[2][SIDE][SIDE], tile_b[2][SIDE][SIDE];
  const u32 to_a = ullage_shared(&tile_a[0][y][x]), to_b = ullage_shared(&tile_b[0][y][x]), stage = SIDE * SIDE * 4;
  ULLAGE_BEGIN
  copy(to_a, from_a); copy(to_b, from_b); commit();
  #pragma unroll 1
  for (int t = 0; t < trips; t++) {
    const int now = t & 1, next = t + 1;
    if (next < trips) {
      copy(to_a + (next & 1) * stage, from_a + next * SIDE); copy(to_b + (next & 1) * stage, from_b + (long long)next * SIDE * wide);
      commit();
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < SIDE; k++) sum += tile_a[now][y][k] * tile_b[now][k][x];
    __syncthreads();
  }
"""
    + _TAIL
)
_COPY = r"""
__device__ __forceinline__ void copy(u32 to, const float *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
"""
WAYS = {"AsyncPipe": "pipelined", "SyncShare": "waiting"}
SOURCE = _COPY + "".join((_WAITING + _PIPELINED).replace("SIDE", str(side)).replace("DEPTH", str(DEPTH)) for side in SIDES)

PAPER = {  # GFLOP/s by GPU, side of the block and way, over BLOCKS
    ("NVIDIA H800 PCIe", 8, "AsyncPipe"): (516.69, 998.45, 1808.5, 2931.29, 3315.38, 3615.99),
    ("NVIDIA H800 PCIe", 8, "SyncShare"): (327.86, 646.58, 1191.48, 2117.56, 2736.06, 2861.75),
    ("NVIDIA H800 PCIe", 16, "AsyncPipe"): (2650.06, 4531.02, 5038.26, 5510.76, 5728.71, 5929.61),
    ("NVIDIA H800 PCIe", 16, "SyncShare"): (2372.41, 3821.71, 4713.84, 5147.53, 5309.23, 5512.41),
    ("NVIDIA H800 PCIe", 32, "AsyncPipe"): (5570.17, 6112.92, 6372.73, 6496.21, 6592.66, 6592.87),
    ("NVIDIA H800 PCIe", 32, "SyncShare"): (5782.03, 6280.8, 6465.53, 6600.58, 6649.46, 6631.11),
    ("NVIDIA A100-PCIE-40GB", 8, "AsyncPipe"): (379.03, 798.5, 1544.15, 2429.93, 2825.64, 2888.84),
    ("NVIDIA A100-PCIE-40GB", 8, "SyncShare"): (379.03, 742.93, 1325.88, 1982.38, 2112.6, 2256.17),
    ("NVIDIA A100-PCIE-40GB", 16, "AsyncPipe"): (2198.21, 2566.83, 3821.09, 4205.72, 4413.69, 4527.82),
    ("NVIDIA A100-PCIE-40GB", 16, "SyncShare"): (1754.73, 2974.9, 3724.42, 4015.96, 4207.57, 4316.63),
    ("NVIDIA A100-PCIE-40GB", 32, "AsyncPipe"): (4453.52, 4863.73, 5020.21, 5106.74, 5150.78, 5129.68),
    ("NVIDIA A100-PCIE-40GB", 32, "SyncShare"): (4428.55, 4917.25, 5024.77, 5025.45, 4996.66, 5028.47),
}
_FIGURES = tuple(
    Figure(gpu, {"block": f"{side}x{side}", "way": way, "blocks/SM": blocks}, "throughput", value * 1e9)
    for (gpu, side, way), values in PAPER.items()
    for blocks, value in zip(BLOCKS, values, strict=True)
)


def _inputs(rows: int, columns: int) -> Callable[[np.random.Generator, Data], Arrays]:
    def make(generator: np.random.Generator, data: Data) -> Arrays:
        if data == "zero":
            return np.zeros((rows, DEPTH), np.float32), np.zeros((DEPTH, columns), np.float32)
        # whole numbers, so that any order of the sum gives the same: 2048 × 4 × 4 is far below 2²⁴
        a, b = (generator.integers(-4, 5, shape).astype(np.float32) for shape in ((rows, DEPTH), (DEPTH, columns)))
        return a, b

    return make


def _reference(side: int) -> Callable[[Arrays, int], Arrays]:
    def right(inputs: Arrays, trips: int) -> Arrays:
        a, b = inputs
        return ((a[:, : trips * side] @ b[: trips * side]).astype(np.float32),)

    return right


@bench(
    "async-copy",
    title="A tiled matrix product with copies that are waited for (SyncShare) and with copies under way (AsyncPipe)",
    source="Hopper paper, tables XIII and XIV",
    layout=TableLayout(rows=("block", "way"), across=("blocks/SM",), plot=("blocks/SM", "throughput", ("block", "way"))),
    figures=_FIGURES,
    seconds=6,
)
def async_copy(target: Target, quick: bool) -> Iterable[Case]:
    """FLOP/s of a product in FP32 without tensor cores, a tile a thread block, over the size of the block and the blocks for each SM.

    SyncShare loads a tile into registers, stores it and waits (LDG, STS); AsyncPipe copies by cp.async (LDGSTS) into one of two
    stages while the other is multiplied. Few and small blocks have too few warps to hide a copy: there the pipeline helps. A
    thread does one multiply-add for every two elements that it reads from shared memory, so the FLOP/s say something of copies,
    and nothing of the GPU's peak.
    """
    for side in SIDES:
        for way in WAYS:
            for blocks in (1, 32) if quick else BLOCKS:
                yield _case(target, side, way, blocks)


def _case(target: Target, side: int, way: str, blocks: int) -> Case:
    rows, columns = blocks * side, target.sms * side
    return Case(
        labels={"block": f"{side}x{side}", "way": way, "blocks/SM": blocks},
        source=SOURCE,
        entry=f"{WAYS[way]}_{side}",
        grid=(target.sms, blocks, 1),
        block=(side, side, 1),
        trips=DEPTH // side,
        inputs=_inputs(rows, columns),
        outputs=(Output((rows, columns), "float32"),),
        scalars=(columns,),
        reference=_reference(side),
        check_trips=3,
        quantities=("throughput",),
        flops=2 * rows * columns * DEPTH,
        issues={"FFMA": side, **({"LDGSTS": 2} if way == "AsyncPipe" else {"LDG": 2, "STS": 2})},
    )
