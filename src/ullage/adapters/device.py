"""The GPU of this process: its name, its peak, and when it has finished."""

from __future__ import annotations

from ullage.adapters.meter import peak
from ullage.adapters.notes import Notes
from ullage.adapters.optional import installed
from ullage.errors import UllageError


def this_gpu() -> str | None:
    """Return the name of this process's GPU as its driver says it, or None without one."""
    torch = installed("torch")
    return str(torch.cuda.get_device_name()) if torch is not None and torch.cuda.is_available() else None


def known_gpu(precision: str, peak_tflops: str | float | None, notes: Notes) -> str | None:
    """Return the name of this process's GPU, or None where it has no known peak: that is said once, and ends nothing."""
    name = this_gpu()
    try:
        return name if name is None or peak(name, precision, peak_tflops) is not None else None
    except UllageError as error:
        notes.say("gpu", f"{error}\n  without a peak there is no MFU: give peak_tflops, or set ULLAGE_PEAK_TFLOPS")
        return None


def finish() -> None:
    """Wait until the GPU has done what it was told, so that a clock can be read."""
    torch = installed("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()
