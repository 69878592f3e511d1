"""The doubles of libcupti, of libcheckpoint and of the driver, built from `cupti_double/`, and a fake CUDA program that runs on them.

`library()` is the file to load as libcupti; `environment()` makes a program find the driver's double; `program()` is the program, which
prints what it truly did: see `told`. All are built once per version of their sources and kept between runs of the tests.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCES = Path(__file__).with_name("cupti_double")
APART = ("cuda.c", "checkpoint.c", "nvperf.c", "program.c")
FLAGS = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")


def library():
    """Return the double of libcupti; skips without a compiler."""
    sources = sorted(path for path in SOURCES.glob("*.c") if path.name not in APART)
    return _built("libcupti.so.13", sources, ("-shared", "-fPIC", "-Wl,-soname,libcupti.so.13"))


def wheel():
    """Return the double of libcupti with the libnvperf libraries beside it, as in NVIDIA's wheel: it counts only once they are loaded.

    For programs alone: these libraries have the names of NVIDIA's own, of which a process has one.
    """
    for name in ("libnvperf_host.so", "libnvperf_target.so"):
        _built(f"wheel/{name}", [SOURCES / "nvperf.c"], ("-shared", "-fPIC", f"-Wl,-soname,{name}"))
    target = _place() / "wheel" / "libcupti.so.13"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=_place()) as folder:
            Path(folder, "copy").write_bytes(library().read_bytes())
            Path(folder, "copy").replace(target)
    return target


def checkpoint():
    """Return the double of libcheckpoint.so, beside that of libcupti as NVIDIA's is; skips without a compiler."""
    return _built("libcheckpoint.so", [SOURCES / "checkpoint.c"], ("-shared", "-fPIC"))


def driver():
    """Return the double of libcuda.so.1; skips without a compiler."""
    return _built("libcuda.so.1", [SOURCES / "cuda.c"], ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"))


def program():
    """Return the fake CUDA program, for its options see `cupti_double/program.c`; skips without a compiler."""
    return _built("program", [SOURCES / "program.c"])


def environment(**more):
    """Return an environment in which a program finds the driver's double, and Ullage libcupti's."""
    ours = ("ULLAGE_", "CUPTI_DOUBLE", "CUDA_")
    known = {name: value for name, value in os.environ.items() if not name.startswith(ours) or name == "ULLAGE_CPU_CLOCK"}
    return known | {"LD_LIBRARY_PATH": str(driver().parent), "ULLAGE_CUPTI": str(library())} | more


@dataclass(frozen=True)
class Told:
    """What the fake program says it did: `operations` are (kind, stream, start, end, bytes), times in ns of CLOCK_REALTIME."""

    pid: int
    launches: int
    started: int
    ended: int
    operations: list[tuple[int, int, int, int, int]]

    def of(self, kind):
        """Return the operations of an activity kind: 10 for kernels, 1 copies, 2 memsets, 51 graphs."""
        return [operation for operation in self.operations if operation[0] == kind]


def told(output):
    """Return what each process of the fake program printed, in the order of their lines."""
    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"pid"')]
    return [Told(**line | {"operations": [tuple(operation) for operation in line["operations"]]}) for line in lines]


def loaded():
    """Return libcupti's double as a ctypes library, as if just loaded; the trigger functions have their argument types."""
    handle = ctypes.CDLL(str(library()))
    _declare(handle)
    handle.cupti_double_reset()
    return handle


def _declare(handle):
    u8, u32, u64, text, pointer = ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_void_p
    for name, arguments in {
        "enter": (ctypes.c_int, u32, text, pointer),
        "exit": (ctypes.c_int, u32, text, pointer, u32, ctypes.c_int),
        "kernel": (text, u32, u32, u64, u64, u32, u32),
        "memcpy": (u8, u64, u32, u32, u64, u64),
        "memset": (u64, u32, u32, u64, u64),
        "synchronization": (u32, u32, u32, u64, u64),
        "marker": (u32, u32, text, text, u64),
        "graph": (u32, u32, u32, u64, u64),
        "device": (u32, text),
        "context": (u32, u32),
        "unknown": (u32, ctypes.c_size_t),
        "resource": (u32, pointer, pointer),
        "synchronized": (u32, pointer, pointer),
    }.items():
        getattr(handle, "cupti_double_" + name).argtypes = arguments
    for name in ("enter", "finalized"):
        getattr(handle, "cupti_double_" + name).restype = u32


@functools.cache
def _place():
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    place = Path(tempfile.gettempdir(), f"ullage-cupti-double-{os.getuid()}-{digest.hexdigest()[:16]}")
    place.mkdir(mode=0o700, exist_ok=True)
    return place


def _built(name, sources, flags=()):
    target = _place() / name
    if not target.exists():
        compiler = shutil.which("gcc") or shutil.which("cc") or pytest.skip("no compiler: the double of libcupti can't be built")
        target.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_place()) as folder:  # moved there whole: several tests may build it at once
            made = Path(folder, target.name)
            command = [compiler, *FLAGS, *flags, "-o", str(made), *map(str, sources), "-ldl"]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            made.replace(target)
    return target
