"""Recordings written by hand: each moment is a number of ns, and what a file holds is what the test says."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ullage.cupti.chunks import HOST, ChunkType, ChunkWriter, HostKind, names
from ullage.cupti.kinds import ActivityKind
from ullage.cupti.layouts import layouts
from ullage.cupti.releases import release
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.simulate.traces.recording import number
from ullage.traces.recorded.recorded import read
from ullage.traces.trace import File, TraceOptions

EPOCH = 1_767_225_600_000_000_000  # moment 0 since 1970, …
CUPTI = 10**13  # … on CUPTI's clock, …
UPTIME = 3 * 10**12  # … and on the monotonic one
PROCESS, MAIN = 40, 41  # the process and its main thread
KINDS = {"kinds": {"10": 0, "1": 0, "4": 0, "5": 0}}
KERNEL = 0x7000  # where the name "gemm" is


def kernel(start: int, end: int, *, tie: int = 0, stream: int = 7, device: int = 0, name: int = KERNEL, **more: Any) -> bytes:
    """A kernel's record."""
    return record(ActivityKind.CONCURRENT_KERNEL, start, end, correlationId=tie, streamId=stream, deviceId=device, name=name, **more)


def copy(
    start: int, end: int, *, tie: int = 0, bytes: int = 8, device: int = 0, kind: ActivityKind = ActivityKind.MEMCPY, **more: Any
) -> bytes:
    """A copy's record; the eighth sort is from the device to itself."""
    return record(kind, start, end, correlationId=tie, streamId=8, deviceId=device, bytes=bytes, **{"copyKind": 8, **more})


def call(start: int, end: int, name: str = "cudaLaunchKernel", *, tie: int = 0, thread: int = MAIN, returned: int = 0) -> bytes:
    """A call's record, of the driver or of the runtime as its name says."""
    driver = not name.startswith("cuda")
    who = {"threadId": thread, "correlationId": tie, "returnValue": returned, "cbid": number(name, driver=driver)}
    return record(ActivityKind.DRIVER if driver else ActivityKind.RUNTIME, start, end, **who)


def mark(moment: int, flags: int, number: int, name: int = 0, thread: int = MAIN) -> bytes:
    """One mark of an NVTX range: flags 2 begin it, 4 end it."""
    told = {"flags": flags, "timestamp": moment + CUPTI, "id": number, "objectKind": 2, "objectId.pt.threadId": thread, "name": name}
    return record(ActivityKind.MARKER, **told)


def record(kind: int, start: int | None = None, end: int | None = None, version: int = 130001, **values: Any) -> bytes:
    """Any record; `start` and `end` are moments."""
    layout = layouts(release(version)).of(kind)
    assert layout is not None
    made = np.zeros((), layout.dtype)
    made["kind"] = kind
    for name, value in values.items():
        made[name] = value
    for name, moment in (("start", start), ("end", end)):
        if moment is not None:
            made[name] = moment + CUPTI
    return made.tobytes()


def host(start: int, end: int, name: int, kind: HostKind = HostKind.REGION, *, serial: int = 1, thread: int = MAIN) -> tuple[int, ...]:
    """A record of HOST; an open region's end is 0."""
    return start + UPTIME, 0 if kind == HostKind.OPEN else end + UPTIME, thread, name, kind, 0, serial, 0


class Made:
    """A recording in the making; every method returns it."""

    def __init__(self, path: Path, version: int | None = 130001, **info: Any) -> None:
        self.path, self._writer = path, ChunkWriter(path)
        self.info(**{"pid": PROCESS, "host": "node-1", **KINDS} | ({} if version is None else {"cupti": version}) | info)

    def info(self, **said: Any) -> Made:
        self._writer.add(ChunkType.INFO, said)
        return self

    def clocks(self, moment: int, *, set_by: int = 0, drift: int = 0) -> Made:
        """Read the clocks; the machine's was set by so much before, and CUPTI's has drifted."""
        return self.add(ChunkType.CLOCKS, struct.pack("<QQQ", CUPTI + moment + drift, EPOCH + moment + set_by, UPTIME + moment))

    def named(self, entries: dict[int, str], flags: int = 0) -> Made:
        return self.add(ChunkType.NAMES, names(entries), flags)

    def buffer(self, *records: bytes) -> Made:
        return self.add(ChunkType.BUFFER, struct.pack("<QQ", 1, 0) + b"".join(records))

    def host(self, *rows: tuple[int, ...]) -> Made:
        return self.add(ChunkType.HOST, np.array(list(rows), HOST).tobytes())

    def add(self, kind: ChunkType, payload: bytes, flags: int = 0) -> Made:
        self._writer.add(kind, payload, flags)
        return self

    def end(self, **cost: Any) -> Path:
        """End it as a program does that ends by itself."""
        self._writer.add(ChunkType.END, cost)
        return self.killed()

    def killed(self) -> Path:
        """End it as a program does that is killed."""
        self._writer.close()
        return self.path


def busy(path: Path, version: int = 130001) -> Path:
    """Launch 0-1, kernel 2-12 on one stream and 7-17 on another, a copy 15-27, a wait 20-30; the recorder is there from 0 to 40."""
    made = Made(path, version).clocks(0).named({KERNEL: "gemm"})
    made.buffer(
        call(0, 1, tie=1), call(1, 2, tie=2), call(3, 5, "cudaMemcpyAsync", tie=3), kernel(2, 12, tie=1), kernel(7, 17, tie=2, stream=9),
        copy(15, 27, tie=3), call(20, 30, "cudaDeviceSynchronize", tie=4),
    )  # fmt: skip
    return made.clocks(40).end()


def rows(path: Path, options: TraceOptions | None = None) -> tuple[list[dict[str, Any]], Recording, Problems]:
    """The intervals of a recording, by their moments, with what is said beside them."""
    recording, problems = Recording(str(path)), Problems()
    batches = list(read(File(path, b""), recording, options or TraceOptions(), problems))
    found = [row for batch in batches for row in batch.to_pylist()]
    for row in found:
        row["start"], row["end"] = row["start"] - EPOCH, row["end"] - EPOCH
    return found, recording, problems


def of(found: Iterable[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The rows of one kind, with what they say and nothing else."""
    return [{name: value for name, value in row.items() if value is not None and name != "kind"} for row in found if row["kind"] == kind]
