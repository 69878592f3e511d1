"""What NVML tells of one span: tensor activity as a true average, the cycle counters, and the clock sampled meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ullage.benches.running.gpm import ELAPSED, TENSOR, sampler, told
from ullage.benches.running.monitor import Monitor
from ullage.errors import UllageError

SETTLE = 0.25  # seconds of load before the span: the clock comes to rest, and GPM's windows need 0.1 s at least
SHORTEST = 0.1
METRICS = {"tensor_active": "ANY_TENSOR_UTIL", "sm_cycles": ELAPSED, "tensor_cycles": TENSOR}
Pair = tuple[float | None, float | None]


@dataclass(frozen=True)
class WatchedSpan:
    """A span as NVML tells it. None: not told.

    `settled` is how long the span before lasted, s; `begin` and `end` are of the caller's clock, s. `tensor_active` is a ratio
    over the span, `sm_clock` the mean of `clock_samples`, Hz. `sm_cycles` and `tensor_cycles` are the answers for the span before
    and for the span itself: a counter "since boot" grows from one to the other, a difference stands in each alone. Which it is,
    the report finds out.
    """

    settled: float
    begin: float
    end: float
    tensor_active: float | None
    sm_clock: float | None
    clock_samples: int
    sm_cycles: Pair
    tensor_cycles: Pair
    power: float | None
    temperature: float | None
    throttle: tuple[str, ...] | None

    @property
    def seconds(self) -> float:
        """The length of the span."""
        return self.end - self.begin


def refuse_blind(monitor: Monitor) -> None:
    """Raise UllageError where NVML tells no tensor activity of this GPU: then there is no OFU to hold against MFU."""
    support = None if monitor.handle is None else monitor.ask("nvmlGpmQueryDeviceSupport", monitor.handle)
    if support is None or not support.isSupportedDevice:
        raise UllageError(
            "NVML tells no tensor activity of this GPU", "GPM needs Hopper or later, MIG off, a recent driver and nvidia-ml-py"
        )


def seen(
    monitor: Monitor, seconds: float, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> WatchedSpan:
    """Watch a GPU that is under load: settle, then a span of `seconds` between two GPM samples, the clock sampled within it."""
    with sampler(monitor.nvml, monitor.handle) as take:
        before, loaded = _timed(take, clock)
        sleep(SETTLE)
        first, begin = _timed(take, clock)
        with monitor.watching() as watch:
            sleep(max(SHORTEST, seconds))
        last, end = _timed(take, clock)
        earlier, here = (_told(monitor, *pair) for pair in ((before, first), (first, last)))
    observed = watch.observed()
    clocks = [sample.clock for sample in watch.samples if sample.clock is not None]
    activity = here.get("tensor_active")
    return WatchedSpan(
        begin - loaded,
        begin,
        end,
        None if activity is None else activity / 100,
        sum(clocks) / len(clocks) * 1e6 if clocks else None,
        len(clocks),
        (earlier.get("sm_cycles"), here.get("sm_cycles")),
        (earlier.get("tensor_cycles"), here.get("tensor_cycles")),
        observed.power,
        observed.temperature,
        observed.throttle,
    )


def _timed(take: Callable[[], Any], clock: Callable[[], float]) -> tuple[Any, float]:
    """Take a GPM sample; return it with its moment, the middle of the call."""
    before = clock()
    return take(), (before + clock()) / 2


def _told(monitor: Monitor, older: Any, newer: Any) -> dict[str, float]:
    """Return what NVML makes of two samples, by our names."""
    found = told(monitor.nvml, older, newer, tuple(METRICS.values()))
    return {name: found[metric] for name, metric in METRICS.items() if metric in found}
