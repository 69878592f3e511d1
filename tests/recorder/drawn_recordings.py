"""Recordings drawn by chance: every kind of record with times that overlap, clocks that drift or are set, names that change, damage.

They are written with `struct` alone. The same seed draws the same recordings everywhere.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from tests.recorder import recording_structs as structs

LONG = 10**9  # ns from which on clocks drift or are set
EPOCH, UPTIME, HOUR = 1_767_225_600_000_000_000, 3 * 10**12, 3600 * 10**9
INFO, BUFFER, NAMES, HOST, DROPPED, CLOCKS, END = range(1, 8)
MPI, REGION, OPEN, API, OVERHEAD, PAUSE = range(1, 7)
THREAD = 9
KERNELS = ("gemm", "void at::native::softmax<4>(int)", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "", "triton_poi\u2713", "z" * 300)
RANGES = ("forward", "backward", "step", "ncclAllReduce", "aten::add, seq = 3, op_id = 7", "loss, op_id = 7")
MESSAGES = ("MPI_Init_thread", "MPI_Finalize", "MPI_Allreduce", "MPI_Barrier", "MPI_Send")
REGIONS = ("forward", "epoch", "save", "")
HOST_CALLS = ("cudaLaunchKernel", "cudaDeviceSynchronize", "cuMemcpyHtoD_v2")
WAITS = ("OpenMP barrier", "OpenMP idle", "OpenMP fork and join", "OpenMP lock")
HOST_WORDS = (*MESSAGES, *REGIONS, *HOST_CALLS, *WAITS)


def chunk(kind: int, payload: bytes, flags: int = 0) -> bytes:
    """Return a chunk as it stands in the file."""
    return struct.pack("<4sHHQ", b"ULCH", kind, flags, len(payload)) + payload + bytes(-len(payload) % 8)


def named(entries: dict[int, bytes]) -> bytes:
    """Return the payload of NAMES."""
    return b"".join(struct.pack("<QI", key, len(text)) + text for key, text in entries.items())


def written(path: Path, chunks: list[bytes]) -> Path:
    """Write a recording."""
    path.write_bytes(b"ULLAGE\x01\n" + b"".join(chunks))
    return path


@dataclass
class Clocks:
    """A process' clocks: what CUPTI's shows at a moment of the run, and when the others were set."""

    chance: Random
    span: int
    cupti: int  # its zero; EPOCH is CUPTI's own way
    jumps: int  # ns by which CUPTI's is set forward half way through
    set_by: int  # ns by which the machine's is set then
    gain: int  # parts of a million that CUPTI's is fast

    def at(self, moment: int) -> int:
        return self.cupti + moment + moment * self.gain // 10**6 + (self.jumps if moment > self.span // 2 else 0)

    def reading(self, moment: int, silent: bool = False) -> bytes:
        inexact = self.chance.randrange(-200, 200) if self.span > LONG else 0
        cupti = 0 if silent else self.at(moment) + inexact
        return struct.pack("<QQQ", cupti, EPOCH + moment + (self.set_by if moment > self.span // 2 else 0), UPTIME + moment)


def clocks(chance: Random, span: int) -> Clocks:
    """Return clocks: half of them are as they should be."""
    usual = chance.random() < 0.5
    return Clocks(
        chance,
        span,
        cupti=EPOCH if usual else chance.choice([EPOCH, 10**13, 7 * 10**17]),
        jumps=0 if usual or span < LONG else chance.choice([0, HOUR]),
        set_by=0 if usual or span < LONG else chance.choice([0, -HOUR, 30 * 10**9]),
        gain=0 if usual or span < LONG else chance.choice([0, 3, -40]),
    )


@dataclass
class Process:
    """One process in the making. `devices` are the GPUs that it sees, by their numbers in the run."""

    chance: Random
    version: int
    number: int
    span: int
    clocks: Clocks
    devices: list[int]
    threads: list[int] = field(default_factory=list)
    serial: int = 0
    marks: int = 0
    correlation: int = 0
    workers: int = 0  # threads that a runtime of OpenMP made

    # what happens

    def moments(self) -> tuple[int, int]:
        start = self.chance.randrange(self.span)
        longest = self.chance.choice([1, self.span // 100 + 1, self.span // 4 + 1])
        return start, min(start + self.chance.randrange(longest), self.span)

    def times(self) -> dict[str, int]:
        start, end = self.moments()
        found = {"start": self.clocks.at(start), "end": self.clocks.at(end)}
        strange = self.chance.random()
        if strange < 0.01:
            found["end"] = 0
        elif strange < 0.02:
            found = {"start": 0, "end": 0}
        elif strange < 0.03:
            found = {"start": found["end"] + 5, "end": found["start"]}
        elif strange < 0.035:
            found["end"] = 2**64 - 1
        return found

    def on_device(self) -> dict[str, Any]:
        self.correlation += self.chance.randrange(3)
        where = {"deviceId": self.chance.randrange(len(self.devices)), "streamId": self.chance.choice([7, 13, 20]), "contextId": 1}
        return where | {"correlationId": self.correlation, **self.times()}

    def shape(self) -> dict[str, int]:
        sides = {f"{of}{axis}": self.chance.choice([1, 2, 32, 1024, 65535]) for of in ("grid", "block") for axis in "XYZ"}
        if self.chance.random() < 0.05:
            sides[self.chance.choice(list(sides))] = self.chance.choice([-1, 2**31 - 1])
        return sides

    def pointer(self) -> int:
        return self.chance.choice([0, 0x7000, 0x7040, 0x7080, 2**63 + 8, 0x9999])

    def kernel(self) -> bytes:
        kind = self.chance.choice([structs.CONCURRENT] * 5 + [structs.KERNEL, structs.CHILD])
        return self.packed(kind, **self.on_device(), **self.shape(), name=self.pointer())

    def copy(self) -> bytes:
        kind = self.chance.choice([structs.COPY, structs.COPY, structs.PEER_COPY, structs.MEMSET])
        return self.packed(kind, **self.on_device(), copyKind=self.chance.randrange(12), bytes=self.chance.choice([0, 4096, 2**40]))

    def graph(self) -> bytes:
        kinds = [kind for kind in (structs.GRAPH, structs.GRAPH_ON_DEVICE, structs.UNPACKED) if kind in structs.known_in(self.version)]
        return self.packed(self.chance.choice(kinds), **self.on_device(), graphId=self.chance.randrange(3), sourceBytes=77)

    def pages(self) -> bytes:
        counter = {"counterKind": self.chance.randrange(9), "value": 4096, "srcId": 0, "dstId": self.chance.randrange(len(self.devices))}
        return self.packed(structs.PAGES, **self.times(), **counter, streamId=3)

    def call(self) -> bytes:
        kind = self.chance.choice([structs.RUNTIME, structs.RUNTIME, structs.DRIVER])
        who = {"processId": self.number, "threadId": self.chance.choice(self.threads), "correlationId": self.chance.randrange(50)}
        failed = self.chance.choice([0] * 19 + [2])
        return self.packed(kind, **self.times(), **who, cbid=self.chance.choice(list(structs.CALLS[kind])), returnValue=failed)

    def wait(self) -> bytes:
        return self.packed(structs.WAIT, **self.times(), type=self.chance.randrange(5), correlationId=self.chance.randrange(50), streamId=7)

    def overhead(self) -> bytes:
        who = {"objectKind": self.chance.choice([1, 2]), "processId": self.number, "threadId": self.chance.choice(self.threads)}
        return self.packed(structs.OVERHEAD, **self.times(), **who, overheadKind=1 << 16)

    def external(self) -> bytes:
        return self.packed(structs.EXTERNAL, externalKind=1, externalId=2**50, correlationId=self.chance.randrange(50))

    def mark(self) -> list[bytes]:
        """Return the two marks of a range, in any order; sometimes one of them, or an instant's."""
        self.marks += 1
        start, end = self.moments()
        who = {"id": self.marks, "objectKind": 2, "processId": self.number, "threadId": self.chance.choice(self.threads)}
        begin = self.packed(structs.MARKER, **who, flags=2, timestamp=self.clocks.at(start), name=0x8000 + 64 * self.chance.randrange(7))
        over = self.packed(structs.MARKER, **who, flags=4, timestamp=self.clocks.at(end))
        instant = self.packed(structs.MARKER, **who | {"id": 10**6 + self.marks}, flags=1, timestamp=self.clocks.at(start), name=0x8000)
        pair = self.chance.choice([[begin, over], [over, begin]])
        return self.chance.choice([pair] * 8 + [[begin], [over], [*pair, instant]])

    def packed(self, kind: int, **values: Any) -> bytes:
        return structs.packed(kind, self.version, **values)

    # what is written

    def buffers(self) -> list[bytes]:
        """Return buffers, each with what its pointers mean then."""
        sorts: list[Callable[[], bytes]] = [self.kernel] * 8 + [self.copy] * 4 + [self.call] * 6
        sorts += [self.graph, self.pages, self.wait, self.overhead, self.external]
        records = [self.chance.choice(sorts)() for _ in range(self.chance.randrange(5, 90))]
        records += [mark for _ in range(self.chance.randrange(8)) for mark in self.mark()]
        self.chance.shuffle(records)
        found = []
        while records:
            size = self.chance.randrange(1, 30)
            found.append(self.names() + self.buffer(records[:size]))
            records = records[size:]
        return found

    def buffer(self, records: list[bytes]) -> bytes:
        strange = self.chance.random()
        rest = b""
        if strange < 0.05:
            rest = struct.pack("<II", 900, 1) + bytes(40) + records[0]
        elif strange < 0.1:
            rest = records[0][: 8 * self.chance.randrange(1, len(records[0]) // 8)]
        elif strange < 0.3:
            rest = bytes(8 * self.chance.randrange(20))
        return chunk(BUFFER, struct.pack("<QQ", 1, 0) + b"".join(records) + rest)

    def names(self) -> bytes:
        """Return what pointers mean from here on: an address may be another text's by now."""
        known = {0x8000 + 64 * n: name.encode() for n, name in enumerate(RANGES)}
        for address in (0x7000, 0x7040, 0x7080, 2**63 + 8):
            if self.chance.random() < 0.7:
                known[address] = self.chance.choice([*map(str.encode, KERNELS), b"\xff\xfe broken", b"\x1b[31mred"])
        return chunk(NAMES, named(known))

    def host(self) -> list[bytes]:
        """Return chunks of host records: MPI within its Init and Finalize, regions that nest, some never ended."""
        rows = [self.row(self.chance.choice([MPI, REGION, API, OVERHEAD]), *self.moments()) for _ in range(self.chance.randrange(20))]
        rows += [row for _ in range(self.chance.randrange(6)) for row in self.region()]
        if self.chance.random() < 0.3:
            begin, over = sorted(self.chance.randrange(self.span) for _ in range(2))
            rows.append(self.row(MPI, 0, begin, "MPI_Init_thread"))
            rows.append(self.row(MPI, over, self.span, "MPI_Finalize"))
        if self.chance.random() < 0.1:
            rows.append(self.row(99, *self.moments()))
        if self.chance.random() < 0.15:
            rows.append(self.row(PAUSE, *self.moments()))
        rows += self.openmp() if self.workers else []
        middle = self.chance.randrange(len(rows) + 1)
        return [chunk(HOST, b"".join(part)) for part in (rows[:middle], rows[middle:])]

    def openmp(self) -> list[bytes]:
        """Return threads that were made, some of which ended, and what they, the main thread and one of the program's own wait for."""
        rows = []
        for thread in range(500, 500 + self.workers):
            begin, end = self.moments()
            rows.append(self.row(THREAD, begin, -UPTIME, thread=thread))
            rows += [self.row(THREAD, begin, end, thread=thread)] * (self.chance.random() < 0.4)
        anybody = [self.number, 900, *range(500, 500 + self.workers)]
        waits = [
            self.row(MPI, *self.moments(), self.chance.choice(WAITS), self.chance.choice(anybody)) for _ in range(self.chance.randrange(25))
        ]
        return [*rows, *waits]

    def region(self) -> list[bytes]:
        self.serial += 1
        start, end = self.moments()
        name, thread = self.chance.choice(REGIONS), self.chance.choice(self.threads)
        both = [self.row(kind, start, end, name, thread) for kind in (OPEN, REGION)]
        return both[: 1 if self.chance.random() < 0.1 else 2]

    def row(self, kind: int, start: int, end: int, name: str | None = None, thread: int | None = None) -> bytes:
        usual = {MPI: MESSAGES[2:], API: HOST_CALLS}.get(kind, REGIONS)
        number = 1 + HOST_WORDS.index(self.chance.choice(usual) if name is None else name)
        edges = (UPTIME + start, 0 if kind == OPEN else UPTIME + end)
        serial = self.serial if kind in (REGION, OPEN) and name is not None else 0
        return struct.pack("<QQIIHHIQ", *edges, thread or self.chance.choice(self.threads), number, kind, 0, serial, 64 * (kind == MPI))

    def readings(self) -> list[bytes]:
        most = sorted({0, self.span, *(self.chance.randrange(self.span) for _ in range(self.chance.choice([0, 1, 6])))})
        most = most[:1] if self.chance.random() < 0.1 and not self.clocks.jumps else most
        silent = self.clocks.cupti == EPOCH and not self.clocks.jumps and not self.clocks.gain and self.chance.random() < 0.2
        return [chunk(CLOCKS, self.clocks.reading(moment, silent)) for moment in most]

    def info(self) -> list[bytes]:
        """Return what it says of itself, in one object or in several laid over one another."""
        kinds = self.chance.choice([{}, {"kinds": {"10": 0, "4": 0, "5": 0}}, {"kinds": {"10": 0, "38": 0, "5": 15}}])
        said: dict[str, Any] = {"host": "node-1", "pid": self.number, "rank": self.number - 100, "cupti": self.version, **kinds}
        uuids = [{"index": n, "uuid": f"GPU-{UUID(int=gpu + 1)}"} for n, gpu in enumerate(self.devices)]
        if self.chance.random() < 0.5:
            return [chunk(INFO, json.dumps(said | {"devices": uuids}).encode())]
        names = [{"id": n, "uuid": (gpu + 1).to_bytes(16, "big")} for n, gpu in enumerate(self.devices)]
        records = [self.packed(structs.DEVICE, **name) for name in names]
        halves = [chunk(INFO, json.dumps({"pid": 7, **said}).encode()), chunk(INFO, json.dumps(said).encode())]
        return [*halves, chunk(BUFFER, bytes(16) + b"".join(records))]

    def chunks(self) -> list[bytes]:
        middle = self.buffers()
        self.chance.shuffle(middle)
        for kept in (self.host(), self.readings()):  # each stays in its order
            places = sorted(self.chance.randrange(len(middle) + 1) for _ in kept)
            for place, one in zip(reversed(places), reversed(kept), strict=True):
                middle.insert(place, one)
        if self.chance.random() < 0.1:
            paused, resumed = self.moments()
            middle += [chunk(INFO, json.dumps({"paused": UPTIME + paused}).encode())]
            middle += [chunk(INFO, json.dumps({"resumed": UPTIME + resumed}).encode())]
        if self.chance.random() < 0.1:
            middle.append(chunk(DROPPED, struct.pack("<Q", 3)))
        words = chunk(NAMES, named({n: word.encode() for n, word in enumerate(HOST_WORDS, 1)}), flags=1)
        middle.insert(self.chance.randrange(len(middle) + 1), words)
        end = [chunk(END, b"{}")] if self.chance.random() < 0.8 else []
        return [*self.info(), *middle, *end]


def drawn(seed: int, folder: Path, version: int | None = None, *, openmp: bool = False) -> list[Path]:
    """Write the recordings of a seed: one to three processes that share some GPUs, all of one release of CUPTI; with threads of OpenMP."""
    chance = Random(seed)
    version = version or chance.choice(structs.VERSIONS)
    span = chance.choice([300, 10**5, 3 * 10**9])
    paths = []
    for number in range(chance.choice([1, 1, 2, 3])):
        devices = chance.sample(range(3), chance.choice([1, 1, 2]))
        threads = [100 + number, 900, 901][: chance.choice([1, 3])]
        process = Process(chance, version, 100 + number, span, clocks(chance, span), devices, threads)
        process.workers = chance.randrange(1, 5) if openmp else 0
        paths.append(written(folder / f"{number}.ullage", process.chunks()))
    return paths
