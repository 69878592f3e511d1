"""Files as they lie on a disk: compressed or not, whole or damaged, told by their first bytes and never by their name."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ullage.errors import UllageError, UnreadableError

HEAD = 64 * 1024  # how many (decompressed) bytes a recogniser may look at


def head(path: Path) -> bytes:
    """Return the first `HEAD` bytes of a file, decompressed."""
    try:
        with opened(path) as file:
            return _start(file)
    except OSError as error:
        raise UnreadableError(f"{path} can't be read: {error.strerror or error}") from error


def _start(file: IO[bytes]) -> bytes:
    """Return the first bytes of a stream; of a damaged one what comes before the damage, if anything does."""
    start, take = b"", getattr(file, "read1", file.read)
    try:
        while len(start) < HEAD and (part := take(HEAD - len(start))):
            start += part
    except UllageError:
        if not start:
            raise
    return start


_MAGIC: tuple[tuple[bytes, Callable[[IO[bytes]], Any]], ...] = (
    (b"\x1f\x8b", lambda f: gzip.GzipFile(fileobj=f)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)


def opened(path: Path) -> IO[bytes]:
    """Open by content: gzip, bzip2, xz or plain. Reads past a truncated end return what there is and then raise."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise UnreadableError(f"{path} can't be opened: {error.strerror or error}") from error
    magic = raw.read(6)
    raw.seek(0)
    for start, unpack in _MAGIC:
        if magic.startswith(start):
            return io.BufferedReader(_Tolerant(unpack(raw), path))
    return raw


class _Tolerant(io.RawIOBase):
    """A decompressing stream that turns the library's several errors into one that names the file and byte."""

    def __init__(self, inner: Any, path: Path) -> None:
        self._inner, self._path, self._read = inner, path, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._inner.read1(len(buffer))  # read would lose what comes before the damage
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise UnreadableError(
                f"{self._path} is damaged after {self._read:,} decompressed bytes ({error})",
                "copy or export the file again; what came before was read",
            ) from error
        buffer[: len(data)] = data
        self._read += len(data)
        return len(data)

    def close(self) -> None:
        self._inner.close()
        super().close()
