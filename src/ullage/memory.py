"""Memory that is free again, given back to the system."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Return freed memory to the system, where the C library can (glibc); elsewhere nothing happens.

    Millions of small objects leave a heap full of holes, which would stand beside the arrays made of them.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
