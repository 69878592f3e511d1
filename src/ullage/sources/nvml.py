"""This machine's GPUs, read live through NVML: no exporter and no daemon needed, normally no root either.

What each tells is in `nvml_readings`. GPUs before Hopper yield clocks, power and utilization only, and a note says so.

This module needs NumPy and nvidia-ml-py and nothing else, and PyArrow for tables, so that it runs on a bare GPU node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ullage.errors import UllageError, missing_extra
from ullage.problems import Problems
from ullage.sources.machine import GpuLibrary, Limits, rows
from ullage.sources.nvml_health import BoardHealth, device_processes
from ullage.sources.nvml_readings import UNITS, NvmlDevice, reading, take_sample
from ullage.sources.source import Options, Place, source

if TYPE_CHECKING:
    import pyarrow as pa

SHORTEST = 0.1  # seconds between two GPM samples; below 100 ms Hopper's values are invalid (NVIDIA/DCGM issue 310)


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

    `clock` gives ms since 1970.
    """
    with opened(nvml, options, problems, host) as machine:
        yield from machine.watched(options, clock, sleep)


@contextmanager
def opened(nvml: Any, options: Options, problems: Problems, host: str) -> Iterator[GpuLibrary]:
    """Open every GPU that `nvml` knows, for as long as the body runs; a reading's activities are those since the one before.

    Raises UllageError without driver or GPU.
    """
    with opened_devices(nvml, problems) as devices, BoardHealth(nvml, devices) as health:
        yield GpuLibrary(
            read=lambda moment: rows(moment, host, [reading(nvml, device, problems) for device in devices], UNITS, options, problems),
            limits={device.uuid: _limits(nvml, device) for device in devices if device.instance is None},
            processes=lambda: {(device.uuid, device.mig): _processes(nvml, device) for device in devices},
            device_processes=lambda: {(device.uuid, device.mig): device_processes(nvml, device) for device in devices},
            health=health.read,
            shortest=SHORTEST,
            instances={own: (device.uuid, device.mig) for device in devices if (own := _own_uuid(nvml, device))},
        )


@contextmanager
def opened_devices(nvml: Any, problems: Problems) -> Iterator[list[NvmlDevice]]:
    """Yield every GPU and MIG instance that `nvml` knows, each with a first GPM sample taken; all are closed after the body.

    Raises UllageError without driver or GPU.
    """
    _start(nvml)
    devices: list[NvmlDevice] = []
    try:
        devices += _devices(nvml, problems)
        for device in devices:
            take_sample(nvml, device, problems)
        yield devices
    finally:
        for device in devices:
            for sample in device.samples:
                with suppress(nvml.NVMLError):  # a lost GPU must not keep the others' from being freed
                    nvml.nvmlGpmSampleFree(sample)
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _limits(nvml: Any, device: NvmlDevice) -> Limits:
    """Return what the board may draw, its highest SM clock and its memory, in SI units; None for what it does not tell."""
    asked: tuple[tuple[Callable[[], Any], float], ...] = (
        (lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(device.handle), 1e-3),
        (lambda: nvml.nvmlDeviceGetMaxClockInfo(device.handle, nvml.NVML_CLOCK_SM), 1e6),
        (lambda: nvml.nvmlDeviceGetMemoryInfo(device.handle).total, 1.0),
    )
    told: list[float | None] = []
    for ask, factor in asked:
        try:
            told.append(float(ask()) * factor)
        except (nvml.NVMLError, AttributeError):
            told.append(None)
    return Limits(*told)


def _own_uuid(nvml: Any, device: NvmlDevice) -> str:
    """Return a MIG instance's own UUID ("MIG-…"), "" for a whole GPU."""
    try:
        return "" if device.instance is None else _text(nvml.nvmlDeviceGetUUID(device.handle))
    except nvml.NVMLError:
        return ""


def _processes(nvml: Any, device: NvmlDevice) -> list[int]:
    try:
        return [int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(device.handle)]
    except nvml.NVMLError:
        return []


def _start(nvml: Any) -> None:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise UllageError(
            f"this machine's NVIDIA driver does not answer ({error})", "run it on a GPU node; `nvidia-smi` should work there"
        ) from error


def _devices(nvml: Any, problems: Problems) -> list[NvmlDevice]:
    """Return every GPU, each followed by its MIG instances. Of a GPU with instances these carry the activities."""
    found: list[NvmlDevice] = []
    for index in range(_count(nvml)):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpu = NvmlDevice(handle, index, _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle)))
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


def _instances(nvml: Any, gpu: NvmlDevice) -> list[NvmlDevice]:
    """Return the MIG instances of a GPU, none when MIG is off. Compute instances of one GPU instance count once."""
    try:
        if nvml.nvmlDeviceGetMigMode(gpu.handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return []
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)
    except nvml.NVMLError:
        return []
    found: dict[int, NvmlDevice] = {}
    for number in range(count):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, number)
            instance, name = nvml.nvmlDeviceGetGpuInstanceId(handle), _text(nvml.nvmlDeviceGetName(handle))
        except nvml.NVMLError:  # no instance in this place
            continue
        found.setdefault(instance, NvmlDevice(handle, gpu.index, gpu.uuid, gpu.name, f"{_profile(name)}/{instance}", instance, gpu.handle))
    return list(found.values())


def _profile(name: str) -> str:
    """Return the GPU instance's profile from a MIG device's name.

    >>> _profile("NVIDIA H100 80GB HBM3 MIG 1g.10gb"), _profile("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb")
    ('1g.10gb', '3g.20gb')
    """
    profile = name.rpartition("MIG ")[2]
    return profile.split(".", 1)[1] if "c." in profile else profile


def _prepare(nvml: Any, gpu: NvmlDevice, device: NvmlDevice, problems: Problems) -> None:
    """Give a device its two GPM samples, if the GPU has GPM."""
    try:
        supported, reason = bool(nvml.nvmlGpmQueryDeviceSupport(gpu.handle).isSupportedDevice), "GPM needs Hopper or later"
        if supported:
            device.samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
    except (nvml.NVMLError, AttributeError) as error:  # the latter: an nvidia-ml-py from before GPM
        supported, reason = False, f"GPM: {error}"
    if not supported:
        problems.note(
            f"GPU {gpu.index} ({gpu.name}) tells no activity of its SMs and tensor pipes ({reason}); clocks, power and utilization only"
        )
