"""A recording read as it grows: each byte once, memory bounded, the sums of all that was known at any moment.

What is older than some seconds, and of which nothing is still to come, is summed up (`Times`) and let go. A launch whose record has
not come holds that up, for its kernel may still run. What comes later all the same is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.arrays import numbers, plain
from ullage.cupti.chunks import MAGIC, Chunk, EarlyEnd, chunks
from ullage.errors import UllageError, harmless
from ullage.live.process_tree import NOTHING, ProcessTree
from ullage.live.times import States, Times, states, unrecorded
from ullage.live.trees import ProcessShare, together
from ullage.problems import Problems
from ullage.recording import Mode, Recording
from ullage.sums.lanes.gather import NOT_KNOWN, Capture, gather
from ullage.sums.lanes.spans import NONE, Spans, spans, subtract, union
from ullage.totals import Factors
from ullage.traces.recorded import notes
from ullage.traces.recorded.facts import RecordingFacts
from ullage.traces.recorded.host import still_waiting
from ullage.traces.recorded.ranges import still_open
from ullage.traces.recorded.recorded import begun, intervals, layouts_of
from ullage.traces.recorded.rows import RecordingReading

KEPT = 10_000_000_000  # ns before the last moment that are not summed up yet: CUPTI hands over its records late
HELD = 60_000_000_000  # ns for which a launch without a record can hold the sums up
MOST_ROWS = 1_000_000  # intervals that are kept; beyond, nothing holds the sums up
MOST_REGIONS = 1000  # whose sums are kept


@dataclass
class _Sums:
    """What is summed up: of the whole and of each region, until `until` (on the recording's clock); threads with their calls' times."""

    until: int | None = None
    whole: Times = field(default_factory=Times)
    regions: dict[str, Times] = field(default_factory=dict)
    lanes: dict[int, tuple[bool, int]] = field(default_factory=dict)
    devices: set[int] = field(default_factory=set)

    def add(self, found: States) -> None:
        """Add a stretch of time."""
        self.whole += found.times()
        for name, within in found.regions.items():
            if name in self.regions or len(self.regions) < MOST_REGIONS:
                self.regions[name] = self.regions.get(name, Times()) + found.times(within)
        self.lanes = _added(self.lanes, found.lanes)
        self.devices |= found.devices.keys()


def _added(some: dict[int, tuple[bool, int]], more: dict[int, tuple[bool, int]]) -> dict[int, tuple[bool, int]]:
    threads = some.keys() | more.keys()
    pairs = {t: (some.get(t, (False, 0)), more.get(t, (False, 0))) for t in threads}
    return {t: (one[0] or other[0], one[1] + other[1]) for t, (one, other) in pairs.items()}


class Following:
    """Reads a recording as far as it is written, again and again; `tree` gives the trees of what is known by then.

    Raises UllageError for a recording of a CUPTI that is not known, and for a file that is none.
    """

    def __init__(self, path: Path, keep: int = KEPT) -> None:
        self.path, self.place, self.keep = path, harmless(str(path), 4096), keep
        self.problems = Problems()
        self.recording = Recording(self.place)
        self._told, self._offset, self._dropped = RecordingFacts(), 0, 0
        self._reading: RecordingReading | None = None
        self._batches: list[pa.RecordBatch] = []
        self._most = MOST_ROWS
        self._sums = _Sums()
        self._late = 0
        self.until: int | None = None  # no later moment is looked at, in ns since 1970: other ranks have told no more

    def advance(self) -> None:
        """Read what was written since the last time."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < len(MAGIC):
                    return
                file.seek(0)
                begin, self._offset = self._offset, self._skim(chunks(file, self.place, self._offset))
                file.seek(0)
                if self._offset > begin:
                    self._read(chunks(file, self.place, begin))
        except OSError as error:
            raise UllageError(f"{self.place} can't be read: {error.strerror or error}") from error

    def _skim(self, found: Iterator[Chunk]) -> int:
        """Take in what new chunks say of the recording; return where the next one will begin."""
        offset = self._offset
        try:
            for chunk in found:
                self._told.add(chunk)
                offset = chunk.end
        except EarlyEnd:
            pass  # it is still being written
        return offset

    def _read(self, found: Iterator[Chunk]) -> None:
        reading = self._begun()
        for chunk in found:
            for batch in intervals(reading, chunk):
                if batch.num_rows:
                    self._batches.append(batch)
                    self._late += self._too_late(batch)
            if self.rows > self._most:
                low, high = self._bounds(None)
                self._settle(low, min(high, reading.work[1] if reading.work else low))  # there is more to come
                self._most = max(MOST_ROWS, 2 * self.rows)
            if chunk.end >= self._offset:
                return  # the next one may still be being written

    def _begun(self) -> RecordingReading:
        if self._reading is None:
            self._reading = begun(self.place, self._told, self.recording, self.problems)
        reading, told = self._reading, self._told
        reading.process = told.whole("pid") or 0
        reading.clock = told.clock(reading.clock.since_1970)
        reading.layouts = reading.layouts or layouts_of(self.place, told)
        notes.tell_clocks(reading)
        self.recording.untimed += told.dropped - self._dropped
        self._dropped = told.dropped
        return reading

    def tree(self, region: str | None = None, *, now: int | None = None) -> ProcessTree:
        """Return the trees of all that is known, or of a region; `now` is the last moment on the monotonic clock."""
        fresh = self._fresh(now)
        if fresh is None:
            return ProcessTree(region or "run", notes=(NOTHING,))
        if region is None:
            return self._tree("run", self._sums.whole + fresh.times(), fresh)
        times = self._sums.regions.get(region, Times()) + fresh.times(fresh.regions.get(region, NONE))
        return self._tree(region, times, fresh)

    def recent(self, last: int, *, now: int | None = None) -> tuple[ProcessTree, ProcessTree]:
        """Return the trees of the last so many ns, and of all that is known."""
        name = f"last {last / 1e9:g} s"
        self.keep = max(self.keep, min(last, HELD))
        fresh = self._fresh(now)
        if fresh is None:
            return ProcessTree(name, notes=(NOTHING,)), ProcessTree("run", notes=(NOTHING,))
        high = int(fresh.seen.end[-1]) if fresh.seen.pieces else 0
        recent = fresh.times(spans((high - last, high)))
        return self._tree(name, recent, fresh), self._tree("run", self._sums.whole + fresh.times(), fresh)

    def share(self, region: str | None = None, *, recent: tuple[int, int] | None = None) -> ProcessShare | None:
        """Return what the process has in the trees of its run, of a region, or of a `recent` time (ns since 1970, within what is kept);
        None where nothing is known."""
        fresh = self._fresh(None)
        if fresh is None and self._sums.until is not None:
            fresh = States(NONE, NONE, {}, {}, {}, {})  # all that may be looked at is summed up
        if fresh is None:
            return None
        if recent is not None:
            return self._share(fresh.times(spans(recent)), fresh)
        if region is None:
            return self._share(self._sums.whole + fresh.times(), fresh)
        return self._share(self._sums.regions.get(region, Times()) + fresh.times(fresh.regions.get(region, NONE)), fresh)

    def _share(self, times: Times, fresh: States) -> ProcessShare:
        reading = self._reading
        assert reading is not None
        whole, numbers = self._sums.whole + fresh.times(), sorted(self._sums.devices | fresh.devices.keys())
        devices = {number: found.key if (found := self.recording.devices.get(number)) else "" for number in numbers}
        lane, own = busiest(_added(self._sums.lanes, fresh.lanes)), self.recording.own_thread.get(reading.process)
        clocked = self.recording.cpu_clocks.get(reading.process, ())
        factors = Factors(
            off=(own if lane is None else lane) in clocked,
            mpi=reading.messages or (reading.began, reading.ended) != (None, None),
            processes=whole.communication > 0,
            devices=bool(devices) or any(whole.offload.values()),
        )
        prefers: Mode = "ai" if reading.collectives else "talp"
        one_of_both = reading.collectives != reading.messages
        return ProcessShare(times, lane, devices, factors, prefers if one_of_both else None, own)

    def _tree(self, name: str, times: Times, fresh: States) -> ProcessTree:
        share = self._share(times, fresh)
        return together(name, [share], mode=share.prefers or "talp", notes=self._notes(fresh))

    @property
    def life(self) -> tuple[int, int] | None:
        """From when to when the process is known, in ns since 1970; None where nothing is known yet."""
        return self._reading.life() if self._reading is not None and self._reading.clock.since_1970 is not None else None

    @property
    def process(self) -> int:
        """The process' number, 0 where it is not told."""
        return self._told.whole("pid") or 0

    @property
    def ended(self) -> bool:
        """Whether the program has ended by itself."""
        return self._told.end is not None

    @property
    def over(self) -> bool:
        """Whether no later moment can be of the run: the program has ended, or has called MPI_Finalize."""
        return self.ended or (self._reading is not None and self._reading.ended is not None)

    @property
    def settled(self) -> int | None:
        """Until when everything is summed up, in ns since 1970; None where nothing is."""
        return self._sums.until

    def _notes(self, fresh: States) -> tuple[str, ...]:
        doubts = [reason for device in fresh.devices.values() for reason in device.doubts]
        return tuple(dict.fromkeys((*doubts, *self.notes)))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers rest on: what came too late or was too much, what CUPTI refused, what nobody recorded, and what was left out."""
        late = f"{self._late:,} events came after their time had been summed up, and are left out"
        more = f"more than {MOST_REGIONS:,} regions: those that came first are looked at"
        said = [late] * bool(self._late) + [more] * (len(self._sums.regions) >= MOST_REGIONS)
        remarks = notes.remarks(self._reading) if self._reading is not None else []
        return tuple(dict.fromkeys((*said, *remarks, *self.problems.lines())))

    def _bounds(self, now: int | None) -> tuple[int, int]:
        """Return from when to when the process is looked at and not summed up yet, on the recording's clock; `now` on the monotonic one."""
        reading = self._reading
        if reading is None:
            return 0, 0
        moment = int(reading.clock.host(np.array([now], np.uint64))[0]) if now is not None else None
        low, high = reading.life(moment) or (0, 0)
        for known in (self.until, max(reading.summed.values(), default=None)):  # sums are written now and then
            high = high if known is None else min(high, known)
        return (low if self._sums.until is None else self._sums.until), high

    def _fresh(self, now: int | None) -> States | None:
        """Return what happened since all that is summed up; what of it is old enough is summed up first."""
        low, high = self._bounds(now)
        if self._reading is None or low >= high:
            return None
        capture = self._settle(low, high)
        over = self.ended or (now is None and self.until is None)
        running = None if over else self._sums.lanes.keys()
        return self._states(self._reading, capture, self._sums.until or low, high, running)

    def _settle(self, low: int, high: int) -> Capture:
        """Sum up what is old enough, and let it go; return the rest."""
        capture = self._gathered(self._reading)
        until = self._ripe(capture, low, high)
        if self._reading is None or until <= low:
            return capture
        self._sums.add(self._states(self._reading, capture, low, until))
        self._sums.until = until
        self.recording.untimed = 0
        waiting = capture.calls.correlation[capture.calls.end > until]
        self._batches = [kept for batch in self._batches if (kept := _kept(batch, until, waiting)).num_rows]
        return self._gathered(self._reading)

    def _gathered(self, reading: RecordingReading | None) -> Capture:
        """Return what is kept, with the calls of MPI that are not over, as far as they are known."""
        return gather([*self._batches, *(still_waiting(reading) if reading is not None else ())], self.recording)

    def _states(self, reading: RecordingReading, capture: Capture, low: int, high: int, running: Iterable[int] | None = None) -> States:
        return states(capture, reading.process, self._seen(reading, low, high), still_open(reading, high), running)

    def _seen(self, reading: RecordingReading, low: int, high: int) -> Spans:
        """Return when the process is looked at: not while recording was stopped."""
        pauses = reading.told.pauses
        begin = reading.clock.host(np.array([a for a, _ in pauses], np.uint64))
        end = np.array([high if b is None else b + (reading.clock.since_1970 or 0) for _, b in pauses], np.int64)
        return subtract(spans((low, high)), union(begin, end))

    def _ripe(self, capture: Capture, low: int, high: int) -> int:
        """Return until when everything is known."""
        until = high - self.keep
        start, _ = unrecorded(capture)
        if len(start) and self.rows < MOST_ROWS:
            until = min(until, max(int(start.min()), high - HELD))
        return max(low, until)

    @property
    def rows(self) -> int:
        """How many intervals are kept."""
        return sum(batch.num_rows for batch in self._batches)

    def _too_late(self, batch: pa.RecordBatch) -> int:
        """Return how many rows of a batch began before what is summed up ended; regions and
        calls of MPI may, and waits of OpenMP's threads, for they are known while they are open."""
        frames = {"region", "overhead", "mpi", "parallel", "off"} & set(batch["kind"].dictionary.to_pylist())
        return 0 if frames or self._sums.until is None else int((plain(batch["start"], 0) < self._sums.until).sum())


def busiest(lanes: dict[int, tuple[bool, int]]) -> int | None:
    """Return the thread that is longest in CUDA's interface, of those that put work on a device if any do; of equals the lowest.

    >>> busiest({5: (False, 90), 6: (True, 20), 7: (True, 20)})
    6
    """
    submits = {thread: time for thread, (puts, time) in lanes.items() if puts} or {thread: time for thread, (_, time) in lanes.items()}
    return max(sorted(submits), key=lambda thread: submits[thread], default=None)


def _kept(batch: pa.RecordBatch, until: int, waiting: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return the rows of a batch that last beyond a moment, or belong to a call that does."""
    keep = plain(batch["end"], 0) > until
    keep |= np.isin(plain(batch["correlation"], NOT_KNOWN), waiting)
    return batch.filter(numbers(keep))
