"""NVTX ranges as regions: their marks paired, whichever buffer and thread they come from; and regions that never ended.

A range has two marks of one number, its start with the name and its end (cupti_activity.h, CUpti_ActivityMarker2). Ranges that a
library puts there for itself (operators of PyTorch, NCCL's calls) are no regions: see `nsys_nvtx.region`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ullage.traces.nsys.names import NsysWords
from ullage.traces.nsys.nvtx import region
from ullage.traces.recorded.rows import Marks, RecordingReading, Records, Whole, column

START, END = 1 << 1, 1 << 2  # CUpti_ActivityFlag
MOST_OPEN = 1_000_000  # marks without their other half that are kept


def ranges(reading: RecordingReading, records: Records) -> Iterator[pa.RecordBatch]:
    """Yield the ranges whose second mark has come; the other marks are kept until it does."""
    wanted = records[(records["flags"] & (START | END)) != 0]
    moment = reading.clock.cupti(wanted["timestamp"])
    good = reading.believed(moment, moment, "marks of NVTX ranges")
    marks = _joined(_taken(reading, wanted[good], moment[good]), reading)
    order = np.lexsort((1 - marks.starts, marks.time, marks.number))
    number, starts = marks.number[order], marks.starts[order]
    pairs = np.flatnonzero((number[:-1] == number[1:]) & (starts[:-1] == 1) & (starts[1:] == 0))
    first, second = order[pairs], order[pairs + 1]
    rest = np.ones(len(order), bool)
    rest[first] = rest[second] = False
    _keep(reading, marks, np.flatnonzero(rest))
    yield from _regions(reading, marks.time[first], marks.time[second], marks.thread[first], _names(marks, first))


def _taken(reading: RecordingReading, records: Records, moment: Whole) -> Marks:
    names = reading.words(records["name"])
    starts = ((records["flags"] & START) != 0).astype(np.int64)
    return Marks(
        column(records, "id"), moment, column(records, "objectId.pt.threadId"), starts, names.codes.astype(np.int64), list(names.table)
    )


def _joined(new: Marks, reading: RecordingReading) -> Marks:
    old = reading.marks
    if old is None:
        return new
    moved = np.where(new.name >= 0, new.name + len(old.words), -1)
    number, time, thread, starts = (np.concatenate(both) for both in zip(old[:4], new[:4], strict=True))
    return Marks(number, time, thread, starts, np.concatenate([old.name, moved]), old.words + new.words)


def _keep(reading: RecordingReading, marks: Marks, places: Whole) -> None:
    if len(places) > MOST_OPEN:
        reading.problems.drop("marks of NVTX ranges without their other half", len(places) - MOST_OPEN, reading.place)
        places = places[-MOST_OPEN:]
    used = np.unique(marks.name[places])
    used = used[used >= 0]
    codes = np.where(marks.name[places] >= 0, np.searchsorted(used, marks.name[places]), -1)
    number, time, thread, starts = (values[places] for values in marks[:4])
    reading.marks = Marks(number, time, thread, starts, codes, [marks.words[code] for code in used.tolist()])


def _names(marks: Marks, places: Whole) -> NsysWords:
    return NsysWords(marks.name[places].astype(np.int32), marks.words).renamed(region)


def _regions(reading: RecordingReading, start: Whole, end: Whole, thread: Whole, names: NsysWords) -> Iterator[pa.RecordBatch]:
    users = names.codes >= 0
    if users.any():
        yield reading.intervals(start[users], end[users], kind="region", name=names.where(users), thread=thread[users])


def still_open(reading: RecordingReading, last: int) -> list[tuple[int, int, str]]:
    """Return start, thread and name of regions and ranges that have begun before `last` and not ended."""
    found = [one for one in reading.open.values() if one[0] <= last]
    if reading.marks is None:
        return found
    marks = reading.marks
    places = np.flatnonzero((marks.starts == 1) & (marks.time <= last))
    names = _names(marks, places)
    rows = zip(marks.time[places].tolist(), marks.thread[places].tolist(), names.codes.tolist(), strict=True)
    return found + [(start, thread, names.table[code]) for start, thread, code in rows if code >= 0]


def unended(reading: RecordingReading, last: int) -> Iterator[pa.RecordBatch]:
    """Yield what never ended, as if it ended at `last`."""
    found = still_open(reading, last)
    if found:
        table = list(dict.fromkeys(name for _, _, name in found))
        codes = np.array([table.index(name) if name else -1 for _, _, name in found], np.int32)
        start, thread = (np.array(values, np.int64) for values in list(zip(*found, strict=True))[:2])
        reading.problems.repair("regions that never ended end with the recording", len(found), reading.place)
        yield reading.intervals(start, np.full(len(start), last), kind="region", name=NsysWords(codes, table), thread=thread)
