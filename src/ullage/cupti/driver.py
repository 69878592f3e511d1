"""The NVIDIA driver as far as CUPTI needs to know it: is it there, and how new is it."""

from __future__ import annotations

import ctypes


def cuda_version() -> int | None:
    """Return the CUDA version that this machine's driver allows, as it counts (13000 is 13.0); None without a driver.

    Nothing is initialised: this works before a program's cuInit and beside it.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        version = ctypes.c_int()
        failed = driver.cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):  # no driver, or a stub that has nothing
        return None
    return version.value or None if failed == 0 else None


def dotted(version: int) -> str:
    """Return a CUDA version as people write it.

    >>> dotted(13010)
    '13.1'
    """
    return f"{version // 1000}.{version % 1000 // 10}"
