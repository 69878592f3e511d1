"""The load generator with a stand-in for PyTorch: NumPy for the products, a counter for the GPU's time."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import numpy as np
import pytest
from gpu.load import AHEAD, BURST, SustainedWork, gemm


class Tensor:
    def __init__(self, array):
        self.array = np.asarray(array, np.float64)

    def __getitem__(self, key):
        return Tensor(self.array[key])

    def __matmul__(self, other):
        return Tensor(self.array @ other.array)

    def __sub__(self, other):
        return Tensor(self.array - other.array)

    def __float__(self):
        return float(self.array)

    def double(self):
        return self

    def zero_(self):
        self.array[:] = 0

    def abs(self):
        return Tensor(abs(self.array))

    def max(self):
        return Tensor(self.array.max())


class Torch:
    """The module. A product takes `seconds` of the GPU's own time; `error` is added to each product; `fails` breaks replays."""

    bfloat16 = "bfloat16"

    def __init__(self, seconds=0.005, error=0.0, fails=False):
        self.seconds, self.error, self.fails = seconds, error, fails
        self.time, self.captured, self.lock = 0.0, None, threading.Lock()
        self.begun = self.ended = self.most_queued = 0  # pieces of work
        self.operands = []
        self.cuda = Cuda(self)

    @property
    def queued(self):
        return self.begun - self.ended

    def queue(self):
        """Count a piece of work that lies on the GPU until an event behind it is waited for."""
        self.begun += 1
        self.most_queued = max(self.most_queued, self.queued)

    def randn(self, *shape, device, dtype):
        assert (device, dtype) == ("cuda", "bfloat16")
        self.operands.append(Tensor(np.random.default_rng(0).normal(size=shape)))
        return self.operands[-1]

    def empty(self, *shape, device, dtype):
        return Tensor(np.zeros(shape))

    def matmul(self, a, b, out):
        if self.captured is not None:
            self.captured.products += 1
            return
        out.array[:] = a.array @ b.array + self.error
        self.time += self.seconds


class Cuda:
    def __init__(self, torch):
        self.torch = torch

    def Event(self, enable_timing=False, blocking=False):
        assert enable_timing
        return Event(self.torch)

    def CUDAGraph(self):
        return Graph(self.torch)

    def Stream(self):
        return type("Stream", (), {"wait_stream": lambda self, other: None})()

    def current_stream(self):
        return self.Stream()

    def synchronize(self):
        pass

    @contextmanager
    def stream(self, stream):
        yield

    @contextmanager
    def graph(self, graph):
        self.torch.captured = graph
        yield
        self.torch.captured = None


class Graph:
    def __init__(self, torch):
        self.torch, self.products = torch, 0

    def replay(self):
        if self.torch.fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        with self.torch.lock:
            self.torch.time += self.torch.seconds * self.products
            self.torch.queue()


class Event:
    def __init__(self, torch):
        self.torch = torch

    def record(self):
        self.time, self.before = self.torch.time, self.torch.begun

    def synchronize(self):
        self.torch.ended = max(self.torch.ended, self.before)

    def elapsed_time(self, later):
        return 1000 * (later.time - self.time)


class Clock:
    """The host's seconds, which pass with the GPU's."""

    def __init__(self, torch):
        self.torch, self.rests = torch, []

    def __call__(self):
        return 1000.0 + self.torch.time

    def sleep(self, seconds):
        self.rests.append(seconds)
        self.torch.time += seconds


def run(torch, bursts=5, **options):
    """Return the work of a load that ran for some bursts, and its clock."""
    clock = Clock(torch)
    with gemm(torch, 64, clock=clock, sleep=clock.sleep, **options) as work:
        while len(work.bursts) < bursts:
            threading.Event().wait(0.001)
    return work, clock


def test_a_burst_holds_as_many_products_as_fit_its_time_and_knows_its_flops():
    # 5 ms each, 25 ms a burst: 5 products of 2 × 64³ FLOPs
    assert BURST == 0.025
    work, _ = run(Torch())
    assert work.flops == 5 * 2 * 64**3 and work.dtype == "bfloat16" and len(work.bursts) >= 5


def test_bursts_follow_each_other_by_the_gpus_own_timer():
    torch = Torch()
    work, _ = run(torch)
    assert all(last - first == pytest.approx(0.025) for first, last in work.bursts)
    assert all(a[1] == pytest.approx(b[0]) for a, b in zip(work.bursts, work.bursts[1:], strict=False))
    assert torch.most_queued == AHEAD + 1
    begin, end = work.bursts[0][0], work.bursts[3][1]
    assert work.flops_between(begin, end) == pytest.approx(4 * work.flops)


def test_gaps_come_between_stretches_of_work():
    # 0.1 s on is four bursts of 25 ms, then 0.05 s of rest
    work, clock = run(Torch(), bursts=12, on=0.1, off=0.05)
    gaps = [b[0] - a[1] for a, b in zip(work.bursts, work.bursts[1:], strict=False)]
    assert {round(gap, 6) for gap in gaps} == {0.0, 0.05} and set(clock.rests) == {0.05}


def test_operands_are_zero_only_where_that_is_asked_and_only_after_the_product_was_checked():
    plain, zeros, wrong = Torch(), Torch(), Torch(error=5.0)
    run(plain)
    run(zeros, zeros=True)
    assert all(one.array.any() for one in plain.operands) and not any(one.array.any() for one in zeros.operands)
    with pytest.raises(ArithmeticError):
        run(wrong, zeros=True)


def test_a_wrong_product_is_refused():
    with pytest.raises(ArithmeticError, match="a product of size 64 is wrong by 5"):
        run(Torch(error=5.0))
    with pytest.raises(ArithmeticError):
        run(Torch(error=float("nan")))


def test_what_the_gpu_raises_is_raised_here_and_the_body_does_not_run():
    with pytest.raises(RuntimeError, match="illegal memory access"):
        run(Torch(fails=True))


def test_a_gpu_that_fails_later_is_told_after_the_body():
    torch = Torch()
    with pytest.raises(RuntimeError, match="illegal memory access"), gemm(torch, 64, clock=Clock(torch)) as work:
        torch.fails = True
        while work.failure is None:
            threading.Event().wait(0.001)


def test_work_outside_the_asked_time_does_not_count():
    work = SustainedWork(2, "bfloat16", 10.0, [(0.0, 1.0), (3.0, 3.0), (4.0, 6.0)])
    assert work.flops_between(1.0, 4.0) == 0 and work.flops_between(5.0, 9.0) == 5 and work.flops_between(0.0, 9.0) == 20
