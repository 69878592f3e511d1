"""A GPU that lives in simulated time: clocks, cycle counters and a load with known FLOPs, behind the double of nvidia-ml-py."""

from __future__ import annotations

import json
import math
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from gpu.alone import Attempt, measure
from gpu.counters import fresh
from gpu.load import SustainedWork
from gpu.machine import Machine, Room, versions
from gpu.step import BATCH, CONFIG, LENGTH, METERED, Trial, ledger
from gpu.trace_program import Known, Recorded

from tests.gpu.gpu_room_double import Benches, nsight, products
from tests.gpu.gpu_sanitizer_double import Sanitizer
from tests.live.nvml_double import Gpu, Nvml
from ullage.adapters.meter import Meter
from ullage.simulate.traces import kineto, nsys
from ullage.simulate.traces.pils import Costs, load, pils


def measured(name, machine, folder, *, begin=None, seconds=600.0, say=lambda line: None):
    """Run a check as its process does, and return the evidence that it wrote."""
    begin = time.time() if begin is None else begin
    return measure(name, machine, Attempt(Path(folder), begin, time.time() + seconds, say=say))


SMS, FLOPS_PER_CYCLE = 132, 4096  # H100 SXM at BF16
SHARE = 0.7  # of cycles in which the tensor pipes work while a load runs


class World(Nvml):
    """NVML over one H100 and its time, which passes only while somebody sleeps, in steps of 1 ms.

    `scale`: 1 when cycles are counted per SM, 132 when summed. `differences`: the counters tell what passed since the
    older sample. `stops_idle`: they stand still without a load. `torn`: another process sees them start anew.
    """

    def __init__(self, gpu=None, scale=1, differences=False, stops_idle=False, torn=False):
        super().__init__([gpu or Gpu("GPU-secret")])
        self.scale, self.differences, self.stops_idle, self.torn = scale, differences, stops_idle, torn
        self.ms, self.elapsed, self.tensor = 1_700_000_000_000, 1e12 * scale, 2e11 * scale
        self.load = None
        self.counted_share = 1.0  # of the clock that is told, what SMs count
        self.recorder = Recordings()
        self.watched_programs = Sanitizer()
        self.suite, self.harness, self.products_a_run = Benches(self), products(self), 1000
        self.torch = versions()["torch"]
        self.kept = TemporaryDirectory()
        self.ncu = nsight(self.kept.name)

    # half of what a check's process would import, and few checks ask for it
    @cached_property
    def programs(self):
        from tests.gpu.gpu_cupti_double import Programs

        return Programs()

    @cached_property
    def cupti(self):
        from tests.gpu.gpu_cupti_double import LIBRARY

        return LIBRARY

    # --- time ---

    @property
    def hertz(self):
        return (1350 + round(30 * math.sin(self.ms / 1700))) * 1e6 if self.load else 345e6

    def sleep(self, seconds):
        for _ in range(round(seconds * 1000)):
            self._step()

    def _step(self):
        cycles = self.hertz / 1000
        working = self.load is not None and self.load.works(self.ms)
        if working:
            self.tensor += SHARE * cycles * self.scale
            self.load.work.bursts.append((self.ms / 1000, (self.ms + 1) / 1000))
            self.load.cycles.append(SHARE * cycles)
        if self.load is not None or not self.stops_idle:
            self.elapsed += cycles * self.scale
        self.ms += 1

    # --- NVML ---

    def nvmlDeviceGetClockInfo(self, handle, type):
        return round(self.hertz / 1e6) if type == self.NVML_CLOCK_SM else 2619

    def nvmlDeviceGetMaxClockInfo(self, handle, type):
        return 1980

    def nvmlDeviceGetNumGpuCores(self, handle):
        return 128 * SMS

    def nvmlDeviceGetCudaComputeCapability(self, handle):
        return 9, 0

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle):
        return 700_000

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return 700_000

    def nvmlSystemGetDriverVersion(self):
        return "595.10"

    def nvmlSystemGetNVMLVersion(self):
        return b"13.595.10"

    def nvmlSystemGetCudaDriverVersion(self):
        return 13020

    def _take(self, gpu, of, sample):
        super()._take(gpu, of, sample)
        sample.elapsed, sample.tensor = self.elapsed, self.tensor
        return sample

    def nvmlGpmMetricsGet(self, metricsGet):
        older, newer = metricsGet.sample1, metricsGet.sample2
        cycles, tensor = newer.elapsed - older.elapsed, newer.tensor - older.tensor
        counters = (cycles, tensor) if self.differences else (newer.elapsed, newer.tensor)
        newer.gpu.activity = [{5: 100 * tensor / cycles if cycles else 0.0, 248: float(int(counters[0])), 250: float(int(counters[1]))}]
        return super().nvmlGpmMetricsGet(metricsGet)

    def count_cycles(self, looks, over):
        looks.counted += [(round(self.counted_share * (1.35e9 if self.load else 345e6) * 3e-3), 3_000_000, sm) for sm in range(5)]

    # --- the machine ---

    @contextmanager
    def gemm(self, size, dtype="bfloat16", on=0.0, off=0.0, zeros=False):
        self.load = _Load(SustainedWork(size, dtype, 1.0), on, off, self.ms)
        try:
            yield self.load.work
        finally:
            done = self.load
            self.load = None
            done.settle()

    gemm.name = "simulated products"

    @contextmanager
    def trials(self, variant):
        """Steps that take as long as their executed FLOPs; PyTorch's counter and TorchMeter are right."""
        lengths, seconds = [LENGTH] * BATCH * METERED, 1.5
        meter = Meter(CONFIG, gpu=self.gpus[0].name, training=variant.training)
        told = meter.rate(*(count(lengths, variant.training.forward_only) for count in (meter.flops, meter.executed)), seconds)
        work = SustainedWork(BATCH * LENGTH, "bfloat16", float(ledger(variant).executed))
        with self.gemm(LENGTH) as products:
            yield Trial(work, ledger(variant, attention="full").forward, told, seconds)
        work.bursts += _steps(products, work.flops)

    def elsewhere(self, index):
        told = fresh(self, self.gpus[index], self.sleep)
        return json.dumps({name: value / 1e6 for name, value in told.items()} if self.torn else told)

    def machine(self, loaded=True):
        gpu = self.gpus[0]
        load = self.gemm if loaded else None
        room = Room(Path(self.kept.name), self.ms / 1000 + 3600, lambda: self.ms / 1000, lambda line: None)
        return Simulated(self, gpu, 0, gpu.name, gpu.uuid, lambda: None, load, lambda: self.ms, self.sleep, self.elsewhere, room)


class Simulated(Machine):
    """A machine that trains in its world's time, without PyTorch."""

    @property
    def trials(self):
        return self.nvml.trials if self.load else None

    @property
    def recorder(self):
        return self.nvml.recorder if self.load else None

    @property
    def suite(self):
        return self.nvml.suite

    @property
    def harness(self):
        return self.nvml.harness

    @property
    def programs(self):
        return lambda programs, limit: (self.nvml.watched_programs if programs[0].under else self.nvml.programs)(programs, limit)

    @property
    def cupti(self):
        return self.nvml.cupti

    @property
    def ncu(self):
        return self.nvml.ncu

    @property
    def count_cycles(self):
        return self.nvml.count_cycles

    @property
    def sanitizer(self):
        return "/opt/compute-sanitizer"


class Recordings:
    """Profiles of the program with known loads, as perfect profilers would write them; `nsys` may be missing.

    `stretched`: kernels run this much longer than CUDA events say. `hidden`: of a graph's replays no kernel is recorded.
    """

    def __init__(self, stretched=1.0, hidden=False, nsys=True):
        self.stretched, self.hidden, self.has_nsys = stretched, hidden, nsys

    def _scenario(self, variant):
        overlapped, copies = variant == "asynchronous", "5000" if variant == "copies" else "0"
        gpu, costs = str(round(20_000 * self.stretched)), Costs(context=1_000_000)
        told = load(variant, cpu="10000", gpu=gpu, memcpy=copies, rounds=10, asynchronous=overlapped, clock_mhz=1000, costs=costs)
        found = pils(told)
        if variant == "graph" and self.hidden:
            found = replace(found, events=tuple(e for e in found.events if e.kind != "kernel"))
        # 10 bursts of 20 ms, one kernel each; copies of 5 ms of which 89 % move data, and one of 1.5 us before all
        return found, Known(0.2, 0.0445015 if variant == "copies" else 0.0, 0.1, 10)

    def kineto(self, variant):
        found, known = self._scenario(variant)
        with TemporaryDirectory() as folder:
            (path,) = kineto.write(found, Path(folder))
            return Recorded(known, f"{variant}.json", path.read_bytes())

    def nsys(self, variant):
        if not self.has_nsys:
            return None
        found, known = self._scenario(variant)
        with TemporaryDirectory() as folder:
            return Recorded(known, f"{variant}.sqlite", nsys.write(found, Path(folder) / "x.sqlite").read_bytes())


def _steps(products, flops):
    """Return when each step began and ended, if the GPU goes through the FLOPs of steps as it did through products."""
    done, begin, ends = 0.0, products.bursts[0][0], []
    for _, end in products.bursts:
        done += products.flops
        if done >= flops:
            ends.append(end - (done - flops) / products.flops / 1000)
            done -= flops
    ends.append(end + (flops - done) / products.flops / 1000)  # the one that was begun is ended
    return list(zip([begin, *ends], ends, strict=False))


class _Load:
    """A load and its work: each millisecond is a burst, worth the FLOPs of its active tensor cycles."""

    def __init__(self, work, on, off, begin):
        self.work, self.on, self.off, self.begin, self.cycles = work, on * 1000, off * 1000, begin, []

    def works(self, ms):
        return not self.off or (ms - self.begin) % (self.on + self.off) < self.on

    def settle(self):
        """Bursts of one `Work` are worth the same: the mean of what the milliseconds did."""
        if self.cycles:
            self.work.flops = sum(self.cycles) / len(self.cycles) * SMS * FLOPS_PER_CYCLE
