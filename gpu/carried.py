"""What is carried to a machine without a network, in `gpu/wheels`: wheels of `wheels.txt`, the recorder, kernels of the load.

`make gpu-wheels` (`python3 gpu/carried.py`) fetches and builds it where there is a network; `carry` puts it to use where it is needed.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[:1] = [str(ROOT), str(ROOT / "src")]

from gpu import BARE, CARRIED  # noqa: E402

LIST, WHEELS = ROOT / "gpu" / "wheels.txt", ROOT / "gpu" / "wheels"
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17)] + ["manylinux2014_x86_64"]
LEGACY = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}  # the minor version of the C library that they ask for


@dataclass(frozen=True)
class Wanted:
    """A line of `wheels.txt`: a package with its version, and the CPython releases that it is carried for."""

    group: str
    requirement: str
    pythons: tuple[str, ...]
    megabytes: float


def wanted(text: str) -> list[Wanted]:
    """Return the lines of `wheels.txt`.

    >>> wanted("[usual]  # …\\nmsgspec==0.22.0 | 3.11 3.12 | 0.2 | traces")
    [Wanted(group='usual', requirement='msgspec==0.22.0', pythons=('3.11', '3.12'), megabytes=0.2)]
    """
    group, found = "", []
    for line in (line.partition("#")[0].strip() for line in text.splitlines()):
        if line.startswith("["):
            group = line.strip("[]")
        elif line:
            requirement, pythons, size, _ = (word.strip() for word in line.split("|"))
            found.append(Wanted(group, requirement, tuple(pythons.split()), float(size)))
    return found


# --- where it is used ---


@dataclass
class Carried:
    """What was put to use: the folder of the unpacked packages (None: none was needed), their names, and why others were not used."""

    folder: Path | None = None
    used: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def carry(folder: Path = WHEELS, environment: MutableMapping[str, str] = os.environ) -> Carried:
    """Put what is carried in a folder to use in this process and in those that it starts: packages and the recorder that are missing here.

    Wheels are unpacked into a temporary folder that is removed when this process ends. A process that finds them unpacked leaves it at
    that.
    """
    found = Carried()
    if environment.get(CARRIED) or not folder.is_dir():
        return found
    fitting: dict[str, Path] = {}
    for wheel in sorted(folder.glob("*.whl")):
        name, why = wheel.name.split("-")[0], unfit(wheel.name)
        if why:
            found.skipped.append(f"{wheel.name}: {why}")
        elif not _installed(name):
            fitting[name] = wheel
    if fitting:
        found.folder, found.used = Path(tempfile.mkdtemp(prefix="ullage-carried-")), list(fitting)
        atexit.register(shutil.rmtree, found.folder, ignore_errors=True)
        for wheel in fitting.values():
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(found.folder)
        environment[CARRIED] = str(found.folder)
        sys.path.insert(sys.path.index(str(BARE)), str(found.folder))
    _use_recorder(folder, environment)
    return found


def _installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def unfit(wheel: str, minor: int = sys.version_info.minor, machine: str = platform.machine(), glibc: str = platform.libc_ver()[1]) -> str:
    """Return why a wheel can't be used by CPython 3.`minor` on a machine with this C library; "" where it can.

    >>> unfit("x-1-cp312-cp312-manylinux_2_28_x86_64.whl", 12, "x86_64", "2.36")
    ''
    >>> unfit("x-1-cp311-cp311-manylinux_2_28_x86_64.whl", 12, "x86_64", "2.36")
    'it is for cp311'
    >>> unfit("x-1-py3-none-any.whl", 12, "aarch64", ""), unfit("x-1-cp39-abi3-manylinux2014_aarch64.whl", 12, "x86_64", "2.36")
    ('', 'it is for manylinux2014_aarch64')
    >>> unfit("x-1-cp312-cp312-manylinux_2_28_x86_64.whl", 12, "x86_64", "2.27")
    'it is for manylinux_2_28_x86_64'
    """
    python, abi, system = (tag.split(".") for tag in wheel.removesuffix(".whl").split("-")[-3:])
    own, stable = {"py3", f"py3{minor}", f"cp3{minor}"}, "abi3" in abi
    older = {f"cp3{number}" for number in range(2, minor)} if stable else set()
    if not own.union(older).intersection(python) or not {"none", "abi3", f"cp3{minor}"}.intersection(abi):
        return f"it is for {'.'.join(python)}"
    return "" if any(_runs(one, machine, glibc) for one in system) else f"it is for {'.'.join(system)}"


def _runs(system: str, machine: str, glibc: str) -> bool:
    """Return whether a platform tag is this machine's."""
    if system == "any":
        return True
    found = re.fullmatch(r"(manylinux_2_(\d+)|manylinux\d+|linux)_(.+)", system)
    if found is None or found[3] != machine:
        return False
    least = int(found[2]) if found[2] else LEGACY.get(found[1], 0)
    return found[1] == "linux" or (glibc.startswith("2.") and int(glibc.split(".")[1]) >= least)


def _use_recorder(folder: Path, environment: MutableMapping[str, str]) -> None:
    """Name the carried recorder where none is named and none can be built, if it is of these sources."""
    from ullage.cupti.native.build import compiler, sources
    from ullage.errors import UllageError

    made, mark = folder / "recorder.so", folder / "recorder.sources"
    if environment.get("ULLAGE_RECORDER") or not made.is_file() or not mark.is_file() or mark.read_text() != sources():
        return
    try:
        compiler(environment)
    except UllageError:
        environment["ULLAGE_RECORDER"] = str(made.resolve())


def carried_cubin(source: str, architecture: str, options: Sequence[str] = (), folder: Path = WHEELS) -> bytes | None:
    """Return the carried machine code of a kernel, None where it is not carried."""
    path = _cubin(folder, source, architecture, options)
    return path.read_bytes() if path.is_file() else None


def _cubin(folder: Path, source: str, architecture: str, options: Sequence[str]) -> Path:
    digest = hashlib.sha256("\0".join([source, architecture, *options]).encode()).hexdigest()[:16]
    return folder / "kernels" / f"{architecture}-{digest}.cubin"


# --- where it is made ---


def main(arguments: Sequence[str]) -> int:
    """Fetch and build what is carried, in place of what lies there; returns the exit code."""
    parser = argparse.ArgumentParser(prog="gpu/carried.py", description="Fetch and build what may be carried to a machine with a GPU.")
    parser.add_argument("--barer", action="store_true", help="also what a machine with little more than a driver lacks")
    barer = parser.parse_args(arguments).barer
    shutil.rmtree(WHEELS, ignore_errors=True)
    WHEELS.mkdir()
    for command in fetching(wanted(LIST.read_text(encoding="utf-8")), barer):
        subprocess.run(command, check=True)
    build_recorder(WHEELS)
    compile_kernels(WHEELS)
    size = sum(path.stat().st_size for path in WHEELS.rglob("*") if path.is_file())
    print(f"{size / 1e6:.1f} MB in {WHEELS.relative_to(ROOT)}")
    return 0


def fetching(lines: Sequence[Wanted], barer: bool, folder: Path = WHEELS) -> Iterator[list[str]]:
    """Yield the commands that fetch the wheels, one for each release of CPython."""
    chosen = [line for line in lines if barer or line.group == "usual"]
    for python in sorted({python for line in chosen for python in line.pythons}):
        platforms = [word for one in PLATFORMS for word in ("--platform", one)]
        target = ["--python-version", python, "--implementation", "cp", *platforms, "--dest", str(folder)]
        names = [line.requirement for line in chosen if python in line.pythons]
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        yield [sys.executable, "-m", "pip", "download", *options, *target, *names]


def build_recorder(folder: Path) -> None:
    """Build the recorder into the folder, with the mark of its sources."""
    from ullage.cupti.native.build import built, compiler, sources

    with tempfile.TemporaryDirectory() as place:
        shutil.copyfile(built(compiler(os.environ), Path(place)), folder / "recorder.so")
    (folder / "recorder.sources").write_text(sources())


def compile_kernels(folder: Path) -> None:
    """Compile the kernels of the load that needs no library, for every architecture, into the folder."""
    from gpu.driver_load import OPERANDS, kernel_of
    from ullage.benches.bench import Target
    from ullage.benches.source import whole
    from ullage.kernels.compiling import ARCHITECTURES, compile_cubin

    for architecture in ARCHITECTURES:
        for operand in OPERANDS.values():
            case = kernel_of(Target(architecture), operand)
            path = _cubin(folder, whole(case.source), architecture, case.options)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(compile_cubin(whole(case.source), architecture, case.options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
