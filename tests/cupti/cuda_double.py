"""A GPU that the test describes, behind a double of libcuda.so.1: the real cuda-bindings marshal every call to it.

`libcuda_double.c` is compiled by gcc and loaded before cuda-bindings looks for the driver: the loader then takes it for libcuda.so.1
by its name. As that lasts for the life of a process, such tests run in one of their own: see `with_driver`.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import types
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ullage.errors import UllageError

SOURCE = Path(__file__).with_name("libcuda_double.c")
ILLEGAL_ADDRESS = 700
# CUdevice_attribute numbers of an H200, and what they say
H200 = {
    75: 9, 76: 0,       # compute capability
    16: 132,            # SMs
    38: 50 * 2**20,     # L2, bytes
    97: 227 * 1024,     # shared memory of a block, opted in
    81: 228 * 1024,     # shared memory of an SM
    32: 1,              # ECC
}  # fmt: skip
CLOCK = 1.98e9  # Hz


class _Fault(ctypes.Structure):
    _fields_ = (("function", ctypes.c_char * 48), ("code", ctypes.c_int), ("after", ctypes.c_int), ("times", ctypes.c_int))


_THREE = ctypes.c_uint32 * 3


class _Launch(ctypes.Structure):
    _fields_ = (("grid", _THREE), ("block", _THREE), ("shared", ctypes.c_uint32), ("cluster", _THREE))


_KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_Launch), ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_int
)
_COUNTS = (
    "blocks_of_memory", "modules", "events", "hosts", "contexts", "graphs", "resets", "launches", "replays", "sticky", "stays_sticky",
    "hangs",
)  # fmt: skip


class State(ctypes.Structure):
    """What the double's `state` holds, field by field."""

    _fields_ = (
        ("devices", ctypes.c_int),
        ("version", ctypes.c_int),
        ("name", ctypes.c_char * 64),
        ("uuid", ctypes.c_ubyte * 16),
        ("attributes", ctypes.c_int * 256),
        ("memory", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("now", ctypes.c_uint64),
        *((name, ctypes.c_int) for name in _COUNTS),
        ("kernel", _KERNEL),
        ("faults", _Fault * 64),
    )


@dataclass
class Launched:
    """A launch as the kernel sees it: its shape, and its parameters by their place (the first is `clocks`)."""

    gpu: Gpu
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: int
    shared_allowed: int
    wide_clusters: bool
    parameters: ctypes.Array

    @property
    def blocks(self):
        return self.grid[0] * self.grid[1] * self.grid[2]

    def array(self, place, dtype, count):
        """Return the memory behind a pointer as an array that can be written."""
        address = ctypes.cast(self.parameters[place], ctypes.POINTER(ctypes.c_void_p)).contents.value
        return np.ctypeslib.as_array((ctypes.c_uint8 * (count * np.dtype(dtype).itemsize)).from_address(address)).view(dtype)

    def integer(self, place):
        return ctypes.cast(self.parameters[place], ctypes.POINTER(ctypes.c_int)).contents.value

    def took(self, cycles, clock=CLOCK):
        """Let every block run for so many cycles at this clock, all at once, and note it as the preamble does."""
        nanoseconds = round(cycles / clock * 1e9)
        notes = self.array(0, np.uint64, 4 * self.blocks).reshape(-1, 4)
        begin = np.arange(self.blocks, dtype=np.uint64) * np.uint64(7)  # each SM counts from its own beginning
        notes[:, 0], notes[:, 1], notes[:, 2], notes[:, 3] = begin, self.gpu.now, begin + np.uint64(cycles), self.gpu.now + nanoseconds
        self.gpu.now += nanoseconds


class Gpu:
    """The double's GPU. `kernels` are the bodies by name: each is handed a `Launched`, writes its outputs, and says how long it took.

    A body may return a CUDA error code: 700 and above spoil the context, as on a GPU.
    """

    def __init__(self, library):
        self.library = library
        self.reset()

    def reset(self):
        """Make it one H200 that has done nothing."""
        old = State.in_dll(self.library, "state")
        ctypes.memset(ctypes.addressof(old), 0, ctypes.sizeof(old))
        self.state, self.kernels, self.failure = old, {}, None
        self.state.devices, self.state.version, self.state.name = 1, 13000, b"NVIDIA H200"
        self.state.uuid[:] = range(16)
        self.state.memory = 1 << 30
        for which, value in H200.items():
            self.state.attributes[which] = value
        self._callback = _KERNEL(self._launched)  # must live as long as the driver may call it
        self.state.kernel = self._callback

    def __getattr__(self, name):
        return getattr(self.__dict__["state"], name)

    @property
    def now(self):
        return self.state.now

    @now.setter
    def now(self, nanoseconds):
        self.state.now = nanoseconds

    def fail(self, function, code, after=0, times=-1):
        """Let a function of the driver answer with an error, after so many good answers, so many times (−1: always)."""
        place = next(n for n in range(64) if not self.state.faults[n].function)
        self.state.faults[place] = _Fault(function.encode(), code, after, times)

    def _launched(self, name, launch, parameters, shared_allowed, wide_clusters):
        shape = launch.contents
        seen = Launched(
            self, name.decode(), tuple(shape.grid), tuple(shape.block), tuple(shape.cluster), shape.shared,
            shared_allowed, bool(wide_clusters), parameters,
        )  # fmt: skip
        try:
            return self.kernels[seen.name](seen) or 0
        except Exception as failure:  # an exception can't pass through C: the test is told of it afterwards
            self.failure = self.failure or failure
            return 999


@functools.cache
def gpu():
    """Return the GPU of this process; builds the double and loads it in the driver's place."""
    return Gpu(_built(SOURCE, "libcuda.so.1"))


@functools.cache
def cublas():
    """Return a libcublas for the GPU of this process: a product is a launch of the kernel "gemm"."""
    return _built(SOURCE.with_name("libcublas_double.c"), "libcublas.so.13")


def _built(source, name):
    with tempfile.TemporaryDirectory(prefix="ullage-cuda-") as folder:
        target = Path(folder, "double.so")
        command = ["gcc", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(target), str(source), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return ctypes.CDLL(str(target), mode=ctypes.RTLD_LOCAL)


@functools.cache
def _worker(stand_in=False):
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_hide_packages if stand_in else None)


def _hide_packages():
    """Make this process one in which neither cuda-bindings nor nvidia-ml-py is installed: their stand-ins of `gpu/bare` are found."""
    import gpu

    hidden = types.ModuleType("cuda")
    hidden.__path__ = [str(gpu.BARE / "cuda")]
    sys.modules["cuda"] = hidden
    sys.path.remove(str(gpu.BARE))
    sys.path.insert(0, str(gpu.BARE))
    for name in ("pynvml", "cuda.bindings.driver"):
        assert Path(importlib.import_module(name).__file__).is_relative_to(gpu.BARE), name


def run_with_stand_in(test):
    """Run what `with_driver` decorated in a process where cuda-bindings is not installed."""
    _worker(stand_in=True).submit(_in_worker, test.__module__, test.__name__).result(timeout=120)


def in_process_with_driver(function, stand_in):
    """Return what a function of a fresh `Gpu` gives in a process with the double; `stand_in`: one without cuda-bindings."""
    return _worker(stand_in).submit(_given, function).result(timeout=120)


def _given(function):
    fresh = gpu()
    fresh.reset()
    found = function(fresh)
    if fresh.failure is not None:
        raise fresh.failure
    return found


def with_driver(test):
    """Run a test, with a fresh `Gpu` as its only argument, in a process where libcuda.so.1 is the double."""

    @functools.wraps(test)
    def run():
        if shutil.which("gcc") is None:
            pytest.skip("no gcc: the double of the CUDA driver can't be built")
        pytest.importorskip("cuda.bindings.nvrtc", reason="no cuda-bindings")
        _worker().submit(_in_worker, test.__module__, test.__name__).result(timeout=120)

    del run.__wrapped__  # pytest would take the test's own parameters for fixtures
    run.test = test
    return run


def _in_worker(module, name):
    fresh = gpu()
    fresh.reset()
    try:
        getattr(importlib.import_module(module), name).test(fresh)
    except UllageError as error:  # an error of the driver's can't be sent to the other process as it is
        raise AssertionError(f"{type(error).__name__}: {error}") from None
    if fresh.failure is not None:
        raise fresh.failure
