"""The lines that stand before every kernel's source: its stopwatch."""

from __future__ import annotations

# Each block's first thread notes SM cycles and the GPU's timer (ns) when it begins and ends: cycles give latencies, and cycles over
# time the SM clock that the run really had. `clocks` holds four values a block: cycles and time at the beginning, cycles and time
# at the end. A block begins when all its threads do, and ends when all have: hence the barriers.
PREAMBLE = r"""
typedef unsigned long long u64; typedef unsigned int u32; typedef unsigned short u16; typedef unsigned char u8;
__device__ __forceinline__ u64 ullage_cycles() { u64 t; asm volatile("mov.u64 %0, %%clock64;" : "=l"(t) :: "memory"); return t; }
__device__ __forceinline__ u64 ullage_time() { u64 t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) :: "memory"); return t; }
__device__ __forceinline__ u64 ullage_block() { return blockIdx.x + (u64)gridDim.x * (blockIdx.y + (u64)gridDim.y * blockIdx.z); }
__device__ __forceinline__ bool ullage_first() { return threadIdx.x + threadIdx.y + threadIdx.z == 0; }
__device__ __forceinline__ u32 ullage_shared(const void *p) { return (u32)__cvta_generic_to_shared(p); }
#define ULLAGE_NOTE(at, value) if (ullage_first()) clocks[4 * ullage_block() + at] = value;
#define ULLAGE_BEGIN { __syncthreads(); ULLAGE_NOTE(1, ullage_time()) ULLAGE_NOTE(0, ullage_cycles()) }
#define ULLAGE_END { __syncthreads(); ULLAGE_NOTE(2, ullage_cycles()) ULLAGE_NOTE(3, ullage_time()) }
"""
CLOCKS = 4  # values a block


def whole(source: str) -> str:
    """Return a kernel's source with the preamble before it."""
    return PREAMBLE + source
