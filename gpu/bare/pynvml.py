"""NVML by ctypes, under the names and the calling conventions of nvidia-ml-py, for a machine where that is not installed.

It has what Ullage's readers and these checks ask for, and no more. Numbers and structures are those of nvml.h as of CUDA 13; tests hold
every one of them, and every call, against nvidia-ml-py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

# nvmlReturn_t
NVML_SUCCESS = 0
NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_INSUFFICIENT_SIZE = 7
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_FUNCTION_NOT_FOUND = 13

NVML_CLOCK_SM = 1
NVML_CLOCK_MEM = 2
NVML_TEMPERATURE_GPU = 0
NVML_DEVICE_MIG_ENABLE = 1
NVML_FI_DEV_POWER_INSTANT = 186

# nvmlGpmMetricId_t
NVML_GPM_METRIC_GRAPHICS_UTIL = 1
NVML_GPM_METRIC_SM_UTIL = 2
NVML_GPM_METRIC_SM_OCCUPANCY = 3
NVML_GPM_METRIC_ANY_TENSOR_UTIL = 5
NVML_GPM_METRIC_DFMA_TENSOR_UTIL = 6
NVML_GPM_METRIC_HMMA_TENSOR_UTIL = 7
NVML_GPM_METRIC_IMMA_TENSOR_UTIL = 9
NVML_GPM_METRIC_DRAM_BW_UTIL = 10
NVML_GPM_METRIC_FP64_UTIL = 11
NVML_GPM_METRIC_FP32_UTIL = 12
NVML_GPM_METRIC_FP16_UTIL = 13
NVML_GPM_METRIC_PCIE_TX_PER_SEC = 20
NVML_GPM_METRIC_PCIE_RX_PER_SEC = 21
NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC = 60
NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC = 61
NVML_GPM_METRIC_SM_CYCLES_ELAPSED = 248
NVML_GPM_METRIC_SM_CYCLES_ACTIVE = 249
NVML_GPM_METRIC_MMA_CYCLES_ACTIVE = 250
NVML_GPM_METRIC_DMMA_CYCLES_ACTIVE = 251
NVML_GPM_METRIC_HMMA_CYCLES_ACTIVE = 252
NVML_GPM_METRIC_IMMA_CYCLES_ACTIVE = 253
NVML_GPM_METRIC_DFMA_CYCLES_ACTIVE = 254
NVML_GPM_METRIC_INTEGER_CYCLES_ACTIVE = 257
NVML_GPM_METRIC_FP64_CYCLES_ACTIVE = 258
NVML_GPM_METRIC_FP32_CYCLES_ACTIVE = 259
NVML_GPM_METRIC_FP16_CYCLES_ACTIVE = 260
NVML_GPM_METRIC_MAX = 477
NVML_GPM_METRICS_GET_VERSION = 1
NVML_GPM_SUPPORT_VERSION = 1

_VERSION_SIZE, _NAME_SIZE, _UUID_SIZE = 80, 96, 96  # bytes of the texts that NVML writes
_TEMPERATURE_VERSION = 0x100000C  # nvmlTemperature_v1: version 1 of a structure of 12 bytes
_NOT_AVAILABLE = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE


class struct_c_nvmlDevice_t(ctypes.Structure):
    """A GPU or a MIG device, of which only the address is known."""


class struct_c_nvmlGpmSample_t(ctypes.Structure):
    """A GPM sample, of which only the address is known."""


c_nvmlDevice_t = ctypes.POINTER(struct_c_nvmlDevice_t)
c_nvmlGpmSample_t = ctypes.POINTER(struct_c_nvmlGpmSample_t)


class c_nvmlMemory_t(ctypes.Structure):
    """The GPU's memory, bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class c_nvmlUtilization_t(ctypes.Structure):
    """The share of time in which a kernel ran, and in which memory was read or written, %."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class c_nvmlProcessInfo_v3_t(ctypes.Structure):
    """A process that computes on the GPU."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    )


class c_nvmlValue_t(ctypes.Union):
    """A field's value in the type that `c_nvmlFieldValue_t.valueType` says."""

    _fields_ = (
        ("dVal", ctypes.c_double),
        ("uiVal", ctypes.c_uint),
        ("ulVal", ctypes.c_ulong),
        ("ullVal", ctypes.c_ulonglong),
        ("sllVal", ctypes.c_longlong),
        ("siVal", ctypes.c_int),
        ("usVal", ctypes.c_ushort),
    )


class c_nvmlFieldValue_t(ctypes.Structure):
    """A field that was asked for by its number."""

    _fields_ = (
        ("fieldId", ctypes.c_uint32),
        ("scopeId", ctypes.c_uint32),
        ("timestamp", ctypes.c_int64),
        ("latencyUsec", ctypes.c_int64),
        ("valueType", ctypes.c_uint),
        ("nvmlReturn", ctypes.c_uint),
        ("value", c_nvmlValue_t),
    )


class c_nvmlTemperature_v1_t(ctypes.Structure):
    """A sensor and its temperature, °C."""

    _fields_ = (("version", ctypes.c_uint), ("sensorType", ctypes.c_uint), ("temperature", ctypes.c_int))


class c_metricInfo_t(ctypes.Structure):
    """The names of a GPM metric."""

    _fields_ = (("shortName", ctypes.c_char_p), ("longName", ctypes.c_char_p), ("unit", ctypes.c_char_p))


class c_nvmlGpmMetric_t(ctypes.Structure):
    """A GPM metric: what is asked for, and the answer."""

    _fields_ = (
        ("metricId", ctypes.c_uint),
        ("nvmlReturn", ctypes.c_uint),
        ("value", ctypes.c_double),
        ("metricInfo", c_metricInfo_t),
    )


class c_nvmlGpmMetricsGet_t(ctypes.Structure):
    """The metrics that are made of two samples."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("numMetrics", ctypes.c_uint),
        ("sample1", c_nvmlGpmSample_t),
        ("sample2", c_nvmlGpmSample_t),
        ("metrics", c_nvmlGpmMetric_t * NVML_GPM_METRIC_MAX),
    )


class c_nvmlGpmSupport_t(ctypes.Structure):
    """Whether a GPU has GPM."""

    _fields_ = (("version", ctypes.c_uint), ("isSupportedDevice", ctypes.c_uint))


class NVMLError(Exception):
    """An answer of NVML other than success: its number is `value`."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        own = _WORDS.get(self.value)
        if own is not None or _library is None:
            return own or f"NVML Error with code {self.value}"
        explain = _library.nvmlErrorString
        explain.restype = ctypes.c_char_p
        return str(explain(self.value).decode(errors="replace"))


# What this module answers by itself, where there is no library to ask for words.
_WORDS = {
    NVML_ERROR_UNINITIALIZED: "Uninitialized",
    NVML_ERROR_LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
    NVML_ERROR_FUNCTION_NOT_FOUND: "Function Not Found",
}
_library: ctypes.CDLL | None = None
Function = Callable[..., Any]


def _code(symbol: str, *arguments: Any) -> int:
    """Return the library's answer to a call."""
    if _library is None:
        raise NVMLError(NVML_ERROR_UNINITIALIZED)
    try:
        function = getattr(_library, symbol)
    except AttributeError:
        raise NVMLError(NVML_ERROR_FUNCTION_NOT_FOUND) from None
    return int(function(*(one.encode() if isinstance(one, str) else one for one in arguments)))


def _ask(symbol: str, *arguments: Any) -> None:
    """Call a function of the library; raises NVMLError for any answer but success."""
    code = _code(symbol, *arguments)
    if code != NVML_SUCCESS:
        raise NVMLError(code)


def _numbers(symbol: str, *kinds: Any) -> Callable[..., list[int]]:
    """Return a function that takes what NVML is to be given, and returns the numbers of these kinds that NVML writes behind it."""

    def asked(*arguments: Any) -> list[int]:
        told = [kind() for kind in kinds]
        _ask(symbol, *arguments, *map(ctypes.byref, told))
        return [one.value for one in told]

    return asked


def _number(symbol: str, kind: Any) -> Callable[..., int]:
    several = _numbers(symbol, kind)
    return lambda *arguments: several(*arguments)[0]


def _text(symbol: str, size: int) -> Callable[..., str]:
    """Return a function that returns the text that NVML writes into a buffer of `size` bytes."""

    def asked(*arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(size)
        _ask(symbol, *arguments, buffer, ctypes.c_uint(size))
        return buffer.value.decode()

    return asked


def _written(symbol: str, kind: Any) -> Function:
    """Return a function that returns the structure or the handle that NVML fills."""

    def asked(*arguments: Any) -> Any:
        told = kind()
        _ask(symbol, *arguments, ctypes.byref(told))
        return told

    return asked


def nvmlInit() -> None:
    """Load the library, if it is not loaded yet, and start it. Raises NVMLError without a driver."""
    global _library
    if _library is None:
        try:
            _library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            raise NVMLError(NVML_ERROR_LIBRARY_NOT_FOUND) from None
    _ask("nvmlInitWithFlags", 0)


def nvmlShutdown() -> None:
    """Undo one `nvmlInit`; the library stays loaded."""
    _ask("nvmlShutdown")


nvmlSystemGetDriverVersion = _text("nvmlSystemGetDriverVersion", _VERSION_SIZE)
nvmlSystemGetNVMLVersion = _text("nvmlSystemGetNVMLVersion", _VERSION_SIZE)
nvmlSystemGetCudaDriverVersion = _number("nvmlSystemGetCudaDriverVersion", ctypes.c_int)

nvmlDeviceGetCount = _number("nvmlDeviceGetCount_v2", ctypes.c_uint)
nvmlDeviceGetHandleByIndex = _written("nvmlDeviceGetHandleByIndex_v2", c_nvmlDevice_t)
nvmlDeviceGetHandleByUUID = _written("nvmlDeviceGetHandleByUUID", c_nvmlDevice_t)
nvmlDeviceGetHandleByPciBusId = _written("nvmlDeviceGetHandleByPciBusId_v2", c_nvmlDevice_t)
nvmlDeviceGetName = _text("nvmlDeviceGetName", _NAME_SIZE)
nvmlDeviceGetUUID = _text("nvmlDeviceGetUUID", _UUID_SIZE)
nvmlDeviceGetNumGpuCores = _number("nvmlDeviceGetNumGpuCores", ctypes.c_uint)

nvmlDeviceGetMigMode = _numbers("nvmlDeviceGetMigMode", ctypes.c_uint, ctypes.c_uint)
nvmlDeviceGetMaxMigDeviceCount = _number("nvmlDeviceGetMaxMigDeviceCount", ctypes.c_uint)
nvmlDeviceGetMigDeviceHandleByIndex = _written("nvmlDeviceGetMigDeviceHandleByIndex", c_nvmlDevice_t)
nvmlDeviceGetGpuInstanceId = _number("nvmlDeviceGetGpuInstanceId", ctypes.c_uint)

nvmlDeviceGetClockInfo = _number("nvmlDeviceGetClockInfo", ctypes.c_uint)
nvmlDeviceGetMaxClockInfo = _number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint)
nvmlDeviceGetCurrentClocksEventReasons = _number("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong)
nvmlDeviceGetCurrentClocksThrottleReasons = _number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
nvmlDeviceGetPowerUsage = _number("nvmlDeviceGetPowerUsage", ctypes.c_uint)
nvmlDeviceGetEnforcedPowerLimit = _number("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint)
nvmlDeviceGetPowerManagementDefaultLimit = _number("nvmlDeviceGetPowerManagementDefaultLimit", ctypes.c_uint)
nvmlDeviceGetTotalEnergyConsumption = _number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_uint64)
nvmlDeviceGetTemperature = _number("nvmlDeviceGetTemperature", ctypes.c_uint)
nvmlDeviceGetMemoryInfo = _written("nvmlDeviceGetMemoryInfo", c_nvmlMemory_t)
nvmlDeviceGetUtilizationRates = _written("nvmlDeviceGetUtilizationRates", c_nvmlUtilization_t)


def nvmlDeviceGetCudaComputeCapability(handle: Any) -> tuple[int, int]:
    """Return the compute capability, (9, 0)."""
    major, minor = _capability(handle)
    return major, minor


_capability = _numbers("nvmlDeviceGetCudaComputeCapability", ctypes.c_int, ctypes.c_int)


def nvmlDeviceGetTemperatureV(handle: Any, sensor: int) -> int:
    """Return a sensor's temperature, °C; drivers before 575 do not have this function."""
    asked = c_nvmlTemperature_v1_t(version=_TEMPERATURE_VERSION, sensorType=sensor)
    _ask("nvmlDeviceGetTemperatureV", handle, ctypes.byref(asked))
    return int(asked.temperature)


def nvmlDeviceGetFieldValues(handle: Any, fieldIds: Sequence[int]) -> Any:
    """Return the values of fields, each with its own answer of NVML in `nvmlReturn`."""
    values = (c_nvmlFieldValue_t * len(fieldIds))()
    for value, number in zip(values, fieldIds, strict=True):
        value.fieldId = number
    _ask("nvmlDeviceGetFieldValues", handle, len(fieldIds), ctypes.byref(values))
    return values


def nvmlDeviceGetComputeRunningProcesses(handle: Any) -> list[SimpleNamespace]:
    """Return the processes that compute on a GPU: `pid`, `usedGpuMemory` (bytes, None where it is not told) and the MIG instances."""
    symbol, count = "nvmlDeviceGetComputeRunningProcesses_v3", ctypes.c_uint(0)
    code = _code(symbol, handle, ctypes.byref(count), None)
    if code == NVML_SUCCESS:
        return []
    if code != NVML_ERROR_INSUFFICIENT_SIZE:
        raise NVMLError(code)
    count.value = 2 * count.value + 5  # others may begin between the two calls
    told = (c_nvmlProcessInfo_v3_t * count.value)()
    _ask(symbol, handle, ctypes.byref(count), told)
    found = [SimpleNamespace(**{name: getattr(one, name) for name, *_ in one._fields_}) for one in told[: count.value]]
    for one in found:
        one.usedGpuMemory = None if one.usedGpuMemory == _NOT_AVAILABLE else one.usedGpuMemory
    return found


nvmlGpmSampleAlloc = _written("nvmlGpmSampleAlloc", c_nvmlGpmSample_t)


def nvmlGpmSampleFree(gpmSample: Any) -> None:
    """Free a sample."""
    _ask("nvmlGpmSampleFree", gpmSample)


def nvmlGpmSampleGet(device: Any, gpmSample: Any) -> Any:
    """Take a GPU's counters into a sample, and return it."""
    _ask("nvmlGpmSampleGet", device, gpmSample)
    return gpmSample


def nvmlGpmMigSampleGet(device: Any, gpuInstanceId: int, gpmSample: Any) -> Any:
    """Take the counters of a GPU instance into a sample, and return it."""
    _ask("nvmlGpmMigSampleGet", device, gpuInstanceId, gpmSample)
    return gpmSample


def nvmlGpmMetricsGet(metricsGet: Any) -> Any:
    """Fill a request with what NVML makes of its two samples, and return it."""
    _ask("nvmlGpmMetricsGet", ctypes.byref(metricsGet))
    return metricsGet


def nvmlGpmQueryDeviceSupport(device: Any) -> Any:
    """Return whether a GPU has GPM: `isSupportedDevice`."""
    asked = c_nvmlGpmSupport_t(version=NVML_GPM_SUPPORT_VERSION)
    _ask("nvmlGpmQueryDeviceSupport", device, ctypes.byref(asked))
    return asked
