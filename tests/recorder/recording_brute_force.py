"""Recordings worked out a second time: record by record with `struct`, moment by moment, with none of Ullage's readers, layouts or sums.

Written from what `ullage.cupti.chunks` says of the file and from the structs of CUPTI's headers 12.0 to 13.5. Times are Python integers
of ns; lines between readings of the clocks are fractions; all sums come from one sweep over sorted edges.
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.recorder import recording_structs as structs

Span = tuple[int, int]
_COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_PAGES = {1: "Unified HtoD", 2: "Unified DtoH", 8: "Unified DtoD"}
_FOR_STREAM = 3
_WAITS = {1: "cuEventSynchronize", 3: "cuStreamSynchronize", 4: "cuCtxSynchronize"}
_THREAD = 2
RECORDER = "Ullage's recorder"  # what overhead without a name is
_OVERHEAD = "CUPTI buffer flush"  # 1 << 16, the only one that is drawn
_RANGE_BEGINS, _RANGE_ENDS = 2, 4
MPI, REGION, OPEN, API, OVERHEAD, PAUSE, THREAD = 1, 2, 3, 4, 5, 6, 9  # kinds of HOST records
NEVER, NO_ROOM = 1 << 62, 1 << 63
MINUTE, HUNDRED_DAYS = 60 * 10**9, 100 * 86_400 * 10**9


@dataclass(frozen=True)
class Row:
    """An interval as a reader gives it; None is "not known"."""

    kind: str
    start: int
    end: int
    name: str | None = None
    thread: int | None = None
    device: int | None = None
    stream: int | None = None
    correlation: int | None = None
    bytes: int | None = None
    blocks: int | None = None
    threads: int | None = None
    registers: int | None = None
    shared: int | None = None
    awaited_stream: int | None = None
    submits: bool = False


@dataclass
class Recording:
    """One process: what it says of itself, its rows, from when to when it lived, and what could not be used, by what it was."""

    path: str
    info: dict[str, Any] = field(default_factory=dict)
    readings: list[tuple[int, int, int]] = field(default_factory=list)
    host_names: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    uuids: dict[int, str] = field(default_factory=dict)
    marks: dict[int, dict[str, tuple[int, int, str | None]]] = field(default_factory=dict)
    open: dict[int, tuple[int, int, str | None]] = field(default_factory=dict)
    bad: Counter[str] = field(default_factory=Counter)
    pauses: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))  # as INFO says, as HOST says; on the monotonic clock
    dropped: int = 0
    ended: bool = False
    mpi: list[int | None] = field(default_factory=lambda: [None, None])  # when MPI_Init returned, when MPI_Finalize was called
    made: list[tuple[int, int, int]] = field(default_factory=list)  # threads of OpenMP: which, from when, until when (0: not told)
    threads: list[tuple[int, bool]] = field(default_factory=list)  # of each HOST record, and whether it is of MPI_Init

    @property
    def window(self) -> Span | None:
        """From when to when it is looked at: while the recorder was there and whatever else it did, but between Init and Finalize."""
        did = [r for r in self.rows if r.kind not in ("region", "overhead", "lost")]
        begins, ends = [r.start for r in did], [r.end for r in did]
        if self.readings:
            begins.append(self.there[0])
            ends.append(self.there[1])
        if not begins:
            return None
        first, last = (min(begins), max(ends))
        begin, end = first if self.mpi[0] is None else self.mpi[0], last if self.mpi[1] is None else self.mpi[1]
        return (begin, end) if begin < end else (first, last)

    @cached_property
    def there(self) -> Span:
        """From when to when the recorder was there: since the library was loaded, if nobody set the clock in between."""
        first, last = self.moment(self.readings[0][2]), self.moment(self.readings[-1][2])
        apart = [real - monotonic for _, real, monotonic in self.readings]
        started = self.info.get("started", first)
        is_set = max(apart) - min(apart) > 10**6 + (last - first) // 1000
        return (started if started <= first and not is_set else first), last

    @property
    def calls(self) -> list[Row]:
        """Return the calls of the process' host lane: the longest in CUDA in the window, of those that put work on a device."""
        first, last = self.window or (0, 0)
        calls = [r for r in self.rows if r.kind == "api"]
        candidates = sorted({r.thread for r in calls if r.submits} or {r.thread for r in calls}, key=lambda t: t or 0)
        by_thread = [[r for r in calls if r.thread == thread] for thread in candidates]
        inside = [[(max(r.start, first), min(r.end, last)) for r in rows if r.start < last and r.end > first] for rows in by_thread]
        return max(zip(inside, by_thread, strict=True), key=lambda both: covered(both[0]), default=([], []))[1]

    # the clock

    @cached_property
    def offset(self) -> int:
        apart = sorted(real - monotonic for _, real, monotonic in self.readings)
        return apart[len(apart) // 2] if apart else 0

    def moment(self, monotonic: int) -> int:
        return monotonic + self.offset

    @cached_property
    def lines(self) -> list[list[tuple[int, int]]]:
        """Return the readings of CUPTI's clock as (its time, the monotonic one), parted where somebody set it."""
        found: list[list[tuple[int, int]]] = []
        for cupti, _, monotonic in self.readings:
            if not cupti:
                continue
            if found:
                before, then = found[-1][-1]
                jumped = abs((monotonic - cupti) - (then - before)) > 10**6 + (monotonic - then) // 1000
            if not found or jumped or cupti < before:
                found.append([])
            found[-1].append((cupti, monotonic))
        return found

    def since_1970(self, cupti: int) -> int:
        """Return a time of CUPTI's on the clock since 1970."""
        if not self.lines:
            return cupti
        line = min(self.lines, key=lambda line: max(line[0][0] - cupti, cupti - line[-1][0], 0))
        return cupti + self.offset + round(added(line, cupti))

    def may_be(self, time: int) -> bool:
        if not self.readings:
            return 0 < time < NEVER
        first, last = self.there
        return first - MINUTE <= time <= (last + MINUTE if self.ended else first + HUNDRED_DAYS)


def added(line: list[tuple[int, int]], cupti: int) -> Fraction:
    """Return by how much the monotonic clock is ahead: on the line between the readings around a time, beyond them as at the nearest."""
    ahead = [(at, monotonic - at) for at, monotonic in dict(reversed(line)).items()]
    ahead.sort()
    for (a, low), (b, high) in pairwise(ahead):
        if a <= cupti <= b:
            return low + Fraction((high - low) * (cupti - a), b - a)
    return Fraction(ahead[0][1] if cupti < ahead[0][0] else ahead[-1][1])


# the file


def chunks(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield type, flags and payload of each whole chunk."""
    assert data[:8] == b"ULLAGE\x01\n"
    at = 8
    while at + 16 <= len(data):
        mark, kind, flags, length = struct.unpack_from("<4sHHQ", data, at)
        padded = (length + 7) // 8 * 8
        if mark != b"ULCH" or at + 16 + padded > len(data):
            return
        yield kind, flags, data[at + 16 : at + 16 + length]
        at += 16 + padded


def entries(payload: bytes) -> Iterator[tuple[int, str]]:
    at = 0
    while at + 12 <= len(payload):
        key, length = struct.unpack_from("<QI", payload, at)
        yield key, payload[at + 12 : at + 12 + length].decode("utf-8", "replace")
        at += 12 + length


def read(path: Path) -> Recording:
    """Return a recording, worked out."""
    found, data = Recording(str(path)), path.read_bytes()
    for kind, flags, payload in chunks(data):
        if kind == 1:
            said = json.loads(payload)
            found.info |= said
            found.pauses[0].extend([said["paused"]] if "paused" in said else [])
        elif kind == 3 and flags:
            found.host_names |= dict(entries(payload))
        elif kind == 5:
            found.dropped += struct.unpack("<Q", payload)[0]
        elif kind == 6:
            found.readings.append(struct.unpack("<QQQ", payload))
        elif kind == 7:
            found.ended = True
    for kind, flags, payload in chunks(data):
        if kind == 2:
            _buffer(found, payload[16:])
        elif kind == 3 and not flags:
            found.names |= dict(entries(payload))
        elif kind == 4:
            for at in range(0, len(payload) - 39, 40):
                _host(found, *struct.unpack_from("<QQIIHHIQ", payload, at))
    _helpers(found)
    _of_openmp(found)
    _never_ended(found)
    _paused(found)
    for told in found.info.get("devices", []):
        found.uuids.setdefault(told["index"], told["uuid"])
    return found


def _helpers(found: Recording) -> None:
    """A process communicates in the thread that called MPI_Init, or in its first one if that did anything; others help."""
    own = next((thread for thread, begins in found.threads if begins), None)
    if own is not None and any(thread == found.info["pid"] for thread, _ in found.threads):
        own = found.info["pid"]
    for at, row in enumerate(found.rows):
        if own is not None and row.kind == "mpi" and (row.name or "").startswith("MPI_") and row.thread != own:
            found.rows[at] = replace(row, kind="helper")


def _buffer(found: Recording, data: bytes) -> None:
    version, at = found.info["cupti"], 0
    known = structs.known_in(version)
    while at + 4 <= len(data) and any(data[at:]):
        kind = int.from_bytes(data[at : at + 4], "little")
        size = structs.layout(kind, version)[0].size if kind in known else 0
        if not size or at + size > len(data):
            found.bad["buffers"] += 1
            return
        _record(found, kind, structs.record(kind, version, data, at))
        at += size


def _record(found: Recording, kind: int, told: dict[str, Any]) -> None:
    if kind == structs.DEVICE:
        mig = "migUuid" if told["isMigEnabled"] else "uuid"
        found.uuids[told["id"]] = ("MIG-" if told["isMigEnabled"] else "GPU-") + told[mig].hex()
    elif kind == structs.MARKER:
        _mark(found, told)
    elif kind in (structs.DRIVER, structs.RUNTIME, structs.OVERHEAD, structs.WAIT):
        _of_host(found, kind, told)
    elif kind not in (structs.EXTERNAL, structs.CONTEXT, structs.MARKER_DATA):
        _on_device(found, kind, told)


def _of_host(found: Recording, kind: int, told: dict[str, Any]) -> None:
    start, end = found.since_1970(told["start"]), found.since_1970(told["end"])
    calls = not found.info.get("kinds") or any(found.info["kinds"].get(word) == 0 for word in ("4", "5"))
    if kind == structs.WAIT and (told["type"] != _FOR_STREAM if calls else told["type"] not in _WAITS):
        return
    if not (start <= end and found.may_be(start) and found.may_be(end)):
        found.bad["host"] += 1
        return
    thread = told.get("threadId")
    tie = told.get("correlationId") or None
    if kind == structs.OVERHEAD:
        found.rows.append(Row("overhead", start, end, _OVERHEAD, thread if told["objectKind"] == _THREAD else None))
    elif kind == structs.WAIT and calls:
        found.rows.append(Row("event", start, end, correlation=tie, awaited_stream=told["streamId"]))
    elif kind == structs.WAIT:
        found.rows.append(Row("api", start, end, _WAITS[told["type"]], found.info["pid"], correlation=tie))
    else:
        name, puts, _ = structs.CALLS[kind][told["cbid"]].partition(" *")
        found.rows.append(Row("api", start, end, name, thread, correlation=tie, submits=bool(puts) and not told["returnValue"]))


def _on_device(found: Recording, kind: int, told: dict[str, Any]) -> None:
    if kind == structs.PAGES and told["counterKind"] not in _PAGES:
        return
    start, end = found.since_1970(told["start"]), found.since_1970(told["end"])
    row = Row(**_what(found, kind, told), start=start, end=end)
    if start <= end and found.may_be(start) and found.may_be(end) and (told["start"] or told["end"]):
        found.rows.append(row)
        return
    found.bad["device"] += 1
    if told["start"] and found.may_be(start):
        found.rows.append(Row(**vars(row) | {"kind": "lost", "end": start}))
    else:
        found.bad["untimed"] += 1


def shared_memory(told: dict[str, Any]) -> int | None:
    """Return the shared memory of a block, of a kernel whose registers are told."""
    parts = told.get("staticSharedMemory", -1), told.get("dynamicSharedMemory", -1)
    return sum(parts) if told.get("registersPerThread") and min(parts) >= 0 and sum(parts) < 2**31 else None


def _what(found: Recording, kind: int, told: dict[str, Any]) -> dict[str, Any]:
    stream = told["streamId"] if told["streamId"] < NO_ROOM else None
    where = {"stream": stream, "correlation": told.get("correlationId") or None}
    if kind in (structs.KERNEL, structs.CONCURRENT, structs.CHILD):
        name = found.names.get(told["name"]) or None
        sort = "collective" if name and re.search(r"nccl(Dev)?Kernel", name) else "kernel"
        grid, block = ([told[f"{of}{axis}"] for axis in "XYZ"] for of in ("grid", "block"))
        more = {"kind": sort, "name": name, "blocks": product(grid, NO_ROOM), "threads": product(block, 2**31)}
        more |= {"registers": told.get("registersPerThread") or None, "shared": shared_memory(told)}
    elif kind in (structs.COPY, structs.PEER_COPY):
        way = _COPIES.get(told["copyKind"])
        more = {"kind": "memcpy", "name": f"Memcpy {way}" if way else "Memcpy", "bytes": told["bytes"]}
    elif kind == structs.PAGES:
        way = told["counterKind"]
        told = told | {"deviceId": told["srcId" if way == 2 else "dstId"]}
        more = {"kind": "memcpy", "name": f"Memcpy {_PAGES[way]}", "bytes": told["value"]}
    elif kind == structs.UNPACKED:
        more = {"kind": "memcpy", "name": "Decompress", "bytes": told["sourceBytes"]}
    elif kind == structs.MEMSET:
        more = {"kind": "memset", "name": "Memset", "bytes": told["bytes"]}
    else:
        more = {"kind": "graph", "name": f"graph {told['graphId']}"}
    if more.get("bytes", 0) >= NO_ROOM:
        more["bytes"] = None
    return {**where, **more, "device": told["deviceId"] if told["deviceId"] < 2**31 else None}


def product(sides: list[int], limit: int) -> int | None:
    """Return how many there are of something with these sides, None for what can't be."""
    whole = sides[0] * sides[1] * sides[2]
    return whole if min(sides) >= 0 and whole < limit else None


def _mark(found: Recording, told: dict[str, Any]) -> None:
    moment = found.since_1970(told["timestamp"])
    edge = "begin" if told["flags"] & _RANGE_BEGINS else "end" if told["flags"] & _RANGE_ENDS else ""
    if not edge:
        return
    if not found.may_be(moment):
        found.bad["host"] += 1
        return
    halves = found.marks.setdefault(told["id"], {})
    halves[edge] = (moment, told["threadId"], found.names.get(told["name"]))
    if len(halves) == 2 and halves["begin"][0] <= halves["end"][0]:
        _range(found, halves["begin"], halves["end"][0])
        del found.marks[told["id"]]


def _range(found: Recording, begin: tuple[int, int, str | None], end: int) -> None:
    start, thread, name = begin
    if name and not re.match(r"p?nccl[A-Z:]\w+$|aten::.*, seq = ", name):
        found.rows.append(Row("region", start, end, re.sub(r"(?s), (op_id|sizes|input_op_ids) = .*", "", name), thread))


def _host(found: Recording, start: int, end: int, thread: int, name: int, kind: int, depth: int, serial: int, size: int) -> None:
    word = found.host_names.get(name) or None
    begin, over = found.moment(start), found.moment(end)
    found.threads.append((thread, kind == MPI and word in ("MPI_Init", "MPI_Init_thread")))
    if kind == OPEN:
        found.open[serial] = (begin, thread, word)
        return
    if kind == THREAD:
        found.made.append((thread, start, end))
        return
    if kind not in (MPI, REGION, API, OVERHEAD, PAUSE):
        found.bad["unknown"] += 1
    elif not (begin <= over and found.may_be(begin) and found.may_be(over)):
        found.bad["host"] += 1
    elif kind == PAUSE:
        found.pauses[1].append(start)
    elif kind == MPI and word and re.fullmatch(r"MPI_Init(_thread)?", word):
        found.mpi[0] = max(over, found.mpi[0] or over)
    elif kind == MPI and word == "MPI_Finalize":
        found.mpi[1] = min(begin, found.mpi[1] or begin)
    else:
        sort = (
            "parallel"
            if kind == MPI and word and word.startswith("OpenMP ")
            else {MPI: "mpi", REGION: "region", API: "api", OVERHEAD: "overhead"}[kind]
        )
        submits = bool(word and re.match(r"cu(da)?(Launch|Memcpy|Memset)", word))
        word = word or (RECORDER if kind == OVERHEAD else None)
        found.rows.append(Row(sort, begin, over, word, thread, bytes=size or None if sort == "mpi" else None, submits=submits))
    if kind == REGION:
        found.open.pop(serial, None)


def _of_openmp(found: Recording) -> None:
    """OpenMP's threads are the main one, 0, and those that its runtime made: one that comes when another has ended takes its number.
    Before it is made, and when it has ended, it waits."""
    ends = {(thread, begin): end for thread, begin, end in found.made if end}
    lives: list[list[tuple[int, int, int]]] = []
    for at, (thread, begin, _) in enumerate(found.made):
        if all(one[:2] != (thread, begin) for one in found.made[:at]):
            known = {(one, since): over for one, since, over in found.made[:at] if over}  # as far as the file has told by then
            place = next((n for n, some in enumerate(lives) if 0 < known.get(some[-1][:2], 0) <= begin), len(lives))
            lives[place:] = lives[place:] or [[]]
            lives[place].append((thread, begin, ends.get((thread, begin), 0)))
    numbers = {thread: n for n, some in enumerate(lives, 1) for thread, _, _ in some} | {found.info["pid"]: 0}
    waits = [row for row in found.rows if row.kind == "parallel" and row.thread in numbers]
    found.rows = [row for row in found.rows if row.kind != "parallel"]
    found.rows += [replace(row, thread=numbers[row.thread]) for row in waits if row.thread is not None]
    for number, some in enumerate(lives, 1):
        first, last = found.window or (0, 0)
        before = first
        for _, begin, end in [*some, (0, last - found.offset, 0)]:
            over = min(max(found.moment(begin), first), last)
            if before < over:
                found.rows.append(Row("parallel", before, over, "OpenMP thread not created", number))
            before = min(max(found.moment(end), first), last) if end else last


def _never_ended(found: Recording) -> None:
    """What never ended ends with the process."""
    last = found.window[1] if found.window is not None else 0
    for begin, thread, name in found.open.values():
        if begin <= last:
            found.rows.append(Row("region", begin, last, name, thread))
    for halves in found.marks.values():
        if "begin" in halves and halves["begin"][0] <= last:
            _range(found, halves["begin"], last)


def _paused(found: Recording) -> None:
    """From where recording was stopped nobody knows what a device did: an event of unknown length."""
    used = sorted({r.device for r in found.rows if r.device is not None})
    moments = [found.moment(begin) for begin in found.pauses[0] or found.pauses[1]]
    found.rows += [Row("lost", moment, moment, device=device) for device in used for moment in moments]


# sweeping


def sweep(spans: Iterable[tuple[int, int, str]]) -> Counter[frozenset[str]]:
    """Return how long each combination of words holds, in ns."""
    edges = [edge for a, b, word in spans if b > a for edge in ((a, 1, word), (b, -1, word))]
    found: Counter[frozenset[str]] = Counter()
    running: Counter[str] = Counter()
    before = 0
    for moment, change, word in sorted(edges, key=lambda edge: edge[0]):
        found[frozenset(name for name, count in running.items() if count)] += moment - before
        running[word] += change
        before = moment
    return found


def covered(spans: Iterable[Span]) -> int:
    """Return how long at least one span lasts."""
    return sum(length for words, length in sweep((a, b, "") for a, b in spans).items() if words)
