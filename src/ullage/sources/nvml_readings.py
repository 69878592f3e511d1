"""What a GPU or a MIG instance tells through NVML at a moment: activities by GPM, cycle counters, clocks, power, memory.

Activities come from NVML's GPM, which compares two samples and so gives true averages over the interval between them; it exists on
Hopper and later. The cumulative cycle counters (GPM ids 248 to 260, "since reboot") are read where the driver has them. Names and
structures are those of nvidia-ml-py 13.615.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ullage.problems import Problems
from ullage.sources.machine import DeviceReading

# NVML_GPM_METRIC_… -> (field, unit). PCIe and NVLink come in MiB/s.
GPM: dict[str, tuple[str, str]] = {
    "GRAPHICS_UTIL": ("gr_active", "%"),
    "SM_UTIL": ("sm_active", "%"),
    "SM_OCCUPANCY": ("sm_occupancy", "%"),
    "ANY_TENSOR_UTIL": ("tensor_active", "%"),
    "DFMA_TENSOR_UTIL": ("dfma_active", "%"),
    "HMMA_TENSOR_UTIL": ("hmma_active", "%"),
    "IMMA_TENSOR_UTIL": ("imma_active", "%"),
    "DRAM_BW_UTIL": ("dram_active", "%"),
    "FP64_UTIL": ("fp64_active", "%"),
    "FP32_UTIL": ("fp32_active", "%"),
    "FP16_UTIL": ("fp16_active", "%"),
    "PCIE_TX_PER_SEC": ("pcie_tx", "MiB/s"),
    "PCIE_RX_PER_SEC": ("pcie_rx", "MiB/s"),
    "NVLINK_TOTAL_TX_PER_SEC": ("nvlink_tx", "MiB/s"),
    "NVLINK_TOTAL_RX_PER_SEC": ("nvlink_rx", "MiB/s"),
    "SM_CYCLES_ELAPSED": ("sm_cycles", "cycles"),
    "SM_CYCLES_ACTIVE": ("sm_active_cycles", "cycles"),
    "MMA_CYCLES_ACTIVE": ("tensor_cycles", "cycles"),
}
# What the driver gives without GPM, in NVML's units.
PLAIN = {"sm_clock": "MHz", "memory_clock": "MHz", "throttle": "mask", "memory_used": "B"}
BOARD = {"power": "mW", "energy": "mJ", "temperature": "C", "gpu_util": "%"}
UNITS = {**dict(GPM.values()), **PLAIN, **BOARD}


@dataclass(eq=False)
class NvmlDevice:
    """A GPU or a MIG instance, with its two GPM samples, the older first (none without GPM), and how many were taken.

    `processes_seen` is when NVML's newest sample of a process on it was taken that has been read: microseconds since 1970, the opening
    before the first.
    """

    handle: Any
    index: int
    uuid: str
    name: str
    mig: str | None = None
    instance: int | None = None  # GPU instance id; None for a whole GPU
    board: Any = None  # the GPU's handle, of an instance
    samples: list[Any] = field(default_factory=list)
    taken: int = 0
    processes_seen: int = field(default_factory=lambda: time.time_ns() // 1000)


def take_sample(nvml: Any, device: NvmlDevice, problems: Problems) -> bool:
    """Take a GPM sample into the older of the two; return whether there are now two to compare."""
    if not device.samples:
        return False
    older, newer = device.samples
    try:
        if device.instance is None:
            nvml.nvmlGpmSampleGet(device.handle, older)
        else:
            nvml.nvmlGpmMigSampleGet(device.board, device.instance, older)
    except nvml.NVMLError as error:
        problems.drop("readings that the driver refused", where=f"GPU {device.index}{_slice(device)}, GPM sample: {error}")
        return False
    device.samples = [newer, older]
    device.taken += 1
    return device.taken > 1


def _slice(device: NvmlDevice) -> str:
    return f" MIG {device.mig}" if device.mig else ""


def reading(nvml: Any, device: NvmlDevice, problems: Problems) -> DeviceReading:
    """Return what a device tells now, in NVML's units; what it can't tell is absent."""
    told = _gpm(nvml, device, problems) if take_sample(nvml, device, problems) else {}
    for name, ask in _questions(nvml, device).items():
        for attempt in ask:
            try:
                told[name] = float(attempt())
                break
            except AttributeError:  # an nvidia-ml-py from before the question
                continue
            except nvml.NVMLError as error:
                if error.value not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
                    problems.drop("readings that the driver refused", where=f"GPU {device.index}{_slice(device)}, {name}: {error}")
    return DeviceReading(device.uuid, device.index, device.name, told, device.mig)


def _questions(nvml: Any, device: NvmlDevice) -> dict[str, tuple[Callable[[], Any], ...]]:
    """Return how each field is asked for, the newer function first. A MIG instance has its GPU's clocks, and no board of its own."""
    handle = device.handle
    board = handle if device.instance is None else device.board
    shared: dict[str, tuple[Callable[[], Any], ...]] = {
        "sm_clock": (lambda: nvml.nvmlDeviceGetClockInfo(board, nvml.NVML_CLOCK_SM),),
        "memory_clock": (lambda: nvml.nvmlDeviceGetClockInfo(board, nvml.NVML_CLOCK_MEM),),
        "throttle": (
            lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(board),
            lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(board),
        ),
        "memory_used": (lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,),
    }
    if device.instance is not None:
        return shared
    return {
        **shared,
        "power": (lambda: nvml.nvmlDeviceGetPowerUsage(handle),),
        "energy": (lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle),),
        "temperature": (
            lambda: nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU),
            lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        ),
        "gpu_util": (lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,),
    }


def _gpm(nvml: Any, device: NvmlDevice, problems: Problems) -> dict[str, float]:
    """Return the GPM metrics between the last two samples. A driver that refuses the newer ids is asked without them."""
    ids = {name: getattr(nvml, f"NVML_GPM_METRIC_{name}", None) for name in GPM}
    known = {name: number for name, number in ids.items() if number is not None}
    for wanted in (known, {name: number for name, number in known.items() if "CYCLES" not in name}):
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(wanted)
        request.sample1, request.sample2 = device.samples
        for place, number in enumerate(wanted.values()):
            request.metrics[place].metricId = number
        try:
            answer = nvml.nvmlGpmMetricsGet(request)
        except nvml.NVMLError as error:
            refusal = error
            continue
        told = zip(wanted, answer.metrics, strict=False)
        return _counting({GPM[name][0]: float(metric.value) for name, metric in told if metric.nvmlReturn == nvml.NVML_SUCCESS})
    problems.drop("readings that the driver refused", where=f"GPU {device.index}{_slice(device)}, GPM: {refusal}")
    return {}


def _counting(told: dict[str, float]) -> dict[str, float]:
    """Return the metrics without cycle counters that don't count: where no cycle has passed since reboot, there is no counter."""
    return told if told.get("sm_cycles") else {name: value for name, value in told.items() if not name.endswith("cycles")}
