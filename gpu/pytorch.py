"""PyTorch for the checks that nothing else will do for."""

from __future__ import annotations

from typing import Any

from gpu.check import NotMeasured
from gpu.machine import Machine


def needed_torch(machine: Machine) -> Any:
    """Return the module torch; raises NotMeasured where it is missing or sees no GPU."""
    if machine.torch is None:
        raise NotMeasured("no PyTorch that sees the GPU")
    return machine.torch
