"""What the wheel that a libcupti came in says of itself."""

from __future__ import annotations

import re
from pathlib import Path

from ullage.cupti.releases import RELEASES

_FOLDER = re.compile(r"nvidia_cuda_cupti(?:_cu(\d+))?-(\d+)\.(\d+)\.\d+.*\.dist-info")


def version_beside(library: Path) -> int | None:
    """Return the API version of the release that a libcupti's wheel or toolkit names; None where nothing does, or it is no known one.

    In site-packages, `nvidia/cu13/lib/libcupti.so.13` belongs to `nvidia_cuda_cupti-13.1.115.dist-info`.
    """
    name = _of_wheel(library) or _of_toolkit(library)
    return next((known.version for known in reversed(RELEASES) if known.name == name), None)


def _of_wheel(library: Path) -> str:
    if len(library.parents) < 4 or library.parents[2].name != "nvidia":
        return ""
    generation = "13" if library.parents[1].name == "cu13" else "12"
    for folder in sorted(library.parents[3].glob("nvidia_cuda_cupti*.dist-info")):
        found = _FOLDER.fullmatch(folder.name)
        if found and found[2] == generation:
            return f"{found[2]}.{found[3]}"
    return ""


def _of_toolkit(library: Path) -> str:
    for folder in library.resolve().parents:
        if found := re.fullmatch(r"cuda-(\d+\.\d+)", folder.name):
            return found[1]
    return ""
