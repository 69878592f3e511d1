"""The bytes of a JSON file, block by block: unpacked, counted, capped, and with a word about where they end early."""

from __future__ import annotations

import gzip
import importlib
import io
import zlib
from typing import IO, Any

from ullage.errors import UllageError
from ullage.traces.json.regions import FileRegion
from ullage.traces.trace import File

_PART = 4 << 20
_FAST_PART = 128 << 10  # isal loses what it unpacked since it was last asked when it comes to damage
_GZIP = b"\x1f\x8b"


class JsonSource:
    """Hands out a file's decompressed bytes; holds no more than the block it is asked for.

    `taken` counts them. `fault` says why the bytes end early, "" as long as they don't. Raises UllageError when a file unpacks
    to more than `limit` bytes.
    """

    def __init__(self, file: File | FileRegion, limit: int) -> None:
        self.taken, self.fault, self.ended = 0, "", False
        self._file, self._limit, (self._bytes, self._most) = file, limit, _opened(file)

    def block(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer at the end of the file."""
        parts: list[bytes] = []
        missing = size
        while missing and not self.ended:
            part = self._part(min(missing, self._most))
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Let go of the file."""
        self._bytes.close()

    def _part(self, size: int) -> bytes:
        try:
            part: bytes = self._bytes.read1(size)  # type: ignore[attr-defined]  # read would lose what comes before damage
        except (UllageError, EOFError, OSError, zlib.error, ValueError):  # isal's own error is a ValueError
            part, self.fault = b"", f"damaged after {self.taken:,} unpacked bytes"
        self.taken += len(part)
        self.ended = not part
        if self.taken > self._limit:
            raise UllageError(
                f"{self._file.name} unpacks to more than {self._limit:,} bytes",
                "a profile that large is rare; if it is one, unpack it first and raise the limit",
            )
        return part


def _opened(file: File | FileRegion) -> tuple[IO[bytes], int]:
    """Open a file unpacked, and say how much to ask for at once; gzip by isal where it is installed, which is faster than zlib."""
    fast = _isal()
    if fast is None or not _is_gzip(file):
        return file.open(), _PART
    return io.BufferedReader(fast.IGzipFile(file.path)), _FAST_PART


def _is_gzip(file: File | FileRegion) -> bool:
    try:
        with file.path.open("rb") as raw:
            return raw.read(2) == _GZIP
    except OSError:
        return False  # opening it says what is wrong


def _isal() -> Any:
    try:
        fast = importlib.import_module("isal.igzip")
    except ImportError:
        return None
    return fast if issubclass(fast.IGzipFile, gzip.GzipFile) else None
