"""A GPU for the GEMM-OFU harness: PyTorch on the CPU with a simulated `torch.cuda`, and NVML that tells what that GPU does."""

from __future__ import annotations

import time
from contextlib import contextmanager
from types import SimpleNamespace

from tests.live.nvml_double import Gpu, Nvml
from ullage.benches.bench import Target
from ullage.benches.running.monitor import Monitor

ACTIVE, CLOCK = 0.5, 1500  # of the tensor pipes while a load runs; MHz
SMS = 132


class Cuda:
    """`torch.cuda` in simulated seconds: a replay takes 25 ms, and five calls in the warm-up 5 ms, so a graph holds 25 calls."""

    def __init__(self):
        self.time, self.warm, self.captures, self.on = 100.0, False, 0, None

    def is_available(self):
        return False  # tensors live on the CPU

    def synchronize(self):
        pass

    def set_device(self, index):
        self.on = index

    def Stream(self):
        return SimpleNamespace(wait_stream=lambda other: None)

    current_stream = Stream

    @contextmanager
    def stream(self, stream):
        self.warm = True
        yield
        self.warm = False

    @contextmanager
    def graph(self, graph):
        self.captures += 1
        yield

    def CUDAGraph(self):
        return SimpleNamespace(replay=self._replay)

    def _replay(self):
        self.time += 0.025
        time.sleep(1e-5)

    def Event(self, enable_timing=False, blocking=False):
        return Event(self)


class Event:
    def __init__(self, cuda):
        self.cuda = cuda

    def record(self):
        self.cuda.time += 0.005 if self.cuda.warm else 0.0
        self.time = self.cuda.time

    def synchronize(self):
        pass

    def elapsed_time(self, later):
        return 1000 * (later.time - self.time)


class Torch:
    """PyTorch, with that `cuda`, and a profiler that names the kernels it is told."""

    def __init__(self, torch, kernels=("nvjet_sm90_hsh_64x64_64x8_1x1_v_bz_NNN",)):
        self._torch, self.cuda, self.kernels = torch, Cuda(), kernels
        self.broken = lambda a, b: None
        self.profiler = SimpleNamespace(profile=self._profile, ProfilerActivity=SimpleNamespace(CUDA="cuda"))

    def __getattr__(self, name):
        return getattr(self._torch, name)

    def matmul(self, a, b, out):
        self.broken(a, b)
        return self._torch.matmul(a, b, out=out)

    @contextmanager
    def _profile(self, activities):
        if self.kernels is None:
            raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")
        launched = [event("cudaLaunchKernel", 0, "CPU"), *(event(name, at) for at, name in reversed(list(enumerate(self.kernels))))]
        yield SimpleNamespace(events=lambda: [event("Memset (Device)", -1), *launched])


def event(name, start, where="CUDA"):
    return SimpleNamespace(name=name, device_type=f"DeviceType.{where}", time_range=SimpleNamespace(start=start))


class Counting(Nvml):
    """NVML over one GPU whose cycles pass with the simulated seconds; counters since boot, or within the span."""

    def __init__(self, gpu, cuda, differences=False):
        super().__init__([gpu])
        self.cuda, self.differences = cuda, differences

    def _take(self, gpu, of, sample):
        super()._take(gpu, of, sample)
        sample.cycles = self.cuda.time * CLOCK * 1e6
        return sample

    def nvmlGpmMetricsGet(self, metricsGet):
        older, newer = metricsGet.sample1.cycles, metricsGet.sample2.cycles
        told = newer - older if self.differences else newer
        newest = metricsGet.sample2
        newest.gpu.activity = [{5: 100 * ACTIVE, 248: told, 250: ACTIVE * told}]
        return super().nvmlGpmMetricsGet(metricsGet)


class Session:
    """What `ullage.benches.running.session.opened` gives, as far as the harness asks."""

    def __init__(self, torch, name="NVIDIA H200", gpm=True, differences=False, **kernels):
        self.torch = None if torch is None else Torch(torch, **kernels)
        self.cuda = Cuda() if torch is None else self.torch.cuda
        self.nvml = Counting(Gpu("GPU-1", name, gpm=gpm, sm_clock=CLOCK), self.cuda, differences)
        self.monitor = Monitor(self.nvml, self.nvml.gpus[0], interval=0.001)
        self.machine = {"gpu": name, "uuid_hash": "GPU-1", "driver": "595.10", "torch": "2.13", "sms": SMS}
        self.target, self.device = Target("sm_90a", name), SimpleNamespace(index=3)
        self.date, self.given_back = "2026-01-01T00:00:00Z", 0

    def now(self):
        return self.cuda.time

    def sleep(self, seconds):
        """Wait until the simulated seconds have passed; a thread must be at work for that."""
        until, patience = self.cuda.time + seconds, time.monotonic() + 20
        while self.cuda.time < until:
            assert time.monotonic() < patience, "nothing keeps the GPU busy"
            time.sleep(1e-4)

    def give_back(self):
        self.given_back += 1
