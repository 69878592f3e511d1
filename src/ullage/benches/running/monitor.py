"""What a board goes through while something is timed: power, temperature, clock, and why the clock is held back. By NVML, reading only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ullage.sources.naming import clock_reasons

INTERVAL = 0.01  # seconds between samples
STEADY = 1.0  # seconds: NVML's energy counter and its averaged power are too slow for a shorter span


@dataclass(frozen=True)
class ObservedRun:
    """Mean power (W), highest temperature (°C), reasons that held the clock back, median and lowest SM clock (Hz). None: not told."""

    power: float | None = None
    temperature: float | None = None
    throttle: tuple[str, ...] | None = None
    sm_clock: float | None = None
    lowest_clock: float | None = None


def reasons(mask: int) -> tuple[str, ...]:
    """Return the names of clock event reasons, idleness left out.

    >>> reasons(0x1 | 0x4 | 0x20), reasons(0)
    (('power cap', 'software thermal slowdown'), ())
    """
    return clock_reasons.reasons(mask & ~clock_reasons.IDLE)


@dataclass
class _Sample:
    """One look at the board, in NVML's units: mW, °C, bit mask, MHz."""

    instant: float | None
    average: float | None
    temperature: float | None
    mask: int | None
    clock: float | None


@dataclass(eq=False)
class Watch:
    """What was seen from the beginning to the end of a span."""

    samples: list[_Sample] = field(default_factory=list)
    begun: tuple[float, float | None] = (0.0, None)  # seconds, and mJ by the energy counter
    ended: tuple[float, float | None] = (0.0, None)

    def observed(self) -> ObservedRun:
        """Return the span in short."""
        masks = [sample.mask for sample in self.samples if sample.mask is not None]
        clock, hottest = self._told("clock"), self._told("temperature")
        return ObservedRun(
            power=self._power(),
            temperature=max(hottest) if hottest else None,
            throttle=reasons(int(np.bitwise_or.reduce(masks))) if masks else None,
            sm_clock=float(np.median(clock)) * 1e6 if clock else None,
            lowest_clock=min(clock) * 1e6 if clock else None,
        )

    def _power(self) -> float | None:
        """By the energy counter over a long span; over a short one by what the board draws at an instant, if it tells that."""
        (begin, before), (end, after) = self.begun, self.ended
        if end - begin >= STEADY and before is not None and after is not None and after > before:
            return (after - before) / 1000 / (end - begin)
        told = self._told("instant") or (self._told("average") if end - begin >= STEADY else [])
        return float(np.mean(told)) / 1000 if told else None

    def _told(self, name: str) -> list[float]:
        return [getattr(sample, name) for sample in self.samples if getattr(sample, name) is not None]


@dataclass(eq=False)
class Monitor:
    """Watches one board. Without NVML, or where the driver refuses, it sees nothing, and everything is None."""

    nvml: Any = None
    handle: Any = None
    interval: float = INTERVAL
    now: Callable[[], float] = time.monotonic

    def ask(self, function: str, *arguments: Any) -> Any:
        """Return what NVML answers, None where there is no answer."""
        try:
            return getattr(self.nvml, function)(*arguments)
        except Exception:  # NVMLError, or a library or driver that is too old for the question
            return None

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Watch while the body runs; what was seen is told by the `Watch` after it."""
        watch, stop = Watch(), threading.Event()
        if self.handle is None:
            yield watch
            return
        watch.begun = self._energy()
        thread = threading.Thread(target=self._sample_until, args=(stop, watch.samples), daemon=True)
        thread.start()
        try:
            yield watch
        finally:
            watch.ended = self._energy()
            stop.set()
            thread.join()
            if not watch.samples:
                watch.samples.append(self._look())

    def _sample_until(self, stop: threading.Event, samples: list[_Sample]) -> None:
        while not stop.wait(self.interval):
            samples.append(self._look())

    def _energy(self) -> tuple[float, float | None]:
        return self.now(), self.ask("nvmlDeviceGetTotalEnergyConsumption", self.handle)

    def _look(self) -> _Sample:
        sensor, clock = (getattr(self.nvml, f"NVML_{name}", 0) for name in ("TEMPERATURE_GPU", "CLOCK_SM"))
        return _Sample(
            instant=self._instant(),
            average=self._either("nvmlDeviceGetPowerUsage"),
            temperature=self._either("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", sensor),
            mask=self._either("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
            clock=self._either("nvmlDeviceGetClockInfo", clock),
        )

    def _either(self, *asked: Any) -> Any:
        """Return the first answer among functions (names; the newest first), all asked with the other arguments."""
        functions, arguments = [one for one in asked if isinstance(one, str)], [one for one in asked if not isinstance(one, str)]
        return next((told for name in functions if (told := self.ask(name, self.handle, *arguments)) is not None), None)

    def _instant(self) -> float | None:
        """Return the power at this instant, mW: `nvmlDeviceGetPowerUsage` is an average over a second on recent boards."""
        which = getattr(self.nvml, "NVML_FI_DEV_POWER_INSTANT", None)
        told = None if which is None else self.ask("nvmlDeviceGetFieldValues", self.handle, [which])
        if not told or told[0].nvmlReturn != 0:
            return None
        return float(told[0].value.uiVal) or None
