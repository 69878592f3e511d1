"""Starts a program of the GPU checks on the doubles of libcuda and libcupti: its kernels need no machine code, and its windows are few
and short where ULLAGE_TEST_PAIRS and ULLAGE_TEST_WINDOW say so."""

import ctypes
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT), str(ROOT / "src")]

from gpu.apart import begin  # noqa: E402
from gpu.cupti_device import Device  # noqa: E402

from gpu import cupti_overhead_program as overhead  # noqa: E402
from gpu import tensor_kernels  # noqa: E402
from ullage.errors import UllageError  # noqa: E402


def no_nvrtc(*_):
    raise UllageError("cuda-bindings asks the driver for more than its double has")


if __name__ == "__main__":
    Device.spin_module = lambda self: ctypes.c_void_p()
    tensor_kernels.compile_cubin = no_nvrtc
    overhead.PAIRS = int(os.environ.get("ULLAGE_TEST_PAIRS", overhead.PAIRS))
    overhead.WINDOW = float(os.environ.get("ULLAGE_TEST_WINDOW", overhead.WINDOW))
    begin(*sys.argv[1:])
