"""Records of one recording into record batches of intervals: what all sorts of records have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.cupti.chunks import node_path
from ullage.cupti.layouts import Layouts
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.tables import intervals
from ullage.traces.nsys.names import NsysWords, distinct
from ullage.traces.nsys.rows import constant, known
from ullage.traces.recorded.clock import Mask, RecordingClock, Times
from ullage.traces.recorded.facts import RecordingFacts

MISSING = -1  # of a whole number
_NO_WORK = ("overhead", "lost", "region", "off")  # kinds that don't show that the program did anything then
MOST_NAMES = 2_000_000  # texts that are remembered; a program has some thousand kernels
Records = npt.NDArray[np.void]
Whole = npt.NDArray[np.int64]


class Marks(NamedTuple):
    """Marks of NVTX ranges: number, time, thread, whether it is a start, and the name's place in `words`, -1 where there is none."""

    number: Whole
    time: Whole
    thread: Whole
    starts: Whole
    name: Whole
    words: list[str]


@dataclass
class RecordingReading:
    """A recording while it is read: what its numbers mean, and what came up so far.

    `names` are the texts behind the pointers in records; `open` are regions that have begun (start, thread, name), by their serial
    number; `waiting` calls of MPI that have not ended (until when that is known, name), by thread and start; `marks` those of NVTX
    ranges whose other half is not there yet; `paused` when recording was stopped. `seen` are the kinds of intervals, `used` the
    devices that anything ran on; `work` bounds its calls, its MPI and what ran on devices; `began` and `ended` say when MPI_Init
    returned and MPI_Finalize was called. `summed` says until when the sums of each thread are laid out, `stretch` which was the longest
    time that some are of (ns). `helpers` is how long other threads than the process' own were in MPI, in ns. `calls`
    counts those of MPI, `waits` those of OpenMP's threads, `device_calls`
    says whether CUPTI recorded any of CUDA, `regions` counts those that ended, `held` is for how long (ns) the recorder held threads up.
    """

    place: str
    recording: Recording
    problems: Problems
    told: RecordingFacts
    process: int
    clock: RecordingClock
    layouts: Layouts | None
    names: dict[int, str] = field(default_factory=dict)
    unknown: dict[int, int] = field(default_factory=dict)
    open: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    waiting: dict[tuple[int, int], tuple[int, str]] = field(default_factory=dict)
    marks: Marks | None = None
    paused: list[int] = field(default_factory=list)
    rows: int = 0
    used: set[int] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    collectives: bool = False
    messages: bool = False
    work: tuple[int, int] | None = None
    began: int | None = None
    ended: int | None = None
    summed: dict[int, int] = field(default_factory=dict)
    stretch: int = 0
    helpers: dict[int, int] = field(default_factory=dict)
    calls: int = 0
    waits: int = 0
    device_calls: bool = False
    regions: int = 0
    held: int = 0
    paths: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def name(self, entries: dict[int, str]) -> None:
        """Take in what pointers in later records point to."""
        if len(self.names) < MOST_NAMES:
            self.names |= entries

    def words(self, pointers: Records) -> NsysWords:
        """Return the texts that a column of pointers points to; none where it was not told."""
        different, codes = distinct(pointers.astype(np.int64))
        table = [self.names.get(pointer & (2**64 - 1)) for pointer in different.tolist()]
        return NsysWords(codes.astype(np.int32), [text or "" for text in table]).renamed(lambda text: text or None)

    def believed(self, start: Times, end: Times, what: str) -> Mask:
        """Return which intervals of something on a host have a time that can be; the others are counted."""
        good = self.clock.believed(start, end)
        self.problems.drop(f"{what} with impossible times", int((~good).sum()), self.place)
        return good

    def regions_of(self, node: int) -> tuple[str, ...]:
        """Return the regions that a number in a record of SUM stands for, the outermost first; one within itself is there once."""
        if node not in self.paths:
            path = node_path(node, self.told.host_names)
            self.paths[node] = tuple(dict.fromkeys(name or "(unnamed)" for name in path))
        return self.paths[node]

    def life(self, now: int | None = None) -> tuple[int, int] | None:
        """Return from when to when the program was recorded: while the recorder was there and as long as it did anything, but from
        MPI_Init to MPI_Finalize where these were called (`mpi_clock`). `now` is the last moment if it goes on."""
        if self.clock.since_1970 is None:
            return self.work
        first, last = self.clock.first, self.clock.last if now is None else now
        if self.work is not None:
            first, last = min(first, self.work[0]), max(last, self.work[1])
        begin, end = first if self.began is None else self.began, last if self.ended is None else self.ended
        return (begin, end) if begin < end or self.ended is None else (first, last)  # a clock of MPI that ends before it begins is none

    def intervals(self, start: Times, end: Times, kind: str | pa.Array, **columns: Any) -> pa.RecordBatch:
        """Return a record batch of this process; missing numbers become null."""
        self.rows += len(start)
        if len(start):
            name = kind if isinstance(kind, str) else "kernel"
            self.seen.add(name)
            if name not in _NO_WORK:
                first, last = self.work or (int(start[0]), int(end[0]))
                self.work = min(first, int(start.min())), max(last, int(end.max()))
        made: dict[str, Any] = {"start": start, "end": end, "process": np.full(len(start), self.process, np.int64)}
        made["kind"] = constant(kind, len(start)) if isinstance(kind, str) else kind
        for name, values in columns.items():
            if values is not None:
                made[name] = (
                    values.arrow() if isinstance(values, NsysWords) else known(values) if isinstance(values, np.ndarray) else values
                )
        return intervals(made)


def column(records: Records, name: str) -> Whole:
    """Return a field of records as whole numbers, `MISSING` in each where these records don't have it."""
    if name not in (records.dtype.names or ()):
        return np.full(len(records), MISSING, np.int64)
    return records[name].astype(np.int64)


def correlation(records: Records) -> Whole:
    """Return the number that ties a call to what it put on the device; 0 says that there is none."""
    numbers = column(records, "correlationId")
    return np.where(numbers == 0, MISSING, numbers)
