"""From completed buffers to the recording: a thread of its own reads the names, appends the chunks and gives the buffers back."""

from __future__ import annotations

import ctypes
import os
import queue
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ullage.cupti import attributes, chunks
from ullage.cupti.buffers import Completed
from ullage.cupti.chunks import Type, Writer
from ullage.cupti.decoding import decode
from ullage.cupti.driver import cuda_version
from ullage.cupti.layouts import Layouts
from ullage.cupti.library import Library
from ullage.cupti.naming import Memory, demangled

PATIENCE = 60.0  # seconds to wait for the file; a full or dead disk must not hold the program for ever


class Writing:
    """Writes completed buffers, in the order in which `take` gets them. Nothing it meets stops it: `problems` says what it met."""

    def __init__(self, library: Library, writer: Writer, layouts: Layouts) -> None:
        self.buffers = self.bytes = self.dropped = self.lost = self.spent = 0
        self.problems: list[dict[str, Any]] = []
        self.back: Callable[[Any], None] = lambda _: None
        self._library, self._writer, self._layouts = library, writer, layouts
        self._queue: queue.SimpleQueue[Completed | threading.Event | None] = queue.SimpleQueue()
        self._known: dict[int, str] = {}
        self._memory = Memory()
        self._thread: threading.Thread | None = None
        self.take = self._queue.put

    def add(self, kind: Type, payload: bytes | Mapping[str, Any]) -> None:
        """Append a chunk; where the file takes no more (a full disk, say) it is counted as lost, and the program goes on."""
        try:
            self._writer.add(kind, payload)
        except OSError as error:
            self.lost += 1
            self._note(f"writing the recording: {error.strerror}", error.errno or 0)

    def begin(self) -> None:
        """Start the thread; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ullage-writing", daemon=True)
            self._thread.start()

    def drain(self) -> None:
        """Wait until all that has been taken so far is in the file."""
        if self._thread is not None and self._thread.is_alive():
            done = threading.Event()
            self._queue.put(done)
            done.wait(PATIENCE)

    def close(self) -> None:
        """Write what has been taken and end the thread."""
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(PATIENCE)
        self._memory.close()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                self._dropped()
                item.set()
                continue
            begin = time.thread_time_ns()
            try:
                self._write(item)
            except Exception as error:  # whatever it is, the program goes on, and the recording says what it lacks
                self.lost += 1
                self._note(f"reading a buffer: {type(error).__name__}: {error}", 0)
            finally:
                self.back(item.memory)
            self.spent += time.thread_time_ns() - begin

    def _write(self, item: Completed) -> None:
        if item.valid:
            records = item.memory[: item.valid]
            if names := self._new_names(records):
                self.add(Type.NAMES, chunks.names(names))
            self.add(Type.BUFFER, struct.pack("<QQ", item.context, item.stream) + records.tobytes())
            self.buffers += 1
            self.bytes += item.valid
        self._dropped()

    def _new_names(self, records: Any) -> dict[int, str]:
        """The names that this buffer points to and no earlier one did, or that have changed since."""
        new: dict[int, str] = {}
        for kind, found in decode(records, self._layouts).records.items():
            layout = self._layouts.of(kind)
            for field in layout.names if layout is not None else ():
                for pointer in np.unique(found[field]).tolist():
                    text = self._memory.text(pointer)
                    if text is not None and self._known.get(pointer) != text:
                        self._known[pointer], new[pointer] = text, demangled(text)
        return new

    def _dropped(self) -> None:
        count = ctypes.c_size_t()
        code = self._library.ask("cuptiActivityGetNumDroppedRecords", None, ctypes.c_uint32(0), ctypes.byref(count))
        if code:
            self._note("asking how many records were dropped", code)
        elif count.value:
            self.dropped += count.value
            self.add(Type.DROPPED, struct.pack("<Q", count.value))

    def _note(self, what: str, code: int) -> None:
        problem = {"what": what, "code": code}
        if problem not in self.problems:
            self.problems.append(problem)


def process(library: Library) -> dict[str, Any]:
    """Return what INFO says of this process and its CUPTI; see `chunks`."""
    known = {"driver": cuda_version(), "cupti": library.version}
    return {
        "host": socket.gethostname(), "pid": os.getpid(), "parent": os.getppid(), "program": list(sys.orig_argv),
        "started": time.time_ns(), "library": str(library.path),
    } | {key: value for key, value in known.items() if value is not None}  # fmt: skip


def clocks(library: Library) -> bytes:
    """Return the payload of CLOCKS: CUPTI's time, CLOCK_REALTIME and CLOCK_MONOTONIC in ns, read one right after the other."""
    cupti, real, monotonic = attributes.now(library) or 0, time.time_ns(), time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return struct.pack("<QQQ", cupti, real, monotonic)
