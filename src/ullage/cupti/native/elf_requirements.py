"""What a shared library asks of a machine, read from its ELF file without loading it: the processor, and how new GNU's C library must be.

Source: System V ABI, "Dynamic Linking"; Linux Standard Base, "Symbol Versioning" (version needs). Only 64-bit, little-endian files.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MACHINES = {21: "ppc64le", 62: "x86_64", 183: "aarch64", 243: "riscv64"}  # e_machine, as `uname -m` says it
MOST_BYTES = 64 << 20
_LOAD, _DYNAMIC = 1, 2  # p_type
_NEEDED = 1  # d_tag
_STRINGS, _STRINGS_SIZE, _NEEDS, _NEED_COUNT = 5, 10, 0x6FFFFFFE, 0x6FFFFFFF  # d_tag
_MOST_NEEDS = 1024  # far more than a library has: a damaged file must come to an end
_GLIBC = re.compile(rb"GLIBC_(\d{1,9}(?:\.\d{1,9})+)")


class NotALibrary(ValueError):  # noqa: N818 - what a file is, not a class of mistakes
    """A file that is no library, or not a whole one; the text says which."""


@dataclass(frozen=True)
class LibraryRequirements:
    """`machine` as `uname -m` says it, `glibc` the least version of GNU's C library (() for none), `names` the symbols' names."""

    machine: str
    glibc: tuple[int, ...]
    names: bytes

    @property
    def glibc_words(self) -> str:
        """The least version as text.

        >>> LibraryRequirements("x86_64", (2, 34), b"").glibc_words
        '2.34'
        """
        return ".".join(map(str, self.glibc))

    def has(self, name: str) -> bool:
        """Whether it names a symbol."""
        return b"\0" + name.encode() + b"\0" in self.names


def library_requirements(path: Path) -> LibraryRequirements:
    """Return what a library asks for. Raises NotALibrary for a file that is none, and OSError for one that can't be read."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES)
    if data[:4] != b"\x7fELF":
        raise NotALibrary("which is no library of Linux")
    try:
        return _read(data)
    except (struct.error, KeyError, IndexError) as error:
        raise NotALibrary("which is no whole library") from error


def without_loader(data: bytes) -> bytes:
    """Return a library that no longer asks for the dynamic loader (`ld-linux-…`) by name, which every process of GNU's has anyway.

    Programs of another C library (musl) have a loader of another name, and would not start with such a library preloaded.
    Raises NotALibrary for what is no whole library.
    """
    try:
        segments = list(_segments(data))
        entries = list(_dynamic(data, segments))
        names = _offset(segments, dict(entries)[_STRINGS])
        kept = [(tag, value) for tag, value in entries if tag != _NEEDED or not data[names + value :].startswith(b"ld-linux")]
    except (struct.error, KeyError, IndexError) as error:
        raise NotALibrary("which is no whole library") from error
    at = next(offset for kind, offset, _, _ in segments if kind == _DYNAMIC)
    table = b"".join(struct.pack("<QQ", *entry) for entry in kept).ljust(16 * len(entries), b"\0")
    return data[:at] + table + data[at + len(table) :]


def _read(data: bytes) -> LibraryRequirements:
    bits, order = data[4], data[5]
    if bits != 2:
        raise NotALibrary("which is a library of 32 bits")
    if order != 1:
        raise NotALibrary("which is a library for processors with another order of bytes")
    (machine,) = _fields("<H", data, 18)
    segments = list(_segments(data))
    dynamic = dict(_dynamic(data, segments))
    at, size = _offset(segments, dynamic[_STRINGS]), dynamic[_STRINGS_SIZE]
    names = data[at : at + size]
    versions = [_version(names, name) for name in _needs(data, segments, dynamic)]
    return LibraryRequirements(MACHINES.get(machine, f"machine {machine}"), max(versions, default=()), names)


def _fields(layout: str, data: bytes, at: int) -> tuple[int, ...]:
    """Return the fields that stand at a byte; struct.error where the file ends before them, however far a damaged offset points."""
    if at + struct.calcsize(layout) > len(data):  # `unpack_from` itself overflows at an offset past 63 bits
        raise struct.error(f"the file ends before byte {at}")
    return struct.unpack_from(layout, data, at)


def _segments(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield type, offset, address and size in the file of each segment."""
    (start,) = _fields("<Q", data, 32)
    size, count = _fields("<HH", data, 54)
    for number in range(count):
        kind, _, offset, address, _, length = _fields("<IIQQQQ", data, start + number * size)
        yield kind, offset, address, length


def _dynamic(data: bytes, segments: list[tuple[int, int, int, int]]) -> Iterator[tuple[int, int]]:
    for kind, offset, _, length in segments:
        if kind == _DYNAMIC:
            yield from struct.iter_unpack("<QQ", data[offset : offset + length // 16 * 16])


def _offset(segments: list[tuple[int, int, int, int]], address: int) -> int:
    """Return where in the file an address lies; KeyError for one that lies nowhere."""
    for kind, offset, start, length in segments:
        if kind == _LOAD and start <= address < start + length:
            return offset + address - start
    raise KeyError(address)


def _needs(data: bytes, segments: list[tuple[int, int, int, int]], dynamic: dict[int, int]) -> Iterator[int]:
    """Yield where in the strings the name of each version stands that is asked of another library."""
    if _NEEDS not in dynamic:
        return
    at, seen = _offset(segments, dynamic[_NEEDS]), 0
    for _ in range(min(dynamic.get(_NEED_COUNT, 0), _MOST_NEEDS)):
        _, count, _, first, following = _fields("<HHIII", data, at)
        auxiliary = at + first
        for _ in range(count):
            seen += 1
            if seen > _MOST_NEEDS:
                return
            _, _, _, name, after = _fields("<IHHII", data, auxiliary)
            yield name
            auxiliary += after
        at += following


def _version(names: bytes, at: int) -> tuple[int, ...]:
    found = _GLIBC.fullmatch(names[at : names.index(b"\0", at)]) if at < len(names) and b"\0" in names[at:] else None
    return tuple(map(int, found[1].split(b"."))) if found else ()
