"""Where libcupti lies on a machine: named by the user, loaded already, in a wheel, in a CUDA toolkit, or known to the linker."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

WHEELS = ("nvidia/cu13/lib", "nvidia/cuda_cupti/lib")  # of CUDA 13's wheels and CUDA 12's, newest first
TOOLKIT = ("extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "lib")
TOOLKITS = Path("/usr/local")
MAPS = Path("/proc/self/maps")
_NAME = re.compile(r"libcupti\.so(\.[\d.]+)?$")
_LISTED = re.compile(r"^\s*libcupti\.so\S* .*=> (/.*)$", re.MULTILINE)


def loaded(maps: Path = MAPS) -> list[Path]:
    """Return the copies of libcupti that this process has loaded, as PyTorch does: a second one beside it would collide with it."""
    try:
        lines = maps.read_text(errors="replace").splitlines()
    except OSError:
        return []
    paths = [line.split(maxsplit=5)[5].strip() for line in lines if "/libcupti.so" in line]
    return list(dict.fromkeys(Path(path) for path in paths if _NAME.fullmatch(path.rpartition("/")[2])))


def installed(environment: Mapping[str, str], import_path: Iterable[str], toolkits: Path = TOOLKITS) -> Iterator[Path]:
    """Yield the copies of libcupti that are installed, best place first; nothing is loaded.

    `environment` names toolkits (CUDA_HOME, CUDA_PATH, CONDA_PREFIX), `import_path` is Python's (`sys.path`) with the wheels below it.
    """
    for wheel in WHEELS:
        for place in import_path:
            yield from _in(Path(place or ".", wheel))
    for variable in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        if environment.get(variable):
            yield from _in_toolkit(Path(environment[variable]))
    with contextlib.suppress(OSError):
        for toolkit in [toolkits / "cuda", *sorted(toolkits.glob("cuda-*"), key=_numbers, reverse=True)]:
            yield from _in_toolkit(toolkit)


def linked(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the copies that the dynamic linker would find: LD_LIBRARY_PATH's, then those of its cache."""
    for folder in environment.get("LD_LIBRARY_PATH", "").split(":"):
        if folder:
            yield from _in(Path(folder))
    for command in ("/sbin/ldconfig", "ldconfig"):
        try:
            told = subprocess.run([command, "-p"], capture_output=True, text=True, timeout=20, check=False).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        yield from filter(Path.is_file, map(Path, _LISTED.findall(told)))  # the cache may name files that are gone
        return


def by_pathfinder() -> Iterator[Path]:
    """Yield what NVIDIA's cuda-pathfinder finds, where it is installed: it knows further layouts. It loads the library."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.pathfinder") is None:
        return
    with contextlib.suppress(Exception):  # whatever it raises, it has found nothing
        found = importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib("cupti").abs_path
        if found:
            yield Path(found)


def in_place(path: Path) -> Path | None:
    """Return the libcupti that a path names: the file itself, or the newest one in that folder; None where there is none, or none that
    may be looked at."""
    with contextlib.suppress(OSError):
        if path.is_dir():
            return next(_in(path), None) or next(_in_toolkit(path), None)
        return path if path.is_file() else None
    return None


def _in(folder: Path) -> Iterator[Path]:
    """The copies in one folder, newest first. `libcupti.so.13` stands before the file it links to."""
    with contextlib.suppress(OSError):
        found = [file for file in folder.glob("libcupti.so*") if _NAME.fullmatch(file.name) and file.is_file()]
        yield from sorted(found, key=lambda file: (_numbers(file) < [1000], _numbers(file)), reverse=True)


def _in_toolkit(toolkit: Path) -> Iterator[Path]:
    for folder in TOOLKIT:
        yield from _in(toolkit / folder)


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)]
