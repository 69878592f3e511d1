"""Build the recorder that a wheel carries: for x86-64 and AArch64, with nothing that GNU's C library 2.17 (2012) lacks.

    python tools/prebuilt_recorder.py

Needs the PyPI package ziglang, whose compiler brings every old C library's symbols along (`make wheel` installs it).
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from ullage.cupti.native import build

MACHINES = ("x86_64", "aarch64")
GLIBC = (2, 17)  # that of manylinux2014


def main(folder: Path = build.FOLDER / build.PREBUILT) -> int:
    """Build both libraries and the word for their sources into the package; what was there before goes."""
    shutil.rmtree(folder, ignore_errors=True)
    for machine in MACHINES:
        compiler = [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.{'.'.join(map(str, GLIBC))}", "-s"]
        target = folder / f"recorder-{machine}.so"
        needed = build.build_for_carrying(target, {"CC": shlex.join(compiler)})
        if needed.machine != machine or needed.glibc > GLIBC:
            sys.exit(f"{target.name} is for {needed.machine} with GNU's C library {needed.glibc_words}")
        print(f"{target.name}: {target.stat().st_size:,} bytes, for GNU's C library {needed.glibc_words} or later")
    (folder / "sources").write_text(build.sources(), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
