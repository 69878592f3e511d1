"""The CUDA driver by ctypes, under the names and the calling conventions of cuda-bindings: what Ullage's benches and these checks ask for.

A function takes what the driver is given and returns a tuple: the driver's code, then what it wrote. Handles and addresses are whole
numbers. Numbers and structures are those of cuda.h as of CUDA 12 and 13; tests run the benches' harness by it and by cuda-bindings.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, ClassVar

ABI = 12000  # the CUDA whose form of each function is asked for; drivers of CUDA 12 and later have them all

_INT, _UINT, _FLOAT, _BYTE, _WORD = ctypes.c_int, ctypes.c_uint, ctypes.c_float, ctypes.c_ubyte, ctypes.c_uint64
_SIZE, _HANDLE, _TEXT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
_ADDRESS = ctypes.c_uint64  # CUdeviceptr
cuuint32_t, cuuint64_t = _UINT, _WORD
Function = Callable[..., tuple[Any, ...]]


class CUresult(int):
    """An answer of the driver; `name` is the driver's own word for it."""

    CUDA_SUCCESS: ClassVar[CUresult]
    CUDA_ERROR_NOT_READY: ClassVar[CUresult]

    @property
    def name(self) -> str:
        """The name, "CUDA_ERROR_NO_DEVICE"; the number where the driver knows none."""
        code, words = _name_of(int(self))
        return words.decode() if code == 0 and words else str(int(self))


CUresult.CUDA_SUCCESS, CUresult.CUDA_ERROR_NOT_READY = CUresult(0), CUresult(600)


class CUdevice_attribute(IntEnum):
    """What a device can be asked."""

    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
    CU_DEVICE_ATTRIBUTE_ECC_ENABLED = 32
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97


class CUfunction_attribute(IntEnum):
    """What a kernel can be allowed."""

    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14


class CUlaunchAttributeID(IntEnum):
    """What a launch can be given beyond its shape."""

    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4


class CUstreamCaptureMode(IntEnum):
    """Whose other calls may disturb a capture."""

    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1


class CUevent_flags(IntEnum):
    """How an event is made."""

    CU_EVENT_DEFAULT = 0
    CU_EVENT_BLOCKING_SYNC = 1


class CUtensorMapDataType(IntEnum):
    """What a mapped tensor's elements are."""

    CU_TENSOR_MAP_DATA_TYPE_UINT64 = 4


class CUtensorMapInterleave(IntEnum):
    """How a mapped tensor's channels lie."""

    CU_TENSOR_MAP_INTERLEAVE_NONE = 0


class CUtensorMapSwizzle(IntEnum):
    """How a box's chunks of 16 bytes are interchanged in shared memory."""

    CU_TENSOR_MAP_SWIZZLE_NONE = 0
    CU_TENSOR_MAP_SWIZZLE_32B = 1
    CU_TENSOR_MAP_SWIZZLE_64B = 2
    CU_TENSOR_MAP_SWIZZLE_128B = 3


class CUtensorMapL2promotion(IntEnum):
    """How much more than was asked for comes into the L2."""

    CU_TENSOR_MAP_L2_PROMOTION_NONE = 0


class CUtensorMapFloatOOBfill(IntEnum):
    """What is read outside of a tensor."""

    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0


class CUtensorMap:
    """A tensor map: 128 bytes, aligned to 64 as the driver asks."""

    def __init__(self) -> None:
        self._room = ctypes.create_string_buffer(128 + 64)

    def getPtr(self) -> int:
        """Where it lies."""
        return (ctypes.addressof(self._room) + 63) // 64 * 64


class CUuuid(ctypes.Structure):
    """A device's UUID."""

    _fields_ = (("_bytes", _BYTE * 16),)

    @property
    def bytes(self) -> Any:
        """Its 16 bytes."""
        return bytes(self._bytes)


class _Cluster(ctypes.Structure):
    _fields_ = (("x", _UINT), ("y", _UINT), ("z", _UINT))


class _AttributeValue(ctypes.Union):
    _fields_ = (("pad", ctypes.c_char * 64), ("clusterDim", _Cluster))


class CUlaunchAttribute(ctypes.Structure):
    """One attribute of a launch."""

    _fields_ = (("id", _INT), ("_pad", ctypes.c_char * 4), ("value", _AttributeValue))


class CUlaunchConfig(ctypes.Structure):
    """A launch: grid, block, shared memory, stream; `attrs` is a list of attributes, of which `numAttrs` count."""

    _fields_ = (
        ("gridDimX", _UINT), ("gridDimY", _UINT), ("gridDimZ", _UINT), ("blockDimX", _UINT), ("blockDimY", _UINT), ("blockDimZ", _UINT),
        ("sharedMemBytes", _UINT), ("hStream", _HANDLE), ("_attrs", ctypes.POINTER(CUlaunchAttribute)), ("numAttrs", _UINT),
    )  # fmt: skip

    @property
    def attrs(self) -> list[CUlaunchAttribute]:
        """The attributes."""
        return [self._attrs[place] for place in range(self.numAttrs)]

    @attrs.setter
    def attrs(self, given: Sequence[CUlaunchAttribute]) -> None:
        self._attrs = (CUlaunchAttribute * len(given))(*given)  # ctypes keeps the array alive with this structure


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise RuntimeError(f"libcuda.so.1 can't be loaded ({error})") from error


@lru_cache(maxsize=256)
def _found(symbol: str, kinds: tuple[Any, ...]) -> Callable[..., int]:
    """Return a function of the driver that takes arguments of these kinds. Raises RuntimeError for a driver that is missing or old."""
    address, library = ctypes.c_void_p(), _library()
    try:
        find = library.cuGetProcAddress_v2
    except AttributeError as error:
        raise RuntimeError("function cuGetProcAddress_v2 is not found: this driver is older than CUDA 12") from error
    code = find(symbol.encode(), ctypes.byref(address), ABI, ctypes.c_uint64(0), None)
    if code or not address.value:
        raise RuntimeError(f"function {symbol} is not found in this driver")
    found: Callable[..., int] = ctypes.CFUNCTYPE(_INT, *kinds)(address.value)
    return found


def _asking(symbol: str, *kinds: Any, gives: Sequence[Any] = (), last: bool = False) -> Function:
    """Return the function that calls `symbol` with arguments of these kinds and returns (code, what the driver wrote …).

    The driver writes where its first arguments point, or its `last` ones.
    """
    pointers = tuple(ctypes.POINTER(kind) for kind in gives)

    def asked(*given: Any) -> tuple[Any, ...]:
        told = [kind() for kind in gives]
        places = [ctypes.byref(one) for one in told]
        function = _found(symbol, (*kinds, *pointers) if last else (*pointers, *kinds))
        code = function(*given, *places) if last else function(*places, *given)
        return (CUresult(code), *(_plain(one) for one in told))

    return asked


def _plain(told: Any) -> Any:
    if isinstance(told, ctypes.Structure):
        return told
    return (told.value or 0) if isinstance(told, ctypes.c_void_p) else told.value


def _text(symbol: str) -> Function:
    """Return the function that returns (code, the text that the driver writes into a buffer of the size that is asked for)."""

    def asked(size: int, device: int) -> tuple[Any, ...]:
        buffer = ctypes.create_string_buffer(size)
        code = _found(symbol, (_TEXT, _INT, _INT))(buffer, size, device)
        return CUresult(code), buffer.raw

    return asked


_name_of = _asking("cuGetErrorName", _INT, gives=[_TEXT], last=True)
cuGetErrorString = _asking("cuGetErrorString", _INT, gives=[_TEXT], last=True)

cuInit = _asking("cuInit", _UINT)
cuDriverGetVersion = _asking("cuDriverGetVersion", gives=[_INT])
cuDeviceGetCount = _asking("cuDeviceGetCount", gives=[_INT])
cuDeviceGet = _asking("cuDeviceGet", _INT, gives=[_INT])
cuDeviceGetName = _text("cuDeviceGetName")
cuDeviceGetUuid = _asking("cuDeviceGetUuid", _INT, gives=[CUuuid])  # since CUDA 11.4 the second form, which tells MIG devices apart
cuDeviceGetPCIBusId = _text("cuDeviceGetPCIBusId")
cuDeviceGetAttribute = _asking("cuDeviceGetAttribute", _INT, _INT, gives=[_INT])

cuDevicePrimaryCtxRetain = _asking("cuDevicePrimaryCtxRetain", _INT, gives=[_HANDLE])
cuDevicePrimaryCtxRelease = _asking("cuDevicePrimaryCtxRelease", _INT)
cuDevicePrimaryCtxReset = _asking("cuDevicePrimaryCtxReset", _INT)
cuCtxSetCurrent = _asking("cuCtxSetCurrent", _HANDLE)
cuCtxGetCurrent = _asking("cuCtxGetCurrent", gives=[_HANDLE])

cuMemGetInfo = _asking("cuMemGetInfo", gives=[_SIZE, _SIZE])
cuMemAlloc = _asking("cuMemAlloc", _SIZE, gives=[_ADDRESS])
cuMemFree = _asking("cuMemFree", _ADDRESS)
cuMemHostAlloc = _asking("cuMemHostAlloc", _SIZE, _UINT, gives=[_HANDLE])
cuMemFreeHost = _asking("cuMemFreeHost", _HANDLE)
cuMemcpyHtoD = _asking("cuMemcpyHtoD", _ADDRESS, _HANDLE, _SIZE)
cuMemcpyDtoH = _asking("cuMemcpyDtoH", _HANDLE, _ADDRESS, _SIZE)
cuMemcpyHtoDAsync = _asking("cuMemcpyHtoDAsync", _ADDRESS, _HANDLE, _SIZE, _HANDLE)
cuMemcpyDtoHAsync = _asking("cuMemcpyDtoHAsync", _HANDLE, _ADDRESS, _SIZE, _HANDLE)
cuMemcpyDtoDAsync = _asking("cuMemcpyDtoDAsync", _ADDRESS, _ADDRESS, _SIZE, _HANDLE)
cuMemsetD8Async = _asking("cuMemsetD8Async", _ADDRESS, _BYTE, _SIZE, _HANDLE)


def cuTensorMapEncodeTiled(
    kind: int,
    rank: int,
    address: int,
    shape: Sequence[Any],
    strides: Sequence[Any],
    box: Sequence[Any],
    steps: Sequence[Any],
    *modes: int,
) -> tuple[Any, ...]:
    """Return (code, the tensor map): `modes` are interleave, swizzle, promotion and fill."""
    made = CUtensorMap()
    lists: list[Any] = [
        (_WORD * len(shape))(*shape),
        (_WORD * len(strides))(*strides),
        (_UINT * len(box))(*box),
        (_UINT * len(steps))(*steps),
    ]
    kinds = (_HANDLE, _INT, _UINT, _ADDRESS, _HANDLE, _HANDLE, _HANDLE, _HANDLE, _INT, _INT, _INT, _INT)
    code = _found("cuTensorMapEncodeTiled", kinds)(made.getPtr(), kind, rank, address, *(ctypes.addressof(one) for one in lists), *modes)
    return CUresult(code), made


cuModuleLoadData = _asking("cuModuleLoadData", _HANDLE, gives=[_HANDLE])
cuModuleUnload = _asking("cuModuleUnload", _HANDLE)
cuModuleGetFunction = _asking("cuModuleGetFunction", _HANDLE, _TEXT, gives=[_HANDLE])
cuFuncSetAttribute = _asking("cuFuncSetAttribute", _HANDLE, _INT, _INT)
cuLaunchKernelEx = _asking("cuLaunchKernelEx", ctypes.POINTER(CUlaunchConfig), _HANDLE, _HANDLE, _HANDLE)

cuStreamCreate = _asking("cuStreamCreate", _UINT, gives=[_HANDLE])
cuStreamDestroy = _asking("cuStreamDestroy", _HANDLE)
cuStreamQuery = _asking("cuStreamQuery", _HANDLE)
cuStreamSynchronize = _asking("cuStreamSynchronize", _HANDLE)
cuStreamBeginCapture = _asking("cuStreamBeginCapture", _HANDLE, _INT)
cuStreamEndCapture = _asking("cuStreamEndCapture", _HANDLE, gives=[_HANDLE], last=True)
cuGraphInstantiate = _asking("cuGraphInstantiateWithFlags", _HANDLE, _WORD, gives=[_HANDLE])  # what CUDA 12's header calls by that name
cuGraphLaunch = _asking("cuGraphLaunch", _HANDLE, _HANDLE)
cuGraphExecDestroy = _asking("cuGraphExecDestroy", _HANDLE)
cuGraphDestroy = _asking("cuGraphDestroy", _HANDLE)

cuEventCreate = _asking("cuEventCreate", _UINT, gives=[_HANDLE])
cuEventDestroy = _asking("cuEventDestroy", _HANDLE)
cuEventRecord = _asking("cuEventRecord", _HANDLE, _HANDLE)
cuEventSynchronize = _asking("cuEventSynchronize", _HANDLE)
cuEventElapsedTime = _asking("cuEventElapsedTime", _HANDLE, _HANDLE, gives=[_FLOAT])
