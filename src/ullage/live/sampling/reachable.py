"""Whether there is anything to sample on this machine, asked of as little as can be loaded."""

from __future__ import annotations

from importlib import import_module


def nvml_answers() -> bool:
    """Return whether NVML can be initialised here: nvidia-ml-py is installed, and there is a driver."""
    try:
        nvml = import_module("pynvml")
        nvml.nvmlInit()
        nvml.nvmlShutdown()
    except Exception:  # of NVML's own kind, which only NVML knows
        return False
    return True
