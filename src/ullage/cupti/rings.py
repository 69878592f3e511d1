"""What a process that was killed had recorded and not written yet: the rings of its threads, in the file beside its recording.

`native/rings.c` maps the file into the process' memory, so the system keeps what any thread has put there, whatever ends the process;
one that ends by itself removes it. Everything is little-endian:

=============  =====================================================================================================================
bytes 0 to 39  `ULRINGS\\x01`, then u32 each: bytes of a record, records of a ring, bytes of a ring with what comes before its records,
               where names begin, bytes that they may take, where the first ring begins, bytes of names, how many rings
names          entries as in NAMES of `chunks`: those that the recording doesn't have yet
each ring      u32 head, u32 tail, u32 next tail, 4 bytes, u64 offset, 40 bytes, then records of `chunks.HOST`, in turns; then its sums
sums           u32 version, rows used, row whose time passes, row whose time passes until …; u64 … then, beginning (0: none), last
               change (ns, monotonic); u32 thread, 20 bytes; then rows of `ROW`; then u64 each: ns of a row's time on no processor
=============  =====================================================================================================================

Head and tail count records, modulo 2³²: those from tail to head are not in the recording. If the recording's last chunk of HOST is at the
ring's offset, the process was killed when that was written and before it could say so: then the next tail is the tail.

Sums are of all since they began: what of their times the recording has in records of SUM is to be taken off.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ullage.cupti.chunks import HOST, Chunk, ChunkType
from ullage.cupti.endings import RINGS

MAGIC = b"ULRINGS\x01"
HEADER = struct.Struct("<8s8I")
RING = struct.Struct("<3I4xQ40x")
LONGEST = 1 << 30  # bytes: what is longer is damage
_TURN = 2**32  # of head and tail


ROWS, BINS = 512, 24
# The regions that a thread was in and the call, numbers of names; ns in this state; how often (calls, or entries of the region); the
# longest call, or stay in the region with all that was in it; and how many took less than 2^5, 2^6, … ns, all that were longer in the last.
ROW = np.dtype([("node", "<u4"), ("call", "<u4"), ("time", "<u8"), ("count", "<u8"), ("longest", "<u8"), ("histogram", "<u8", (BINS,))])
SUMS = struct.Struct("<4I3QI20x")


@dataclass(frozen=True)
class Sums:
    """What a thread did since it recorded no events any more: `rows` of `ROW`, whose times add up to `last` − `began` (ns, monotonic), and
    `off`, how much of each the thread was on no processor. Since `last` time passes in row `after` until the moment `until`, then in row
    `current`."""

    thread: int
    began: int
    last: int
    until: int
    after: int
    current: int
    rows: npt.NDArray[np.void]
    off: npt.NDArray[np.uint64]

    def times(self, now: int) -> npt.NDArray[np.uint64]:
        """Return the time of each row at a moment that is not before `last`."""
        times: npt.NDArray[np.uint64] = self.rows["time"].copy()
        then = min(max(self.until, self.last), now)
        times[self.after] += np.uint64(then - self.last)
        times[self.current] += np.uint64(now - then)
        return times


def unpacked_sums(data: bytes, at: int = 0, rows: int | None = None) -> Sums | None:
    """Return the sums at a byte, which have room for so many `rows` (None: for those alone that are used); None where there are none, or
    where they make no sense. Recorders of before have no times on no processor."""
    if len(data) < at + SUMS.size:
        return None
    _, used, current, after, until, began, last, thread = SUMS.unpack_from(data, at)
    room = min(ROWS, (len(data) - at - SUMS.size) // ROW.itemsize)
    if not 0 < began <= last < 2**62 or until >= 2**62 or not 0 < used <= room or max(current, after) >= used:
        return None
    behind = at + SUMS.size + (used if rows is None else rows) * ROW.itemsize
    off = np.frombuffer(data, "<u8", used, behind) if len(data) >= behind + 8 * used else np.zeros(used, "<u8")
    found = np.frombuffer(data, ROW, used, at + SUMS.size)
    return Sums(thread, began, last, until, after, current, found, np.minimum(off, found["time"]))


@dataclass(frozen=True)
class Left:
    """What a process left in its rings: records of `chunks.HOST`, thread by thread, names by their numbers, and sums. `damage` says what of
    it can't be read, "" where all can; up to `written` its recording had bytes."""

    records: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, HOST))
    names: dict[int, str] = field(default_factory=dict)
    damage: str = ""
    written: int = 0
    sums: tuple[Sums, ...] = ()


def beside(recording: Path) -> Path:
    """Return where the rings of a recording's process are."""
    return recording.with_name(recording.name + RINGS)


def left(recording: Path, last: int | None) -> Left | None:
    """Return what a recording's process left in its rings, None where there are none; `last` is where its last HOST chunk begins."""
    try:
        with beside(recording).open("rb") as file:
            data = file.read(LONGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Left(damage=error.strerror or str(error))
    return unpacked(data, last)


def unpacked(data: bytes, last: int | None) -> Left:
    """Return what rings hold, given the file's bytes; see `left`."""
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        return Left(damage="it does not begin as rings do")
    _, record, room, stride, names_at, names_room, rings_at, names, rings = HEADER.unpack_from(data)
    if record != HOST.itemsize or not room > 0 or stride < RING.size + room * record or names > names_room:
        return Left(damage="its header makes no sense")
    told = Chunk(ChunkType.NAMES, 1, data[names_at : names_at + names], 0).names()
    whole = min(rings, max(len(data) - rings_at, 0) // stride)
    damage = f"{rings - whole:,} of {rings:,} rings are missing" if whole < rings else ""
    places = range(rings_at, rings_at + whole * stride, stride)
    parts = [kept for at in places if (kept := _kept(data, at, room, last)) is not None]
    if absurd := whole - len(parts):
        damage = "; ".join(filter(None, [damage, f"{absurd:,} of {rings:,} rings make no sense"]))
    written = max((RING.unpack_from(data, at)[3] for at in places), default=0)
    summed = _sums(data, places, room, stride)
    if absurd := sum(one is None for one in summed):
        damage = "; ".join(filter(None, [damage, f"the sums of {absurd:,} of {rings:,} rings make no sense"]))
    return Left(np.concatenate(parts) if parts else Left().records, told, damage, written, tuple(filter(None, summed)))


def _sums(data: bytes, places: range, room: int, stride: int) -> list[Sums | None]:
    """Return the sums of each ring that says it has some."""
    behind = RING.size + room * HOST.itemsize
    if stride < behind + SUMS.size + ROWS * ROW.itemsize:
        return []
    ends = [min(at + stride, len(data)) for at in places]
    return [
        unpacked_sums(data[at + behind : end], 0, ROWS)
        for at, end in zip(places, ends, strict=True)
        if SUMS.unpack_from(data, at + behind)[5]
    ]


def _kept(data: bytes, at: int, room: int, last: int | None) -> npt.NDArray[np.void] | None:
    """Return the records of the ring at a byte, the oldest first; None where it can't hold as many as it says."""
    head, tail, next_tail, offset = RING.unpack_from(data, at)
    count = (head - (next_tail if offset == last else tail)) % _TURN
    if count > room:
        return None
    kept: npt.NDArray[np.void] = np.frombuffer(data, HOST, room, at + RING.size)[(head - count + np.arange(count)) % room]
    return kept
