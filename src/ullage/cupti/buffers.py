"""Activity buffers: handed to CUPTI empty, taken back full. Both are done in microseconds, on whatever thread CUPTI does it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

SIZE = 8 << 20  # bytes; the guide (2.3) advises 1 to 10 MB
MOST = 32  # buffers at a time; a program that is faster than the file gets no more, and CUPTI counts what it drops

REQUESTED = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t))
COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


@dataclass(frozen=True)
class Completed:
    """A buffer that CUPTI gave back: its context and stream (0: not told), its memory, and how many bytes of that are valid."""

    context: int
    stream: int
    memory: npt.NDArray[np.uint8]
    valid: int


class Buffers:
    """A pool of buffers with the two functions that CUPTI calls; each completed one is handed to `take`, then comes `back`.

    `refused` counts the requests that got no buffer, `callbacks` and `spent` (ns) what CUPTI's threads did here.
    """

    def __init__(self, take: Callable[[Completed], None], size: int = SIZE, most: int = MOST) -> None:
        self.size, self.most = size, most
        self.refused = self.callbacks = self.spent = self.made = 0
        self._take = take
        self._free: list[npt.NDArray[np.uint8]] = []
        self._lent: dict[int, npt.NDArray[np.uint8]] = {}
        self._lock = Lock()
        self.requested: Any = REQUESTED(self._requested)  # CUPTI calls these as long as it lives: whoever registers them keeps them
        self.completed: Any = COMPLETED(self._completed)

    @property
    def lent(self) -> int:
        """How many buffers CUPTI holds now."""
        return len(self._lent)

    def back(self, memory: npt.NDArray[np.uint8]) -> None:
        """Take a buffer back whose records have been read."""
        with self._lock:
            self._free.append(memory)

    def _requested(self, buffer: Any, size: Any, most: Any) -> None:
        begin = perf_counter_ns()
        buffer[0], size[0], most[0] = None, 0, 0
        memory = self._empty()
        if memory is not None:
            buffer[0], size[0] = memory.ctypes.data, self.size
        self.callbacks += 1
        self.spent += perf_counter_ns() - begin

    def _completed(self, context: int | None, stream: int, buffer: int | None, _: int, valid: int) -> None:
        begin = perf_counter_ns()
        with self._lock:
            memory = self._lent.pop(buffer or 0, None)
        if memory is not None:
            self._take(Completed(context or 0, stream, memory, min(valid, self.size)))
        self.callbacks += 1
        self.spent += perf_counter_ns() - begin

    def _empty(self) -> npt.NDArray[np.uint8] | None:
        with self._lock:
            if self._free:
                memory = self._free.pop()
            elif self.made < self.most:
                memory = np.zeros(self.size, np.uint8)  # not touched before CUPTI writes there
                self.made += 1
            else:
                self.refused += 1
                return None
            self._lent[memory.ctypes.data] = memory
        return memory
