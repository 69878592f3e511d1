"""Work that keeps a GPU busy without a gap, and how much of it was done between two moments: what OFU is held against.

A call of a library is captured many times into a CUDA graph (a *burst*); bursts are queued so that the GPU never waits for
the host, and each is timed by the GPU's own events. Whose queue that is, PyTorch's or the driver's, a `Stream` says.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

BURST = 0.025  # seconds of GPU time that one CUDA graph holds: long against its launch, short against a sample
MOST = 4000  # calls in one graph
AHEAD = 2  # bursts queued on the GPU before the host waits for the oldest


@dataclass
class SustainedWork:
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

        >>> SustainedWork(size=2, dtype="bfloat16", flops=10, bursts=[(0, 1), (1, 2)]).flops_between(0.5, 2)
        15.0
        """
        inside = ((max(0.0, min(end, last) - max(begin, first)), last - first) for first, last in self.bursts)
        return sum(self.flops * part / whole for part, whole in inside if whole > 0)


class Stream(Protocol):
    """A queue of a GPU."""

    def enter(self) -> None:
        """Make the GPU the calling thread's own: in CUDA and in PyTorch each thread has one."""

    def mark(self) -> Any:
        """Queue an event and return it: when the GPU reaches it, its timer is noted."""

    def reach(self, event: Any) -> None:
        """Wait until the GPU has reached an event."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Return the seconds between two events that were reached."""

    def drain(self) -> None:
        """Wait until all that was queued has ended."""

    def trial(self) -> AbstractContextManager[object]:
        """Return a context in which a call may be queued that is to be captured later."""

    def capture(self, run: Callable[[], object], calls: int) -> Callable[[], object]:
        """Return what queues so many calls as one graph, without calling them now."""


@dataclass(frozen=True)
class TorchStream:
    """PyTorch's current stream on the GPU that it counts as `index`; None: the one that is its current."""

    torch: Any
    index: int | None = None

    def enter(self) -> None:
        """See `Stream`."""
        if self.index is not None:
            self.torch.cuda.set_device(self.index)

    def mark(self) -> Any:
        """See `Stream`. The host sleeps while it waits for the event: it has a sampler to run."""
        event = self.torch.cuda.Event(enable_timing=True, blocking=True)
        event.record()
        return event

    def reach(self, event: Any) -> None:
        """See `Stream`."""
        event.synchronize()

    def seconds(self, begin: Any, end: Any) -> float:
        """See `Stream`."""
        return float(begin.elapsed_time(end)) / 1000

    def drain(self) -> None:
        """See `Stream`."""
        self.torch.cuda.synchronize()

    @contextmanager
    def trial(self) -> Iterator[None]:
        """See `Stream`. PyTorch wants what it will capture to be tried on a stream of its own."""
        side = self.torch.cuda.Stream()
        side.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(side):
            yield

    def capture(self, run: Callable[[], object], calls: int) -> Callable[[], object]:
        """See `Stream`."""
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            for _ in range(calls):
                run()
        replay: Callable[[], object] = graph.replay
        return replay


@dataclass(frozen=True)
class Burst:
    """A graph by what queues it, how many calls it holds, and the call: the graph knows only addresses, so its operands must live on."""

    replay: Callable[[], object]
    calls: int
    run: Callable[[], object]


def captured(stream: Stream, run: Callable[[], object]) -> Burst:
    """Return a burst of about `BURST` seconds of a call that queues work on a stream, after a warm-up."""
    with stream.trial():
        seconds = _seconds_each(stream, run)
    stream.drain()
    calls = max(1, min(MOST, round(BURST / seconds)))
    return Burst(stream.capture(run, calls), calls, run)


def _seconds_each(stream: Stream, run: Callable[[], object]) -> float:
    """Return the time of one call, after a warm-up that also lets the library choose its kernel."""
    for _ in range(3):
        run()
    first = stream.mark()
    for _ in range(5):
        run()
    last = stream.mark()
    stream.reach(last)
    return max(1e-6, stream.seconds(first, last) / 5)


@contextmanager
def sustained(
    stream: Stream,
    burst: Burst,
    work: SustainedWork,
    on: float = 0.0,
    off: float = 0.0,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[SustainedWork]:
    """Keep the GPU busy with a burst, again and again, while the body runs; yields the `work`, complete after the body.

    With `off` it computes for `on` seconds and then rests for `off` seconds. Raises what the GPU's library raised while the body ran.
    """
    stop, begun = threading.Event(), threading.Event()

    def drive() -> None:
        try:
            stream.enter()
            for first_last in _bursts(stream, burst, stop, on, off, clock, sleep):
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
    stream: Stream, burst: Burst, stop: threading.Event, on: float, off: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[tuple[float, float]]:
    """Launch bursts until `stop`, at most `AHEAD` queued; yield when each began and ended, by the GPU's own timer."""
    stream.drain()
    base = stream.mark()
    stream.reach(base)
    origin = clock()

    def span(first: Any, last: Any) -> tuple[float, float]:
        stream.reach(last)
        return origin + stream.seconds(base, first), origin + stream.seconds(base, last)

    waiting: deque[tuple[Any, Any]] = deque()
    resting_from = clock() + on
    while not stop.is_set():
        first = stream.mark()
        burst.replay()
        waiting.append((first, stream.mark()))
        pause = off > 0 and clock() >= resting_from
        while len(waiting) > (0 if pause else AHEAD):
            yield span(*waiting.popleft())
        if pause:
            sleep(off)
            resting_from = clock() + on
    for events in waiting:
        yield span(*events)
