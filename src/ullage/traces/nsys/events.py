"""Which streams and host threads waited for events and streams: what CUPTI tells of synchronisation, joined with who recorded the event.

CUPTI_ACTIVITY_KIND_SYNCHRONIZATION has a wait a row; numbers of its sorts (`syncType`) changed between versions, so the call of the same
correlation says which it is. CUPTI_ACTIVITY_KIND_CUDA_EVENT (`nsys profile --cuda-event-trace=true`) says on which stream an event was
recorded; without it a wait for an event can't be told, since the event is a mere number. The device is left out: captures number it by
process here and by machine in the tables of kernels. A wait for a stream whose number several devices of a process have is not replayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ullage.traces.nsys.columns import Batch, batches
from ullage.traces.nsys.pages import Numbers
from ullage.traces.nsys.records import MISSING
from ullage.traces.nsys.rows import NsysReading, taken
from ullage.traces.nsys.who import processes

_EVENT = ("streamId", "correlationId", "globalPid", "eventId", "eventSyncId")
_NO_STREAM = 2**32 - 1  # CUPTI's number for none
_WAITS = (
    ("stream waits", re.compile(r"StreamWaitEvent")),
    ("host waits for event", re.compile(r"EventSynchronize")),
    ("host waits for stream", re.compile(r"StreamSynchronize")),
)


def waits(name: str) -> int:
    """Return how a call waits: -1 for one that does not.

    >>> waits("cudaStreamWaitEvent_v3020"), waits("cuEventSynchronize"), waits("cudaStreamSynchronize"), waits("cudaEventQuery")
    (0, 1, 2, -1)
    """
    return next((code for code, (_, pattern) in enumerate(_WAITS) if pattern.search(name)), -1)


def events(reading: NsysReading) -> Iterator[pa.RecordBatch]:
    """Yield the waits that are known: for streams, and for events whose recording is; `calls` must have been read."""
    if not reading.waits:
        return
    process, correlation, sort = np.concatenate(reading.waits, axis=1)
    order = np.lexsort((correlation, process))
    calls = process[order], correlation[order], sort[order]
    recorded = _records(reading)
    for batch in batches(reading.database, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", ("start", "end", *_EVENT)):
        rows = taken(batch, reading.believed(batch, "waits for events"))
        yield from _known(reading, rows, _sorts(rows, *calls), recorded)


def _sorts(rows: Batch, process: Numbers, correlation: Numbers, sort: Numbers) -> Numbers:
    """Return how the call of each row waits, -1 where there is none that does."""
    found = np.full(len(rows["start"]), -1, np.int64)
    owner = processes(rows["globalPid"])
    for number in np.unique(owner).tolist():
        low, high = np.searchsorted(process, [number, number + 1])
        mine = np.flatnonzero(owner == number)
        if low < high:
            at = low + np.minimum(np.searchsorted(correlation[low:high], rows["correlationId"][mine]), high - low - 1)
            found[mine] = np.where(correlation[at] == rows["correlationId"][mine], sort[at], -1)
    return found


def _records(reading: NsysReading) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """Return who recorded each event, by process and event: correlation, stream and number of the recording, in the order of the calls."""
    found: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for batch in batches(reading.database, "CUPTI_ACTIVITY_KIND_CUDA_EVENT", _EVENT):
        columns = (processes(batch["globalPid"]), *(batch[name] for name in ("eventId", "correlationId", "streamId", "eventSyncId")))
        for process, event, correlation, stream, number in zip(*(column.tolist() for column in columns), strict=True):
            if MISSING not in (process, event, correlation, stream):
                found.setdefault((process, event), []).append((correlation, stream, number))
    return {key: sorted(records) for key, records in found.items()}


def _known(
    reading: NsysReading, rows: Batch, sort: Numbers, recorded: dict[tuple[int, int], list[tuple[int, int, int]]]
) -> Iterator[pa.RecordBatch]:
    process = processes(rows["globalPid"])
    of_stream = sort == 2
    awaited_stream = np.where(of_stream, rows["streamId"], MISSING)
    awaited = np.full(len(sort), MISSING, np.int64)
    for row in np.flatnonzero((sort == 0) | (sort == 1)).tolist():
        number, asked = int(rows["eventSyncId"][row]), int(rows["correlationId"][row])
        records = [
            record
            for record in recorded.get((int(process[row]), int(rows["eventId"][row])), [])
            if record[0] < asked and (MISSING in (number, record[2]) or number == record[2])
        ]
        if records:
            awaited[row], awaited_stream[row], _ = records[-1]
    kept = (awaited_stream >= 0) & (awaited_stream < _NO_STREAM) & (sort >= 0)
    if kept.any():
        yield reading.intervals(
            rows["start"][kept],
            rows["end"][kept],
            kind="event",
            process=process[kept],
            stream=np.where(sort == 0, rows["streamId"], MISSING)[kept],
            correlation=rows["correlationId"][kept],
            awaited_stream=awaited_stream[kept],
            awaited=awaited[kept],
        )
