"""What the host threads did: calls of the GPU's runtime and driver, the profiler's own cost, and when threads did not run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ullage.tables import CALLS
from ullage.traces.calls import call, without_cuda_version
from ullage.traces.nsys.columns import batches
from ullage.traces.nsys.events import waits
from ullage.traces.nsys.names import distinct
from ullage.traces.nsys.pages import Numbers
from ullage.traces.nsys.records import MISSING
from ullage.traces.nsys.rows import Mask, NsysReading, coded, taken
from ullage.traces.nsys.who import processes, threads

_CODES = {name: code for code, name in enumerate(CALLS)}
_SUBMITS = tuple(_CODES[name] for name in ("launch", "graph", "copy"))
_OTHER = _CODES["other"]


def calls(reading: NsysReading) -> Iterator[pa.RecordBatch]:
    """Yield the calls of the runtime and the driver, also those that are nested or were written down twice, as they are.

    Afterwards `reading.waits` are those that wait for events or streams, and `reading.callers` the threads that put work on devices, or
    those that call at all, where none does.
    """
    scheduled = reading.database.table("SCHED_EVENTS") is not None
    submitting, calling = set[int](), set[int]()
    for batch in batches(reading.database, "CUPTI_ACTIVITY_KIND_RUNTIME", ("start", "end", "globalTid", "correlationId", "nameId")):
        rows = taken(batch, reading.believed(batch, "calls of the GPU runtime"))
        process = processes(rows["globalTid"])
        reading.people.work(process, rows["start"], rows["end"])
        names = reading.names.of(rows["nameId"]).renamed(without_cuda_version)
        does = names.each(lambda name: _CODES[call(name)], _OTHER)
        if reading.nccl.calls:
            launching = does == _CODES["launch"]
            reading.nccl.launched(*(rows[name][launching] for name in ("globalTid", "correlationId", "start")))
        how = names.each(waits, -1).astype(np.int64)
        if (waiting := how >= 0).any():
            reading.waits.append(np.stack((process[waiting], rows["correlationId"][waiting], how[waiting])))
        if scheduled:
            submitting |= _different(rows["globalTid"], np.isin(does, _SUBMITS))
            calling |= _different(rows["globalTid"])
        yield reading.intervals(
            rows["start"],
            rows["end"],
            kind="api",
            name=names,
            process=process,
            thread=threads(rows["globalTid"]),
            correlation=rows["correlationId"],
            call=coded(does, CALLS),
        )
    reading.callers = submitting or calling


def _different(numbers: Numbers, mask: Mask | None = None) -> set[int]:
    return set(distinct(numbers if mask is None else numbers[mask])[0].tolist()) - {MISSING}


def descheduled(reading: NsysReading) -> Iterator[pa.RecordBatch]:
    """Yield when the calling threads were taken off their processors: from each SCHED_EVENTS row that says so to the thread's next
    row, as far as their process is otherwise known to have lived then."""
    wanted = np.array(sorted(reading.callers), np.int64)
    parts = []
    for batch in batches(reading.database, "SCHED_EVENTS", ("start", "isSchedIn", "globalTid")):
        mine = np.isin(batch["globalTid"], wanted) & reading.clock.believed(batch["start"], batch["start"])
        parts.append(np.stack([batch[name][mine] for name in ("globalTid", "start", "isSchedIn")]))
    rows = np.concatenate(parts, axis=1) if parts else np.zeros((3, 0), np.int64)
    thread, start, on = rows[:, np.lexsort((rows[2], rows[1], rows[0]))]
    off = (on[:-1] == 0) & (thread[1:] == thread[:-1]) & (on[1:] != 0) & (start[1:] > start[:-1])
    who, begin, end = thread[:-1][off], start[:-1][off], start[1:][off]
    low, high = reading.people.life(processes(who))
    begin, end = np.maximum(begin, low), np.minimum(end, high)
    lived = begin < end
    if lived.any():
        yield reading.intervals(begin[lived], end[lived], kind="off", process=processes(who[lived]), thread=threads(who[lived]))


def overhead(reading: NsysReading) -> Iterator[pa.RecordBatch]:
    """Yield what the profiler itself cost the threads: CUPTI's own account, and that of Nsight Systems.

    What it did before a process' first event and after its last one cost the program nothing, and is left out.
    """
    for table in ("CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD"):
        for batch in batches(reading.database, table, ("start", "end", "globalTid", "nameId")):
            rows = taken(batch, reading.believed(batch, "rows of the profiler's overhead"))
            low, high = reading.people.life(processes(rows["globalTid"]))
            rows = taken(rows, (rows["start"] < high) & (rows["end"] > low))
            yield reading.intervals(
                rows["start"],
                rows["end"],
                kind="overhead",
                name=reading.names.of(rows["nameId"]),
                process=processes(rows["globalTid"]),
                thread=threads(rows["globalTid"]),
            )
