"""One long array of a plain JSON file in several regions, so that they can be read side by side.

Where a region ends is found near an even share of the bytes: where one element seems to end and the next to begin. That may be
deceived by what an element holds, so whoever reads the regions must see that each of them is whole by itself (`Region.closed`);
if one isn't, the file has to be read in one piece.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ullage.traces.json.salvage import BETWEEN

_REACHES = (64 << 10, 8 << 20)  # bytes in which a boundary is looked for, at first and where that has none


@dataclass(frozen=True)
class FileRegion:
    """Bytes `begin` to `end` of a file: some elements of its array. The last region holds what follows the array too."""

    path: Path
    begin: int
    end: int
    last: bool

    @property
    def name(self) -> str:
        """The file's name."""
        return str(self.path)

    def open(self) -> IO[bytes]:
        """Open the region; if it isn't the last, a bracket closes the array behind it."""
        return io.BufferedReader(_Window(self.path, self.begin, self.end, b"" if self.last else b"]"))


def regions(path: Path, begin: int, count: int) -> list[FileRegion]:
    """Return about `count` regions of a plain file whose array's first element begins at byte `begin`; one if no boundary is found."""
    size = path.stat().st_size
    found, start = [], begin
    with path.open("rb") as file:
        for number in range(1, count):
            file.seek(max(begin + (size - begin) * number // count, start))
            place = file.tell()
            for reach in _REACHES:
                file.seek(place)
                between = BETWEEN.search(file.read(reach))
                if between is not None:
                    found.append(FileRegion(path, start, place + between.start() + 1, last=False))
                    start = place + between.end()  # behind the comma
                    break
    return [*found, FileRegion(path, start, size, last=True)]


class _Window(io.RawIOBase):
    """Part of a file as a file, with a few bytes more at its end."""

    def __init__(self, path: Path, begin: int, end: int, closing: bytes) -> None:
        self._file, self._left, self._closing = path.open("rb"), end - begin, closing
        self._file.seek(begin)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        buffer = memoryview(buffer)  # a slice of a bytearray would be a copy
        size = min(len(buffer), self._left)
        if size:
            got = self._file.readinto(buffer[:size])
            self._left = self._left - got if got else 0
            if got:
                return got
        size = min(len(buffer), len(self._closing))
        buffer[:size] = self._closing[:size]
        self._closing = self._closing[size:]
        return size

    def close(self) -> None:
        self._file.close()
        super().close()
