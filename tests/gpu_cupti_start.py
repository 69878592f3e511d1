"""Starts a program of the GPU checks on the doubles of libcuda and libcupti: its kernels need no machine code."""

import ctypes
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(ROOT), str(ROOT / "src")]

from gpu.apart import begin  # noqa: E402
from gpu.cupti_device import Device  # noqa: E402

if __name__ == "__main__":
    Device.spin_module = lambda self: ctypes.c_void_p()
    begin(*sys.argv[1:])
