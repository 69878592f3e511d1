"""The real libraries of CUPTI that tests may use: those of installed wheels, found without importing anything of theirs."""

import ctypes
import sysconfig
from pathlib import Path

import pytest

PLACES = ("nvidia/cuda_cupti/lib/libcupti.so.12", "nvidia/cu13/lib/libcupti.so.13")
DRIVERLESS = range(18, 130200)  # versions that walk buffers without a driver


def walking() -> list[tuple[int, Path]]:
    """Return version and path of each installed library that walks buffers here; may be none."""
    found = []
    for path in (Path(sysconfig.get_path("purelib")) / place for place in PLACES):
        if path.exists():
            version = ctypes.c_uint32()
            code = ctypes.CDLL(str(path)).cuptiGetVersion(ctypes.byref(version))
            if code == 0 and version.value in DRIVERLESS:
                found.append((version.value, path))
    return found


LIBRARIES = walking()
each_library = pytest.mark.parametrize(
    ("version", "library"),
    LIBRARIES or [pytest.param(0, Path(), marks=pytest.mark.skip(reason="no libcupti that walks buffers without a driver is installed"))],
    ids=[str(version) for version, _ in LIBRARIES] or ["none"],
)
