"""What ran on the devices: kernels, copies, memsets, and graphs that were traced as a whole.

CUPTI_ACTIVITY_KIND_SYNCHRONIZATION is not among it: a wait is no work (`nsys/events.py` reads it). A graph that is traced node by node
gives rows in the tables of kernels and copies, one that is traced as a whole gives rows in CUPTI_ACTIVITY_KIND_GRAPH_TRACE and none there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ullage.traces.calls import is_collective, operation
from ullage.traces.nsys.columns import Batch, batches
from ullage.traces.nsys.names import NsysWords, distinct
from ullage.traces.nsys.pages import Numbers
from ullage.traces.nsys.records import MISSING
from ullage.traces.nsys.rows import Mask, NsysReading, coded, first_of, known, taken
from ullage.traces.nsys.who import processes

_COMMON = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_GRID = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_ROOM = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")
_NAMES = ("demangledName", "shortName", "mangledName")
# CUpti_ActivityMemcpyKind, and Nsight Systems' own kinds for the pages that unified memory moves (ENUM_CUDA_MEMCPY_OPER).
_COPIES = (
    *("unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
    *("Unified HtoD", "Unified DtoH", "Unified DtoD"),
)

Rest = Callable[[Batch], dict[str, Any]]


def on_devices(reading: NsysReading) -> Iterator[pa.RecordBatch]:
    """Yield everything that ran on a device."""
    yield from _rows(reading, "CUPTI_ACTIVITY_KIND_KERNEL", (*_NAMES, *_GRID, *_ROOM), lambda batch: _kernels(reading, batch))
    yield from _rows(reading, "CUPTI_ACTIVITY_KIND_MEMCPY", ("bytes", "copyKind"), _copies)
    yield from _rows(reading, "CUPTI_ACTIVITY_KIND_MEMSET", ("bytes",), _memsets)
    yield from _rows(reading, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", ("graphId", "graphExecId"), _graphs)


def _rows(reading: NsysReading, table: str, more: tuple[str, ...], rest: Rest) -> Iterator[pa.RecordBatch]:
    for batch in batches(reading.database, table, (*_COMMON, *more)):
        good = reading.clock.believed(batch["start"], batch["end"])
        if not good.all():
            yield from _lost(reading, taken(batch, ~good), rest)
        yield _made(reading, taken(batch, good), rest)


def _made(reading: NsysReading, batch: Batch, rest: Rest, kind: str = "") -> pa.RecordBatch:
    process = processes(batch["globalPid"])
    reading.people.work(process, batch["start"], batch["start"] if kind else batch["end"])
    columns = rest(batch)
    return reading.intervals(
        batch["start"],
        batch["start"] if kind else batch["end"],
        kind=kind or columns.pop("kind"),
        process=process,
        device=reading.devices.numbers(process, batch["deviceId"]),
        stream=batch["streamId"],
        correlation=batch["correlationId"],
        **{name: values for name, values in columns.items() if name != "kind"},
    )


def _lost(reading: NsysReading, batch: Batch, rest: Rest) -> Iterator[pa.RecordBatch]:
    """Yield rows whose time can't be as points where they began, or count them where not even that is known."""
    reading.problems.drop("device events with impossible times", len(batch["start"]), reading.place)
    began = reading.clock.moment(batch["start"])
    reading.recording.untimed += int((~began).sum())
    if began.any():
        yield _made(reading, taken(batch, began), rest, "lost")


def _kernels(reading: NsysReading, batch: Batch) -> dict[str, Any]:
    names = reading.names.of(first_of(*(batch[name] for name in _NAMES)))
    together = names.each(is_collective, False).astype(bool)
    columns: dict[str, Any] = {"kind": coded(together, ("kernel", "collective")), "name": names}
    if together.any():
        reading.collectives = True
        told = names.renamed(operation)
        columns["operation"] = NsysWords(np.where(together, told.codes, -1).astype(np.int32), told.table)
        columns |= _payloads(reading, batch, together)
    columns["blocks"] = _product(*(batch[axis] for axis in _GRID[:3]))
    columns["threads"] = _small(_product(*(batch[axis] for axis in _GRID[3:])))
    columns["registers"] = _small(batch["registersPerThread"])
    columns["shared"] = _small(_sum(batch["staticSharedMemory"], batch["dynamicSharedMemory"]))
    return columns


def _payloads(reading: NsysReading, batch: Batch, together: Mask) -> dict[str, Any]:
    """Return the columns of collectives that NCCL's own marks tell: bytes, group (the communicator) and members."""
    if not reading.nccl.known:
        return {}
    at = np.flatnonzero(together)
    keys = zip(processes(batch["globalPid"])[at].tolist(), batch["correlationId"][at].tolist(), strict=True)
    given = np.array([reading.nccl.known.get(key, (MISSING,) * 3) for key in keys], object)
    size, members = (np.full(len(together), MISSING, np.int64) for _ in range(2))
    size[at], members[at] = given[:, 0].astype(np.int64), given[:, 2].astype(np.int64)
    words = [f"{number:#x}" if number != MISSING else "" for number in given[:, 1].tolist()]
    table = {word: code for code, word in enumerate(word for word in dict.fromkeys(words) if word)}
    codes = np.full(len(together), -1, np.int32)
    codes[at] = [table.get(word, -1) for word in words]
    return {"bytes": size, "group": NsysWords(codes, list(table)), "members": _small(members)}


def _product(x: Numbers, y: Numbers, z: Numbers) -> Numbers:
    """Return the product of three counts, missing where one is missing or can't be."""
    good = np.minimum(np.minimum(x, y), z) >= 0
    good &= np.maximum(np.maximum(x, y), z) < 2**31
    whole = np.where(good, x, 0) * np.where(good, y, 0)
    good &= whole < 2**31
    return np.where(good, np.where(good, whole, 0) * np.where(good, z, 0), MISSING)


def _sum(one: Numbers, other: Numbers) -> Numbers:
    """Return the sum of two sizes of 31 bits, missing where one is missing or can't be."""
    good = (np.minimum(one, other) >= 0) & (np.maximum(one, other) < 2**30)
    return np.where(good, np.where(good, one, 0) + np.where(good, other, 0), MISSING)


def _small(values: Numbers) -> pa.Array:
    return known(np.where((values >= 0) & (values < 2**31), values, MISSING))


def _copies(batch: Batch) -> dict[str, Any]:
    kinds, codes = distinct(batch["copyKind"])
    table = [f"Memcpy {_COPIES[k]}" if 0 < k < len(_COPIES) else "Memcpy" for k in kinds.tolist()]
    return {"kind": "memcpy", "name": NsysWords(codes.astype(np.int32), table), "bytes": batch["bytes"]}


def _memsets(batch: Batch) -> dict[str, Any]:
    return {"kind": "memset", "name": NsysWords(np.zeros(len(batch["start"]), np.int32), ["Memset"]), "bytes": batch["bytes"]}


def _graphs(batch: Batch) -> dict[str, Any]:
    graphs, codes = distinct(first_of(batch["graphId"], batch["graphExecId"]))
    table = [f"graph {g}" if g != MISSING else "graph" for g in graphs.tolist()]
    return {"kind": "graph", "name": NsysWords(codes.astype(np.int32), table)}
