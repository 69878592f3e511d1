"""The program whose program counters are sampled: a kernel that waits for memory and calls a function that is not inlined."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu.apart import tell
from gpu.cupti_device import Device
from gpu.cupti_tools import refusal
from ullage.cupti.library import Library, find
from ullage.cupti.pc_sampling.configuration import Configuration
from ullage.cupti.pc_sampling.context import SampledContext
from ullage.cupti.pc_sampling.pc_sampling import PcSampling
from ullage.cupti.pc_sampling.samples import PcSamples
from ullage.cupti.stalls import short
from ullage.errors import UllageError
from ullage.kernels.compiling import compile_cubin

# Loads whose addresses depend on one another's values, and a function of its own for some arithmetic.
SOURCE = """
__device__ __noinline__ float called(float x) {
    for (int i = 0; i < 32; i++) x = x * 1.0001f + sqrtf(x);
    return x;
}
extern "C" __global__ void sampled(const unsigned *from, float *to, unsigned size, unsigned rounds) {
    unsigned at = (blockIdx.x * blockDim.x + threadIdx.x) % size;
    float sum = 1.0f;
    for (unsigned i = 0; i < rounds; i++) {
        at = (from[at] + at * 7u + 1u) % size;
        sum = called(sum + at);
    }
    to[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""
# The same by hand, for a machine without NVRTC: the driver compiles it.
SOURCE_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.func (.param .b32 result) _Z6calledf(.param .b32 given)
{
    .reg .pred %p;
    .reg .b32 %i;
    .reg .f32 %x, %root;
    ld.param.f32 %x, [given];
    mov.u32 %i, 0;
AGAIN:
    .pragma "nounroll";
    sqrt.approx.f32 %root, %x;
    fma.rn.f32 %x, %x, 0f3F800347, %root;
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, 32;
    @%p bra AGAIN;
    st.param.f32 [result], %x;
    ret;
}
.visible .entry sampled(.param .u64 from, .param .u64 to, .param .u32 size, .param .u32 rounds)
{
    .reg .pred %p;
    .reg .b64 %from, %to, %place;
    .reg .b32 %thread, %block, %threads, %at, %word, %size, %rounds, %i;
    .reg .f32 %sum, %more;
    ld.param.u64 %from, [from];
    cvta.to.global.u64 %from, %from;
    ld.param.u64 %to, [to];
    cvta.to.global.u64 %to, %to;
    ld.param.u32 %size, [size];
    ld.param.u32 %rounds, [rounds];
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %thread, %block, %threads, %thread;
    rem.u32 %at, %thread, %size;
    mov.f32 %sum, 0f3F800000;
    mov.u32 %i, 0;
ROUND:
    .pragma "nounroll";
    mul.wide.u32 %place, %at, 4;
    add.u64 %place, %from, %place;
    ld.global.u32 %word, [%place];
    mad.lo.u32 %at, %at, 7, %word;
    add.u32 %at, %at, 1;
    rem.u32 %at, %at, %size;
    cvt.rn.f32.u32 %more, %at;
    add.f32 %sum, %sum, %more;
    {
        .param .b32 given;
        .param .b32 result;
        st.param.f32 [given], %sum;
        call.uni (result), _Z6calledf, (given);
        ld.param.f32 %sum, [result];
    }
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, %rounds;
    @%p bra ROUND;
    mul.wide.u32 %place, %thread, 4;
    add.u64 %place, %to, %place;
    st.global.f32 [%place], %sum;
    ret;
}
\0"""
BY_NVRTC, BY_DRIVER = "NVRTC", "the driver, from PTX"  # who compiled the kernel
WORDS = 1 << 22  # of the memory that is loaded from
GRID, BLOCK, ROUNDS = 1024, 256, 400
GROWING = ("total", "dropped", "other")
TIMES = 4  # ranges of the same work
PERIOD = 12  # a sample every 4096 cycles
SCRATCH, HARDWARE = 1 << 24, 1 << 28


def main(stage: str, folder: str) -> None:
    """Run a stage: "calls" (what each reading of CUPTI's counts), or a mode ("continuous", "serialized") by `PcSampling`."""
    try:
        library = find()
        device = Device()
        kernel = made(device)
        kernel()
        if stage == "calls":
            calls(library, device, kernel)
        else:
            sampled(library, device, stage, Path(folder))
    except UllageError as error:
        tell(**refusal(error))


def made(device: Device) -> Callable[[], None]:
    """Return a function that runs the kernel to its end."""
    function = device.function(module(device), "sampled")
    data = (ctypes.c_uint32 * WORDS)()
    source, target = device.room(ctypes.sizeof(data)), device.room(4 * GRID * BLOCK)
    device.copy(source, data)

    def run() -> None:
        size, rounds = ctypes.c_uint32(WORDS), ctypes.c_uint32(ROUNDS)
        device.launch(function, GRID, BLOCK, source, target, size, rounds)
        device.wait()

    return run


def module(device: Device) -> ctypes.c_void_p:
    """Return the kernel's module, and tell who compiled it. Raises UllageError where neither NVRTC nor the driver can."""
    try:
        code, by, why = compile_cubin(SOURCE, device.architecture, ("-lineinfo",)), BY_NVRTC, ""
    except UllageError as error:
        code, by, why = SOURCE_PTX, BY_DRIVER, error.problem
    found = device.module(code)
    tell(compiled_by=by, without_nvrtc=why)
    return found


def calls(library: Library, device: Device, kernel: Callable[[], None]) -> None:
    """Tell, of ranges with the same work, what CUPTI's readings count: `total` and the samples that came with it."""
    context = device.context.value or 0
    one = SampledContext(library, context, 0, Configuration(period=PERIOD, scratch=SCRATCH, hardware=HARDWARE))
    tell(reasons=sorted(one.reasons.values()), cycles=one.cycles)
    try:
        tell(ranges=ranges(one, kernel))
    finally:
        one.close()
    tell(closed=one.total)


def ranges(one: SampledContext, kernel: Callable[[], None]) -> list[dict[str, int]]:
    """Return, for each of some ranges of the same work, by how much the counts grew, and the samples in the tables."""
    found = []
    for _ in range(TIMES):
        before = (one.total, one.dropped, one.other)
        one.start()
        kernel()
        one.stop()
        tables = one.read()
        counts = summed([row for table in tables for row in table.to_pylist()])
        grown = {name: after - old for name, after, old in zip(GROWING, (one.total, one.dropped, one.other), before, strict=True)}
        found.append({**grown, **counts, "readings": len(tables)})
    return found


def summed(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return the samples of reasons as they are, and of those that count only cycles in which nothing was issued.

    >>> summed([{"reason": "barrier", "samples": 3}, {"reason": "barrier_not_issued", "samples": 2}])
    {'base': 3, 'latency': 2}
    """
    sums = {"base": 0, "latency": 0}
    for row in rows:
        sums["latency" if short(row["reason"])[1] else "base"] += row["samples"]
    return sums


def sampled(library: Library, device: Device, mode: str, folder: Path) -> None:
    """Tell what `PcSampling` finds in one mode; keep its samples and the kernel's machine code."""
    configuration = Configuration(mode=mode, period=PERIOD, scratch=SCRATCH, hardware=HARDWARE)
    with PcSampling(library, [device.context.value or 0], configuration) as sampling:
        again = made(device)  # a module that is loaded while CUPTI watches: its machine code is kept
        with sampling.range():
            again()
    found = sampling.result()
    found.write(folder / "samples.parquet")
    tell(**told(found))


def told(found: PcSamples) -> dict[str, Any]:
    """Return what is worth telling of samples."""
    rows = found.table.to_pylist()
    facts = found.facts
    functions: dict[str, list[int]] = {}
    for row in rows:
        functions.setdefault(row["function"], []).append(row["pc"])
    return {
        "functions": {name: [min(pcs), max(pcs)] for name, pcs in functions.items()},
        "correlations": len({row["correlation"] for row in rows} - {0}),
        "cubins": len(found.cubins),
        "with_code": sum(row["cubin"] in found.cubins for row in rows),
        "rows": len(rows),
        "facts": {name: getattr(facts, name) for name in ("cycles", "total", "dropped", "other", "full", "unread")},
        "problems": list(facts.problems),
        **summed(rows),
    }
