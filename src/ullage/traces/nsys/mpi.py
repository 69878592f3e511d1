"""MPI: from its own tables (since 2022), and the rules for both these and the NVTX domain "MPI" of older captures.

MPI_Init and MPI_Finalize are the edges of the run (`mpi_clock`): they are noted and left out, and what the operating system's calls
tell of a process' life (`nsys_extent`) is cut at them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ullage.recording import Recording
from ullage.traces.calls import operation
from ullage.traces.mpi_clock import edge
from ullage.traces.nsys.columns import batches
from ullage.traces.nsys.names import NsysWords
from ullage.traces.nsys.pages import Numbers
from ullage.traces.nsys.rows import Mask, NsysReading, taken
from ullage.traces.nsys.who import each, processes, threads

_TABLES = ("MPI_P2P_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_OTHER_EVENTS")


@dataclass
class MpiLives:
    """From when to when each process is under MPI, in session's ns: when MPI_Init returned, when MPI_Finalize was called."""

    begin: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)

    def note(self, names: NsysWords, process: Numbers, start: Numbers, end: Numbers) -> Mask:
        """Note the rows that are MPI_Init or MPI_Finalize, and return which are neither."""
        first = names.each(lambda name: edge(name) == "init", False).astype(bool)
        last = names.each(lambda name: edge(name) == "finalize", False).astype(bool)
        for number, rows in each(np.where(first, process, -1)):
            self.begin[number] = max(self.begin.get(number, int(end[rows].max())), int(end[rows].max()))
        for number, rows in each(np.where(last, process, -1)):
            self.end[number] = min(self.end.get(number, int(start[rows].min())), int(start[rows].min()))
        return np.asarray(~(first | last))

    def tell(self, recording: Recording, offset: int) -> None:
        """Fill in the recording's MPI clock; `offset` is what to add to the session's ns."""
        for process in self.begin.keys() | self.end.keys():
            begin, end = self.begin.get(process), self.end.get(process)
            recording.clocked(process, None if begin is None else begin + offset, None if end is None else end + offset)


def mpi(reading: NsysReading, lives: MpiLives) -> Iterator[pa.RecordBatch]:
    """Yield the MPI calls of the tables. A wait for several requests has a row for each, all of one time."""
    for table in _TABLES:
        for batch in batches(reading.database, table, ("start", "end", "globalTid", "textId", "size", "recvSize")):
            rows = taken(batch, reading.believed(batch, "MPI calls"))
            names = reading.names.of(rows["textId"])
            made = called(reading, lives, names, rows["globalTid"], rows["start"], rows["end"], np.maximum(rows["size"], rows["recvSize"]))
            if made is not None:
                yield made


def called(
    reading: NsysReading, lives: MpiLives, names: NsysWords, who: Numbers, start: Numbers, end: Numbers, size: Numbers | None = None
) -> pa.RecordBatch | None:
    """Return MPI calls as intervals, None when there is none but MPI_Init and MPI_Finalize."""
    process = processes(who)
    kept = lives.note(names, process, start, end)
    if not kept.any():
        return None
    reading.messages = True
    reading.people.work(process[kept], start[kept], end[kept])
    return reading.intervals(
        start[kept],
        end[kept],
        kind="mpi",
        name=names.where(kept),
        process=process[kept],
        thread=threads(who[kept]),
        bytes=None if size is None else size[kept],
        operation=names.where(kept).renamed(operation),
    )
