"""A load with known FLOPs: square matrix products on the GPU, queued without a gap, or with gaps of a given pattern."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

BURST = 0.025  # seconds of GPU time that one CUDA graph holds: long against its launch, short against a sample
MOST = 4000  # products in one graph
AHEAD = 2  # bursts queued on the GPU before the host waits for the oldest


@dataclass
class Work:
    """What a load has done so far: `bursts` are (begin, end) on the GPU in seconds since 1970, `flops` those of one burst."""

    size: int
    dtype: str
    flops: float
    bursts: list[tuple[float, float]] = field(default_factory=list)
    failure: BaseException | None = None

    def flops_between(self, begin: float, end: float) -> float:
        """Return the FLOPs done between two times (s since 1970); a burst that is cut counts in proportion.

        Bursts of 10 FLOPs run 0–1 and 1–2 s; from 0.5 to 2 s that is half of one and one whole.

        >>> Work(size=2, dtype="bfloat16", flops=10, bursts=[(0, 1), (1, 2)]).flops_between(0.5, 2)
        15.0
        """
        inside = ((max(0.0, min(end, last) - max(begin, first)), last - first) for first, last in self.bursts)
        return sum(self.flops * part / whole for part, whole in inside if whole > 0)


@contextmanager
def gemm(
    torch: Any,
    size: int,
    dtype: str = "bfloat16",
    on: float = 0.0,
    off: float = 0.0,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Work]:
    """Keep the GPU busy with `size` × `size` products while the body runs; yields the `Work`, complete after the body.

    With `off` it computes for `on` seconds and then rests for `off` seconds, again and again. Operands are random
    normal numbers: zeros would draw less power and clock higher. Raises ArithmeticError when a product is wrong, and
    what the GPU's library raised while the body ran.
    """
    burst = _burst(torch, size, dtype)
    work, stop, begun = Work(size, dtype, 2.0 * size**3 * burst.products), threading.Event(), threading.Event()

    def drive() -> None:
        try:
            for first_last in _bursts(torch, burst.graph, stop, on, off, clock, sleep):
                work.bursts.append(first_last)
                begun.set()
        except BaseException as failure:  # told to the thread that waits for us
            work.failure = failure
        finally:
            begun.set()

    thread = threading.Thread(target=drive, daemon=True)
    thread.start()
    begun.wait()
    if work.failure is not None:
        raise work.failure
    try:
        yield work
    finally:
        stop.set()
        thread.join()
    if work.failure is not None:
        raise work.failure


@dataclass(frozen=True)
class _Burst:
    """A CUDA graph, how many products it holds, and their operands: the graph knows only addresses, so these must live on."""

    graph: Any
    products: int
    operands: tuple[Any, ...]


def _burst(torch: Any, size: int, dtype: str) -> _Burst:
    """Return a burst that takes about `BURST` seconds."""
    kind = getattr(torch, dtype)
    a, b = (torch.randn(size, size, device="cuda", dtype=kind) for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=kind)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        seconds = _seconds_each(torch, a, b, c)
    torch.cuda.synchronize()
    _refuse_wrong(a, b, c, size)
    count = max(1, min(MOST, round(BURST / seconds)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            torch.matmul(a, b, out=c)
    return _Burst(graph, count, (a, b, c))


def _seconds_each(torch: Any, a: Any, b: Any, c: Any) -> float:
    """Return the time of one product, after a warm-up that also lets the library choose its kernel."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(3):
        torch.matmul(a, b, out=c)
    first.record()
    for _ in range(5):
        torch.matmul(a, b, out=c)
    last.record()
    last.synchronize()
    return max(1e-6, float(first.elapsed_time(last)) / 1000 / 5)


def _refuse_wrong(a: Any, b: Any, c: Any, size: int) -> None:
    """Compare a corner of the product with the same in double precision. An element's standard deviation is √size."""
    corner = min(8, size)
    truth = a[:corner].double() @ b[:, :corner].double()
    error = float((c[:corner, :corner].double() - truth).abs().max())
    if not error <= 0.05 * size**0.5:  # BF16 keeps 8 bits: 0.4 % of up to four standard deviations
        raise ArithmeticError(f"a product of size {size} is wrong by {error:g}")


def _bursts(
    torch: Any, graph: Any, stop: threading.Event, on: float, off: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[tuple[float, float]]:
    """Launch bursts until `stop`, at most `AHEAD` queued; yield when each began and ended, by the GPU's own timer."""
    base, origin = _origin(torch, clock)
    waiting: deque[tuple[Any, Any]] = deque()
    resting_from = clock() + on
    while not stop.is_set():
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True, blocking=True)
        first.record()
        graph.replay()
        last.record()
        waiting.append((first, last))
        pause = off > 0 and clock() >= resting_from
        while len(waiting) > (0 if pause else AHEAD):
            yield _span(base, origin, *waiting.popleft())
        if pause:
            sleep(off)
            resting_from = clock() + on
    for events in waiting:
        yield _span(base, origin, *events)


def _origin(torch: Any, clock: Callable[[], float]) -> tuple[Any, float]:
    """Return an event that has happened, and when (by the host's clock)."""
    torch.cuda.synchronize()
    base = torch.cuda.Event(enable_timing=True)
    base.record()
    base.synchronize()
    return base, clock()


def _span(base: Any, origin: float, first: Any, last: Any) -> tuple[float, float]:
    last.synchronize()
    return origin + base.elapsed_time(first) / 1000, origin + base.elapsed_time(last) / 1000
