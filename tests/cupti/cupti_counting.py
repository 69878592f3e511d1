"""What the tests of counters share: NVIDIA's own CUPTI 13.1 where it is installed, and the double with what happens on its GPU."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

import pytest

from tests.cupti import cupti_double
from ullage.cupti import searching
from ullage.cupti.library import Library

SHARE = ".avg.pct_of_peak_sustained_elapsed"
CONTEXT = 1  # any number is a context to the double
# The metrics that the double counts; see `cupti_double/counters.c`.
WORK, KERNELS, RARE, SLOW = (f"double__{name}.sum" for name in ("work", "kernels", "rare", "slow"))


@functools.cache
def installed(version):
    """Return NVIDIA's library of one release, as its wheel lies on this machine; None where it isn't."""
    for path in searching.installed({}, sys.path):
        library = Library(path)
        if library.version == version:
            return library
    return None


def real():
    """Return NVIDIA's CUPTI 13.1, whose host half needs no GPU; skips without its wheel."""
    return installed(130_101) or pytest.skip("no nvidia-cuda-cupti 13.1 on this machine")


def double():
    """Return the double as a library; nothing has been counted with it yet."""
    library = Library(cupti_double.library())
    handle = library.handle
    handle.cupti_double_count.argtypes = [ctypes.c_double]
    handle.cupti_double_sample.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_double]
    handle.cupti_double_interval.restype = handle.cupti_double_buffer.restype = ctypes.c_uint64
    handle.cupti_double_reset()
    handle.cupti_double_counters_reset()
    return library


def called(monkeypatch, *faults, version=None, chip=None):
    """Script the double: faults, version, chip."""
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", ",".join(faults))
    for name, value in (("VERSION", version), ("CHIP", chip)):
        if value is not None:
            monkeypatch.setenv(f"CUPTI_DOUBLE_{name}", str(value))
    assert os.environ["CUPTI_DOUBLE_FAULTS"] == ",".join(faults)
