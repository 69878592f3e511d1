"""Batches of database columns into record batches of intervals: what all tables have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage import arrays
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.tables import intervals
from ullage.traces.nsys.file import Database
from ullage.traces.nsys.names import NsysNames, NsysWords
from ullage.traces.nsys.nccl import NcclCalls
from ullage.traces.nsys.pages import Numbers
from ullage.traces.nsys.records import MISSING
from ullage.traces.nsys.times import SessionClock
from ullage.traces.nsys.who import CaptureDevices, People, each

Mask = npt.NDArray[np.bool_]


@dataclass
class NsysReading:
    """A capture while it is read: the file, what its numbers mean, and what is said of it."""

    database: Database
    recording: Recording
    problems: Problems
    place: str
    names: NsysNames
    devices: CaptureDevices
    people: People
    clock: SessionClock
    rows: int = 0
    collectives: bool = False  # whether a kernel was one
    messages: bool = False  # whether MPI was called
    callers: set[int] = field(default_factory=set)  # threads that put work on devices
    waits: list[Numbers] = field(default_factory=list)  # calls that wait for events or streams: process, correlation, and how
    ranks: dict[int, int] = field(default_factory=dict)  # by process, as rows told
    nccl: NcclCalls = field(default_factory=NcclCalls)

    def saw(self, process: Numbers, start: Numbers, end: Numbers) -> None:
        """Note when something was recorded of processes that is passed on no further."""
        for number, at in each(process):
            self.recording.saw(number, self.clock.offset + int(start[at].min()), self.clock.offset + int(end[at].max()))

    def believed(self, batch: Mapping[str, Any], what: str) -> Mask:
        """Return which rows of something on a host have a time that can be; the others are counted."""
        good = self.clock.believed(batch["start"], batch["end"])
        self.problems.drop(f"{what} with impossible times", int((~good).sum()), self.place)
        return good

    def intervals(self, start: Numbers, end: Numbers, kind: str | pa.Array, **columns: Any) -> pa.RecordBatch:
        """Return a record batch; times are moved to the recording's clock, missing numbers become null."""
        self.rows += len(start)
        made: dict[str, Any] = {"start": start + self.clock.offset, "end": end + self.clock.offset}
        made["kind"] = constant(kind, len(start)) if isinstance(kind, str) else kind
        for name, values in columns.items():
            if values is not None:
                made[name] = (
                    values.arrow() if isinstance(values, NsysWords) else known(values) if isinstance(values, np.ndarray) else values
                )
        return intervals(made)


def constant(word: str, length: int) -> pa.DictionaryArray:
    """Return a column that is one word."""
    return arrays.coded(np.zeros(length, np.int8), [word])


def coded(values: npt.NDArray[Any], words: tuple[str, ...]) -> pa.DictionaryArray:
    """Return a column of words from their codes."""
    return arrays.coded(values.astype(np.int8), words)


def known(values: Numbers) -> pa.Array | None:
    """Return whole numbers with null for those that are missing or negative; None when none is known."""
    if len(values) and int(values.min()) < 0:
        mask = values < 0
        return pa.nulls(len(values), pa.int64()) if mask.all() else arrays.numbers(values, mask)
    return arrays.numbers(values)


def taken(batch: Mapping[str, Any], mask: Mask) -> dict[str, Any]:
    """Return the rows of a batch where `mask`."""
    if mask.all():
        return dict(batch)
    arrow = arrays.numbers(mask)
    return {name: column[mask] if isinstance(column, np.ndarray) else column.filter(arrow) for name, column in batch.items()}


def first_of(*columns: Numbers) -> Numbers:
    """Return in each row the first number that is not missing."""
    result = columns[0]
    for column in columns[1:]:
        gap = result == MISSING
        if not gap.any():
            break
        result = np.where(gap, column, result)
    return result
