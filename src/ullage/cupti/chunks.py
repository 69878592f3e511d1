"""The file of a recording: chunks, appended one by one by a recorder inside the program, so that a killed one leaves what it wrote.

A recording is one process. Everything is little-endian. The file begins with `MAGIC` (8 bytes); then chunk follows chunk, each a
header of 16 bytes (`ULCH`, type as u16, flags as u16, length of the payload as u64) and the payload, padded with zeros to a multiple of
8. A writer appends a whole chunk with one `write`, so that a chunk is there or is cut at the file's end, nowhere else.

=======  ============  ======================================================================================================
type     name          payload
=======  ============  ======================================================================================================
1        INFO          JSON, one object; the objects of later INFO chunks are laid over earlier ones, key by key
2        BUFFER        u64 context, u64 stream (0: not told), then a completed activity buffer's valid bytes, just as CUPTI left them
3        NAMES         entries: u64 key, u32 length, the bytes. flags 0: the text that a pointer in *later* BUFFERs points to;
                       flags 1: a name of HOST records by its number, for all of the file
4        HOST          records of `HOST`: what the program's own threads did, on the monotonic clock
5        DROPPED       u64: activity records that CUPTI says it dropped since the last such chunk
6        CLOCKS        u64 CUPTI's time (0: CUPTI isn't there), u64 CLOCK_REALTIME, u64 CLOCK_MONOTONIC, read at one moment, all in ns
7        END           JSON: the program ended by itself; what the recorder cost (see `live`)
8        READING       JSON: counters of the devices at a moment (a sample of GPM or PM sampling)
9        IMAGE         u32 length, that many bytes of JSON that says what it is (chip, metrics, ranges, replay), padded to 8 bytes
                       from the payload's start, then an image of counter data
10       SUMS          at the end, one for each thread that was summed up: as in `rings` a ring's sums, with those rows that are used, then
                       as many u64: ns of each row on no processor
11       SAMPLES       u32 length, that many bytes of JSON that says of which context they are and what CUPTI counted, padded to 8 bytes
                       from the payload's start, then records of `SAMPLE`: sampled program counters
12       CUBIN         u64 CUPTI's CRC, then the machine code that has it, as it was loaded
13       SASS          JSON: what kernels executed in a context: `context`, `device`, `chip`, `dropped` (records that CUPTI lost), `metrics`
                       (their names), `lacking` (those that the chip does not have), `kernels` (of each: number of
                       its name, launches, then its count of each metric)
20       NCCL          records of `NCCL`: collectives, as NCCL told them to its profiler plugin
=======  ============  ======================================================================================================

INFO has, each only if known: `host`, `pid`, `parent`, `rank`, `ranks`, `local_rank`, `program` (its arguments), `started` (CLOCK_REALTIME,
ns), `mpi_within_ns` and `mpi_between_ns` (what an empty call of MPI takes within its record, and after it), `sum_within_ns` and
`sum_between_ns` (the same of one that is only counted), `region_ns` (what an empty region takes), `cpu_clock_ns` (what a reading of a
thread's CPU clock takes: then time on no processor is recorded), `processor_wait_ns` and `disk_wait_ns` (for how long the first thread
could have run but had no processor, and waited for a disk, as the system accounts for it), `cupti` (what cuptiGetVersion says),
`library` (its path), `shared` (whether other tools may have it too), `driver` (CUDA version of the driver, 13000), `kinds` (of each
activity kind that was asked for, by number, CUPTI's answer; 0 is "enabled"), `devices` (a list of {index, name, uuid, sms, bus,
capability}), `nccl` (of its collectives: `interface`, the version of the profiler plugin's; `communicators`; `collectives` that began;
of these `counted`, only counted; `lost`, there was no room for them; `astray`, calls about what was no longer known), `problems` (a list of
{what, code, detail}: calls that failed; `code` is CUPTI's, an errno, or −1 for what isn't there).
"""

from __future__ import annotations

import errno
import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ullage.errors import UllageError, harmless

MAGIC = b"ULLAGE\x01\n"
MARK = b"ULCH"
HEADER = struct.Struct("<4sHHQ")
DEEPEST = 1 << 16  # regions within one another
LONGEST = 1 << 30  # bytes of a chunk: what is longer is damage


class ChunkType(IntEnum):
    """What a chunk holds."""

    INFO = 1
    BUFFER = 2
    NAMES = 3
    HOST = 4
    DROPPED = 5
    CLOCKS = 6
    END = 7
    READING = 8
    IMAGE = 9
    SUMS = 10
    SAMPLES = 11
    CUBIN = 12
    SASS = 13
    NCCL = 20


class HostKind(IntEnum):
    """What a record of HOST is. An OPEN record stands where a region begins; its end comes later as a REGION of the same `serial`. In a
    PAUSE nothing of CUDA was recorded: it is not known to be idle time. WAITING is a call of MPI that had not ended at `end`, told again
    and again, until an MPI record of the same thread and `start` says when it ended.

    A THREAD was made by a runtime (OpenMP's) at `start`, and ended at `end` (0: not yet). What OpenMP's threads wait for is told as MPI is,
    by names that begin with `OPENMP`.

    A SUM says how long (`bytes`, in ns) of the time from `start` to `end` a thread was in some state: in the call `name` (0: in none,
    `NOBODY`: there was no such thread; `OFF_CPU`: in none, and on no processor), within the regions `serial` (0: in none; see `node_path`).
    All of its time is in such records then.

    An OFF says for how long (`bytes`, in ns) of the time from `start` to `end` a thread was on no processor: it slept, waited for a disk
    or a lock, was stopped, or had to leave the processor to others. When in that time is not known, nor how much of it was in calls.
    """

    MPI = 1
    REGION = 2
    OPEN = 3
    API = 4
    OVERHEAD = 5
    PAUSE = 6
    WAITING = 7
    SUM = 8
    THREAD = 9
    OFF = 10


NOBODY, OFF_CPU = 2**32 - 1, 2**32 - 2  # in place of a call
NO_CALLS = (0, NOBODY, OFF_CPU)
OPENMP = "OpenMP "
_NODE = re.compile(r"\x1f(\d{1,10}):(\d{1,10})")


def node_path(node: int, names: Mapping[int, str]) -> tuple[str, ...]:
    """Return the names of the regions that a number stands for, the outermost first; what has no name is "".

    The name of such a number is that of the regions around and of its own, both as numbers.

    >>> node_path(4, {1: "step", 2: "solve", 3: "\x1f0:1", 4: "\x1f3:2"})
    ('step', 'solve')
    """
    found: list[str] = []
    while node and len(found) < DEEPEST:
        text = names.get(node, "")
        around = _NODE.fullmatch(text)
        found.append(names.get(int(around[2]), "") if around else text)
        parent = int(around[1]) if around else 0
        node = parent if parent < node else 0  # what is around was named before
    return tuple(reversed(found))


# `start` and `end` in ns of CLOCK_MONOTONIC (`end` is 0 in an OPEN record); `thread` as gettid; `name` a number of NAMES.
HOST = np.dtype(
    [
        ("start", "<u8"), ("end", "<u8"), ("thread", "<u4"), ("name", "<u4"), ("kind", "<u2"), ("depth", "<u2"), ("serial", "<u4"),
        ("bytes", "<u8"),
    ]
)  # fmt: skip


# `pc` in bytes from the function's start; `function` a number of NAMES; `correlation` 0 in continuous mode; `reason` CUPTI's index.
SAMPLE = np.dtype(
    [
        ("cubin", "<u8"), ("pc", "<u8"), ("function", "<u4"), ("function_index", "<u4"), ("correlation", "<u4"), ("reason", "<u4"),
        ("samples", "<u8"),
    ]
)  # fmt: skip


# A collective of one rank. `communicator` is NCCL's hash of it, `sequence` its number among those of the same `function` in it; `start` and
# `end` are around its enqueueing, in ns of CLOCK_MONOTONIC, `gpu_start` and `gpu_end` from the first channel's start to the last one's end,
# in ns of the GPU's own clock (0: not told); `count` is of elements of `datatype`. `name` (the communicator's), `function`, `datatype`,
# `algorithm` and `protocol` are numbers of NAMES. `rank` and `ranks` are the communicator's. Of `channels` so many `started`, and `ended`,
# on the GPU. A collective may be told more than once: of those of one `serial` the last counts.
NCCL = np.dtype(
    [
        ("communicator", "<u8"), ("sequence", "<u8"), ("start", "<u8"), ("end", "<u8"), ("gpu_start", "<u8"), ("gpu_end", "<u8"),
        ("count", "<u8"), ("name", "<u4"), ("function", "<u4"), ("datatype", "<u4"), ("algorithm", "<u4"), ("protocol", "<u4"),
        ("serial", "<u4"), ("rank", "<i4"), ("ranks", "<i4"), ("root", "<i4"), ("nodes", "<i4"), ("channels", "<u2"), ("started", "<u2"),
        ("ended", "<u2"), ("unused", "<u2"),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Chunk:
    """A chunk as read: its type as a number (a later writer may know more), flags, payload, and where in the file it begins."""

    type: int
    flags: int
    payload: bytes
    offset: int

    @property
    def end(self) -> int:
        """Where the next chunk begins."""
        return self.offset + HEADER.size + len(self.payload) + -len(self.payload) % 8

    def json(self) -> dict[str, Any]:
        """Return the object of INFO, END or READING; {} for what is no JSON object."""
        try:
            value = json.loads(self.payload.rstrip(b"\x00"))
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def host(self) -> npt.NDArray[np.void]:
        """Return the records of HOST, whole ones."""
        return np.frombuffer(self.payload, HOST, count=len(self.payload) // HOST.itemsize)

    def names(self) -> dict[int, str]:
        """Return the entries of NAMES; what is cut or longer than the payload ends it."""
        entries: dict[int, str] = {}
        at = 0
        while at + 12 <= len(self.payload):
            key, length = struct.unpack_from("<QI", self.payload, at)
            if at + 12 + length > len(self.payload):
                break
            if key or length:
                entries[key] = self.payload[at + 12 : at + 12 + length].decode("utf-8", "replace")
            at += 12 + length
        return entries


def packed(kind: ChunkType, payload: bytes, flags: int = 0) -> bytes:
    """Return a chunk as it stands in the file.

    >>> len(packed(ChunkType.DROPPED, bytes(8)))
    24
    """
    return HEADER.pack(MARK, kind, flags, len(payload)) + payload + bytes(-len(payload) % 8)


def names(entries: Mapping[int, str]) -> bytes:
    """Return the payload of NAMES."""
    parts = []
    for key, text in entries.items():
        encoded = text.encode()
        parts.append(struct.pack("<QI", key, len(encoded)) + encoded)
    return b"".join(parts)


class ChunkWriter:
    """Appends chunks to a recording, as a recorder in Python does; the one in C writes the same. A new file begins with `MAGIC`.

    Raises UllageError where the file can't be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._whole = 0  # bytes up to the end of the last whole chunk
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._refused(error) from error
        self._whole = os.fstat(self._file).st_size
        if self._whole == 0:
            self._append(MAGIC)

    def add(self, kind: ChunkType, payload: bytes | Mapping[str, Any], flags: int = 0) -> None:
        """Append one chunk; a mapping is written as JSON. Raises UllageError where it can't be, and leaves the file as it was."""
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self._append(packed(kind, data, flags))

    def _append(self, data: bytes) -> None:
        try:
            written = os.write(self._file, data)
            if written < len(data):  # the disk is full: a part of a chunk would hide all that comes after it
                os.ftruncate(self._file, self._whole)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._refused(error) from error
        self._whole += written

    def _refused(self, error: OSError) -> UllageError:
        return UllageError(f"{harmless(str(self.path))} can't be written: {error.strerror}", "give another folder, with room, with --keep")

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def chunks(file: IO[bytes], place: str, offset: int = 0) -> Iterator[Chunk]:
    """Yield the chunks of a recording from byte `offset` on (0: from its beginning), each as soon as it is whole.

    Raises Cut where the file ends inside a chunk, and where a header is damaged: what came before is good, what follows can't be found.
    Raises UllageError for a file that is no recording.
    """
    if offset == 0:
        start = file.read(len(MAGIC))
        if start != MAGIC:
            raise UllageError(f"{place} is no recording of Ullage", "`ullage run` makes them")
        offset = len(MAGIC)
    else:
        file.seek(offset)
    while header := file.read(HEADER.size):
        if len(header) < HEADER.size:
            raise EarlyEnd(f"at byte {offset:,}, inside a chunk's header", offset)
        mark, kind, flags, length = HEADER.unpack(header)
        if mark != MARK or length > LONGEST:
            raise EarlyEnd(f"at byte {offset:,}, where no chunk begins", offset, damaged=True)
        size = length + -length % 8
        payload = file.read(size)
        if len(payload) < size:
            raise EarlyEnd(f"at byte {offset:,}, inside a chunk of {length:,} bytes", offset)
        yield Chunk(kind, flags, payload[:length], offset)
        offset += HEADER.size + size


class EarlyEnd(UllageError):  # noqa: N818 - not an error of its own: the reader keeps what came before
    """A recording ends early: `problem` says where, `offset` is the first byte that could not be used. `damaged`: more bytes follow, but
    they are no chunk; else the file ends inside one."""

    def __init__(self, problem: str, offset: int, *, damaged: bool = False) -> None:
        super().__init__(problem)
        self.offset, self.damaged = offset, damaged
