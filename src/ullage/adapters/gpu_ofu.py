"""OFU of this process's GPU while it trains: readings of NVML's GPM in the background, for as long as somebody asks for them."""

from __future__ import annotations

import threading
import time
import weakref
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from ullage.adapters.notes import Notes
from ullage.adapters.optional import installed
from ullage.errors import UllageError
from ullage.live.cuda_devices import cuda_devices
from ullage.metrics.metric import ratio
from ullage.problems import Problems

if TYPE_CHECKING:
    from ullage.live.sampling.sampler import Sampler
    from ullage.live.sampling.watched_device import Watched

INTERVAL = 0.5  # s between readings: GPM's activities are true means over any interval from 0.1 s on
KEPT = 20_000  # readings; a window that is longer (2.7 h) has the OFU of its end
MOST_FAILURES = 5  # readings in a row without OFU, before the first with it, after which the GPU is taken to have none: 2.5 s

Span = tuple[float, float]  # of wall time, s


@dataclass(frozen=True)
class OfuReading:
    """OFU of the `length` seconds up to `end` (s since 1970)."""

    end: float
    length: float
    ofu: float


class GpuOfuSampler:
    """Reads one GPU from `start` on, until nobody refers to this object any more; why it can't is said once.

    `uuid` returns which GPU that is, as NVML or CUDA write it. Nothing of it can end or delay a training: it has a thread of its own.
    """

    def __init__(self, notes: Notes, *, uuid: Callable[[], str] | None = None, interval: float = INTERVAL) -> None:
        self.readings: deque[OfuReading] = deque(maxlen=KEPT)
        self._notes, self._uuid, self._interval = notes, uuid or own_uuid, interval
        self._started = False

    def start(self) -> None:
        """Begin to read, the first time."""
        if self._started:
            return
        self._started, problems = True, Problems()
        try:
            from ullage.live.sampling.kinds import KINDS
            from ullage.live.sampling.sampler import Sampler  # takes pyarrow, which a meter without a GPU does without

            sampler = Sampler(self._interval, problems, gpus=(self._uuid(),), kinds=(replace(KINDS[0], otherwise=None),))
        except UllageError as error:
            self._notes.say("ofu", f"OFU is not logged: {error.problem}")
            return
        except Exception as error:  # whatever a driver or PyTorch may raise: a training does not end for its OFU
            self._notes.say("ofu", f"OFU is not logged: {type(error).__name__}: {error}")
            return
        weakref.finalize(self, sampler.stop)
        arguments = (sampler, problems, self.readings, self._notes)
        threading.Thread(target=keep_readings, args=arguments, name="ullage OFU", daemon=True).start()

    def mean(self, spans: Sequence[Span]) -> float | None:
        """Return the mean OFU of spans of time that follow each other; None where no reading touches them."""
        return overlapped_mean(tuple(self.readings), spans)


def overlapped_mean(readings: Sequence[OfuReading], spans: Sequence[Span]) -> float | None:
    """Return the mean of readings, each weighted by how long it lies within the spans; both are in the order of time.

    Only the readings between the first and the last span are looked at.

    >>> overlapped_mean([OfuReading(1.0, 1.0, 0.2), OfuReading(2.0, 1.0, 0.5)], [(0.5, 1.25), (1.5, 1.75)])
    0.35
    """
    if not spans:
        return None
    part = covered = 0.0
    first = 0
    since = bisect_right(readings, spans[0][0], key=_end_time)
    until = bisect_left(readings, spans[-1][1], lo=since, key=_end_time) + 1
    for reading in islice(readings, since, until):
        start = reading.end - reading.length
        while first < len(spans) and spans[first][1] <= start:
            first += 1
        place = first
        while place < len(spans) and spans[place][0] < reading.end:
            overlap = min(reading.end, spans[place][1]) - max(start, spans[place][0])
            part += reading.ofu * overlap
            covered += overlap
            place += 1
    found: float | None = ratio(part, covered)
    return found


def own_uuid() -> str:
    """Return the UUID of the GPU that this process works on. Raises UllageError where there is none of NVIDIA's."""
    torch = installed("torch")
    if torch is None or not torch.cuda.is_available():
        raise UllageError("PyTorch sees no GPU")
    uuid: str = cuda_devices()[torch.cuda.current_device()].uuid
    if uuid.startswith("MIG-"):
        raise UllageError("this process works on a MIG instance")
    return uuid


def keep_readings(sampler: Sampler, problems: Problems, readings: deque[OfuReading], notes: Notes) -> None:
    """Keep what a sampler reads until it is stopped, or the GPU tells nothing of its tensor pipes: then say so."""
    from ullage.live.sampling.course import Course

    course, failures = Course(sampler.interval), 0
    try:
        with sampler:
            for batches in sampler.readings():
                for device in course.add(batches):
                    if device.ofu is not None:
                        keep_reading(readings, OfuReading(device.time / 1000, device.course[-1][1] / 1000, device.ofu))
                        _warn_of_clock(device, notes)
                    elif not (readings or device.silent):
                        failures += 1
                        if failures == MOST_FAILURES:
                            notes.say("ofu", f"OFU is not logged: {(problems.notes or [device.unknown])[0]}")
                            return
    except UllageError as error:
        notes.say("ofu", f"OFU is not logged: {error.problem}")
    except KeyboardInterrupt:  # it was stopped before it had opened
        return
    except Exception as error:  # beside a training nothing of ours may become its failure
        notes.say("ofu", f"OFU is no longer logged: {type(error).__name__}: {error}")


def keep_reading(readings: deque[OfuReading], reading: OfuReading) -> None:
    """Add a reading; those that it does not follow were taken before the clock was set back, and are of no time that comes."""
    if readings and reading.end <= readings[-1].end:
        readings.clear()
    readings.append(reading)


def _warn_of_clock(device: Watched, notes: Notes) -> None:
    """Say once, as reports do, how far OFU is off where it rests on a clock that the driver is known to tell wrong."""
    if device.chip and device.chip.clock_warning and "tensor_cycles" not in device.row:  # cycles count from the second reading on
        notes.say("clock", device.chip.clock_warning)


def _end_time(reading: OfuReading) -> float:
    return reading.end


@dataclass
class TrainedSpans:
    """The spans of wall time in which a clock ran; `mean_ofu` is that of `sampler` in them, and begins anew."""

    sampler: GpuOfuSampler
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        """Begin without any."""
        self._spans: list[Span] = []
        self._since: float | None = None

    def start(self) -> None:
        """Let the clock run."""
        self.sampler.start()
        self._since = self.clock()

    def pause(self) -> None:
        """Stop the clock."""
        if self._since is not None:
            self._spans.append((self._since, self.clock()))
            self._since = None

    def mean_ofu(self) -> float | None:
        """Return the mean OFU of the time in which the clock ran since the last call; None where it is not known."""
        spans, self._spans = self._spans, []
        return self.sampler.mean(spans)
