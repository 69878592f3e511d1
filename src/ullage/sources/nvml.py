"""This machine's GPUs, read live through NVML: no exporter and no daemon needed, normally no root either.

Activities come from NVML's GPM, which compares two samples and so gives true averages over the interval between them;
it exists on Hopper and later. The cumulative cycle counters (GPM ids 248 to 260, "since reboot") are read where the
driver has them. Earlier GPUs yield clocks, power and utilization only, and a note says so. Names and structures are
those of nvidia-ml-py 13.615.

This module needs NumPy, PyArrow and nvidia-ml-py and nothing else, so that it runs on a bare GPU node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ullage.errors import UllageError, missing_extra
from ullage.problems import Problems
from ullage.sources.fields import Alias, clean
from ullage.sources.source import Options, Place, source
from ullage.tables import samples

SHORTEST = 0.1  # seconds between two GPM samples; below 100 ms Hopper's values are invalid (NVIDIA/DCGM issue 310)
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
Reading = dict[str, float]


@dataclass(eq=False)
class _Device:
    """A GPU or a MIG instance, with its two GPM samples, the older first (none without GPM), and how many were taken."""

    handle: Any
    index: int
    uuid: str
    name: str
    mig: str | None = None
    instance: int | None = None  # GPU instance id; None for a whole GPU
    samples: list[Any] = field(default_factory=list)
    taken: int = 0


def recognise(place: Place) -> int:
    """Return 2 for the places 'local' and 'nvml://', else 0."""
    return 2 if place.path is None and (place.name == "local" or place.name.startswith("nvml://")) else 0


@source("local", recognise=recognise, reads="this machine's NVIDIA GPUs, live (the place 'local'), with --watch seconds")
def read(place: Place, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:  # noqa: ARG001
    """Yield a batch every `options.interval` seconds for `options.watch` seconds, a row for each GPU and MIG instance.

    With `watch` 0 there is one reading, over a second. Raises UllageError without nvidia-ml-py, driver or GPU.
    """
    import socket

    try:
        import pynvml
    except ImportError as error:
        raise missing_extra("nvidia-ml-py", "gpu", "reading this machine's GPUs") from error
    yield from watch(pynvml, options, problems, socket.gethostname())


def watch(
    nvml: Any,
    options: Options,
    problems: Problems,
    host: str,
    clock: Callable[[], int] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """Yield the readings of every GPU that `nvml` (the module pynvml, or its double) knows, as `read` does.

    `clock` gives ms since 1970. A sample is of the moment at which the interval ends.
    """
    now = clock or options.now or (lambda: round(time.time() * 1000))
    interval = max(SHORTEST, options.interval if options.watch > 0 else min(options.interval, 1.0))
    turns = max(1, int(options.watch / interval + 1e-9))
    _start(nvml)
    devices: list[_Device] = []
    try:
        devices += _devices(nvml, problems)
        begin = last = now()
        for device in devices:
            _sample(nvml, device, problems)
        for turn in range(1, turns + 1):
            # after a stall the next reading is late, never too close to the one before
            sleep(max(0.0, (max(begin + 1000 * turn * interval, last + 1000 * SHORTEST) - now()) / 1000))
            last = now()
            yield _batch(last, host, devices, [_reading(nvml, device, problems) for device in devices], options, problems)
            options.progress(f"{turn:,} of {turns:,} readings of {len(devices):,} devices")
    finally:
        for device in devices:
            for sample in device.samples:
                nvml.nvmlGpmSampleFree(sample)
        nvml.nvmlShutdown()


def _start(nvml: Any) -> None:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise UllageError(
            f"this machine's NVIDIA driver does not answer ({error})", "run it on a GPU node; `nvidia-smi` should work there"
        ) from error


def _devices(nvml: Any, problems: Problems) -> list[_Device]:
    """Return every GPU, each followed by its MIG instances. Of a GPU with instances these carry the activities."""
    found: list[_Device] = []
    for index in range(_count(nvml)):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpu = _Device(handle, index, _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle)))
        except nvml.NVMLError as error:
            problems.drop("GPUs that do not answer", where=f"GPU {index}: {error}")
            continue
        instances = _instances(nvml, gpu)
        for device in instances or [gpu]:
            _prepare(nvml, gpu, device, problems)
        found += [gpu, *instances]
    if not found:
        raise UllageError("this machine has no GPU that NVML can read", "`nvidia-smi -L` lists what the driver sees")
    return found


def _count(nvml: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        raise UllageError(
            f"this machine's NVIDIA driver does not say how many GPUs there are ({error})", "does `nvidia-smi -L` work?"
        ) from error


def _text(name: str | bytes) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _instances(nvml: Any, gpu: _Device) -> list[_Device]:
    """Return the MIG instances of a GPU, none when MIG is off. Compute instances of one GPU instance count once."""
    try:
        if nvml.nvmlDeviceGetMigMode(gpu.handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return []
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)
    except nvml.NVMLError:
        return []
    found: dict[int, _Device] = {}
    for number in range(count):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, number)
            instance, name = nvml.nvmlDeviceGetGpuInstanceId(handle), _text(nvml.nvmlDeviceGetName(handle))
        except nvml.NVMLError:  # no instance in this place
            continue
        found.setdefault(instance, _Device(handle, gpu.index, gpu.uuid, gpu.name, f"{_profile(name)}/{instance}", instance))
    return list(found.values())


def _profile(name: str) -> str:
    """Return the GPU instance's profile from a MIG device's name.

    >>> _profile("NVIDIA H100 80GB HBM3 MIG 1g.10gb"), _profile("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb")
    ('1g.10gb', '3g.20gb')
    """
    profile = name.rpartition("MIG ")[2]
    return profile.split(".", 1)[1] if "c." in profile else profile


def _prepare(nvml: Any, gpu: _Device, device: _Device, problems: Problems) -> None:
    """Give a device its two GPM samples, if the GPU has GPM."""
    try:
        supported, reason = bool(nvml.nvmlGpmQueryDeviceSupport(gpu.handle).isSupportedDevice), "GPM needs Hopper or later"
        if supported:
            device.samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
    except nvml.NVMLError as error:
        supported, reason = False, f"GPM: {error}"
    if not supported:
        problems.note(
            f"GPU {gpu.index} ({gpu.name}) tells no activity of its SMs and tensor pipes ({reason}); clocks, power and utilization only"
        )


def _sample(nvml: Any, device: _Device, problems: Problems) -> bool:
    """Take a GPM sample into the older of the two; return whether there are now two to compare."""
    if not device.samples:
        return False
    older, newer = device.samples
    try:
        if device.instance is None:
            nvml.nvmlGpmSampleGet(device.handle, older)
        else:
            nvml.nvmlGpmMigSampleGet(nvml.nvmlDeviceGetHandleByIndex(device.index), device.instance, older)
    except nvml.NVMLError as error:
        problems.drop("readings that the driver refused", where=f"GPU {device.index}{_slice(device)}, GPM sample: {error}")
        return False
    device.samples = [newer, older]
    device.taken += 1
    return device.taken > 1


def _slice(device: _Device) -> str:
    return f" MIG {device.mig}" if device.mig else ""


def _reading(nvml: Any, device: _Device, problems: Problems) -> Reading:
    """Return what a device tells now, in NVML's units; what it can't tell is absent."""
    reading = _gpm(nvml, device, problems) if _sample(nvml, device, problems) else {}
    for name, ask in _questions(nvml, device).items():
        for attempt in ask:
            try:
                reading[name] = float(attempt())
                break
            except nvml.NVMLError as error:
                if error.value not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
                    problems.drop("readings that the driver refused", where=f"GPU {device.index}{_slice(device)}, {name}: {error}")
    return reading


def _questions(nvml: Any, device: _Device) -> dict[str, tuple[Callable[[], Any], ...]]:
    """Return how each field is asked for, the newer function first. A MIG instance has its GPU's clocks, and no board of its own."""
    handle = device.handle
    board = handle if device.instance is None else nvml.nvmlDeviceGetHandleByIndex(device.index)
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


def _gpm(nvml: Any, device: _Device, problems: Problems) -> Reading:
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
        return {GPM[name][0]: float(metric.value) for name, metric in told if metric.nvmlReturn == nvml.NVML_SUCCESS}
    problems.drop("readings that the driver refused", where=f"GPU {device.index}{_slice(device)}, GPM: {refusal}")
    return {}


def _batch(moment: int, host: str, devices: list[_Device], readings: list[Reading], options: Options, problems: Problems) -> pa.RecordBatch:
    """Return the rows of one moment."""
    count = len(devices)
    columns: dict[str, Any] = {
        "time": np.full(count, moment, np.int64),
        "cluster": pa.array([options.cluster] * count, pa.string()),
        "host": pa.array([host] * count),
        "gpu": pa.array([device.uuid for device in devices]),
        "index": pa.array([device.index for device in devices], pa.int16()),
        "mig": pa.array([device.mig for device in devices], pa.string()),
        "model": pa.array([device.name for device in devices]),
    }
    flags = np.zeros(count, np.uint16)
    for name, unit in UNITS.items():
        values = np.array([reading.get(name, np.nan) for reading in readings])
        if not np.isnan(values).all():
            columns[name], marks = clean(Alias(name, name, unit), values, problems, host)
            flags |= marks
    return samples({**columns, "flags": flags})
