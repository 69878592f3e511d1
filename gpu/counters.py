"""The cumulative cycle counters, read raw: one GPM sample after another, and what NVML makes of any two of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ullage.benches.running.gpm import sampler, told

# NVML_GPM_METRIC_…, numbers 248 to 260 of nvidia-ml-py 13.615.
NAMES = (
    "SM_CYCLES_ELAPSED", "SM_CYCLES_ACTIVE", "MMA_CYCLES_ACTIVE", "DMMA_CYCLES_ACTIVE", "HMMA_CYCLES_ACTIVE", "IMMA_CYCLES_ACTIVE",
    "DFMA_CYCLES_ACTIVE", "INTEGER_CYCLES_ACTIVE", "FP64_CYCLES_ACTIVE", "FP32_CYCLES_ACTIVE", "FP16_CYCLES_ACTIVE",
)  # fmt: skip
ACTIVITY = "ANY_TENSOR_UTIL"
TOLERANCE = 0.25  # how far Δcycles/Δt may be from the clock samples and still be the same thing


def counts_from(first: float, second: float, both: float) -> str:
    """Return where a counter starts, from what it tells of the samples A–B, B–C and A–C.

    A cumulative counter tells what has been counted up to C whether it is asked from A or from B; a difference adds up.

    >>> counts_from(first=1000, second=1300, both=1300), counts_from(first=100, second=300, both=400)
    ('the start of the driver', 'the older sample')
    >>> counts_from(first=7, second=7, both=7)
    'unclear'
    """
    if second == both and first < second:
        return "the start of the driver"
    if both > 0 and np.isclose(first + second, both, rtol=1e-3):
        return "the older sample"
    return "unclear"


def units(rate: float, clock: float, sms: int | None) -> int | None:
    """Return by what Δcycles/Δt is to be divided for the clock: 1 (per SM), the number of SMs (summed), None for neither.

    >>> units(rate=1.35e9, clock=1.4e9, sms=132), units(rate=1.782e11, clock=1.35e9, sms=132), units(rate=1.35e10, clock=1.35e9, sms=132)
    (1, 132, None)
    """
    candidates = [1] if sms is None else [1, sms]
    fits = [u for u in candidates if clock > 0 and abs(rate / (u * clock) - 1) <= TOLERANCE]
    return fits[0] if fits else None


def steps(values: list[float], seconds: list[float]) -> dict[str, float | None]:
    """Return how finely a counter moves: the smallest step, and the median time between changes (None when it stood still).

    Read at 0, 1, 2 and 3 s as 10, 10, 30 and 40: it changed at 2 and at 3 s, by 20 and by 10.

    >>> steps([10, 10, 30, 40], [0, 1, 2, 3])
    {'smallest_step': 10.0, 'seconds_between_changes': 1.0}
    """
    growth = np.diff(np.array(values, np.float64))
    changed = np.array(seconds, np.float64)[1:][growth != 0]
    if not len(changed):
        return {"smallest_step": None, "seconds_between_changes": None}
    between = np.diff(changed) if len(changed) > 1 else changed[:1] - seconds[0]
    return {"smallest_step": float(np.abs(growth[growth != 0]).min()), "seconds_between_changes": float(np.median(between))}


def main(index: int) -> None:
    """Print the counters of a GPU as JSON, from a process that has asked nothing before; `{}` where they are not told."""
    import pynvml

    pynvml.nvmlInit()
    print(json.dumps(fresh(pynvml, pynvml.nvmlDeviceGetHandleByIndex(index), time.sleep)))


def fresh(nvml: Any, handle: Any, sleep: Callable[[float], None]) -> dict[str, float]:
    """Return the counters by samples and requests that nobody used before."""
    with sampler(nvml, handle) as take:
        older = take()
        sleep(0.2)
        return told(nvml, older, take())
