"""Names that records point to, read from this process's own memory while they are there."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
from typing import Any

LONGEST = 1 << 16  # bytes of a name; what is longer is cut
MANGLED = 8192  # letters of a name that is made readable: templates of templates can grow without bound
_STEP = 512


@functools.cache
def _demangler() -> tuple[Any, Any] | None:
    """C++'s own function and free; None where this machine has no C++ library."""
    for name in ("libstdc++.so.6", "libc++abi.so.1"):
        with contextlib.suppress(OSError, AttributeError):
            demangle, free = ctypes.CDLL(name).__cxa_demangle, ctypes.CDLL(None).free
            demangle.restype, free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
            demangle.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
            return demangle, free
    return None


def demangled(name: str) -> str:
    """Return a kernel's name as people write it; the name itself where it is none of C++'s, or nothing here can tell.

    >>> demangled("scale")
    'scale'
    """
    known = _demangler() if name.startswith("_Z") and len(name) <= MANGLED else None
    if known is None:
        return name
    status = ctypes.c_int(-1)
    made = known[0](name.encode(), None, None, ctypes.byref(status))
    if not made:
        return name
    text = ctypes.string_at(made).decode(errors="replace")
    known[1](made)
    return text if len(text) < LONGEST else name


class Memory:
    """Reads text where a pointer points. A pointer that is wrong gives None: the program that is traced must not crash of it."""

    def __init__(self) -> None:
        try:
            self._file = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # forbidden in some containers
            self._file = -1

    def text(self, address: int) -> str | None:
        """Return the text that ends in a zero byte at `address`; None where nothing can be read."""
        if not address:
            return None
        if self._file < 0:
            return ctypes.string_at(address).decode(errors="replace")
        found = bytearray()
        while len(found) < LONGEST:
            part = self._part(address + len(found))
            if part is None:
                return None
            found += part
            end = found.find(0, len(found) - len(part))
            if end >= 0:
                return found[:end].decode(errors="replace")
        return found[:LONGEST].decode(errors="replace")

    def close(self) -> None:
        """Close it; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _part(self, address: int) -> bytes | None:
        """Some bytes, all in one page: reading on into a page that isn't there would give nothing at all."""
        try:
            return os.pread(self._file, min(_STEP, mmap.PAGESIZE - address % mmap.PAGESIZE), address) or None
        except (OSError, OverflowError):
            return None
