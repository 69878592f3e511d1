"""What a recording says beside its records: whose it is, what CUPTI answered, its clocks, what was lost, and how it ended."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.cupti.chunks import NCCL, NO_CALLS, OPENMP, Chunk, ChunkType, HostKind
from ullage.cupti.rings import Sums, unpacked_sums
from ullage.traces.mpi_clock import edge
from ullage.traces.recorded.clock import LATEST, LONGEST, RecordingClock, clock

_THREE = struct.Struct("<QQQ")
MOST_READINGS = 1_000_000  # of the clocks; one every ten milliseconds for three hours


@dataclass
class RecordingFacts:
    """Gathered chunk by chunk, in the order of the file; what makes no sense is passed over and counted in `nonsense`.

    `info` is the objects of INFO laid over one another, `host_names` the names of HOST records by number, `dropped` how many records
    CUPTI says it lost, `end` the object of END (None: there is none). `pauses` are moments of the monotonic clock at which recording
    was stopped and taken up again (None: not yet). `callers` has the thread that was the first in each call of MPI, by the name's
    number, `main` whether the process' first thread (its number is the process') had anything to record, `threads` all that had.
    Of threads that were summed up `summed` says since when, `cuts` until when it is told, `counted` how long (ns) by thread, regions and
    call, all on the monotonic clock; `sums` are what they left at the end, by thread and beginning.
    `workers` are the threads that a runtime made, those that lived one after another together: when each began and ended (None: it goes
    on); `worker` has a thread's place among them.
    `nccl` are the records of its collectives that NCCL told, a part for each chunk.
    `length` is where the last chunk ends, `last_host` where the last one of HOST begins.
    """

    info: dict[str, Any] = field(default_factory=dict)
    host_names: dict[int, str] = field(default_factory=dict)
    readings: list[tuple[int, int, int]] = field(default_factory=list)
    dropped: int = 0
    end: dict[str, Any] | None = None
    pauses: list[tuple[int, int | None]] = field(default_factory=list)
    buffers: int = 0
    nonsense: int = 0
    callers: dict[int, int] = field(default_factory=dict)
    main: bool = False
    threads: set[int] = field(default_factory=set)
    summed: dict[int, int] = field(default_factory=dict)
    cuts: dict[int, int] = field(default_factory=dict)
    counted: dict[tuple[int, int, int], int] = field(default_factory=dict)
    sums: dict[tuple[int, int], Sums] = field(default_factory=dict)
    workers: list[list[tuple[int, int | None]]] = field(default_factory=list)
    worker: dict[int, int] = field(default_factory=dict)
    nccl: list[npt.NDArray[np.void]] = field(default_factory=list)
    length: int = 0
    last_host: int | None = None

    def add(self, chunk: Chunk) -> None:
        """Take in a chunk; those that hold records are only counted."""
        self.length = chunk.end
        if chunk.type == ChunkType.INFO:
            said = chunk.json()
            self.nonsense += not said and chunk.payload != b"{}"
            self._inform(said)
        elif chunk.type == ChunkType.NAMES and chunk.flags:
            self.host_names |= chunk.names()
        elif chunk.type == ChunkType.CLOCKS:
            self._clocks(chunk.payload)
        elif chunk.type == ChunkType.DROPPED:
            self._drop(chunk.payload)
        elif chunk.type == ChunkType.END:
            self.end = chunk.json()
        elif chunk.type == ChunkType.BUFFER:
            self.buffers += 1
        elif chunk.type == ChunkType.HOST:
            self.last_host = chunk.offset
            self.see_threads(chunk.host())
            self._see_sums(chunk.host())
        elif chunk.type == ChunkType.SUMS:
            self._add_sums(unpacked_sums(chunk.payload))
        elif chunk.type == ChunkType.NCCL:
            self.nccl.append(np.frombuffer(chunk.payload, NCCL, count=len(chunk.payload) // NCCL.itemsize))

    @property
    def own_thread(self) -> int | None:
        """Return the thread whose calls of MPI are the process' communication, None where that is not known: every thread's count.

        TALP counts the thread that called MPI_Init; but where that is a thread of a library's, and the program's first one is seen to
        do something, it is that one.
        """
        begun = next((thread for number, thread in self.callers.items() if edge(self.host_names.get(number, "")) == "init"), None)
        return self.whole("pid") if begun is not None and self.main else begun

    @property
    def clocked_threads(self) -> frozenset[int]:
        """Return the threads of which it is known when they were on no processor; none where the recorder had no clock for that."""
        return frozenset(self.threads) if self.whole("cpu_clock_ns") else frozenset()

    def see_threads(self, records: npt.NDArray[np.void]) -> None:
        """Take in which threads records of HOST are of."""
        self.main = self.main or bool((records["thread"] == (self.whole("pid") or 0)).any())
        self.threads.update(np.unique(records["thread"]).tolist())
        summed = (records["kind"] == HostKind.SUM) & ~np.isin(records["name"], NO_CALLS)
        calls = records[(records["kind"] == HostKind.MPI) | summed]
        for at in np.sort(np.unique(calls["name"], return_index=True)[1]).tolist():
            self.callers.setdefault(int(calls["name"][at]), int(calls["thread"][at]))

        for record in records[records["kind"] == HostKind.THREAD]:
            self._see_worker(int(record["thread"]), int(record["start"]), int(record["end"]))

    def _see_worker(self, thread: int, begin: int, end: int) -> None:
        known = self.worker.get(thread)
        if known is not None and self.workers[known][-1][0] == begin:
            self.workers[known][-1] = begin, end or None
            return
        free = (place for place, lives in enumerate(self.workers) if (lives[-1][1] or LATEST) <= begin)
        place = next(free, len(self.workers))
        self.workers[place:] = self.workers[place:] or [[]]
        self.workers[place].append((begin, end or None))
        self.worker[thread] = place

    def openmp_number(self, thread: int) -> int | None:
        """Return a thread's number among those of OpenMP: 0 is the process' first one; None for any other."""
        place = self.worker.get(thread)
        return place + 1 if place is not None else 0 if thread == self.whole("pid") else None

    def is_openmp(self, name: int) -> bool:
        """Return whether a call by its number is a wait of a thread of OpenMP's."""
        return self.host_names.get(name, "").startswith(OPENMP)

    def _see_sums(self, records: npt.NDArray[np.void]) -> None:
        records = records[records["kind"] == HostKind.SUM]
        keys = zip(*(records[name].tolist() for name in ("thread", "serial", "name")), strict=True)
        for key, start, end, time in zip(keys, *(records[name].tolist() for name in ("start", "end", "bytes")), strict=True):
            self.summed[key[0]] = min(self.summed.get(key[0], start), start)
            self.cuts[key[0]] = max(self.cuts.get(key[0], end), end)
            self.counted[key] = self.counted.get(key, 0) + time

    def _add_sums(self, found: Sums | None) -> None:
        self.nonsense += found is None
        if found is not None:
            self.sums[found.thread, found.began] = found

    def clock(self, since_1970: int | None = None) -> RecordingClock:
        """Return the clock that the readings so far make; `since_1970` if that is settled already.

        The recorder is there before it first has something to write, and with it the clocks: `started` says since when.
        """
        found = clock(self.readings, ended=self.end is not None, since_1970=since_1970)
        started = self.whole("started")
        if started is None or found.changed or not 0 <= found.first - started <= LONGEST:
            return found
        return replace(found, first=started)

    def _inform(self, said: dict[str, Any]) -> None:
        paused, resumed = _whole(said.pop("paused", None)), _whole(said.pop("resumed", None))
        if paused is not None and (not self.pauses or self.pauses[-1][1] is not None):
            self.pauses.append((paused, None))
        if resumed is not None and self.pauses and self.pauses[-1][1] is None and resumed >= self.pauses[-1][0]:
            self.pauses[-1] = (self.pauses[-1][0], resumed)
        self.info |= said

    def _clocks(self, payload: bytes) -> None:
        if len(payload) < _THREE.size or len(self.readings) >= MOST_READINGS:
            self.nonsense += 1
        else:
            self.readings.append(_THREE.unpack_from(payload))

    def _drop(self, payload: bytes) -> None:
        if len(payload) < 8:
            self.nonsense += 1
        else:
            self.dropped += int.from_bytes(payload[:8], "little")

    def text(self, key: str) -> str:
        """Return a text of INFO, "" where there is none."""
        value = self.info.get(key)
        return value if isinstance(value, str) else ""

    def whole(self, key: str) -> int | None:
        """Return a whole number of INFO that is not negative, None where there is none."""
        return _whole(self.info.get(key))

    def objects(self, key: str) -> list[dict[str, Any]]:
        """Return a list of objects of INFO; what is no object is left out."""
        value = self.info.get(key)
        return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []

    def answers(self) -> dict[int, int]:
        """Return CUPTI's answer to each activity kind that was asked for; 0 is yes."""
        value = self.info.get("kinds")
        pairs = value.items() if isinstance(value, dict) else ()
        return {int(kind): answer for kind, answer in pairs if kind.isdecimal() and len(kind) < 10 and type(answer) is int}


def _whole(value: object) -> int | None:
    """Return a value if it is a whole number that can be a rank, a version or a time in ns.

    >>> _whole(3), _whole(True), _whole(-1), _whole(float("nan"))
    (3, None, None, None)
    """
    return value if type(value) is int and 0 <= value < LATEST else None
