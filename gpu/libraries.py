"""Where CUDA's libraries lie on this machine, found without the libraries' own packages and loaded by ctypes."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ullage.cupti.driver import cuda_version

TOOLKITS = Path("/usr/local")
FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")  # of a toolkit
MAJORS = (13, 12)  # releases whose libraries the linker is asked for by name


def loaded(name: str) -> ctypes.CDLL:
    """Return a library of CUDA ("nvrtc", "cublas"), loaded: the newest in the best place whose CUDA is no newer than the driver's.

    Places are the wheels below `sys.path`, then toolkits (CUDA_HOME, CUDA_PATH, CONDA_PREFIX, /usr/local/cuda*), then what the dynamic
    linker knows. Raises OSError where none can be loaded.
    """
    driver = cuda_version()
    found = [*installed(name, sys.path, os.environ), *(Path(f"lib{name}.so.{major}") for major in MAJORS)]
    fitting = [path for path in found if driver is None or major(path) <= driver // 1000]
    for path in (*fitting, *(path for path in found if path not in fitting)):
        with suppress(OSError):
            return ctypes.CDLL(str(path))
    raise OSError(f"there is no lib{name} on this machine that can be loaded")


def installed(name: str, import_path: Iterable[str], environment: Mapping[str, str], toolkits: Path = TOOLKITS) -> Iterator[Path]:
    """Yield the files of a library, best place first and in each place the newest first; nothing is loaded."""
    for place in import_path:
        yield from _in(Path(place or ".", "nvidia"), "*/lib", name)
    roots = [Path(environment[one]) for one in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX") if environment.get(one)]
    with suppress(OSError):
        roots += [toolkits / "cuda", *sorted(toolkits.glob("cuda-*"), key=_numbers, reverse=True)]
    for root in roots:
        for folder in FOLDERS:
            yield from _in(root, folder, name)


def major(path: Path) -> int:
    """Return the release in a library's name, 0 where it has none.

    >>> major(Path("libnvrtc.so.13")), major(Path("libcublas.so.12.9.1.4")), major(Path("libnvrtc.so"))
    (13, 12, 0)
    """
    return (_numbers(path) or [0])[0]


def _in(root: Path, folders: str, name: str) -> list[Path]:
    """Return the files of a library in some folders, the newest first."""
    with suppress(OSError):
        found = [file for file in root.glob(f"{folders}/lib{name}.so.*") if re.fullmatch(rf"lib{name}\.so(\.\d+)+", file.name)]
        return sorted(filter(Path.is_file, found), key=_numbers, reverse=True)
    return []


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)]
