"""A recorder in Python: regions into a recording, and CUDA by `cupti.activity` where the recorder in C can't be had."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.cupti.chunks import HostKind, Type, Writer, names
from ullage.cupti.endings import RECORDING
from ullage.errors import UllageError, harmless
from ullage.live.ranks import place

if TYPE_CHECKING:
    from ullage.cupti.activity import Tracer

_RECORD = struct.Struct("<QQIIHHIQ")  # chunks.HOST
FULL = 1 << 18  # bytes that are kept before they go to the file
PERIOD = 1_000_000_000  # ns after which they go there at the next region: a killed program leaves its last second out
MOST_NAMES = 10_000
OTHERS = "(more regions)"
BOOT = Path("/proc/sys/kernel/random/boot_id")


class Written:
    """Records regions of this process into a new file of a folder; with `kinds` of activity what CUDA does, too. Raises UllageError where
    it can't."""

    def __init__(self, folder: Path, kinds: Sequence[int] = ()) -> None:
        self.path = _fresh(folder)
        self._writer = Writer(self.path)
        self._lock = threading.Lock()
        self._records = bytearray()
        self._names: dict[str, int] = {}
        self._new: dict[int, str] = {}
        self._serial = itertools.count(1)
        self._open: dict[int, tuple[int, int, int]] = {}
        self._flushed = time.monotonic_ns()
        self._closed = False
        self._tracer: Tracer | None = None
        self._writer.add(Type.INFO, _process())
        self._writer.add(Type.CLOCKS, _clocks())
        if kinds:
            try:
                self._tracer = _tracer(self._writer, kinds)
            except UllageError:
                self._writer.close()
                self.path.unlink(missing_ok=True)
                raise
        atexit.register(self.close)

    def begin(self, name: str) -> int:
        """Begin a region of this thread and return its serial number."""
        serial = next(self._serial) & 0xFFFFFFFF
        with self._lock:
            number = self._number(name)
            start, thread = time.monotonic_ns(), threading.get_native_id()
            self._open[serial] = (start, thread, number)
            self._records += _RECORD.pack(start, 0, thread, number, HostKind.OPEN, 0, serial, 0)
        return serial

    def end(self, serial: int) -> None:
        """End a region; for one that isn't open nothing happens."""
        now = time.monotonic_ns()
        with self._lock:
            begun = self._open.pop(serial, None)
            if begun is None or self._closed:
                return
            start, thread, number = begun
            self._records += _RECORD.pack(start, now, thread, number, HostKind.REGION, 0, serial, 0)
            if len(self._records) > FULL or now - self._flushed > PERIOD:
                self._write()

    def flush(self) -> None:
        """Bring all that is known into the file."""
        if self._closed:
            return
        if self._tracer is not None:
            self._tracer.flush()
        with self._lock:
            self._write()
            if self._tracer is None:
                self._writer.add(Type.CLOCKS, _clocks())

    def note(self, said: dict[str, Any]) -> None:
        """Write an object of INFO."""
        self._writer.add(Type.INFO, said)

    def start(self) -> None:
        """Go on with CUDA after `stop`."""
        if self._tracer is not None:
            self._tracer.start()

    def stop(self) -> None:
        """Stop recording CUDA for now."""
        if self._tracer is not None:
            self._tracer.stop()

    def close(self) -> None:
        """End the recording; a second call does nothing."""
        self._end(detach=False)

    def detach(self) -> None:
        """End the recording and detach CUPTI from the process."""
        self._end(detach=True)

    def _end(self, *, detach: bool) -> None:
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        with self._lock:
            self._write()
        with contextlib.suppress(OSError):
            if self._tracer is not None:
                (self._tracer.finalize if detach else self._tracer.close)()  # the last clocks and the end are written there
            else:
                self._writer.add(Type.CLOCKS, _clocks())
                self._writer.add(Type.END, {"ended": time.time_ns()})
        self._writer.close()

    def _number(self, name: str) -> int:
        number = self._names.get(name)
        if number is None:
            name = name if len(self._names) < MOST_NAMES else OTHERS
            number = self._names.setdefault(name, len(self._names) + 1)
            self._new[number] = name.encode("utf-8", "replace").decode()
        return number

    def _write(self) -> None:
        """Write what is kept; names before the records that use them. A full disk doesn't stop the program."""
        with contextlib.suppress(OSError):
            if self._new:
                self._writer.add(Type.NAMES, names(self._new), flags=1)
            if self._records:
                self._writer.add(Type.HOST, bytes(self._records))
        self._new, self._records, self._flushed = {}, bytearray(), time.monotonic_ns()


def _tracer(writer: Writer, kinds: Sequence[int]) -> Tracer:
    from ullage.cupti.activity import Tracer
    from ullage.cupti.library import find

    return Tracer(find(), writer, kinds).start()


def _fresh(folder: Path) -> Path:
    """Return a file that isn't there yet, in a folder that is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UllageError(f"{harmless(str(folder))} can't be made: {error.strerror}", "give another folder") from error
    host = socket.gethostname().replace("/", "_")
    return folder / f"{host}-{os.getpid()}-{time.time_ns():x}{RECORDING}"


def _process() -> dict[str, Any]:
    """Return what INFO says of this process."""
    told: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid(), "started": time.time_ns(), "program": list(sys.orig_argv)}
    with contextlib.suppress(OSError):  # there is none outside Linux
        told["boot"] = BOOT.read_text(encoding="ascii").strip()
    if (where := place(os.environ)) is not None:
        told |= {"rank": where.rank, "ranks": where.ranks}
    return told


def _clocks() -> bytes:
    return struct.pack("<QQQ", 0, time.time_ns(), time.monotonic_ns())
