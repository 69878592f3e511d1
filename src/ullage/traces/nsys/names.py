"""Words by number: only those of `StringIds` that rows use are looked up, however many the table has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.arrays import coded, plain
from ullage.traces.nsys.file import Database
from ullage.traces.nsys.pages import Numbers
from ullage.traces.nsys.records import MISSING

KEPT = 100_000  # words that are remembered between batches
_NEAR = 1 << 22  # numbers that lie so close together are told apart by a table, others by sorting


def distinct(values: Numbers) -> tuple[Numbers, Numbers]:
    """Return the different numbers, sorted, and for each value its place among them.

    >>> distinct(np.array([7, 5, 7]))
    (array([5, 7]), array([1, 0, 1]))
    """
    if not len(values):
        return values, values
    low, high = int(values.min()), int(values.max())
    if low == high:
        return values[:1], np.zeros(len(values), np.int64)
    if high - low > _NEAR:
        table, codes = np.unique(values, return_inverse=True)
        return table, codes
    offsets = values - low
    used = np.zeros(high - low + 1, bool)
    used[offsets] = True
    table = np.flatnonzero(used)
    places = np.zeros(len(used), np.int64)
    places[table] = np.arange(len(table))
    return table + low, places[offsets]


@dataclass(frozen=True)
class NsysWords:
    """A column of words: `codes` into `table`, -1 where there is none."""

    codes: npt.NDArray[np.int32]
    table: list[str]

    def arrow(self) -> pa.DictionaryArray:
        """Return the column as Arrow's dictionary-encoded text."""
        return coded(self.codes, self.table)

    def each(self, function: Callable[[str], object], otherwise: object) -> npt.NDArray[np.generic]:
        """Return what a function says of each row's word; it is asked once a word."""
        return np.array([*(function(word) for word in self.table), otherwise])[self.codes]

    def renamed(self, function: Callable[[str], str | None]) -> NsysWords:
        """Return the column with other words; None makes a word missing."""
        names = [function(word) for word in self.table]
        table = list(dict.fromkeys(name for name in names if name is not None))
        place = {name: code for code, name in enumerate(table)}
        codes = np.array([*(place[n] if n is not None else -1 for n in names), -1], np.int32)
        return NsysWords(codes[self.codes], table)

    def where(self, mask: npt.NDArray[np.bool_]) -> NsysWords:
        """Return the rows where `mask`."""
        return NsysWords(self.codes[mask], self.table)


def words(texts: pa.Array) -> NsysWords:
    """Return a column of texts by its different words."""
    encoded = texts.dictionary_encode()
    return NsysWords(plain(encoded.indices, -1), encoded.dictionary.to_pylist())


def either(first: NsysWords, second: NsysWords) -> NsysWords:
    """Return the first column's words, the second's where it has none."""
    moved = np.where(second.codes >= 0, second.codes + len(first.table), -1).astype(np.int32)
    return NsysWords(np.where(first.codes >= 0, first.codes, moved), first.table + second.table)


class NsysNames:
    """The words of a database, by number."""

    def __init__(self, database: Database) -> None:
        self._database, self._kept = database, dict[int, str]()
        self._table = database.table("StringIds")

    def of(self, numbers: Numbers) -> NsysWords:
        """Return the words of a column of numbers; a number without a word is named after itself."""
        ids, codes = distinct(numbers)
        table = self._looked_up(ids.tolist())
        found = codes.astype(np.int32)
        if len(ids) and ids[0] == MISSING:
            found = found - 1
            table = table[1:]
        return NsysWords(found, table)

    def _looked_up(self, ids: list[int]) -> list[str]:
        if len(self._kept) > KEPT:
            self._kept.clear()
        new = iter([i for i in ids if i not in self._kept and i != MISSING])
        found = {i: self._kept[i] for i in ids if i in self._kept}
        if self._table is not None and {"id", "value"} <= set(self._table.columns):
            while some := list(islice(new, 900)):
                marks = ",".join("?" * len(some))
                sql = f'SELECT id, value FROM "{self._table.name}" WHERE id IN ({marks})'  # noqa: S608
                found |= {i: v for i, v in self._database.query(self._table.name, sql, tuple(some)) if isinstance(v, str)}
        self._kept |= found
        return [found.get(i, f"name {i}") for i in ids]
