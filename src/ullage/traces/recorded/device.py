"""What ran on the devices: kernels, copies, memsets, graphs that were recorded as a whole, and pages that unified memory moved.

Sources: cupti_activity.h of the releases 12.0 to 13.5 (records and their numbers); CUPTI guide 2.3.5 (graphs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ullage.cupti.kinds import ActivityKind
from ullage.traces.calls import is_collective, operation
from ullage.traces.nsys.names import NsysWords, distinct
from ullage.traces.nsys.rows import coded
from ullage.traces.recorded.rows import MISSING, RecordingReading, Records, Whole, column, correlation

# CUpti_ActivityMemcpyKind
_COPIES = ("unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
# CUpti_ActivityUnifiedMemoryCounterKind: those that move bytes; to the device `dstId`, but from it when they go to the host
_PAGES = {1: "Unified HtoD", 2: "Unified DtoH", 8: "Unified DtoD"}
_TO_HOST = 2
_ROOM = 2**63 - 1  # the largest grid that CUDA allows, 2^31 - 1 by 65,535 by 65,535, fits
_MOST = 2**31  # what a device's number and a block's threads are below
_SPACE = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")

Rest = Callable[[RecordingReading, Records], dict[str, Any]]


def on_devices(reading: RecordingReading, records: Mapping[int, Records]) -> Iterator[pa.RecordBatch]:
    """Yield everything that ran on a device."""
    for kind, rest in _SORTS.items():
        some = records.get(kind)
        if some is not None and kind == ActivityKind.UNIFIED_MEMORY_COUNTER:
            some = some[np.isin(some["counterKind"], list(_PAGES))]
        if some is not None and len(some):
            yield from _rows(reading, some, rest)


def _rows(reading: RecordingReading, records: Records, rest: Rest) -> Iterator[pa.RecordBatch]:
    start, end = (reading.clock.cupti(records[edge]) for edge in ("start", "end"))
    timed = (records["start"] != 0) | (records["end"] != 0)  # CUPTI writes two zeros where it has no time
    good = reading.clock.believed(start, end) & timed
    if good.all():
        yield _made(reading, records, start, end, rest)
        return
    yield from _lost(reading, records[~good], start[~good], rest)
    if good.any():
        yield _made(reading, records[good], start[good], end[good], rest)


def _made(reading: RecordingReading, records: Records, start: Whole, end: Whole, rest: Rest, kind: str = "") -> pa.RecordBatch:
    columns = {"device": column(records, "deviceId"), **rest(reading, records)}
    columns["device"] = np.where(columns["device"] < _MOST, columns["device"], MISSING)
    reading.recording.untimed += int((columns["device"] == MISSING).sum())  # it ran, and nobody knows where
    reading.used.update(distinct(columns["device"])[0].tolist())
    sort = kind or columns["kind"]
    return reading.intervals(
        start,
        end,
        kind=sort,
        stream=column(records, "streamId"),
        correlation=correlation(records),
        **{name: values for name, values in columns.items() if name != "kind"},
    )


def _lost(reading: RecordingReading, records: Records, start: Whole, rest: Rest) -> Iterator[pa.RecordBatch]:
    """Yield records whose time can't be as points where they began, or count them where not even that is known."""
    reading.problems.drop("device events with impossible times", len(records), reading.place)
    began = reading.clock.moment(start) & (records["start"] != 0)
    reading.recording.untimed += int((~began).sum())
    if began.any():
        yield _made(reading, records[began], start[began], start[began], rest, "lost")


def _kernels(reading: RecordingReading, records: Records) -> dict[str, Any]:
    names = reading.words(records["name"])
    together = names.each(is_collective, False).astype(bool)
    columns: dict[str, Any] = {"kind": coded(together, ("kernel", "collective")), "name": names}
    if together.any():
        reading.collectives = True
        told = names.renamed(operation)
        columns["operation"] = NsysWords(np.where(together, told.codes, MISSING).astype(np.int32), told.table)
    columns["blocks"] = _product(*(column(records, f"grid{axis}") for axis in "XYZ"))
    threads = _product(*(column(records, f"block{axis}") for axis in "XYZ"))
    columns["threads"] = np.where(threads < _MOST, threads, MISSING)
    registers, static, dynamic = (column(records, name) for name in _SPACE)
    given = registers > 0  # every kernel has some
    columns["registers"] = np.where(given, registers, MISSING)
    columns["shared"] = np.where(given & (np.minimum(static, dynamic) >= 0) & (static + dynamic < _MOST), static + dynamic, MISSING)
    return columns


def _product(x: Whole, y: Whole, z: Whole) -> Whole:
    """Return the product of three counts of 31 bits, missing where one is missing or the product has no room."""
    good = np.minimum(np.minimum(x, y), z) >= 0
    plane = np.where(good, x * y, 0)
    good &= plane <= _ROOM // np.maximum(z, 1)
    return np.where(good, np.where(good, plane, 0) * z, MISSING)


def _copies(_: RecordingReading, records: Records) -> dict[str, Any]:
    kinds, codes = distinct(column(records, "copyKind"))
    table = [f"Memcpy {_COPIES[k]}" if 0 < k < len(_COPIES) else "Memcpy" for k in kinds.tolist()]
    return {"kind": "memcpy", "name": NsysWords(codes.astype(np.int32), table), "bytes": column(records, "bytes")}


def _pages(_: RecordingReading, records: Records) -> dict[str, Any]:
    kinds, codes = distinct(column(records, "counterKind"))
    table = [f"Memcpy {_PAGES[k]}" for k in kinds.tolist()]
    device = np.where(records["counterKind"] == _TO_HOST, column(records, "srcId"), column(records, "dstId"))
    return {"kind": "memcpy", "name": NsysWords(codes.astype(np.int32), table), "bytes": column(records, "value"), "device": device}


def _memsets(_: RecordingReading, records: Records) -> dict[str, Any]:
    return {"kind": "memset", "name": _one("Memset", records), "bytes": column(records, "bytes")}


def _unpacked(_: RecordingReading, records: Records) -> dict[str, Any]:
    return {"kind": "memcpy", "name": _one("Decompress", records), "bytes": column(records, "sourceBytes")}


def _graphs(_: RecordingReading, records: Records) -> dict[str, Any]:
    graphs, codes = distinct(column(records, "graphId"))
    return {"kind": "graph", "name": NsysWords(codes.astype(np.int32), [f"graph {number}" for number in graphs.tolist()])}


def _one(word: str, records: Records) -> NsysWords:
    return NsysWords(np.zeros(len(records), np.int32), [word])


_SORTS: dict[int, Rest] = {
    ActivityKind.CONCURRENT_KERNEL: _kernels,
    ActivityKind.KERNEL: _kernels,
    ActivityKind.CDP_KERNEL: _kernels,
    ActivityKind.MEMCPY: _copies,
    ActivityKind.MEMCPY2: _copies,
    ActivityKind.MEMSET: _memsets,
    ActivityKind.GRAPH_TRACE: _graphs,
    ActivityKind.DEVICE_GRAPH_TRACE: _graphs,
    ActivityKind.UNIFIED_MEMORY_COUNTER: _pages,
    ActivityKind.MEM_DECOMPRESS: _unpacked,
}
