"""NVIDIA's own walker of activity buffers, `cuptiActivityGetNextRecord`, to check ours against.

It walks any memory, also a buffer that was made by hand, and needs no GPU and no driver in CUPTI 12.0 to 13.1 (later ones answer 999 to
everything without a driver, and the libraries of 13.2 crash). It is slow, one call a record; nothing but tests and
`tools/cupti_layouts.py` needs it. A library that isn't ours can crash, so `walk` can do its work in a process of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

END = 12  # CUPTI_ERROR_MAX_LIMIT_REACHED: no record follows


def walk(library: str | Path | ctypes.CDLL, buffer: bytes) -> tuple[list[tuple[int, int]], int]:
    """Return where each record begins and its kind, as NVIDIA's library walks the buffer, and the code that it ended with.

    The code is 12 where all of the buffer was used, 21 (999 in CUPTI 12.0 to 12.3) at a kind that the library doesn't know.
    Source: cupti_activity.h, cuptiActivityGetNextRecord.
    """
    loaded = library if isinstance(library, ctypes.CDLL) else ctypes.CDLL(str(library))
    memory = ctypes.create_string_buffer(buffer, len(buffer) + 8)  # the walker may look at the next record's kind before its bounds
    begin, record = ctypes.addressof(memory), ctypes.c_void_p(None)
    found: list[tuple[int, int]] = []
    while True:
        code = loaded.cuptiActivityGetNextRecord(memory, ctypes.c_size_t(len(buffer)), ctypes.byref(record))
        if code or record.value is None:
            return found, code
        found.append((record.value - begin, ctypes.c_uint32.from_address(record.value).value))


def walk_apart(library: str | Path, buffers: Iterable[bytes]) -> list[tuple[list[tuple[int, int]], int] | None]:
    """Return what `walk` returns for each buffer, asked in another process; None for the buffer that crashes it and all after it."""
    asked = list(buffers)
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}  # Ullage may lie there without being installed
    told = subprocess.run(
        [sys.executable, "-c", "from ullage.cupti.walker import _serve; _serve()", str(library)],
        env=here, input="".join(f"{buffer.hex()}\n" for buffer in asked), capture_output=True, text=True, check=False,
    )  # fmt: skip
    answers = [json.loads(line) for line in told.stdout.splitlines()]
    known = [([(offset, kind) for offset, kind in records], code) for records, code in answers]
    return known + [None] * (len(asked) - len(known))


def _serve() -> None:
    library = ctypes.CDLL(sys.argv[1])
    for line in sys.stdin:
        sys.stdout.write(json.dumps(walk(library, bytes.fromhex(line))) + "\n")
        sys.stdout.flush()


def measured(library: str | Path, kinds: Iterable[int], longest: int = 4096) -> dict[int, int]:
    """Return the bytes by which NVIDIA's library steps over a record of each kind; kinds that it doesn't know are left out.

    The buffer that it is given holds the kind at every fourth byte, so that a second record is found wherever it begins.
    """
    asked = list(kinds)
    answers = walk_apart(library, [kind.to_bytes(4, "little") * (longest // 4) for kind in asked])
    return {kind: answer[0][1][0] for kind, answer in zip(asked, answers, strict=True) if answer and len(answer[0]) > 1}
