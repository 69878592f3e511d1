"""NVIDIA's libcupti, found and loaded: its version, its functions, its answers as errors that say what to do."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from ullage.cupti import searching
from ullage.cupti.driver import cuda_version, dotted
from ullage.cupti.releases import Release, release
from ullage.cupti.results import CuptiError
from ullage.cupti.wheels import version_beside
from ullage.errors import UllageError, harmless
from ullage.written_values import expanded_path

VARIABLE = "ULLAGE_CUPTI"
_OURS: set[Path] = set()  # what nobody else had loaded into this process
_INSTALL = "pip install 'ullage[cupti]', or name the library with --cupti or ULLAGE_CUPTI"
# Asked in a process of its own: without a driver CUPTI 13.2 crashes here and later ones answer 999; and who only records another
# program needn't fall with a library that is broken.
_ASK = (
    "import ctypes, sys\n"
    "version = ctypes.c_uint32()\n"
    "if not ctypes.CDLL(sys.argv[1]).cuptiGetVersion(ctypes.byref(version)): print(version.value)"
)


class Library:
    """A loaded libcupti. `path` is its file, `handle` the ctypes library; see `find`."""

    def __init__(self, path: Path) -> None:
        self.path, resolved = path, path.resolve()
        self._others = resolved not in _OURS and resolved in [copy.resolve() for copy in searching.loaded()]
        self._crashes = False
        try:
            self.handle = ctypes.CDLL(str(path))
            if not self._others:
                _OURS.add(resolved)
        except OSError as error:
            raise UllageError(f"{harmless(str(path))} can't be loaded: {harmless(str(error))}", _INSTALL) from error
        if not self.has("cuptiGetVersion"):
            raise UllageError(f"{harmless(str(path))} is no libcupti: it has no cuptiGetVersion", _INSTALL)

    @functools.cached_property
    def version(self) -> int | None:
        """The API version (28 is CUDA 12.9, 130101 is 13.1); None where the library can't be asked and its wheel says nothing."""
        driver = cuda_version()
        if driver is not None and self._others:  # such as PyTorch's: it is in use here
            number = ctypes.c_uint32()
            return number.value if self.handle.cuptiGetVersion(ctypes.byref(number)) == 0 else version_beside(self.path)
        version, crashes = _asked_apart(self.path)
        self._crashes = crashes and driver is not None  # without a driver it is never asked again
        return None if self._crashes else version or version_beside(self.path)

    @functools.cached_property
    def release(self) -> Release:
        """The release whose records it writes. Raises UllageError for one that is not known."""
        if self.version is None and self._crashes:
            raise UllageError(f"{harmless(str(self.path))} crashes when it is asked its version", "install another nvidia-cuda-cupti")
        if self.version is None:
            raise UllageError(
                f"{harmless(str(self.path))} doesn't say its version, which it does only where there is an NVIDIA driver",
                "use nvidia-cuda-cupti 13.1 or older on a machine without a GPU",
            )
        return release(self.version)

    def has(self, name: str) -> bool:
        """Whether this release exports a function."""
        return hasattr(self.handle, name)

    def ask(self, name: str, *arguments: Any) -> int:
        """Return CUPTI's answer to a call as a number (see `results.explain`); raises UllageError if this release lacks the function."""
        if not self.has(name):
            raise UllageError(f"this CUPTI has no {name} ({harmless(str(self.path))})", "install a newer nvidia-cuda-cupti")
        return int(getattr(self.handle, name)(*arguments))

    def call(self, name: str, *arguments: Any, doing: str = "starting to trace") -> None:
        """Call a function with ctypes arguments; raises CuptiError, which says what `doing` needs, for any answer but success."""
        code = self.ask(name, *arguments)
        if code:
            raise CuptiError(doing, code, name)

    @functools.cached_property
    def counters(self) -> ctypes.CDLL:
        """The libnvperf_host beside it, loaded. CUPTI looks for it by its bare name, so it must be loaded before counters are used."""
        _beside(self.path, "libnvperf_target.so")
        return _beside(self.path, "libnvperf_host.so")

    @property
    def cuda(self) -> int:
        """The CUDA version it came with, as the driver counts: 13010 is 13.1. Raises UllageError as `release` does."""
        major, _, minor = self.release.name.partition(".")
        return int(major) * 1000 + int(minor) * 10

    def mismatch(self) -> str:
        """Return what is wrong between this library and the driver, in one sentence; "" where nothing is, or nothing is known."""
        driver = cuda_version()
        if driver is None or self.version is None or self.cuda <= driver:
            return ""
        told = f"CUPTI is of CUDA {dotted(self.cuda)}, newer than the driver, which allows CUDA {dotted(driver)}"
        return told + ": if it refuses, update the driver or install an older nvidia-cuda-cupti"


def find(path: str | os.PathLike[str] | None = None) -> Library:
    """Return libcupti, loaded: the one at `path`, else the one `library_path` finds.

    Raises UllageError where there is none or it can't be loaded. Nothing of CUDA is initialised.
    """
    return Library(library_path(path))


def library_path(path: str | os.PathLike[str] | None = None) -> Path:
    """Return the file of libcupti without loading it.

    In this order: `path` (a file or a folder), ULLAGE_CUPTI, a copy that this process has loaded already (two of them collide), the
    CUDA wheels below `sys.path`, toolkits (CUDA_HOME, CUDA_PATH, CONDA_PREFIX, /usr/local/cuda*), the dynamic linker's, then whatever
    cuda-pathfinder knows. One that is too new for this machine's driver comes last. Raises UllageError where there is none.
    """
    named = str(path) if path is not None else os.environ.get(VARIABLE, "")
    if named:
        found = searching.in_place(expanded_path(named))
        if found is None:
            raise UllageError(f"there is no libcupti at {harmless(named)}", "name the file libcupti.so.13, or its folder")
        return found.absolute()
    if copies := searching.loaded():
        return copies[0]
    return _fitting(chain(searching.installed(os.environ, sys.path), searching.linked(os.environ), searching.by_pathfinder()))


def _fitting(found: Iterable[Path]) -> Path:
    """The first that the driver can serve, else the first."""
    driver = cuda_version()
    first = None
    for path in found:
        first = first or path
        if driver is None or _fits(path, driver):
            return path.absolute()
    if first is None:
        raise UllageError("there is no libcupti on this machine, which CUDA programs are traced by", _INSTALL)
    return first.absolute()


def _fits(path: Path, driver: int) -> bool:
    """Whether a driver is of the CUDA generation that the file's name asks for (libcupti.so.13), or of a later one."""
    numbers = re.findall(r"\d+", path.name)
    return not numbers or int(numbers[0]) > 1000 or int(numbers[0]) <= driver // 1000  # libcupti.so.2025.1 doesn't tell


def _beside(path: Path, name: str) -> ctypes.CDLL:
    for place in (path.parent / name, path.resolve().parent / name):
        if place.is_file():
            try:
                return ctypes.CDLL(str(place), mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                raise UllageError(f"{harmless(str(place))} can't be loaded: {harmless(str(error))}", _INSTALL) from error
    raise UllageError(f"{name} is missing beside {harmless(str(path))}, and counters need it", _INSTALL)


def _asked_apart(path: Path) -> tuple[int | None, bool]:
    """Return the version that a library says in a process of its own, and whether that process crashed."""
    try:
        done = subprocess.run([sys.executable, "-I", "-S", "-c", _ASK, str(path)], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return None, False
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else None, done.returncode < 0
