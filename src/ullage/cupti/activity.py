"""Tracing from inside a Python program (guide, 2.3): CUPTI's records, as they are, into a recording.

Callbacks come once a buffer, not once a call, so Python can do this; the recorder in C (`native/`) does the same without the
interpreter's lock, and is preferred where a compiler is: nothing says that CUPTI holds no lock of its own while it calls. Records of
fixed layout are asked for in every release; the user-defined ones that 13.3 offers beside them are not.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import time
from collections.abc import Iterable
from typing import Any

from ullage.cupti import attributes
from ullage.cupti.attributes import Attribute
from ullage.cupti.buffers import MOST, SIZE, Buffers
from ullage.cupti.callbacks import Subscriber
from ullage.cupti.chunks import Type, Writer
from ullage.cupti.detaching import Detaching
from ullage.cupti.kinds import DEFAULT
from ullage.cupti.layouts import layouts
from ullage.cupti.library import Library
from ullage.cupti.results import CuptiError
from ullage.cupti.writing import Writing, clocks, process
from ullage.errors import UllageError

FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: also buffers with records that aren't complete
_FOR_EVER: list[Any] = []  # CUPTI may call these once more while the process ends


class Tracer:
    """Traces this process into a recording: `start`, `flush` whenever the file is to be up to date, `stop`, `close`.

    `kinds` are activity kinds; `answers` has CUPTI's answer for each. One that is refused is left out, and tracing goes on with the
    others. At most `most` buffers of `size` bytes are held. `problems` has what failed without stopping anything. In a forked child
    everything does nothing. Raises CuptiError where another profiler is attached or every kind is refused, UllageError for a release
    whose records are not known.
    """

    def __init__(self, library: Library, writer: Writer, kinds: Iterable[int] = DEFAULT, *, size: int = SIZE, most: int = MOST) -> None:
        self._library, self._kinds = library, tuple(dict.fromkeys(kinds))
        self.answers: dict[int, int] = {}
        self.problems: list[dict[str, Any]] = []
        self._process = os.getpid()
        self._running: set[int] = set()
        self._subscriber: Subscriber | None = None
        self._writing = Writing(library, writer, layouts(library.release))
        self._buffers = Buffers(self._writing.take, size, most)
        self._writing.back = self._buffers.back
        self._detaching = Detaching(library)
        self._flushes = self._flush_ns = 0
        self._closed = False

    def start(self) -> Tracer:
        """Begin to trace, or go on after `stop`."""
        if self._elsewhere():
            return self
        if self._closed:
            raise UllageError("this tracer is closed", "make a new one")
        try:
            self._attach()
        except CuptiError:
            self.close()
            raise
        for kind in self._kinds:
            self.enable(kind)
        self._writing.add(Type.INFO, {"kinds": {str(kind): code for kind, code in self.answers.items()}, "problems": self.problems})
        self._clocks()
        if not self._running:
            codes = [code for code in self.answers.values() if code]
            self.close()
            raise CuptiError("starting to trace", codes[0]) if codes else UllageError("there is nothing to trace", "name activity kinds")
        return self

    def enable(self, kind: int) -> int:
        """Record a kind from now on; return CUPTI's answer, 0 for yes."""
        code = self._library.ask("cuptiActivityEnable", kind) if not self._elsewhere() else 0
        self.answers[int(kind)] = code
        if code == 0:
            self._running.add(int(kind))
        return code

    def disable(self, kind: int) -> None:
        """Don't record a kind any more."""
        if kind in self._running and not self._elsewhere():
            self._running.discard(int(kind))
            self._ask("cuptiActivityDisable", ctypes.c_int(kind))

    def flush(self, *, forced: bool = False) -> None:
        """Bring all that is complete into the file; `forced` also what still runs, with no end."""
        if self._elsewhere() or self._subscriber is None:
            return
        begin = time.perf_counter_ns()
        self._ask("cuptiActivityFlushAll", ctypes.c_uint32(FORCED if forced else 0))
        self._writing.drain()
        self._clocks()
        self._flushes += 1
        self._flush_ns += time.perf_counter_ns() - begin

    def stop(self) -> None:
        """Record nothing any more, and bring all that there is into the file; `start` goes on."""
        for kind in sorted(self._running):
            self.disable(kind)
        self.flush(forced=True)

    def close(self) -> None:
        """Stop for good, unsubscribe, and end the recording with what it cost; the writer stays open. A second call does nothing."""
        self._close(detach=False)

    def finalize(self) -> None:
        """Close, and detach CUPTI from the process by the rules of the guide's 2.3.7; a new tracer can attach it again."""
        self._close(detach=True)

    def _close(self, *, detach: bool) -> None:
        if self._closed or self._elsewhere():
            return
        self._closed = True
        atexit.unregister(self.close)
        self.stop()
        if self._subscriber is not None:
            try:
                if detach:
                    self._detaching.finalize(self._subscriber)
                self._subscriber.close()
            except CuptiError as error:
                self._note(error.doing, error.code)
        self._writing.close()
        self._writing.add(Type.INFO, {"problems": self.problems + self._writing.problems})
        self._writing.add(Type.END, self._cost())

    def _attach(self) -> None:
        """What comes once: by the guide's 2.2 subscribing is first, and where it is refused nothing else is touched."""
        if self._subscriber is not None:
            return
        self._subscriber = Subscriber(self._library, self._detaching.heard)
        self._writing.add(Type.INFO, process(self._library))
        self._writing.begin()
        self._try(attributes.name_threads_as_system, self._library)
        self._library.call("cuptiActivityRegisterCallbacks", self._buffers.requested, self._buffers.completed, doing="handing buffers over")
        _FOR_EVER.append(self._buffers)
        atexit.register(self.close)

    def set(self, attribute: Attribute, value: int) -> None:
        """Set one of CUPTI's attributes, best before `start`. Raises CuptiError."""
        attributes.write(self._library, attribute, value)

    def _elsewhere(self) -> bool:
        """Whether this is a forked child: CUPTI, the file and the writing thread are the parent's."""
        return os.getpid() != self._process

    def _clocks(self) -> None:
        self._writing.add(Type.CLOCKS, clocks(self._library))

    def _ask(self, name: str, *arguments: Any) -> None:
        if code := self._library.ask(name, *arguments):
            self._note(name, code)

    def _try(self, deed: Any, *arguments: Any) -> None:
        try:
            deed(*arguments)
        except CuptiError as error:
            self._note(error.doing, error.code)

    def _note(self, what: str, code: int) -> None:
        problem = {"what": what, "code": code}
        if problem not in self.problems:
            self.problems.append(problem)

    def _cost(self) -> dict[str, Any]:
        """What the recorder in C tells, too: counts, bytes, and ns of its own work."""
        return {
            "ended": time.time_ns(), "buffers": self._writing.buffers, "bytes": self._writing.bytes, "dropped": self._writing.dropped,
            "lost": self._writing.lost, "refused": self._buffers.refused, "flushes": self._flushes, "flush_ns": self._flush_ns,
            "writer_ns": self._writing.spent, "callbacks": self._buffers.callbacks, "callback_ns": self._buffers.spent,
            "memory_peak": self._buffers.made * self._buffers.size,
        }  # fmt: skip
