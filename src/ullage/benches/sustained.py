"""Work that keeps a GPU busy without a gap, and how much of it was done between two moments: what OFU is held against.

A call of a library is captured many times into a CUDA graph (a *burst*); bursts are queued so that the GPU never waits for
the host, and each is timed by the GPU's own events.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

BURST = 0.025  # seconds of GPU time that one CUDA graph holds: long against its launch, short against a sample
MOST = 4000  # calls in one graph
AHEAD = 2  # bursts queued on the GPU before the host waits for the oldest


@dataclass
class Work:
    """What a load has done so far: `bursts` are (begin, end) on the GPU in seconds of the host's clock, `flops` those of one burst.

    `size` is M = N = K of a square product, or (M, N, K).
    """

    size: int | tuple[int, int, int]
    dtype: str
    flops: float
    bursts: list[tuple[float, float]] = field(default_factory=list)
    failure: BaseException | None = None

    def flops_between(self, begin: float, end: float) -> float:
        """Return the FLOPs done between two times (s, by the same clock); a burst that is cut counts in proportion.

        Bursts of 10 FLOPs run 0–1 and 1–2 s; from 0.5 to 2 s that is half of one and one whole.

        >>> Work(size=2, dtype="bfloat16", flops=10, bursts=[(0, 1), (1, 2)]).flops_between(0.5, 2)
        15.0
        """
        inside = ((max(0.0, min(end, last) - max(begin, first)), last - first) for first, last in self.bursts)
        return sum(self.flops * part / whole for part, whole in inside if whole > 0)


@dataclass(frozen=True)
class Burst:
    """A CUDA graph, how many calls it holds, and the call: the graph knows only addresses, so the call's operands must live on."""

    graph: Any
    calls: int
    run: Callable[[], object]


def captured(torch: Any, run: Callable[[], object]) -> Burst:
    """Return a burst of about `BURST` seconds of a call that queues work on the current stream, after a warm-up."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        seconds = _seconds_each(torch, run)
    torch.cuda.synchronize()
    calls = max(1, min(MOST, round(BURST / seconds)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    return Burst(graph, calls, run)


def _seconds_each(torch: Any, run: Callable[[], object]) -> float:
    """Return the time of one call, after a warm-up that also lets the library choose its kernel."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(3):
        run()
    first.record()
    for _ in range(5):
        run()
    last.record()
    last.synchronize()
    return max(1e-6, float(first.elapsed_time(last)) / 1000 / 5)


@contextmanager
def sustained(
    torch: Any,
    burst: Burst,
    work: Work,
    on: float = 0.0,
    off: float = 0.0,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    enter: Callable[[], None] = lambda: None,
) -> Iterator[Work]:
    """Keep the GPU busy with a burst, again and again, while the body runs; yields the `work`, complete after the body.

    With `off` it computes for `on` seconds and then rests for `off` seconds. `enter` is called first in the thread that launches:
    PyTorch's current device is each thread's own. Raises what the GPU's library raised while the body ran.
    """
    stop, begun = threading.Event(), threading.Event()

    def drive() -> None:
        try:
            enter()
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
