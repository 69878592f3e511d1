"""Names of kernels as people write them, from those that compilers write into binaries."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable

from ullage.kernels.sass.disassembler import tool

LONGEST = 30  # seconds


def readable(names: Iterable[str]) -> dict[str, str]:
    """Return each name with its C++ form, by cu++filt or c++filt; as it is where neither is here, or it isn't mangled.

    >>> readable(["scale"])
    {'scale': 'scale'}
    """
    found = {name: name for name in names}
    asked = [name for name in found if name.startswith("_Z") and name.isprintable()]
    program = (tool("cu++filt") or shutil.which("c++filt")) if asked else None
    if program is None:
        return found
    try:
        done = subprocess.run(
            [program], input="\n".join(asked), capture_output=True, text=True, timeout=LONGEST, check=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return found
    lines = done.stdout.splitlines()
    return found | dict(zip(asked, lines, strict=True)) if len(lines) == len(asked) else found
