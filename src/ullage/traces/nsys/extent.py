"""How long processes lived, by the calls of the operating system that were recorded of them: no intervals, only their edges.

They bound when a thread can have been descheduled. A run is not measured by them: its window is that of the GPU's activity, its
interface, operators and MPI, which any profiler records.
"""

from __future__ import annotations

from ullage.traces.nsys.columns import batches
from ullage.traces.nsys.mpi import MpiLives
from ullage.traces.nsys.rows import NsysReading, taken
from ullage.traces.nsys.who import each, processes


def operating_system(reading: NsysReading, lives: MpiLives) -> None:
    """Note how long processes lived by their OSRT_API rows, but not beyond MPI_Init and MPI_Finalize where there are any."""
    first, last = dict[int, int](), dict[int, int]()
    for batch in batches(reading.database, "OSRT_API", ("start", "end", "globalTid")):
        rows = taken(batch, reading.clock.believed(batch["start"], batch["end"]))
        for process, at in each(processes(rows["globalTid"])):
            begin, end = int(rows["start"][at].min()), int(rows["end"][at].max())
            first[process], last[process] = min(first.get(process, begin), begin), max(last.get(process, end), end)
    for process, begin in first.items():
        low, high = max(begin, lives.begin.get(process, begin)), min(last[process], lives.end.get(process, last[process]))
        if low < high:
            reading.people.lived(process, low, high)
