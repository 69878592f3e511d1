"""The NVIDIA driver as far as CUPTI needs to know it: is it there, and how new is it."""

from __future__ import annotations

import ctypes

from ullage.errors import UllageError


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


def current_context() -> int:
    """Return the CUcontext that is current on this thread. Raises UllageError without a driver, and where no context is current."""
    context = ctypes.c_void_p()
    try:
        code = ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
    except (OSError, AttributeError) as error:
        raise UllageError(
            "no NVIDIA driver answers on this machine", "is a GPU there? a container must be started with `--gpus all`"
        ) from error
    if code or not context.value:
        raise UllageError("no CUDA context is current on this thread", "call CUDA once before: torch.cuda.init(), or cudaFree(0)")
    return context.value


def dotted(version: int) -> str:
    """Return a CUDA version as people write it.

    >>> dotted(13010)
    '13.1'
    """
    return f"{version // 1000}.{version % 1000 // 10}"
