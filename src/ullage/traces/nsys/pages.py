"""The pages of a SQLite database that hold one table, read straight from the file and found by their links.

Python's `sqlite3` makes an object of every value and gives about a million rows a second; whole pages decoded by NumPy
(`nsys_records`) give several. A page that can't be one of the table's is counted as damaged and passed over, so what lies
beyond the damage is still read. Only ordinary tables are read so: see `nsys_file.Table.plain`.

Source: the SQLite database file format (sqlite.org/fileformat2.html), sections 1.3 and 1.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

INTERIOR, LEAF = 5, 13  # the first byte of a page of a table's tree
BLOCK = 1 << 20  # bytes of pages that are decoded at a time: enough for NumPy, little enough for the processor's cache


class SqlitePages:
    """The pages of a database file; close it after use. `usable` is what of a page's `size` holds data."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("rb", buffering=0)
        head = self._file.read(100).ljust(100, b"\0")
        stated = int.from_bytes(head[16:18], "big")
        self.size = 65536 if stated == 1 else max(stated, 512)
        self.usable = self.size - head[20]
        self.text = "utf-8" if head[59] in (0, 1) else "utf-16"
        self.count = -(-path.stat().st_size // self.size)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, numbers: Numbers) -> Bytes:
        """Return pages (numbered from 1) as rows of bytes; what lies beyond the file's end is zeros."""
        pages = np.zeros((len(numbers), self.size), np.uint8)
        flat = memoryview(pages.reshape(-1))  # type: ignore[arg-type]
        breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
        for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), len(numbers)], strict=True):
            self._file.seek((int(numbers[first]) - 1) * self.size)
            part = flat[first * self.size : last * self.size]
            while len(part) and (got := self._file.readinto(part)):  # type: ignore[attr-defined]
                part = part[got:]
        return pages

    def leaves(self, root: int) -> tuple[Numbers, int]:
        """Return the numbers of the pages that hold a table's rows, in the rows' order, and how many pages couldn't be followed.

        A tree is as deep everywhere, so it is walked level by level; a page is never visited twice.
        """
        level, damaged = np.array([root], np.int64), 0
        seen = np.zeros(self.count + 1, bool)
        while True:
            good = (level >= 2) & (level <= self.count)
            good[good] = ~seen[level[good]]
            damaged += int((~good).sum())
            level = level[good]
            seen[level] = True
            if not len(level) or self._is_leaf(level):
                return level, damaged
            parts = []
            for block in self._blocks(level):
                pages = self.read(block)
                damaged += int((pages[:, 0] != INTERIOR).sum())
                parts += [_children(page, self.usable) for page in pages if page[0] == INTERIOR]
            level = np.concatenate(parts) if parts else level[:0]

    def blocks(self, leaves: Numbers) -> Iterator[Bytes]:
        """Yield leaf pages, `BLOCK` bytes at a time."""
        for block in self._blocks(leaves):
            yield self.read(block)

    def _blocks(self, numbers: Numbers) -> Iterator[Numbers]:
        step = max(BLOCK // self.size, 1)
        return (numbers[at : at + step] for at in range(0, len(numbers), step))

    def _is_leaf(self, level: Numbers) -> bool:
        """Return whether a level is the last, by its first page that is a table's at all."""
        for number in level:
            self._file.seek((int(number) - 1) * self.size)
            kind = self._file.read(1)
            if kind in (bytes([INTERIOR]), bytes([LEAF])):
                return kind[0] == LEAF
        return True


def _children(page: Bytes, usable: int) -> Numbers:
    """Return the pages that an interior page links to, in order."""
    cells = int(page[3]) << 8 | int(page[4])
    at = page[12 : 12 + 2 * cells].astype(np.int64)
    at = at[: len(at) // 2 * 2].reshape(-1, 2) @ np.array([256, 1])
    at = at[at <= usable - 4]
    links = page[at[:, None] + np.arange(4)].astype(np.int64) if len(at) else np.zeros((0, 4), np.int64)
    links = np.vstack((links, page[8:12].astype(np.int64)))
    return np.asarray(links @ np.array([1 << 24, 1 << 16, 1 << 8, 1]), np.int64)


def cells(pages: Bytes, usable: int) -> tuple[Numbers, Numbers, int]:
    """Return where the cells of leaf pages begin, where their pages' content ends (both in `pages` laid end to end), and how
    many pages are no leaves or point outside themselves: those are left out whole."""
    size = pages.shape[1]
    count = pages[:, 3].astype(np.int64) << 8 | pages[:, 4]
    good = (pages[:, 0] == LEAF) & (count <= (usable - 8) // 2)
    count = np.where(good, count, 0)
    page = np.repeat(np.arange(len(pages)), count)
    most = int(count.max(initial=0))
    at = pages.view(">u2")[:, 4 : 4 + most][np.arange(most) < count[:, None]].astype(np.int64)
    wrong = (at < 8 + 2 * count[page]) | (at > usable - 3)
    if wrong.any():
        good[page[wrong]] = False
        keep = good[page]
        page, at = page[keep], at[keep]
    return page * size + at, page * size + usable, int((~good).sum())
