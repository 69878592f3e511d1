"""NVTX: the user's ranges as regions, the domain "MPI" as MPI, and what libraries mark for themselves as a sign of life.

PyTorch's `emit_nvtx` numbers what it marks (", seq = 3, op_id = 7"). What has a place in the backward pass (seq) or a namespace of
operators (aten::) is an operator, no region; off the rest the numbers are taken, so that a range has the same name each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ullage.traces.nsys.columns import Batch, batches
from ullage.traces.nsys.mpi import MpiLives, called
from ullage.traces.nsys.names import NsysWords, either, words
from ullage.traces.nsys.pages import Numbers
from ullage.traces.nsys.records import MISSING
from ullage.traces.nsys.rows import Mask, NsysReading, taken
from ullage.traces.nsys.who import processes, rank_of, threads

# ENUM_NSYS_EVENT_TYPE, the same numbers in every version seen: NvtxPushPopRange, NvtxStartEndRange and their twins of NVTXT.
RANGES = (59, 60, 70, 71)
THREAD_NAME, DOMAIN = 39, 75
_COLUMNS = ("start", "end", "eventType", "globalTid", "textId", "domainId")

_NUMBERED = re.compile(r", (seq|op_id|sizes|input_op_ids) = .*$", re.DOTALL)
_OPERATOR = re.compile(r"^([a-z_0-9]+::|record_param_comms$)")
_LIBRARY = re.compile(r"^p?nccl([A-Z]|:)\w+$")


@dataclass
class Nvtx:
    """Domains by (process, number), ranks that thread names tell, and the ranges that were never closed."""

    domains: dict[tuple[int, int], str] = field(default_factory=dict)
    ranks: dict[int, int] = field(default_factory=dict)
    open: list[tuple[Numbers, Numbers, NsysWords]] = field(default_factory=list)
    last: int = MISSING


def region(name: str) -> str | None:
    """Return the name of a user's range, None for one that a library put there.

    >>> region("forward, op_id = 7"), region("aten::add, seq = 3, op_id = 7"), region("ncclAllReduce"), region("step::1")
    ('forward', None, None, 'step::1')
    """
    found = _NUMBERED.search(name)
    plain = name[: found.start()] if found else name
    operator = found is not None and (found[1] == "seq" or _OPERATOR.match(plain) is not None)
    return None if operator or _LIBRARY.match(plain) else plain


def nvtx(reading: NsysReading, lives: MpiLives) -> Iterator[pa.RecordBatch]:
    """Yield regions and MPI calls; a range that was never closed ends with the last event of any range."""
    seen = Nvtx()
    seen.domains = dict(_domains(reading))
    for batch in batches(reading.database, "NVTX_EVENTS", _COLUMNS, ("text",)):
        ranges = taken(batch, np.isin(batch["eventType"], RANGES) | (batch["eventType"] == MISSING))
        if len(ranges["start"]):
            yield from _ranges(reading, lives, seen, ranges)
        _named_threads(reading, seen, taken(batch, batch["eventType"] == THREAD_NAME))
    reading.ranks |= seen.ranks
    yield from _closed(reading, seen)


def _domains(reading: NsysReading) -> Iterator[tuple[tuple[int, int], str]]:
    table = reading.database.table("NVTX_EVENTS")
    if table is not None and {"domainId", "eventType", "globalTid"} <= set(table.columns):
        texts = " , ".join(c if c in table else "NULL" for c in ("text", "textId"))
        sql = f'SELECT globalTid, domainId, {texts} FROM "{table.name}" WHERE eventType = {DOMAIN}'  # noqa: S608
        for who, number, text, text_id in reading.database.query(table.name, sql):
            if isinstance(who, int) and isinstance(number, int):
                name = text or reading.names.of(np.array([text_id if isinstance(text_id, int) else MISSING])).table[0:1]
                yield (who >> 24 & 0xFFFFFF, number), name if isinstance(name, str) else "".join(name)


def _texts(reading: NsysReading, batch: Batch) -> NsysWords:
    return either(words(batch["text"]), reading.names.of(batch["textId"]))


def _named_threads(reading: NsysReading, seen: Nvtx, batch: Batch) -> None:
    if len(batch["start"]):
        names = _texts(reading, batch)
        for who, code in zip(processes(batch["globalTid"]).tolist(), names.codes.tolist(), strict=True):
            rank = rank_of(names.table[code]) if code >= 0 else None
            if rank is not None:
                seen.ranks[who] = rank


def _ranges(reading: NsysReading, lives: MpiLives, seen: Nvtx, batch: Batch) -> Iterator[pa.RecordBatch]:
    unclosed = batch["end"] == MISSING
    seen.last = max(seen.last, int(batch["start"].max()), int(batch["end"].max()))
    if unclosed.any():
        rows = taken(batch, unclosed)
        seen.open.append((rows["start"], rows["globalTid"], _texts(reading, rows).renamed(region)))
        batch = taken(batch, ~unclosed)
    rows = taken(batch, reading.believed(batch, "NVTX ranges"))
    if not len(rows["start"]):
        return
    names, is_mpi = _texts(reading, rows), _of_mpi(seen, rows)
    if is_mpi.any():
        made = called(reading, lives, names.where(is_mpi), *(rows[c][is_mpi] for c in ("globalTid", "start", "end")))
        if made is not None:
            yield made
    yield from _regions(reading, taken(rows, ~is_mpi), names.where(~is_mpi).renamed(region))


def _of_mpi(seen: Nvtx, rows: Batch) -> Mask:
    of_mpi = np.zeros(len(rows["start"]), bool)
    process = processes(rows["globalTid"])
    for (number, domain), name in seen.domains.items():
        if name == "MPI":
            of_mpi |= (process == number) & (rows["domainId"] == domain)
    return of_mpi


def _regions(reading: NsysReading, rows: Batch, names: NsysWords) -> Iterator[pa.RecordBatch]:
    users = names.codes >= 0
    others = taken(rows, ~users)
    reading.saw(processes(others["globalTid"]), others["start"], others["end"])
    if users.any():
        mine = taken(rows, users)
        who = mine["globalTid"]
        reading.people.work(processes(who), mine["start"], mine["end"], at_work=False)
        yield reading.intervals(
            mine["start"], mine["end"], kind="region", name=names.where(users), process=processes(who), thread=threads(who)
        )


def _closed(reading: NsysReading, seen: Nvtx) -> Iterator[pa.RecordBatch]:
    for start, who, names in seen.open:
        end = np.full(len(start), seen.last, np.int64)
        rows = {"start": start, "end": end, "globalTid": who}
        good = reading.believed(rows, "NVTX ranges")
        reading.problems.repair("NVTX ranges that were never closed end with the last one", int(good.sum()), reading.place)
        yield from _regions(reading, taken(rows, good), names.where(good))
