"""Small cases for the harness, with what a GPU would compute for them."""

from __future__ import annotations

import numpy as np

from ullage.benches.bench import Bench, Case, LibraryCase, Output, Prepared, TableLayout
from ullage.kernels.compiling import ARCHITECTURES

THREADS = 32
SOURCE = r"""
extern "C" __global__ void work(u64 *clocks, const int *in, int *out, int trips) {
    int x = in[threadIdx.x];
    ULLAGE_BEGIN
    #pragma unroll 1
    for (int n = 0; n < trips; n++) x = x * 3 + 1;
    ULLAGE_END
    out[threadIdx.x] = x;
}
"""


def inputs(generator, data):
    shape = (THREADS,)
    return (np.zeros(shape, np.int32) if data == "zero" else generator.integers(1, 1000, shape, np.int32),)


def reference(arrays, trips):
    found = arrays[0]
    for _ in range(trips):
        found = found * 3 + 1
    return (found,)


def case(labels=None, **changed):
    """Return a case of `work`: 100 trips of 64 dependent steps by one block, checked with 2 trips."""
    plain = {
        "labels": labels or {"level": "L1"}, "source": SOURCE, "entry": "work", "grid": 1, "block": THREADS, "trips": 100,
        "outputs": (Output((THREADS,), "int32"),), "reference": reference, "quantities": ("latency",), "inputs": inputs,
        "check_trips": 2, "steps": 64,
    }  # fmt: skip
    return Case(**{**plain, **changed})


def bench(*cases, name="sample", needs="cuda", drift=False):
    """Return a bench of these cases; an exception among them is raised when it is laid out."""

    def laid_out(target, quick):
        """A sample."""
        for one in cases:
            if isinstance(one, BaseException):
                raise one
            yield one

    return Bench(name, "Sample", "nobody", ARCHITECTURES, TableLayout(("level",)), (), laid_out, needs, 1.0, drift)


def work(cycles=185_600, clock=1.98e9, seen=None):
    """Return what the GPU does for `work`: right, in so many SM cycles of each block. `seen` collects (trips, sum of the inputs)."""

    def body(launch):
        arrays, trips = launch.array(1, np.int32, THREADS).copy(), launch.integer(3)
        if seen is not None:
            seen.append((trips, int(arrays.sum())))
        if trips < 10:
            launch.array(2, np.int32, THREADS)[:] = reference((arrays,), trips)[0]
        launch.took(cycles, clock)

    return body


class Torch:
    """PyTorch as far as the harness asks it: events over a clock that passes while calls run."""

    __version__ = "2.11.0+cu130"

    def __init__(self, seconds=1e-3):
        self.seconds, self.passed, self.calls, self.emptied = seconds, 0.0, 0, 0
        self.cuda = self

    def is_available(self):
        return True

    def set_device(self, index):
        self.index = index

    def synchronize(self):
        pass

    def empty_cache(self):
        self.emptied += 1

    def work(self):
        self.calls += 1
        self.passed += self.seconds

    def Event(self, enable_timing):
        return _Event(self)


class _Event:
    def __init__(self, torch):
        self.torch = torch

    def record(self):
        self.at = self.torch.passed

    def query(self):
        return True

    def elapsed_time(self, other):
        return (other.at - self.at) * 1000


def library_case(wrong=None, asked=None, **changed):
    """Return a case that PyTorch runs; `asked` collects the kinds of data that it was prepared with."""

    def prepare(torch, data):
        if asked is not None:
            asked.append(data)
        return Prepared(torch.work, lambda: wrong)

    return LibraryCase(**{"labels": {"level": "library"}, "prepare": prepare, "quantities": ("throughput",), "flops": 10**12, **changed})
