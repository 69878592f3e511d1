"""The recorder in this very process: what `ullage.region` and attaching need, through ctypes.

There is one recorder in a process, whether it came by injection, by preload or is attached here. No function but `attach` raises: a
program goes on without being recorded.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ullage.cupti.native import build
from ullage.errors import UllageError, harmless

_ATTACHED, _NO_FOLDER = 0, "give another folder, or make room in it"


class Recorder:
    """The recorder's functions, by their C names without `ullage_`. Times are ns of CLOCK_MONOTONIC."""

    def __init__(self, path: Path) -> None:
        """Load the library. Raises UllageError where it can't be."""
        try:
            # Short calls keep the interpreter's lock: to give it up and wait for it again may take milliseconds.
            short, long = ctypes.PyDLL(str(path)), ctypes.CDLL(str(path))
            self._declare(short, long)
        except (OSError, AttributeError) as error:
            raise UllageError(
                f"the recorder {harmless(str(path))} can't be used: {harmless(str(error))}", "unset ULLAGE_RECORDER"
            ) from error

    def _declare(self, short: ctypes.CDLL, long: ctypes.CDLL) -> None:
        number, text = ctypes.c_uint64, ctypes.c_char_p
        self._now = _function(short.ullage_now, number)
        self._begin = _function(short.ullage_region_begin, ctypes.c_uint32, text)
        self._end = _function(short.ullage_region_end, None, ctypes.c_uint32)
        self._host = _function(short.ullage_host, None, ctypes.c_uint16, text, number, number, number)
        self._note = _function(long.ullage_note, None, text)
        self._attach = _function(long.ullage_attach, ctypes.c_int, text)
        self._path = _function(long.ullage_path, text)
        self._plain = {name: _function(getattr(long, f"ullage_{name}"), ctypes.c_int) for name in ("start", "stop", "detach", "flush")}

    def attach(self, folder: str | Path) -> Path:
        """Start recording in this process and return the recording's file; where it records already, that one's.

        Environment variables say what, as for an injected recorder; without ULLAGE_KINDS only regions and host calls are recorded.
        Raises UllageError where the file can't be made.
        """
        if self._attach(os.fsencode(folder)) != _ATTACHED:
            raise UllageError(f"no recording can be written to {harmless(str(folder))}", _NO_FOLDER)
        path = self.path()
        if path is None:
            raise UllageError(f"no recording can be written to {harmless(str(folder))}", _NO_FOLDER)
        return path

    def path(self) -> Path | None:
        """Return the recording's file, None while there is none."""
        path = self._path()
        return Path(os.fsdecode(path)) if path else None

    def now(self) -> int:
        """Return the time as the recorder sees it."""
        return int(self._now())

    def begin(self, name: str) -> int:
        """Begin a region of this thread and return its number, 0 where nothing is recorded."""
        return int(self._begin(name.encode(errors="replace")))

    def end(self, region: int) -> None:
        """End a region of this thread. They may end in another order than they began."""
        self._end(region)

    def host(self, kind: int, name: str, start: int, end: int, size: int = 0) -> None:
        """Record what this thread did: a `chunks.HostKind`, its name, from when to when, and how many bytes it moved (0: not known)."""
        self._host(kind, name.encode(errors="replace"), start, end, size)

    def note(self, facts: Mapping[str, Any]) -> None:
        """Add facts to the recording's INFO."""
        self._note(json.dumps(facts).encode())

    def start(self) -> bool:
        """Go on recording CUDA after `stop`."""
        return bool(self._plain["start"]() == 0)

    def stop(self) -> bool:
        """Pause recording of CUDA; regions and host calls go on. The pause itself is recorded when it ends."""
        return bool(self._plain["stop"]() == 0)

    def flush(self) -> bool:
        """Write all that is known so far; what a GPU has not finished comes later. Return whether there is a recording."""
        return bool(self._plain["flush"]() == 0)

    def detach(self) -> bool:
        """End the recording; CUPTI is given back. `attach` begins another one."""
        return bool(self._plain["detach"]() == 0)


def _function(function: Any, result: Any, *arguments: Any) -> Any:
    function.restype, function.argtypes = result, arguments
    return function


@cache
def recorder() -> Recorder:
    """Return this process's recorder; builds its library where it isn't yet. Raises UllageError where that can't be."""
    return Recorder(build.recorder())
