"""A program that knows nothing of CUPTI, whose kernel does a known number of FLOPs in FP32 and in FP64."""

from __future__ import annotations

import ctypes
import time

from gpu.apart import tell
from gpu.cupti_device import Device
from gpu.cupti_tools import refusal
from ullage.errors import UllageError

PLAIN, COUNTED = "plain", "counted"  # without the recorder; with it
STAGES = (PLAIN, COUNTED)
LAUNCHES, GRID, BLOCK, ROUNDS = 50, 264, 256, 1000
FP32, FP64 = 4 * 2 + 1, 2  # FLOPs of a thread in a round: four multiply-adds and an addition; one multiply-add
NAME = "known_flops"
# Compiled by the driver, so that it needs no NVRTC. What is computed is stored, or it would be left out.
SOURCE_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry known_flops(.param .u64 to, .param .u32 rounds)
{
    .reg .pred %p;
    .reg .b64 %to, %place;
    .reg .b32 %thread, %block, %threads, %rounds, %i;
    .reg .f32 %x;
    .reg .f64 %y;
    ld.param.u64 %to, [to];
    cvta.to.global.u64 %to, %to;
    ld.param.u32 %rounds, [rounds];
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %thread, %block, %threads, %thread;
    cvt.rn.f32.u32 %x, %thread;
    cvt.rn.f64.u32 %y, %thread;
    mov.u32 %i, 0;
AGAIN:
    .pragma "nounroll";
    fma.rn.f32 %x, %x, 0f3F000000, 0f3F800000;
    fma.rn.f32 %x, %x, 0f3F000000, 0f3F800000;
    fma.rn.f32 %x, %x, 0f3F000000, 0f3F800000;
    fma.rn.f32 %x, %x, 0f3F000000, 0f3F800000;
    add.f32 %x, %x, 0f3F800000;
    fma.rn.f64 %y, %y, 0d3FE0000000000000, 0d3FF0000000000000;
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, %rounds;
    @%p bra AGAIN;
    mul.wide.u32 %place, %thread, 16;
    add.u64 %place, %to, %place;
    st.global.f64 [%place], %y;
    st.global.f32 [%place+8], %x;
    ret;
}
\0"""


def needed() -> dict[str, int]:
    """Return the FLOPs of all launches by type."""
    rounds = LAUNCHES * GRID * BLOCK * ROUNDS
    return {"fp32": rounds * FP32, "fp64": rounds * FP64}


def main(stage: str) -> None:  # noqa: ARG001 - what differs is whether the recorder is there
    """Launch the kernel, and tell how long all launches took."""
    try:
        device = Device()
        kernel = device.function(device.module(SOURCE_PTX), NAME)
        to = ctypes.c_uint64()
        device.ask("cuMemAlloc_v2", ctypes.byref(to), ctypes.c_size_t(16 * GRID * BLOCK))
        begin = time.monotonic()
        for _ in range(LAUNCHES):
            device.launch(kernel, GRID, BLOCK, to, ctypes.c_uint32(ROUNDS))
        device.ask("cuCtxSynchronize")
        tell(seconds=time.monotonic() - begin)
    except UllageError as error:
        tell(**refusal(error))
