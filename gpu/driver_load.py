"""Loads without PyTorch, by the CUDA driver alone: products by cuBLAS, or a tensor-core kernel of ours where that is missing too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.carried import carried_cubin
from gpu.check import NotMeasured
from gpu.cublas import Cublas
from gpu.driver_stream import DriverStream
from ullage.benches import ptx_mma, ptx_wgmma
from ullage.benches.bench import Case, Data, Target
from ullage.benches.operands import BF16, FP16, FP32, Operand
from ullage.benches.ptx_mma import Mma
from ullage.benches.ptx_wgmma import Wgmma
from ullage.benches.running import kernel_case
from ullage.benches.running.board import Board, architecture_of
from ullage.benches.running.device import BenchDevice, CudaKernel, Launch, open_device
from ullage.benches.running.driver import answer, bindings
from ullage.benches.source import whole
from ullage.benches.sustained import SustainedWork, captured, sustained
from ullage.errors import UllageError
from ullage.kernels.compiling import compile_cubin

OPERANDS: dict[str, Operand] = {"bfloat16": BF16, "float16": FP16}
POOL = 1 << 24  # random numbers that a matrix is made of: a larger one has rows that share stretches of them
CORNER, TOLERANCE = 8, 0.05  # as `gpu.load` checks PyTorch's products: of an element's standard deviation, √size
WITH_WGMMA = "sm_90a"


@dataclass(frozen=True)
class Call:
    """What a load repeats: `run` queues it, `flops` are those of one call."""

    run: Callable[[], object]
    flops: float


Make = Callable[[BenchDevice, ExitStack, int, str, bool], Call]


@contextmanager
def driver_load(
    make: Make,
    size: int,
    dtype: str = "bfloat16",
    on: float = 0.0,
    off: float = 0.0,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    zeros: bool = False,
    device: Callable[[], BenchDevice] = open_device,
) -> Iterator[SustainedWork]:
    """Keep the GPU that CUDA counts as 0 busy with what `make` makes while the body runs: see `gpu.load.gemm`.

    Raises ArithmeticError when a result is wrong, NotMeasured where there is no kernel for this GPU, and what the driver refuses.
    """
    if dtype not in OPERANDS:
        raise UllageError(f"this load has no {dtype}", f"it has {' and '.join(OPERANDS)}")
    with ExitStack() as stack:
        opened = device()
        stack.callback(opened.close)
        stream = DriverStream(opened)
        stack.callback(stream.close)
        call = make(opened, stack, size, dtype, zeros)
        burst = captured(stream, call.run)
        work = SustainedWork(size, dtype, call.flops * burst.calls)
        with sustained(stream, burst, work, on, off, clock, sleep):
            yield work


# --- cuBLAS ---


def product_by(library: Any) -> Make:
    """Return what makes square products of random normal numbers by a libcublas, a corner of the first one checked."""
    held: list[Any] = []

    def make(device: BenchDevice, stack: ExitStack, size: int, dtype: str, zeros: bool) -> Call:
        if not held:  # for good: what the library has loaded into the GPU's context would be gone with it, unknown to the library
            held.append(device.asked("cuDevicePrimaryCtxRetain", device.handle, deed="its context"))
        blas = stack.enter_context(Cublas(library, device))
        generator = np.random.default_rng()
        matrices = [normal_matrix(generator, size, OPERANDS[dtype]) for _ in range(2)]
        a, b = (device.upload(one) for one in matrices)
        c = device.poisoned(matrices[0].nbytes)

        def run() -> None:
            blas.product(a, b, c, size, dtype)

        run()
        device.wait()
        refuse_wrong(device, c, matrices, OPERANDS[dtype])
        if zeros:  # in place: the graph knows the operands' addresses
            for address, matrix in zip((a, b), matrices, strict=True):
                device.asked("cuMemsetD8Async", address, 0, matrix.nbytes, device.stream, deed="to fill memory")
        return Call(run, 2.0 * size**3)

    return make


def normal_matrix(generator: np.random.Generator, size: int, operand: Operand) -> npt.NDArray[Any]:
    """Return a square matrix of random normal numbers in an operand's storage; its rows are stretches of `POOL` of them at most."""
    pool = operand.encode(generator.standard_normal(min(size**2, max(POOL, 2 * size)), np.float32))
    if len(pool) == size**2:
        return pool.reshape(size, size)
    matrix = np.empty((size, size), pool.dtype)
    for row, at in zip(matrix, generator.integers(0, len(pool) - size, size), strict=True):
        row[:] = pool[at : at + size]
    return matrix


def refuse_wrong(device: BenchDevice, c: int, matrices: list[npt.NDArray[Any]], operand: Operand) -> None:
    """Compare a corner of the product with the same in double precision; raises ArithmeticError."""
    a, b = matrices
    size, corner = len(a), min(CORNER, len(a))
    truth = operand.decode(a[:corner]) @ operand.decode(b[:, :corner])
    found = operand.decode(device.download(c, (corner, size), a.dtype))[:, :corner]
    error = float(np.abs(found - truth).max())
    if not error <= TOLERANCE * size**0.5:
        raise ArithmeticError(f"a product of size {size} is wrong by {error:g}")


# --- a kernel of ours ---


def own_kernel(device: BenchDevice, stack: ExitStack, size: int, dtype: str, zeros: bool) -> Call:  # noqa: ARG001 - the device frees it all
    """Return a launch of a tensor-core kernel of the benches, with about the work of a product of this size and its FLOPs counted.

    Its result is checked on random numbers; it is `wgmma` on Hopper and `mma` elsewhere.
    """
    target = device.target()
    case = sized(kernel_of(target, OPERANDS[dtype], "zero" if zeros else "random"), size)
    kernel = kernel_on(device, case, target.architecture)
    generator = np.random.default_rng()
    checked = case.inputs(generator, "random")
    queue = kernel_case.KernelQueue(case, device, kernel, checked)
    try:
        kernel_case.check(queue)
    except kernel_case.UnmeasuredError as error:
        raise ArithmeticError(error.problem) from error
    queue = kernel_case.KernelQueue(case, device, kernel, kernel_case.timed_inputs(case, generator, checked))
    return Call(lambda: queue.run(0), float(case.flops))


def instruction() -> str:
    """Return which instruction the kernel of ours repeats on the GPU that CUDA counts as 0; raises UllageError for one without kernels."""
    driver = bindings()
    board = Board(driver, 0, answer(driver, driver.cuDeviceGet(0), "GPU 0"))
    return "wgmma" if architecture_of(board.capability, board.name) == WITH_WGMMA else "mma"


def kernel_of(target: Target, operand: Operand, data: Data = "random") -> Case:
    """Return the case of the kernel that loads a GPU of this architecture most."""
    if target.architecture == WITH_WGMMA:
        return ptx_wgmma.throughput(Wgmma(operand, FP32, 256), {}, target, data)
    return replace(ptx_mma.throughput(Mma(operand, FP32, 16), {}, target), data=data)


def sized(case: Case, size: int) -> Case:
    """Return a case with as many trips as do the work of a product of this size, one at least; its FLOPs are those of its trips.

    >>> case = sized(kernel_of(Target("sm_90a", sms=132), BF16), 4096)
    >>> case.trips, round(case.flops / (2 * 4096**3), 3)
    (248, 0.999)
    """
    each = case.flops // case.trips
    trips = max(1, round(2 * size**3 / each))
    return replace(case, trips=trips, flops=each * trips)


def kernel_on(device: BenchDevice, case: Case, architecture: str) -> CudaKernel:
    """Return a case's kernel on the device, compiled here or carried. Raises NotMeasured where there is neither."""
    try:
        cubin = compile_cubin(whole(case.source), architecture, case.options)
    except UllageError as error:
        found = carried_cubin(whole(case.source), architecture, case.options)
        if found is None:
            raise NotMeasured(f"no load: no PyTorch, no cuBLAS, and no kernel of ours can be compiled ({error.problem})") from error
        cubin = found
    return device.kernel(cubin, case.entry, Launch(case.grid, case.block, case.cluster, case.shared))
