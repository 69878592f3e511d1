"""One GPU through the CUDA driver: memory, kernels, launches, events. It computes what it is told, and changes no clock, limit or mode."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ullage.benches.bench import TensorMap
from ullage.benches.running.board import Board
from ullage.benches.running.driver import CudaError, answer, bindings, refuse
from ullage.errors import UllageError

POISON = 0xFF  # every byte: NaN as floating point, −1 as a signed integer
ELEMENT, MAP = 8, 128  # bytes of an element of a mapped tensor, and of a tensor map
PORTABLE_CLUSTER = 8  # blocks; larger clusters must be allowed for each kernel
BUSY = "end this process: until then the GPU is busy with it"
PAUSE = 2e-4  # seconds between two questions whether the GPU has ended
Shape = int | tuple[int, int, int]


class HangError(UllageError):
    """A kernel that still ran after its time: the GPU is busy with it until this process ends."""


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched: blocks, threads of a block, blocks of a cluster, dynamic shared memory in bytes."""

    grid: Shape
    block: Shape
    cluster: int = 1
    shared: int = 0


@dataclass(frozen=True)
class CudaKernel:
    """A kernel on the device, with its launch as the driver wants it."""

    function: Any
    configuration: Any


class Arguments:
    """A kernel's parameters as the driver wants them, pointers, then 32-bit integers: made once, so that a launch costs little."""

    def __init__(self, pointers: Sequence[int], integers: Sequence[int]) -> None:
        self._values = [*map(ctypes.c_void_p, pointers), *map(ctypes.c_int, integers)]
        self._places = (ctypes.c_void_p * len(self._values))(*map(ctypes.addressof, self._values))
        self.address = ctypes.addressof(self._places)


@dataclass(eq=False)
class BenchDevice(Board):
    """A GPU with a context and a stream of ours.

    `lost` says why nothing can be computed in this context any more, "" while all is well; `stuck`: nor in another one, because
    a kernel does not end.
    """

    stream: Any = None
    lost: str = ""
    stuck: bool = False
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _held: list[Callable[[], Any]] = field(default_factory=list)

    # --- memory ---

    def allocate(self, size: int) -> int:
        """Return the address of new memory, freed by `release`. Raises CudaError when there is too little."""
        address = self.asked("cuMemAlloc", max(1, size), deed=f"{size:,} bytes of memory")
        self._held.append(lambda: self.driver.cuMemFree(address))
        return int(address)

    def upload(self, array: np.ndarray) -> int:
        """Return the address of a copy of an array on the device.

        What repeats one byte without taking memory for it (`np.broadcast_to` of a 0) is filled in there, and never made here.
        """
        byte = _repeated_byte(array)
        if byte is not None:
            return self.filled(array.nbytes, byte)
        whole = np.ascontiguousarray(array)
        address = self.allocate(whole.nbytes)
        if whole.nbytes:
            self.asked("cuMemcpyHtoD", address, whole.ctypes.data, whole.nbytes, deed="a copy to the GPU")
        return address

    def download(self, address: int, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Return a copy of the device's memory as an array."""
        array = np.empty(tuple(shape), dtype)
        if array.nbytes:
            self.asked("cuMemcpyDtoH", array.ctypes.data, address, array.nbytes, deed="a copy from the GPU")
        return array

    def poisoned(self, size: int) -> int:
        """Return the address of new memory of which every byte is `POISON`."""
        return self.filled(size, POISON)

    def filled(self, size: int, byte: int) -> int:
        """Return the address of new memory of which every byte is the same."""
        address = self.allocate(size)
        self.asked("cuMemsetD8Async", address, byte, max(1, size), self.stream, deed="to fill memory")
        return address

    def pinned(self, size: int) -> np.ndarray:
        """Return host memory that the GPU's copy engines reach, as bytes; freed by `release`."""
        address = self.asked("cuMemHostAlloc", max(1, size), 0, deed=f"{size:,} bytes of pinned host memory")
        self._held.append(lambda: self.driver.cuMemFreeHost(address))
        return np.ctypeslib.as_array((ctypes.c_uint8 * max(1, size)).from_address(int(address)))

    def copy(self, to: int | np.ndarray, of: int | np.ndarray, size: int) -> None:
        """Queue a copy of `size` bytes between addresses on the device and pinned arrays of the host."""
        way = {(False, True): "cuMemcpyHtoDAsync", (True, False): "cuMemcpyDtoHAsync", (False, False): "cuMemcpyDtoDAsync"}
        asked = way[isinstance(to, np.ndarray), isinstance(of, np.ndarray)]
        ends = [end.ctypes.data if isinstance(end, np.ndarray) else end for end in (to, of)]
        self.asked(asked, *ends, size, self.stream, deed="a copy")

    def tensor_map(self, address: int, seen: TensorMap) -> int:
        """Return the address of the TMA unit's description of the tensor that lies at an address."""
        cuda, long = self.driver, self.driver.cuuint64_t
        rank, strides = len(seen.shape), np.cumprod([ELEMENT, *seen.shape[:-1]])[1:]
        words = cuda.cuuint32_t
        made = self.asked(
            "cuTensorMapEncodeTiled", cuda.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT64, rank, address,
            [long(extent) for extent in seen.shape], [long(int(stride)) for stride in strides], [words(extent) for extent in seen.box],
            [words(1)] * rank, cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{f'{seen.swizzle}B' if seen.swizzle else 'NONE'}"),
            cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, deed="a tensor map",
        )  # fmt: skip
        return self.upload(np.frombuffer(ctypes.string_at(made.getPtr(), MAP), np.uint8))

    # --- kernels ---

    def kernel(self, cubin: bytes, entry: str, launch: Launch) -> CudaKernel:
        """Return a kernel of a cubin, allowed the shared memory and the cluster that its launch wants; unloaded by `release`."""
        module = self.asked("cuModuleLoadData", cubin, deed=f"to load the kernel '{entry}'")
        self._held.append(lambda: self.driver.cuModuleUnload(module))
        function = self.asked("cuModuleGetFunction", module, entry.encode(), deed=f"the kernel '{entry}'")
        if launch.shared:
            self._allow(function, "MAX_DYNAMIC_SHARED_SIZE_BYTES", launch.shared, f"{launch.shared:,} bytes of shared memory a block")
        if launch.cluster > PORTABLE_CLUSTER:
            self._allow(function, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1, f"clusters of {launch.cluster} blocks")
        return CudaKernel(function, self._configuration(launch))

    def _allow(self, function: Any, attribute: str, value: int, deed: str) -> None:
        which = getattr(self.driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{attribute}")
        self.asked("cuFuncSetAttribute", function, which, value, deed=deed)

    def run(self, kernel: CudaKernel, arguments: Arguments) -> None:
        """Queue a launch."""
        self.asked("cuLaunchKernelEx", kernel.configuration, kernel.function, arguments.address, 0, deed="to launch the kernel")

    def _configuration(self, launch: Launch) -> Any:
        found = self.driver.CUlaunchConfig()
        found.gridDimX, found.gridDimY, found.gridDimZ = three(launch.grid)
        found.blockDimX, found.blockDimY, found.blockDimZ = three(launch.block)
        found.sharedMemBytes, found.hStream, found.numAttrs = launch.shared, self.stream, 0
        if launch.cluster > 1:
            attribute = self.driver.CUlaunchAttribute()
            attribute.id = self.driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = attribute.value.clusterDim
            size.x, size.y, size.z = launch.cluster, 1, 1
            found.attrs, found.numAttrs = [attribute], 1
        return found

    # --- time ---

    def mark(self) -> Any:
        """Queue an event and return it: when the GPU reaches it, its timer is noted."""
        event = self.asked("cuEventCreate", 0, deed="an event")
        self._held.append(lambda: self.driver.cuEventDestroy(event))
        self.asked("cuEventRecord", event, self.stream, deed="an event")
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        """Return the seconds between two events that have happened."""
        return float(self.asked("cuEventElapsedTime", begin, end, deed="the time between two events")) / 1000

    def wait(self, limit: float = 30.0) -> None:
        """Wait until all that was queued has ended. Raises CudaError for what failed, HangError after `limit` seconds."""
        end = self.now() + limit
        while True:
            (code,) = self.driver.cuStreamQuery(self.stream)
            if code != self.driver.CUresult.CUDA_ERROR_NOT_READY:
                return refuse(self.driver, code, "to go on after the kernel")
            if self.now() > end:
                raise HangError(f"a kernel did not end within {limit:.0f} s", BUSY)
            self.sleep(PAUSE)

    # --- life ---

    def release(self) -> None:
        """Free all that was taken since the last release; in a lost context there is nothing to free."""
        held, self._held = self._held, []
        for free in () if self.lost else reversed(held):
            with suppress(RuntimeError):
                free()

    def notice(self, error: BaseException) -> None:
        """Set `lost`, after an error, where it spoilt the context."""
        if isinstance(error, HangError):
            self.lost, self.stuck = error.problem, True
        elif isinstance(error, CudaError) and error.fatal:
            self.lost = error.problem
        elif not self.lost:
            try:
                self.wait()
            except (CudaError, HangError) as later:  # the error was another library's in the same context
                self.notice(HangError(later.problem) if isinstance(later, HangError) else later)
                self.lost = self.lost or later.problem

    def reopen(self) -> None:
        """Throw the lost context away and open another; raises UllageError where that does not help.

        What others (PyTorch) held in the context is gone with it.
        """
        if self.stuck:
            raise HangError(self.lost, BUSY)
        self._held = []
        with suppress(RuntimeError):
            self.driver.cuDevicePrimaryCtxRelease(self.handle)
        self.asked("cuDevicePrimaryCtxReset", self.handle, deed="to reset its context")
        self._enter()
        self.lost = ""

    def _enter(self) -> None:
        context = self.asked("cuDevicePrimaryCtxRetain", self.handle, deed="a context on the GPU")
        self.asked("cuCtxSetCurrent", context, deed="its context")
        self.stream = self.asked("cuStreamCreate", 0, deed="a stream")  # waits for copies, which go by the default stream
        self.wait()

    def close(self) -> None:
        """Give everything back. May be called twice."""
        self.release()
        if self.stream is not None and not self.lost:
            with suppress(RuntimeError):
                self.driver.cuStreamDestroy(self.stream)
                self.driver.cuDevicePrimaryCtxRelease(self.handle)
        self.stream = None


def open_device(index: int = 0, driver: Any = None) -> BenchDevice:
    """Return the GPU that CUDA counts as `index`, with a context.

    `driver` is the module `cuda.bindings.driver`, found by default. Raises UllageError without cuda-bindings, driver or GPU,
    for an index that isn't there, and for a MIG slice, whose figures say nothing of the whole GPU.
    """
    cuda = bindings() if driver is None else driver
    count = int(answer(cuda, cuda.cuDeviceGetCount(), "to count the GPUs"))
    if not 0 <= index < count:
        shown = f"the CUDA driver shows {count} GPU{'' if count == 1 else 's'}" if count else "the CUDA driver shows no GPU"
        raise UllageError(f"there is no GPU {index}: {shown}", "CUDA_VISIBLE_DEVICES may hide some; `nvidia-smi -L` lists all")
    device = BenchDevice(cuda, index, answer(cuda, cuda.cuDeviceGet(index), f"GPU {index}"))
    if " MIG " in f"{device.name} ":
        raise UllageError(
            f"GPU {index} is a MIG slice ({device.name})", "its figures say nothing of the GPU: measure one on which MIG is off"
        )
    device._enter()
    return device


def _repeated_byte(array: np.ndarray) -> int | None:
    """Return the byte that an array of one stored element repeats, None for all other arrays."""
    if array.size < 2 or any(array.strides):
        return None
    stored = set(array[(slice(0, 1),) * array.ndim].tobytes())
    return stored.pop() if len(stored) == 1 else None


def three(shape: Shape) -> tuple[int, int, int]:
    """Return a grid or block in three dimensions."""
    return shape if isinstance(shape, tuple) else (shape, 1, 1)
