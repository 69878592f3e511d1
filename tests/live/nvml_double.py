"""A stand-in for nvidia-ml-py: the same names, signatures and structures, over GPUs that the test describes.

`tests/sources/test_nvml.py` checks it against the library that is installed.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Gpu:
    """What the double's GPU answers. An exception as an answer is raised. `activity` gives GPM values by metric id."""

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    gpm: object = True
    activity: list[dict[int, float]] = field(default_factory=list)  # one for each pair of samples
    refused: frozenset[int] = frozenset()  # metric ids that the driver does not know
    old_driver: bool = False  # refuses a request that holds a cumulative id
    sm_clock: object = 1410
    memory_clock: object = 2619
    power: object = 612_000
    energy: object = 5_000_000_000
    temperature: object = 51
    memory: object = 64 * 2**30
    util: object = 98
    reasons: object = 4
    power_limit: object = 700_000
    max_clock: object = 1980
    processes: tuple[int, ...] = ()  # process ids that compute
    mig: dict[int, str] | None = None  # place -> name of the MIG device
    instances: dict[int, int] = field(default_factory=dict)  # place -> GPU instance id
    samples_taken: int = 0


@dataclass
class Sample:
    """An opaque GPM sample: of which device it is, and the how-manieth."""

    of: object = None
    number: int = 0
    freed: bool = False


class c_nvmlGpmMetric_t:
    def __init__(self):
        self.metricId, self.nvmlReturn, self.value, self.metricInfo = 0, 0, 0.0, None


class c_nvmlGpmMetricsGet_t:
    def __init__(self):
        self.version, self.numMetrics, self.sample1, self.sample2 = 0, 0, None, None
        self.metrics = [c_nvmlGpmMetric_t() for _ in range(477)]


@dataclass
class Memory:
    total: int
    free: int
    used: int


@dataclass
class Utilization:
    gpu: int
    memory: int


@dataclass
class Process:
    pid: int


@dataclass
class Support:
    version: int
    isSupportedDevice: int


class Nvml:
    """The module. `gpus` are what it finds; `fails` is what `nvmlInit` raises."""

    NVML_SUCCESS = 0
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_NOT_FOUND = 6
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_GPM_METRICS_GET_VERSION = 1
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
    c_nvmlGpmMetric_t = c_nvmlGpmMetric_t
    c_nvmlGpmMetricsGet_t = c_nvmlGpmMetricsGet_t

    class NVMLError(Exception):
        def __init__(self, value):
            super().__init__(value)
            self.value = value

        def __str__(self):
            words = {3: "Not Supported", 4: "Insufficient Permissions", 12: "NVML Shared Library Not Found", 15: "GPU is lost"}
            return words.get(self.value, f"error {self.value}")

    def __init__(self, gpus=(), fails=None):
        self.gpus, self.fails = list(gpus), fails
        self.samples, self.running = [], False

    def error(self, value):
        return self.NVMLError(value)

    def nvmlInit(self):
        if self.fails is not None:
            raise self.NVMLError(self.fails)
        self.running = True

    def nvmlShutdown(self):
        self.running = False

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, handle):
        return _answer(handle.uuid)

    def nvmlDeviceGetName(self, handle):
        return handle.parent.mig[handle.place] if isinstance(handle, Mig) else handle.name

    def nvmlDeviceGetMigMode(self, device):
        if device.mig is None:
            raise self.NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        return [int(bool(device.mig)), int(bool(device.mig))]

    def nvmlDeviceGetMaxMigDeviceCount(self, device):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device, index):
        if index not in device.mig:
            raise self.NVMLError(self.NVML_ERROR_NOT_FOUND)
        return Mig(device, index)

    def nvmlDeviceGetGpuInstanceId(self, device):
        return device.parent.instances[device.place]

    def nvmlDeviceGetClockInfo(self, handle, type):
        return _answer(handle.sm_clock if type == self.NVML_CLOCK_SM else handle.memory_clock)

    def nvmlDeviceGetMaxClockInfo(self, handle, type):
        return _answer(handle.max_clock)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return _answer(handle.power_limit)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [Process(pid) for pid in (handle.parent if isinstance(handle, Mig) else handle).processes]

    def nvmlDeviceGetPowerUsage(self, handle):
        return _answer(handle.power)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return _answer(handle.energy)

    def nvmlDeviceGetTemperatureV(self, handle, sensor, version=0x100000C):
        raise self.NVMLError(self.NVML_ERROR_FUNCTION_NOT_FOUND)  # as a driver before 575 would

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return _answer(handle.temperature)

    def nvmlDeviceGetMemoryInfo(self, handle, version=None):
        used = _answer(handle.memory)
        return Memory(80 * 2**30, 80 * 2**30 - used, used)

    def nvmlDeviceGetUtilizationRates(self, handle):
        return Utilization(_answer(handle.util), 0)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return _answer(handle.reasons)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return _answer(handle.reasons)

    def nvmlGpmQueryDeviceSupport(self, device):
        return Support(1, int(_answer(device.gpm)))

    def nvmlGpmSampleAlloc(self):
        self.samples.append(Sample())
        return self.samples[-1]

    def nvmlGpmSampleFree(self, gpmSample):
        gpmSample.freed = True

    def nvmlGpmSampleGet(self, device, gpmSample):
        return self._take(device, device, gpmSample)

    def nvmlGpmMigSampleGet(self, device, gpuInstanceId, gpmSample):
        return self._take(device, (device.uuid, gpuInstanceId), gpmSample)

    def _take(self, gpu, of, sample):
        gpu.samples_taken += 1
        sample.of, sample.number, sample.gpu = of, gpu.samples_taken, gpu
        return sample

    def nvmlGpmMetricsGet(self, metricsGet):
        first, second = metricsGet.sample1, metricsGet.sample2
        assert first.of == second.of and first.number < second.number, "two samples of one device, in order"
        assert metricsGet.version == self.NVML_GPM_METRICS_GET_VERSION
        gpu = second.gpu
        asked = [metric.metricId for metric in metricsGet.metrics[: metricsGet.numMetrics]]
        if gpu.old_driver and any(number >= 248 for number in asked):
            raise self.NVMLError(2)
        values = gpu.activity[min(second.number - 2, len(gpu.activity) - 1)] if gpu.activity else {}
        for metric in metricsGet.metrics[: metricsGet.numMetrics]:
            metric.nvmlReturn = self.NVML_ERROR_NOT_SUPPORTED if metric.metricId in gpu.refused else self.NVML_SUCCESS
            metric.value = float(values.get(metric.metricId, 0))
        return metricsGet


@dataclass(frozen=True)
class Mig:
    parent: object
    place: int

    @property
    def uuid(self):
        return f"MIG-{self.parent.uuid.removeprefix('GPU-')}-{self.place}"

    @property
    def memory(self):
        return self.parent.memory // 7


def _answer(value):
    if isinstance(value, Exception):
        raise value
    return value
