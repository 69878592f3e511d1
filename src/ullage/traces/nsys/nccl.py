"""What NCCL says of its operations in NVTX payloads: how many bytes, in which communicator, of how many ranks.

NCCL marks each call with a range of its domain; the payload is binary, in the layout that NVTX_PAYLOAD_SCHEMAS and their entries tell (32
bytes that say which schema it is of, then its fields at their offsets). A kernel belongs to the range in which it was launched. Of a group
(ncclGroupStart to ncclGroupEnd) it belongs to all calls of the group, if one kernel alone is launched at its end and all are of one
communicator and one operation (or sends and receives).

Sizes are counted as elsewhere, the larger of what goes into a rank and what comes out; of gathers and scatters NCCL says the size of one
rank's part, so that the number of ranks must be known.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ullage.traces.calls import operation
from ullage.traces.nsys.file import Database
from ullage.traces.nsys.names import NsysNames
from ullage.traces.nsys.pages import Numbers
from ullage.traces.nsys.records import MISSING
from ullage.traces.nsys.who import processes

_COMMUNICATOR, _SIZE, _RANKS = "NCCL communicator ID", "Message size [bytes]", "No. of ranks"
_FORMATS = {5: "<i", 6: "<I", 9: "<q", 10: "<Q", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 22: "<Q", 23: "<Q"}  # nvtxPayloadEntryType
_HEADER = struct.Struct("<IIIIQQ")  # domain, -, schema, -, size of the payload, size of all
_PARTS = ("allgather", "reducescatter", "alltoall")  # of which NCCL says the size of one rank's part
_GROUP_END = "ncclGroupEnd"


class Payload(NamedTuple):
    """What one call of NCCL was given: from when to when it ran; its operation, bytes and communicator."""

    start: int
    end: int
    operation: str
    bytes: int
    communicator: int


@dataclass
class NcclCalls:
    """The calls of NCCL whose payloads are known, by thread (`globalTid`), with the ends of groups; how many ranks communicators have; and,
    by process and correlation, what is known of what was launched: bytes, communicator and members (`MISSING` where not known)."""

    calls: dict[int, list[Payload]] = field(default_factory=lambda: defaultdict(list))
    groups: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    ranks: dict[int, int] = field(default_factory=dict)
    launches: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))  # by thread: start by correlation
    known: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)

    def launched(self, thread: Numbers, correlation: Numbers, start: Numbers) -> None:
        """Take in calls that launch; those of threads that never called NCCL are let go."""
        mine = np.isin(thread, list(self.calls))
        for who, number, at in zip(thread[mine].tolist(), correlation[mine].tolist(), start[mine].tolist(), strict=True):
            own = self.launches[who]
            own[number] = min(at, own.get(number, at))

    def match(self) -> None:
        """Find out what each launch was for; all calls have been taken in."""
        for thread, launches in self.launches.items():
            process = int(processes(np.array([thread]))[0])
            for number, calls in _belonging(launches, sorted(self.calls[thread]), sorted(self.groups[thread])):
                found = self._told(calls)
                if found is not None:
                    self.known[process, number] = found
        self.launches.clear()

    def _told(self, calls: list[Payload]) -> tuple[int, int, int] | None:
        operations, communicators = {call.operation for call in calls}, {call.communicator for call in calls}
        if len(communicators) != 1 or (len(operations) > 1 and operations != {"send", "recv"}):
            return None
        communicator, one = communicators.pop(), min(operations)
        members = self.ranks.get(communicator, MISSING)
        whole = max(sum(call.bytes for call in calls if call.operation == word) for word in operations)
        size = whole if one not in _PARTS else whole * members if members != MISSING else MISSING
        return (size if size < 2**53 else MISSING), communicator, members


def nccl_calls(database: Database, names: NsysNames) -> NcclCalls:
    """Return what payloads say of calls of NCCL; nothing where a database has none."""
    found = NcclCalls()
    schemas = dict(_schemas(database))
    table = database.table("NVTX_EVENTS")
    if not schemas or table is None or not {"binaryData", "start", "end", "globalTid", "domainId"} <= set(table.columns):
        return found
    text, number = ("text" if "text" in table else "NULL"), ("textId" if "textId" in table else "NULL")
    domains = ", ".join(sorted({str(domain) for domain, _ in schemas}))
    sql = f'SELECT start, "end", globalTid, {text}, {number}, binaryData FROM "{table.name}" WHERE domainId IN ({domains})'  # noqa: S608
    words: dict[int, str] = {}
    for start, end, thread, word, word_id, data in database.query(table.name, sql):
        if not (isinstance(start, int) and isinstance(end, int) and isinstance(thread, int)):
            continue
        if not isinstance(word, str) and isinstance(word_id, int):
            word = words[word_id] if word_id in words else words.setdefault(word_id, names.of(np.array([word_id])).table[0])
        name = word if isinstance(word, str) else ""
        given = _fields(data, schemas) if isinstance(data, bytes) else {}
        communicator = given.get(_COMMUNICATOR)
        if name == _GROUP_END:
            found.groups[thread].append((start, end))
        elif communicator is not None and _SIZE in given and 0 <= given[_SIZE] < 2**53:
            found.calls[thread].append(Payload(start, end, _operation(name), given[_SIZE], communicator))
        elif communicator is not None and 0 < given.get(_RANKS, 0) < 2**31:
            found.ranks[communicator] = given[_RANKS]
    return found


def _operation(name: str) -> str:
    return {"ncclSend": "send", "ncclRecv": "recv"}.get(name) or operation(name) or name


_Schemas = dict[tuple[int, int], list[tuple[str, int, str]]]


def _schemas(database: Database) -> Iterator[tuple[tuple[int, int], list[tuple[str, int, str]]]]:
    """Yield the schemas of NCCL's payloads, by domain and number: the names, offsets and formats of the fields that are used."""
    entries: _Schemas = defaultdict(list)
    for domain, schema, name, kind, offset in database.rows(
        "NVTX_PAYLOAD_SCHEMA_ENTRIES", "domainId", "schemaId", "name", "type", "offset"
    ):
        if isinstance(domain, int) and isinstance(schema, int) and name in (_COMMUNICATOR, _SIZE, _RANKS) and kind in _FORMATS:
            entries[domain, schema].append((name, offset if isinstance(offset, int) else 0, _FORMATS[kind]))
    yield from ((key, fields) for key, fields in entries.items() if any(name == _COMMUNICATOR for name, _, _ in fields))


def _fields(data: bytes, schemas: _Schemas) -> dict[str, int]:
    """Return the fields of a payload; nothing of one that is damaged, or of a schema that is not known."""
    if len(data) < _HEADER.size:
        return {}
    domain, _, schema, _, size, _ = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    given: dict[str, int] = {}
    for name, offset, form in schemas.get((domain, schema), ()):
        if offset < 0 or offset + struct.calcsize(form) > min(len(payload), size):
            return {}
        given[name] = struct.unpack_from(form, payload, offset)[0]
    return given


def _belonging(launches: dict[int, int], calls: list[Payload], groups: list[tuple[int, int]]) -> Iterator[tuple[int, list[Payload]]]:
    """Yield for each launch of a thread (by its correlation) the calls of NCCL that it is for; calls of one thread don't overlap."""
    order = sorted(launches, key=lambda number: launches[number])
    starts = np.array([launches[number] for number in order], np.int64)
    begun, ended = np.array([call.start for call in calls], np.int64), np.array([call.end for call in calls], np.int64)
    within = np.searchsorted(begun, starts, side="right") - 1
    alone = (within >= 0) & (ended[np.maximum(within, 0)] >= starts)
    for place in np.flatnonzero(alone).tolist():
        yield order[place], [calls[int(within[place])]]
    used, last = set(within[alone].tolist()), 0
    for low, high in groups:
        first, behind = np.searchsorted(starts, [low, high + 1]).tolist()
        if first == behind:
            continue  # an inner group: nothing is launched before the outer one ends
        until = int(np.searchsorted(ended, low, side="right"))
        mine = [calls[place] for place in range(last, until) if place not in used]
        last = max(last, until)
        if behind - first == 1 and mine and not alone[first]:
            yield order[first], mine
