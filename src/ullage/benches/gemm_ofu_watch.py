"""What NVML tells of one span: tensor activity as a true average, the cycle counters, and the clock sampled meanwhile."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ullage.benches.running.monitor import Monitor
from ullage.errors import UllageError

SETTLE = 0.25  # seconds of load before the span: the clock comes to rest, and GPM's windows need 0.1 s at least
SHORTEST = 0.1
METRICS = {"tensor_active": "ANY_TENSOR_UTIL", "sm_cycles": "SM_CYCLES_ELAPSED", "tensor_cycles": "MMA_CYCLES_ACTIVE"}
Pair = tuple[float | None, float | None]


@dataclass(frozen=True)
class Seen:
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
) -> Seen:
    """Watch a GPU that is under load: settle, then a span of `seconds` between two GPM samples, the clock sampled within it."""
    with _sampler(monitor) as take:
        before, loaded = take(clock)
        sleep(SETTLE)
        first, begin = take(clock)
        with monitor.watching() as watch:
            sleep(max(SHORTEST, seconds))
        last, end = take(clock)
        earlier, told = (told_of(monitor.nvml, *pair) for pair in ((before, first), (first, last)))
    observed = watch.observed()
    clocks = [sample.clock for sample in watch.samples if sample.clock is not None]
    activity = told.get("tensor_active")
    return Seen(
        begin - loaded,
        begin,
        end,
        None if activity is None else activity / 100,
        sum(clocks) / len(clocks) * 1e6 if clocks else None,
        len(clocks),
        (earlier.get("sm_cycles"), told.get("sm_cycles")),
        (earlier.get("tensor_cycles"), told.get("tensor_cycles")),
        observed.power,
        observed.temperature,
        observed.throttle,
    )


@contextmanager
def _sampler(monitor: Monitor) -> Iterator[Callable[[Callable[[], float]], tuple[Any, float]]]:
    """Yield a function that takes a GPM sample and returns it with its moment, the middle of the call; all are freed at the end."""
    taken: list[Any] = []

    def take(clock: Callable[[], float]) -> tuple[Any, float]:
        taken.append(monitor.nvml.nvmlGpmSampleAlloc())
        before = clock()
        monitor.nvml.nvmlGpmSampleGet(monitor.handle, taken[-1])
        return taken[-1], (before + clock()) / 2

    try:
        yield take
    finally:
        for sample in taken:
            with suppress(Exception):
                monitor.nvml.nvmlGpmSampleFree(sample)


def told_of(nvml: Any, older: Any, newer: Any) -> dict[str, float]:
    """Return what NVML makes of two samples, by our names. Each is asked alone: some drivers refuse all for one they don't know."""
    found: dict[str, float] = {}
    for name, metric in METRICS.items():
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
        request.sample1, request.sample2 = older, newer
        request.metrics[0].metricId = getattr(nvml, f"NVML_GPM_METRIC_{metric}", 0)
        try:
            answer = nvml.nvmlGpmMetricsGet(request).metrics[0] if request.metrics[0].metricId else None
        except nvml.NVMLError:
            continue
        if answer is not None and answer.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(answer.value):
            found[name] = float(answer.value)
    return found
