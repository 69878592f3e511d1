"""The recorder in C, loaded into this process: what `native/entry.c` exports, as a `session.Recorder`."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

from ullage.environment import environment
from ullage.errors import UllageError, harmless


class Native:
    """The recorder of a loaded library. Its `path` is "" until there was something to record.

    Beginning and ending regions keeps the interpreter's lock: that is shorter than giving it up, and the library waits for no Python.
    """

    def __init__(self, library: Path) -> None:
        try:
            self._slow, quick = ctypes.CDLL(str(library)), ctypes.PyDLL(str(library))
            self._begin, self._end = quick.ullage_region_begin, quick.ullage_region_end
            self._slow.ullage_path.restype = ctypes.c_char_p
        except (OSError, AttributeError) as error:
            raise UllageError(f"{harmless(str(library))} is not the recorder: {harmless(str(error))}", "unset ULLAGE_RECORDER") from error
        self._begin.argtypes, self._begin.restype = (ctypes.c_char_p,), ctypes.c_uint32
        self._end.argtypes, self._end.restype = (ctypes.c_uint32,), None

    @property
    def path(self) -> Path | None:
        """The recording's file, None while there is none."""
        told = self._slow.ullage_path()
        return Path(os.fsdecode(told)) if told else None

    def begin(self, name: str) -> int:
        """Begin a region of this thread and return its serial number."""
        return int(self._begin(name.replace("\0", "").encode("utf-8", "replace")))

    def end(self, serial: int) -> None:
        """End a region."""
        self._end(serial)

    def flush(self) -> None:
        """Bring all that is known into the file."""
        self._slow.ullage_flush()

    def note(self, said: dict[str, Any]) -> None:
        """Write an object of INFO."""
        self._slow.ullage_note(json.dumps(said).encode())

    def start(self) -> None:
        """Go on with CUDA after `stop`."""
        self._slow.ullage_start()

    def stop(self) -> None:
        """Stop recording CUDA for now."""
        self._slow.ullage_stop()

    def detach(self) -> None:
        """End the recording and detach CUPTI from the process."""
        self._slow.ullage_detach()

    def attach(self, folder: Path, settings: dict[str, str]) -> None:
        """Begin to record into a folder. Raises UllageError where no file can be made there."""
        with environment(settings):  # programs that this one starts later are none of the recorder's business
            answer = self._slow.ullage_attach(os.fsencode(folder))
        if answer:
            raise UllageError(f"nothing can be recorded into {harmless(str(folder))}: {os.strerror(answer)}", "give another folder")
