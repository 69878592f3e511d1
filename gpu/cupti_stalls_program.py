"""A program that knows nothing of CUPTI, to be sampled from outside: it runs a kernel, and leaves its context or destroys it."""

from __future__ import annotations

import ctypes
import time

from gpu.apart import tell
from gpu.cupti_device import Device
from gpu.cupti_pc_program import made
from gpu.cupti_tools import refusal
from ullage.errors import UllageError

PLAIN, EXITS, DESTROYS = "plain", "exits", "destroys"  # not sampled; leaves its context to the process' end; destroys it
STAGES = (PLAIN, EXITS, DESTROYS)
LAUNCHES = 200


def main(stage: str) -> None:
    """Run a stage, and tell how long its kernels took."""
    try:
        device = Device()
        kernel = made(device)
        kernel()
        begin = time.monotonic()
        for _ in range(LAUNCHES):
            kernel()
        tell(seconds=time.monotonic() - begin)
        if stage == DESTROYS:
            tell(destroyed=ctypes.CDLL("libcuda.so.1").cuCtxDestroy_v2(device.context))
    except UllageError as error:
        tell(**refusal(error))
