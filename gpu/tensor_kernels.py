"""Tensor-core kernels of ours whose FLOPs are known exactly, and steady loads of them, by the driver alone: no PyTorch, no cuBLAS.

One multiplies by `mma.sync` (m16n8k16), which every GPU since Ampere has, and is PTX text that the driver itself compiles. On Hopper that
is a legacy instruction; where NVRTC is at hand there is one by `wgmma` too, the benches' own. Each checks its own result.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu.cupti_device import Device
from ullage.benches import ptx_wgmma
from ullage.benches.bench import Case, Target
from ullage.benches.operands import BF16, FP32
from ullage.benches.running.checking import wrong
from ullage.benches.source import CLOCKS, whole
from ullage.errors import UllageError
from ullage.kernels.compiling import compile_cubin

M, N, K = 16, 8, 16
MMA_FLOPS = 2 * M * N * K  # of one instruction of a warp
SUMS = 8  # independent sums of a warp, an instruction each in every trip: with two warps on each quarter of an SM enough to hide 33 cycles
WARPS = 8  # of a block
MOST_TRIPS = 1 << 22  # up to which FP32 counts by ones exactly, the sums' beginnings included
# 1 and 1/16, twice in a register: over k = 16 the products of a row and a column add up to exactly 1.
ONES = {"bf16": (0x3F803F80, 0x3D803D80), "fp16": (0x3C003C00, 0x2C002C00)}
_TYPE = {"bf16": "bf16", "fp16": "f16"}
WGMMA_N = 256
PROBE = 0.01  # seconds of a launch by which trips are timed: a launch takes some 10 µs more


def mma_ptx(precision: str) -> bytes:
    """Return the PTX of the kernel `tensor`: sum number i begins with i and grows by one each trip, and the kernel counts those that
    end otherwise. Parameters: the address of two u32 (wrong sums, threads), to which it adds, and the trips, 1 at least."""
    sums = [[f"%c{4 * number + part}" for part in range(4)] for number in range(SUMS)]
    one, sixteenth = ONES[precision]
    start = [f"mov.f32 {register}, {_float(number)};" for number, registers in enumerate(sums) for register in registers]
    name = f"mma.sync.aligned.m{M}n{N}k{K}.row.col.f32.{_TYPE[precision]}.{_TYPE[precision]}.f32"
    multiply = [f"{name} {{{', '.join(c)}}}, {{%a, %a, %a, %a}}, {{%b, %b}}, {{{', '.join(c)}}};" for c in sums]
    look = []
    for number, registers in enumerate(sums):
        look.append(f"add.f32 %end, %grown, {_float(number)};")
        look += [line for register in registers for line in (f"setp.neu.f32 %p, {register}, %end;", "@%p add.u32 %wrong, %wrong, 1;")]
    lines = [
        ".version 7.0", ".target sm_80", ".address_size 64", ".visible .entry tensor(.param .u64 notes, .param .u32 trips)", "{",
        ".reg .pred %p;", ".reg .b64 %notes;", ".reg .b32 %a, %b, %trips, %trip, %wrong, %one;", f".reg .f32 %c<{4 * SUMS}>, %grown, %end;",
        "ld.param.u64 %notes, [notes];", "cvta.to.global.u64 %notes, %notes;", "ld.param.u32 %trips, [trips];",
        f"mov.b32 %a, 0x{one:08X};", f"mov.b32 %b, 0x{sixteenth:08X};", *start, "mov.u32 %trip, 0;",
        "AGAIN:", *multiply, "add.u32 %trip, %trip, 1;", "setp.lt.u32 %p, %trip, %trips;", "@%p bra AGAIN;",
        "cvt.rn.f32.u32 %grown, %trips;", "mov.u32 %wrong, 0;", *look, "mov.u32 %one, 1;",
        "red.global.add.u32 [%notes], %wrong;", "red.global.add.u32 [%notes+4], %one;", "ret;", "}",
    ]  # fmt: skip
    return "\n".join(lines).encode() + b"\n\0"


def _float(number: float) -> str:
    """Return a number as PTX writes it: 1.0 is 0f3F800000."""
    return f"0f{np.float32(number).view(np.uint32):08X}"


# Adds 1 to a u32: what a checkpoint must undo between two passes.
INCREMENT_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry increment(.param .u64 number)
{
    .reg .b64 %number;
    .reg .b32 %value;
    ld.param.u64 %number, [number];
    cvta.to.global.u64 %number, %number;
    ld.global.u32 %value, [%number];
    add.u32 %value, %value, 1;
    st.global.u32 [%number], %value;
    ret;
}
\0"""


@dataclass(frozen=True)
class TensorKernel:
    """A kernel with a block on every SM: `launch` queues it for some trips, `flops` are those of one trip of all its blocks, `problem`
    waits and says what is wrong with all results so far ("": nothing)."""

    name: str
    precision: str
    flops: int
    launch: Callable[[int], None]
    problem: Callable[[], str]


def mma_kernel(device: Device, precision: str = "bf16") -> TensorKernel:
    """Return the kernel by `mma.sync`. Raises UllageError where the driver has no compiler for PTX, or the GPU is older than Ampere."""
    function = device.function(device.module(mma_ptx(precision)), "tensor")
    notes, blocks = device.room(8), device.sms
    device.copy(notes, (ctypes.c_uint32 * 2)())
    threads = 0

    def launch(trips: int) -> None:
        nonlocal threads
        if not 0 < trips <= MOST_TRIPS:
            raise ValueError(f"{trips} trips are not 1 to {MOST_TRIPS}")
        device.launch(function, blocks, 32 * WARPS, notes, ctypes.c_uint32(trips))
        threads += blocks * 32 * WARPS

    def problem() -> str:
        bad, ran = device.fetch((ctypes.c_uint32 * 2)(), notes)
        if ran != threads % 2**32:
            return f"{ran:,} threads ran, and {threads:,} were launched"
        return f"{bad:,} sums are wrong" if bad else ""

    return TensorKernel(f"mma.sync m{M}n{N}k{K}", precision, blocks * WARPS * SUMS * MMA_FLOPS, launch, problem)


def wgmma_kernel(device: Device) -> TensorKernel:
    """Return the kernel by `wgmma` in BF16: see `ullage.benches.ptx_wgmma`. Raises UllageError but on Hopper, and without NVRTC."""
    if device.architecture != "sm_90":
        raise UllageError(f"{device.architecture} has no wgmma")
    case = ptx_wgmma.throughput(ptx_wgmma.Wgmma(BF16, FP32, WGMMA_N), {}, Target("sm_90a", sms=device.sms), "random")
    function = device.function(device.module(compile_cubin(whole(case.source), "sm_90a", case.options)), case.entry)
    return TensorKernel(f"wgmma m64n{WGMMA_N}k16", "bf16", case.flops // case.trips, *_queue(device, case, function))


def _queue(device: Device, case: Case, function: ctypes.c_void_p) -> tuple[Callable[[int], None], Callable[[], str]]:
    """Return what launches a case of the benches, and what compares its result with its reference."""
    (output,) = case.outputs
    inputs = case.inputs(np.random.default_rng(0), "random")
    result = np.zeros(output.shape, output.dtype)
    room = device.room(result.nbytes)
    pointers = [device.room(8 * CLOCKS * device.sms), *(_upload(device, array) for array in inputs), room]

    def launch(trips: int) -> None:
        device.launch(function, device.sms, int(np.prod(case.block)), *pointers, ctypes.c_int(trips), shared=case.shared)

    def problem() -> str:
        launch(case.check_trips)
        found = np.frombuffer(device.fetch((ctypes.c_uint8 * result.nbytes)(), room), output.dtype).reshape(output.shape)
        return wrong([found], case.reference(inputs, case.check_trips), case.tolerance) or ""

    return launch, problem


def _upload(device: Device, array: Any) -> ctypes.c_void_p:
    there = device.room(array.nbytes)
    device.copy(there, (ctypes.c_uint8 * array.nbytes).from_buffer_copy(np.ascontiguousarray(array)))
    return there


def tensor_kernels(device: Device) -> tuple[list[TensorKernel], list[str]]:
    """Return the kernels that this GPU can run, the fastest first, and why others are missing, a sentence each.

    Raises UllageError where there is none, with the reason.
    """
    found, missing = [], []
    for make in (wgmma_kernel, mma_kernel):
        try:
            found.append(make(device))
        except UllageError as error:
            missing.append(f"{make.__name__.replace('_', ' ')}: {error.problem}")
    if not found:
        raise UllageError(f"no tensor-core kernel runs here: {'; '.join(missing)}")
    return found, missing


def trips_lasting(device: Device, kernel: TensorKernel, seconds: float, clock: Callable[[], float] = time.perf_counter) -> int:
    """Return for how many trips a kernel is launched to take about so long, from a launch that is long enough to be timed."""
    trips, took = 64, 0.0
    while took < PROBE and trips < MOST_TRIPS:
        trips *= 2
        device.wait()
        begin = clock()
        kernel.launch(trips)
        device.wait()
        took = clock() - begin
    return max(1, min(MOST_TRIPS, round(trips * seconds / took)))


@dataclass
class Bursts:
    """What a steady load has done: begin and end of each burst, s since 1970."""

    bursts: list[tuple[float, float]] = field(default_factory=list)


@contextmanager
def steady_load(device: Device, kernel: TensorKernel, seconds: float = 0.025) -> Iterator[Bursts]:
    """Keep the GPU busy while the body runs, in bursts of about so long; from one to the next it waits only for the host's next launch.

    Raises what the driver refused meanwhile, and ArithmeticError where a result is wrong.
    """
    trips, work = trips_lasting(device, kernel, seconds), Bursts()
    over = threading.Event()
    raised: list[BaseException] = []

    def go_on() -> None:
        try:
            device.use()
            while not over.is_set():
                begin = time.time()
                kernel.launch(trips)
                device.wait()
                work.bursts.append((begin, time.time()))
        except BaseException as error:  # handed to whoever asked for the load
            raised.append(error)

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield work
    finally:
        over.set()
        thread.join(30)
    if raised:
        raise raised[0]
    if problem := kernel.problem():
        raise ArithmeticError(problem)
