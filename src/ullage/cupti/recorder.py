"""The recorder in this very process, through ctypes: what regions, `ullage.live.start` and trees of a running program call.

There is one recorder in a process, whether it came by injection, by preload or is attached here. No function but `attach` raises: a
program goes on without being recorded.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.environment import environment
from ullage.errors import UllageError, harmless

if TYPE_CHECKING:
    from ullage.cupti.library import Library

_ATTACHED = 0
_LONGEST = 4096  # bytes of a name; as in native/recorder.h


class Recorder:
    """The functions of the recorder's library, by their C names without `ullage_`. Times are ns of CLOCK_MONOTONIC."""

    def __init__(self, library: Path) -> None:
        """Load the library. Raises UllageError where it can't be."""
        try:
            # Short calls keep the interpreter's lock: to give it up and wait for it again may take milliseconds. They wait for no Python.
            self._declare(ctypes.PyDLL(str(library)), ctypes.CDLL(str(library)))
        except (OSError, AttributeError) as error:
            raise UllageError(f"{harmless(str(library))} is not the recorder: {harmless(str(error))}", "unset ULLAGE_RECORDER") from error

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

    def attach(self, folder: str | Path, settings: Mapping[str, str] | None = None) -> Path:
        """Start recording in this process and return the recording's file; where it records already, that one's.

        Environment variables say what, as for an injected recorder; `settings` are laid over them for the moment. Without ULLAGE_KINDS
        only regions and host calls are recorded. Raises UllageError where the file can't be made.
        """
        with environment(settings or {}):  # programs that this one starts later are none of the recorder's business
            attached = self._attach(os.fsencode(folder)) == _ATTACHED
        path = self.path if attached else None
        if path is None:
            raise UllageError(f"no recording can be written to {harmless(str(folder))}", "give another folder, or make room in it")
        return path

    @property
    def path(self) -> Path | None:
        """The recording's file, None while there is none."""
        told = self._path()
        return Path(os.fsdecode(told)) if told else None

    def now(self) -> int:
        """Return the time as the recorder sees it."""
        return int(self._now())

    def begin(self, name: str) -> int:
        """Begin a region of this thread and return its number, 0 where nothing is recorded."""
        return int(self._begin(_text(name)))

    def end(self, region: int) -> None:
        """End a region of this thread. They may end in another order than they began."""
        self._end(region)

    def host(self, kind: int, name: str, start: int, end: int, size: int = 0) -> None:
        """Record what this thread did: a `chunks.HostKind`, its name, from when to when, and how many bytes it moved (0: not known)."""
        self._host(kind, _text(name), start, end, size)

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


def _text(name: str) -> bytes:
    """Return a name as C takes it: without the zeros that would end it."""
    return name.replace("\0", "").encode(errors="replace")


def recorded_name(name: str) -> str:
    r"""Return a name as recordings have it.

    >>> recorded_name("zero\0byte"), len(recorded_name("x" * 10_000))
    ('zerobyte', 4096)
    """
    return _text(name)[:_LONGEST].decode(errors="replace")


def this_recorder() -> Recorder:
    """Return this process's recorder; builds its library where it isn't yet. Raises UllageError where that can't be."""
    from ullage.cupti.native.build import recorder

    return Recorder(recorder())


def tracing(library: Library, kinds: Iterable[int]) -> dict[str, str]:
    """Return what the recorder's environment says where it is to ask a CUPTI for these kinds of activity."""
    from ullage.cupti.kinds import enquiries
    from ullage.cupti.layouts import layouts

    wanted = sorted(int(kind) for kind in kinds)
    return {
        "ULLAGE_CUPTI": str(library.path),
        "ULLAGE_KINDS": ",".join(map(str, wanted)),
        "ULLAGE_NAMES": layouts(library.release).name_offsets(wanted),
        "ULLAGE_CALLS_LEFT_OUT": os.environ.get("ULLAGE_CALLS_LEFT_OUT", enquiries()),
    }
