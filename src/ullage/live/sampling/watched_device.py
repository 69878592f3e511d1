"""One device while it is watched: its last reading, its OFU now and its means since the start, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ullage.gpus.chip import Chip
from ullage.metrics.metric import ratio
from ullage.metrics.ofu import counted_units, exact_ofu, sampled_ofu
from ullage.sources.machine import Limits
from ullage.tables import FIELDS

REMEMBERED = 600  # readings of a device that are kept for drawing
HISTORIES = ("tensor_active", "sm_active", "gpu_util", "power", "sm_clock", "memory_used", "temperature")  # what is drawn beside OFU
MEANS = ("tensor_active", "sm_active", "gr_active", "gpu_util", "sm_clock", "power")

Method = Literal["exact", "sampled"]
AskedApart = Literal["processes", "errors"]  # what a driver is asked beside a reading


@dataclass
class Mean:
    """A sum over time and the time it was known, in ms."""

    part: float = 0.0
    time: float = 0.0

    def add(self, value: float | None, span: float) -> None:
        """Add a value that stood for a span; None adds neither."""
        if value is not None:
            self.part += value * span
            self.time += span

    @property
    def value(self) -> float | None:
        """The mean over the time in which it was known, None without any."""
        found: float | None = ratio(self.part, self.time)
        return found


@dataclass
class Watched:
    """One GPU or MIG instance: who it is, what it told last, and the sums since the start.

    `row` is its last sample, in SI units; `ofu` is that of the time since the reading before, `method` how it was found;
    `course` holds its last readings as (time, the ms that it stands for, OFU), and `history`, where it is kept, what `HISTORIES` names at
    the same times. `answer_times` is when its driver told last of its processes and of its errors, ms as `time`: empty where nobody asks.
    """

    gpu: str
    mig: str | None
    row: dict[str, Any]
    chip: Chip | None
    share: float
    limits: Limits
    time: int = 0
    ofu: float | None = None
    method: Method | None = None
    span: float = 0.0
    means: dict[str, Mean] = field(default_factory=lambda: {name: Mean() for name in MEANS})
    sampled: Mean = field(default_factory=Mean)
    tensor_cycles: Mean = field(default_factory=Mean)  # the part is cycles, not a product
    sm_cycles: float = 0.0
    course: deque[tuple[int, float, float | None]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    history: deque[tuple[float | None, ...]] | None = None
    answer_times: dict[AskedApart, int] = field(default_factory=dict)

    def add(self, row: dict[str, Any], time: int, longest: float, first: float) -> None:
        """Take in a later row of this device; `first` is what the first one stands for."""
        since = float(time - self.time) if self.time else first
        span = min(since, longest)
        before, self.row, self.time = self.row, row, time
        self.span += span
        for name in MEANS:
            self.means[name].add(row.get(name), span)
        tensor, clock = row.get("tensor_active"), row.get("sm_clock")
        now = None if self.chip is None or tensor is None or clock is None else sampled_ofu(tensor, clock, self.chip.tensor_clock)
        exact = self._count(before, row, span) if since <= longest else None
        self.sampled.add(now if exact is None else None, span)
        self.ofu = now if exact is None else exact
        self.method = None if self.ofu is None else "sampled" if exact is None else "exact"
        self.course.append((time, span, self.ofu))
        if self.history is not None:
            self.history.append(tuple(row.get(name) for name in HISTORIES))

    def set_back(self, by: int) -> None:
        """Move all that is known to `by` ms earlier: the clock was set back."""
        self.time -= by
        self.answer_times = {what: when - by for what, when in self.answer_times.items()}
        self.course = deque(((when - by, span, ofu) for when, span, ofu in self.course), maxlen=REMEMBERED)

    def age(self, what: AskedApart) -> float | None:
        """Return how much older than the last reading the last answer about processes or errors is, in s; None where there was none."""
        when = self.answer_times.get(what)
        return None if when is None else max(0, self.time - when) / 1000

    def _count(self, before: Mapping[str, Any], row: Mapping[str, Any], span: float) -> float | None:
        """Add the growth of the cycle counters and return the span's exact OFU; None where there are none, or they began anew."""
        tensor, elapsed = (_growth(name, before, row) for name in ("tensor_cycles", "sm_cycles"))
        if tensor is None or self.chip is None:
            return None
        self.tensor_cycles.part += tensor
        self.tensor_cycles.time += span
        self.sm_cycles += elapsed or 0.0
        found: float | None = exact_ofu(tensor, span / 1000, self.chip.tensor_clock, _units(self.chip, elapsed, span / 1000))
        return found

    @property
    def exact(self) -> bool:
        """Whether the mean OFU is (nearly) that of the cycle counters: where they cover the time as a report demands of them."""
        counted = self.tensor_cycles.time
        return counted > 0 and counted >= 0.7 * (counted + self.sampled.time) and counted >= 0.5 * self.span

    @property
    def mean_ofu(self) -> float | None:
        """OFU since the start, by cycles where they were counted and by gauges elsewhere; None where it is not known."""
        if not self.tensor_cycles.time or self.chip is None:
            return self.sampled.value
        seconds = self.tensor_cycles.time / 1000
        units = _units(self.chip, self.sm_cycles or None, seconds)
        counted = exact_ofu(self.tensor_cycles.part, seconds, self.chip.tensor_clock, units) * self.tensor_cycles.time
        found: float | None = ratio(counted + self.sampled.part, self.tensor_cycles.time + self.sampled.time)
        return found

    @property
    def silent(self) -> bool:
        """Whether its last row told nothing at all: it fell off the bus, or its driver refuses everything."""
        return not any(self.row.get(name) is not None for name in FIELDS)

    @property
    def unknown(self) -> str:
        """Why OFU is not known, in words; "" where it is."""
        if self.ofu is not None:
            return ""
        if self.silent:
            return "it does not answer"
        if self.chip is None:
            return "this GPU is not in the tables (`ullage gpus`)"
        if self.row.get("tensor_active") is None:
            return "nobody tells the activity of its tensor pipes"
        return "nobody tells its clock"


def _growth(name: str, before: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    old, new = before.get(name), row.get(name)
    return None if old is None or new is None or new < old else float(new - old)


def _units(chip: Chip, cycles: float | None, seconds: float) -> float:
    return float(counted_units(cycles / seconds, chip.sms)) if cycles else 1.0
