"""What a process that was killed had recorded and not written: read from the rings that lie beside its recording, after the recording.

What its threads did is whole then. What CUPTI had not handed over is gone with the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.cupti.chunks import HOST, OFF_CPU, EarlyEnd, HostKind
from ullage.cupti.rings import Left, Sums, left
from ullage.traces.recorded.facts import RecordingFacts
from ullage.traces.recorded.host import of_host
from ullage.traces.recorded.notes import NOT_SHARED
from ullage.traces.recorded.rows import RecordingReading
from ullage.traces.trace import File

KILLED = "the program ended without a word; what it had flushed is here"


def of(file: File, told: RecordingFacts) -> Left | None:
    """Return what a recording's process left in its rings, None where it ended by itself or left none."""
    found = left(file.path, told.last_host) if told.end is None else None
    if found is not None:
        told.host_names = found.names | told.host_names
        told.see_threads(found.records)
        told.see_threads(left_of_sums(told, found.sums))
        for one in found.sums:
            told.summed[one.thread] = min(told.summed.get(one.thread, one.began), one.began)
            told.sums[one.thread, one.began] = one
    return found


def cut(told: RecordingFacts, found: Left | None, ends: EarlyEnd | None) -> str:
    """Return why a recording doesn't hold all, "" where it does; `ends` is where its file ends early.

    A process that is killed while it writes leaves a part of a chunk, whose records are in its rings.
    """
    if ends is not None and (ends.damaged or found is None or found.written > told.length):
        return f"it ends {ends.problem}" if told.end is None else f"it is damaged {ends.problem}"
    if told.end is not None:
        return ""
    if found is None:
        return KILLED
    count = len(found.records)
    said = f"the program ended without closing; {count:,} record{'s' * (count != 1)} read from its rings"
    if found.damage:
        return f"{said}, which are damaged: {found.damage}"
    if told.buffers or told.answers():
        return f"{said}, and of its devices what it had flushed (`ullage run --flush 100` flushes more often)"
    return said if any(problem.get("what") == NOT_SHARED for problem in told.objects("problems")) else ""


def appended(reading: RecordingReading, found: Left | None) -> Iterator[pa.RecordBatch]:
    """Yield what rings hold; the process lived until the last of it at least."""
    if found is None:
        return
    yield from of_host(reading, found.records)
    summed = left_of_sums(reading.told, found.sums)
    yield from of_host(reading, summed)
    reading.problems.repair("records read from the rings of processes that ended without closing", len(found.records), reading.place)
    records = np.concatenate([found.records, summed])
    times = reading.clock.host(np.maximum(records["start"], records["end"]))
    times = times[reading.clock.moment(times)]
    if len(times) and reading.clock.since_1970 is not None:
        reading.clock = replace(reading.clock, last=max(reading.clock.last, int(times.max())))


def left_of_sums(told: RecordingFacts, found: tuple[Sums, ...]) -> npt.NDArray[np.void]:
    """Return records of SUM for what threads did since their sums were last written."""
    parts = [_left_of(told, sums) for sums in found]
    return np.concatenate(parts) if parts else np.zeros(0, HOST)


def _left_of(told: RecordingFacts, sums: Sums) -> npt.NDArray[np.void]:
    begin = max(told.cuts.get(sums.thread, 0), sums.began)
    end = max(begin, sums.last)
    nodes = sums.rows["node"].tolist()
    on, off = (
        np.array([told.counted.get((sums.thread, node, call), 0) for node, call in zip(nodes, calls, strict=True)], np.int64)
        for calls in (sums.rows["call"].tolist(), [OFF_CPU] * len(nodes))
    )
    off = np.where(sums.rows["call"] == 0, off, 0)
    left = np.maximum(sums.times(end).astype(np.int64) - on - off, 0)
    left_off = np.clip(sums.off.astype(np.int64) - off, 0, left)
    return np.concatenate([_records(sums, begin, end, sums.rows["call"], left - left_off), _records(sums, begin, end, OFF_CPU, left_off)])


def _records(sums: Sums, begin: int, end: int, call: npt.NDArray[np.uint32] | int, left: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    records = np.zeros(len(left), HOST)
    records["start"], records["end"], records["thread"], records["kind"] = begin, end, sums.thread, HostKind.SUM
    records["serial"], records["name"], records["bytes"] = sums.rows["node"], call, left
    return records[left > 0]
