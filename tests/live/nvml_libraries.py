"""Two bindings of NVML on one double of its library: what each gives for every question, and what each asks of the library for that.

Run as a program it prints where nvidia-ml-py and the stand-in of `gpu/bare` differ, a line a difference.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:1] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "src")]

from gpu.recording import Recorder

from ullage.problems import Problems
from ullage.sources.nvml import watch
from ullage.sources.source import Options

SOURCE = Path(__file__).with_name("libnvml_double.c")
STAND_IN = Path(__file__).parents[2] / "gpu" / "bare" / "pynvml.py"
REFUSALS = (2, 3, 15, 21, 999)  # NVML_ERROR_INVALID_ARGUMENT, …_NOT_SUPPORTED, …_GPU_IS_LOST, …_NO_DATA, …_UNKNOWN
# Questions about a device: the function, and what it is given beside the device.
ABOUT_A_DEVICE = (
    ("nvmlDeviceGetName",),
    ("nvmlDeviceGetUUID",),
    ("nvmlDeviceGetNumGpuCores",),
    ("nvmlDeviceGetMigMode",),
    ("nvmlDeviceGetMaxMigDeviceCount",),
    ("nvmlDeviceGetMigDeviceHandleByIndex", 4),
    ("nvmlDeviceGetGpuInstanceId",),
    ("nvmlDeviceGetClockInfo", 1),
    ("nvmlDeviceGetClockInfo", 2),
    ("nvmlDeviceGetMaxClockInfo", 1),
    ("nvmlDeviceGetCurrentClocksEventReasons",),
    ("nvmlDeviceGetCurrentClocksThrottleReasons",),
    ("nvmlDeviceGetPowerUsage",),
    ("nvmlDeviceGetEnforcedPowerLimit",),
    ("nvmlDeviceGetPowerManagementDefaultLimit",),
    ("nvmlDeviceGetTotalEnergyConsumption",),
    ("nvmlDeviceGetTemperature", 0),
    ("nvmlDeviceGetTemperatureV", 0),
    ("nvmlDeviceGetCudaComputeCapability",),
    ("nvmlDeviceGetMemoryInfo",),
    ("nvmlDeviceGetUtilizationRates",),
    ("nvmlDeviceGetFieldValues", [186, 82]),
    ("nvmlGpmQueryDeviceSupport",),
)
OTHERS = (
    ("nvmlSystemGetDriverVersion",),
    ("nvmlSystemGetNVMLVersion",),
    ("nvmlSystemGetCudaDriverVersion",),
    ("nvmlDeviceGetCount",),
    ("nvmlDeviceGetHandleByIndex", 0),
    ("nvmlDeviceGetHandleByIndex", 5),
    ("nvmlDeviceGetHandleByUUID", "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"),
    ("nvmlDeviceGetHandleByUUID", b"GPU-none"),
    ("nvmlDeviceGetHandleByPciBusId", "0000:1B:00.0"),
)


def stand_in():
    """Return the stand-in's module, afresh."""
    specification = importlib.util.spec_from_file_location("stand_in_pynvml", STAND_IN)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


class Double:
    """The double, loaded in the place of libnvidia-ml.so.1 for the life of this process."""

    def __init__(self, folder, *flags):
        target = Path(folder, "libnvml_double.so")
        command = ["gcc", "-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", *flags, "-o", str(target), str(SOURCE)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        library = ctypes.CDLL(str(target))
        self._calls, self._failing = (ctypes.c_char * (1 << 16)).in_dll(library, "calls"), (ctypes.c_char * 64).in_dll(library, "failing")
        numbers = (ctypes.c_int.in_dll(library, name) for name in ("failure", "processes", "allocated", "time_passed"))
        self._failure, self.processes, self._allocated, self._passed = numbers

    def reset(self):
        """Make it one that was asked nothing."""
        self._allocated.value = self._passed.value = 0
        self.fail()
        self.calls()

    def calls(self):
        """Return what was called since the last time."""
        said = self._calls.value.decode()
        ctypes.memset(self._calls, 0, len(said))
        return said

    def fail(self, function="", code=0):
        self._failing.value, self._failure.value = function.encode(), code


def plain(value):
    """Return what a binding gave in a form that can be compared."""
    if isinstance(value, ctypes.Array | list):
        return [plain(one) for one in value]
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, ctypes.Union):
        return bytes(value)
    if isinstance(value, ctypes._Pointer):
        return ctypes.cast(value, ctypes.c_void_p).value
    if isinstance(value, bytes):  # nvidia-ml-py decodes texts of structures
        return value.decode()
    return dict(vars(value)) if hasattr(value, "pid") else value


def answers(nvml, double):
    """Return for every question (the function, what it was given, what it gave or raised, the calls that it made of the library)."""
    found = []

    def ask(name, *arguments):
        try:
            told = getattr(nvml, name)(*arguments)
            answer = plain(told)
        except Exception as error:
            told, answer = None, ("raised", getattr(error, "value", None), str(error))
        found.append((name, plain(list(arguments)), answer, double.calls()))
        return told

    double.reset()
    ask("nvmlDeviceGetCount")  # the library is not started yet
    ask("nvmlInit")
    for question in OTHERS:
        ask(*question)
    device = ask("nvmlDeviceGetHandleByIndex", 1)
    for name, *arguments in ABOUT_A_DEVICE:
        ask(name, device, *arguments)
    for count in (0, 1, 3):
        double.processes.value = count
        ask("nvmlDeviceGetComputeRunningProcesses", device)
    older, newer = ask("nvmlGpmSampleAlloc"), ask("nvmlGpmSampleAlloc")
    ask("nvmlGpmSampleGet", device, older)
    ask("nvmlGpmMigSampleGet", device, 3, newer)
    request = _request(nvml, older, newer)
    ask("nvmlGpmMetricsGet", request)
    ask("nvmlGpmSampleFree", older)
    for code in REFUSALS:
        for name, *arguments in (*ABOUT_A_DEVICE, ("nvmlGpmSampleGet", older), ("nvmlGpmMigSampleGet", 3, older)):
            double.fail(name, code)
            ask(name, device, *arguments)
        for name in ("nvmlGpmMetricsGet", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree"):
            double.fail(name, code)
            ask(name, *{"nvmlGpmMetricsGet": [request], "nvmlGpmSampleFree": [newer]}.get(name, []))
        double.fail("nvmlDeviceGetComputeRunningProcesses_v3", code)
        ask("nvmlDeviceGetComputeRunningProcesses", device)
    double.fail("nvmlInitWithFlags", 9)
    ask("nvmlInit")
    double.fail()
    ask("nvmlShutdown")
    return found


def _request(nvml, older, newer):
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics, request.sample1, request.sample2 = nvml.NVML_GPM_METRICS_GET_VERSION, 3, older, newer
    for place, number in enumerate((5, 248, 13)):
        request.metrics[place].metricId = number
    return request


def recorded(nvml, double):
    """Return what Ullage's reader asks a binding in two seconds, call by call, and the rows that it makes of the answers."""
    double.reset()
    recorder = Recorder(nvml, itertools.count(1_000_000, 500).__next__, lambda: 0.0)
    batches = watch(recorder, Options(watch=2, interval=0.5), Problems(), "node", recorder.clock, lambda seconds: None)
    return [row for batch in batches for row in batch.to_pylist()], recorder.recording()


def main(folder, *flags):
    """Print where the two bindings differ, and at last how many questions were asked."""
    double = Double(folder, *flags)
    real, own = importlib.import_module("pynvml"), stand_in()
    theirs, ours = answers(real, double), answers(own, double)
    (rows, recording), (others, other) = recorded(real, double), recorded(own, double)
    if rows != others or recording != other or len(rows) != 4 * 4:  # two GPUs, each with a MIG instance
        print("the reader", rows, "but by the stand-in:", others)
    for one, other in zip(theirs, ours, strict=True):
        if one != other:
            print(*one, "but the stand-in:", *other)
    print(len(ours), {name for name, *_ in ours} >= {name for name in vars(own) if name.startswith("nvml")})


if __name__ == "__main__":
    main(*sys.argv[1:])
