"""Device code out of a file: cubin, fat binary, object, library, executable or PTX, told by its content and not by its name."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ullage.errors import UllageError, harmless, missing_extra
from ullage.kernels.sass.disassembler import tool

_CUDA_MACHINE = 190  # e_machine of an ELF file that holds a GPU's code
_LARGEST = 32 * 2**20  # bytes of a cubin or PTX, some two million instructions: nvdisasm needs minutes, and its output gigabytes
_LONGEST = 600  # seconds
_PTX = re.compile(rb"^[ \t]*\.version[ \t]+[0-9]", re.MULTILINE)
_TARGET = re.compile(r"^[ \t]*\.target[ \t]+(sm_[0-9]+[af]?)", re.MULTILINE)
_NAMED = re.compile(r"\.(sm_\d+[af]?)\.")
_ARCHITECTURE = re.compile("sm_[1-9][0-9]{1,2}[af]?")


@dataclass(frozen=True)
class CodeImage:
    """Machine code for one architecture: where it comes from, the architecture as far as a name tells ("sm_90a"; "" where none does)."""

    name: str
    architecture: str
    cubin: bytes


@dataclass(frozen=True)
class Opened:
    """What a file holds: machine code, PTX texts by name, and notes on what was left out."""

    images: tuple[CodeImage, ...] = ()
    ptx: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def open_binary(path: Path, architecture: str | None = None) -> Opened:
    """Return the device code of a file, of one architecture if asked ("sm_90", "sm_90a").

    Raises UllageError for a file that is missing, holds no device code, or is damaged, and for a name that is no architecture. A file
    with PTX alone has no images, and neither has one whose code is too large to disassemble: then a note says so.
    """
    if architecture is not None and not _ARCHITECTURE.fullmatch(architecture):
        word = harmless(architecture, 40)
        raise UllageError(f"'{word}' is no architecture of a GPU", "say sm_90, or sm_90a with that chip's own instructions")
    head = _head(path)
    _refuse_cut(path, head)
    if head[:4] == b"\x7fELF" and int.from_bytes(head[18:20], "little") == _CUDA_MACHINE:
        return _opened([path], [])
    if _contains_code(head):
        return _extracted(path, architecture)
    if _PTX.search(head):
        return _opened([], [path])
    raise UllageError(
        f"'{harmless(path.name)}' is no cubin, fat binary, library, executable or PTX", "give what nvcc, NVRTC, ptxas or Triton wrote"
    )


def is_binary(path: Path) -> bool:
    """Return whether a file is, by how it begins, of a kind that can hold a GPU's code: an ELF file, an archive, a fat binary, PTX."""
    try:
        head = _head(path)
    except UllageError:
        return False
    return _contains_code(head) or _PTX.search(head) is not None


def _contains_code(head: bytes) -> bool:
    return head[:4] == b"\x7fELF" or head[:8] == b"!<arch>\n" or head[:4] in (b"\x50\xed\x55\xba", b"\xb1\x43\x62\x46")


def target(ptx: str) -> str | None:
    """Return the architecture that a PTX text names, None where it names none.

    >>> target(".version 9.0\\n.target sm_90a, debug\\n")
    'sm_90a'
    """
    found = _TARGET.search(ptx)
    return found[1] if found else None


def _head(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # it would be read twice, and a pipe gives its bytes once
            raise UllageError(f"'{harmless(str(path))}' is a pipe or a device", "write it to a file first, and name that")
        with path.open("rb") as file:
            return file.read(65536)
    except OSError as error:
        hint = "write it to a file first, and name that" if str(path) == "-" else "give a .cubin, .ptx, .so or executable"
        raise UllageError(f"'{harmless(str(path))}' can't be read: {error.strerror}", hint) from error


def _refuse_cut(path: Path, head: bytes) -> None:
    """Raise UllageError for an ELF file that ends before its table of sections does."""
    if head[:5] != b"\x7fELF\x02" or len(head) < 64:
        return
    offset = int.from_bytes(head[40:48], "little")
    size, count = (int.from_bytes(head[place : place + 2], "little") for place in (58, 60))
    if offset + size * count > path.stat().st_size:
        raise UllageError(f"'{harmless(path.name)}' is cut off at byte {path.stat().st_size:,}", "copy it again, whole")


def _opened(cubins: Sequence[Path], texts: Sequence[Path], *, named: bool = False) -> Opened:
    """Read cubins and PTX texts, but for those that are too large, which are noted; `named`: names of cubins tell their architecture."""
    sizes = {path: path.stat().st_size for path in (*cubins, *texts)}
    small = {path for path, size in sizes.items() if size <= _LARGEST}
    return Opened(
        tuple(CodeImage(path.name, _architecture(path.name) if named else "", path.read_bytes()) for path in cubins if path in small),
        tuple((path.name, path.read_text("utf-8", "replace")) for path in texts if path in small),
        tuple(f"{path.name}: {size / 2**20:,.0f} MiB is too large, left out" for path, size in sizes.items() if size > _LARGEST),
    )


def matches(architecture: str, wanted: str) -> bool:
    """Return whether code for an architecture is what was asked for; one without a letter takes those with one.

    >>> matches("sm_90a", "sm_90"), matches("sm_90", "sm_90a")
    (True, False)
    """
    return architecture == wanted or architecture.rstrip("af") == wanted


def _extracted(path: Path, architecture: str | None) -> Opened:
    with tempfile.TemporaryDirectory(prefix="ullage-") as folder:
        said = _cuobjdump("-xelf", path, folder) + _cuobjdump("-xptx", path, folder)
        cubins, texts = (sorted(Path(folder).glob(f"*.{kind}"), key=_number) for kind in ("cubin", "ptx"))
        if not cubins and not texts:
            _refuse_empty(path, said)
        wanted = [one for one in cubins if architecture is None or matches(_architecture(one.name), architecture)]
        if cubins and not wanted and not texts:
            held = ", ".join(sorted({_architecture(one.name) for one in cubins}))
            raise UllageError(f"no machine code for {architecture} is in '{harmless(path.name)}'", f"it has {held}")
        return _opened(wanted, texts, named=True)


def _refuse_empty(path: Path, said: str) -> NoReturn:
    if "does not contain device code" in said or "No ELF file" in said or not said.strip():
        raise UllageError(f"'{harmless(path.name)}' holds no device code", "is it the library that holds the kernels?")
    line = said.strip().splitlines()[0].replace(str(path.absolute()), path.name)
    raise UllageError(f"cuobjdump can't read '{harmless(path.name)}': {harmless(line)}", "is the file whole?")


def _cuobjdump(action: str, path: Path, folder: str) -> str:
    program = tool("cuobjdump")
    if program is None:
        raise missing_extra("nvidia-cuda-cuobjdump", "kernels", "reading libraries and executables")
    try:
        done = subprocess.run(
            [program, action, "all", str(path.absolute())], cwd=folder, capture_output=True, timeout=_LONGEST, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UllageError(f"cuobjdump did not end within {_LONGEST} s", "extract one kernel's cubin: cuobjdump -xelf") from error
    return done.stderr.decode(errors="replace")


def _architecture(name: str) -> str:
    """Return the architecture in a name that cuobjdump gives.

    >>> _architecture("lib.2.sm_90a.cubin")
    'sm_90a'
    """
    found = _NAMED.search(name)
    return found[1] if found else ""


def _number(path: Path) -> tuple[int, str]:
    numbers = [int(word) for word in path.name.split(".") if word.isdigit()]
    return (numbers[-1] if numbers else 0, path.name)
