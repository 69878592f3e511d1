"""How often something is run, and what the stopwatches then say: plans, medians, cycles of blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from ullage.benches.result import Value
from ullage.benches.running.monitor import Monitor, ObservedRun

BUDGET = 0.3  # seconds that a case's timed spans take together
FEWEST, MOST = 5, 20  # timed spans
SHORTEST = 1e-3  # seconds of a span: long against the resolution of events, about 0.5 µs
LONGEST = 3.0  # seconds for all spans of something so slow that even FEWEST of it take longer
WARM = 0.05  # seconds of load before anything is timed, for clocks to rise
LOOKS = 50  # timed spans of a long run whose clock has settled: as many launches tell their clock, while the power limit moves it
PIECES = 4  # in which the load comes that has to settle
PATIENCE = 20.0  # seconds beyond what is expected until a kernel counts as one that never ends
CLEAREST = 1e-4  # seconds: the GPU's timer may tick in steps of about 1 µs, so a shorter block gives no clock within 1 %


class TimedQueue(Protocol):
    """What can be timed: `run` queues it once, for the span with this number; events as in `Device`."""

    def run(self, span: int) -> None: ...  # noqa: D102
    def mark(self) -> Any: ...  # noqa: D102
    def seconds(self, begin: Any, end: Any) -> float: ...  # noqa: D102
    def wait(self, limit: float) -> None: ...  # noqa: D102


@dataclass(frozen=True)
class TimingPlan:
    """How often something is run: `launches` in each of `spans` timed spans."""

    launches: int
    spans: int


def plan(once: float, least: float = 0.0, spans: int = FEWEST) -> TimingPlan:
    """Return how often to run what takes `once` seconds, so that all spans take about `BUDGET`, or `spans` of them at least `least`.

    What takes 10 µs is run 100 times in a span, so that a span lasts a millisecond; 20 spans. What takes 20 ms is run once in a
    span; 15 spans are 0.3 s. What takes 2 s can't be repeated often. For 5 s of power, 10 ms are run 100 times in each of 5 spans.

    >>> plan(1e-5), plan(0.02)
    (TimingPlan(launches=100, spans=20), TimingPlan(launches=1, spans=15))
    >>> plan(2.0), plan(0.01, least=5.0)
    (TimingPlan(launches=1, spans=1), TimingPlan(launches=100, spans=5))
    """
    single = max(once, 1e-7)
    if least:
        return TimingPlan(max(1, _steps(least / spans / single)), spans)
    launches = min(100, max(1, _steps(SHORTEST / single)))
    span = launches * single
    fewest = max(1, min(FEWEST, int(LONGEST / span)))
    return TimingPlan(launches, min(MOST, max(fewest, int(BUDGET / span + 1e-9))))


def _steps(count: float) -> int:
    return math.ceil(count - 1e-9)


@dataclass(frozen=True)
class TimedSpans:
    """Seconds of one run in each timed span, and what the monitor saw meanwhile; `total` seconds of all runs of all spans, after
    `settled` seconds of load."""

    seconds: tuple[float, ...]
    observed: ObservedRun
    total: float
    settled: float


@dataclass(frozen=True)
class Lasting:
    """How long something is to run: at least `seconds` (0: as long as a short case does), after `settle` seconds that don't count."""

    seconds: float = 0.0
    settle: float = 0.0


def timed(
    queue: TimedQueue,
    once: float,
    lasting: Lasting,
    monitor: Monitor,
    prepare: Callable[[int], None] = lambda spans: None,  # noqa: ARG005
) -> TimedSpans:
    """Warm up, then time: nothing waits between the spans, so the GPU is never idle.

    `once` is about how long a run takes, `prepare(spans)` is told how many spans there will be. What has to settle is watched and timed
    only from then on.
    """
    launches = min(100, max(1, _steps(WARM / max(once, 1e-7))))
    warm = _span(queue, 0, launches, once)
    spans = LOOKS if lasting.settle else FEWEST
    chosen = plan(warm, lasting.seconds, spans)
    prepare(chosen.spans)
    warm, settled = _settled(queue, warm, launches * warm, lasting.settle)
    chosen = TimingPlan(plan(warm, lasting.seconds, spans).launches, chosen.spans)  # as often as fits the pace that it settled to
    with monitor.watching() as watch:
        queue.run(0)  # the GPU is busy with this one while the host queues the first event
        marks = [queue.mark()]
        for span in range(chosen.spans):
            for _ in range(chosen.launches):
                queue.run(span)
            marks.append(queue.mark())
        queue.wait(PATIENCE + 10 * warm * chosen.launches * chosen.spans)
    passed = [queue.seconds(begin, end) for begin, end in pairwise(marks)]
    return TimedSpans(tuple(one / chosen.launches for one in passed), watch.observed(), sum(passed), settled)


def _settled(queue: TimedQueue, once: float, passed: float, least: float) -> tuple[float, float]:
    """Return the seconds of one run after a load of at least `least` seconds, `passed` of which are over, and how long the load was.

    The load comes in pieces, so that the last tells the pace that it settled to, and one whose clock rises is not cut short.
    """
    for _ in range(5 * PIECES):
        if passed >= least:
            break
        launches = max(1, _steps(least / PIECES / max(once, 1e-7)))
        once = _span(queue, 0, launches, once)
        passed += launches * once
    return once, passed


def _span(queue: TimedQueue, number: int, launches: int, once: float) -> float:
    """Return the seconds of one run, from several in a row."""
    begin = queue.mark()
    for _ in range(launches):
        queue.run(number)
    end = queue.mark()
    queue.wait(PATIENCE + 10 * once * launches)
    return queue.seconds(begin, end) / launches


def first(queue: TimedQueue) -> float:
    """Return the seconds of the very first run; raises HangError where it does not end."""
    return _span(queue, 0, 1, 0.0)


@dataclass(frozen=True)
class Blocks:
    """What the blocks of one launch noted: the longest block's SM cycles and seconds by the GPU's timer, the median of the cycles."""

    longest: float
    median: float
    seconds: float

    @property
    def clock(self) -> float | None:
        """The SM clock in Hz during the longest block; None where it was too short to tell."""
        return self.longest / self.seconds if self.seconds >= CLEAREST else None


def blocks(clocks: np.ndarray) -> Blocks | None:
    """Return what the notes of a launch say, None where a block noted nothing or ran backwards.

    `clocks` holds for each block SM cycles and ns at its beginning, then at its end. Two blocks of 1,800 and 1,980 cycles, the
    second from 0 to 1,000 ns: its 1 µs is too short for a clock.

    >>> told = blocks(np.array([[100, 0, 1900, 900], [20, 0, 2000, 1000]], np.uint64))
    >>> told.longest, told.median, told.clock
    (1980.0, 1890.0, None)
    """
    notes = clocks.reshape(-1, 4)
    unwritten = (notes == np.iinfo(np.uint64).max).any()
    if not len(notes) or unwritten or (notes[:, 2] <= notes[:, 0]).any() or (notes[:, 3] < notes[:, 1]).any():
        return None
    cycles, passed = notes[:, 2] - notes[:, 0], notes[:, 3] - notes[:, 1]
    most = int(cycles.argmax())
    return Blocks(float(cycles[most]), float(np.median(cycles)), float(passed[most]) / 1e9)


def median(values: Sequence[float], unit: str) -> Value:
    """Return the median of some repeats, with the least and the greatest.

    >>> median([3.0, 1.0, 2.0], "s")
    Value(value=2.0, low=1.0, high=3.0, repeats=3, unit='s')
    """
    return Value(float(np.median(values)), float(min(values)), float(max(values)), len(values), unit)
