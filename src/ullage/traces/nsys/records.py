"""The values of SQLite records, thousands at a time: a record is a header of types and then the values, end to end.

All arrays here run along records. A missing value is `MISSING`, in whole numbers and in times alike.

Source: the SQLite database file format (sqlite.org/fileformat2.html), sections 1.6 and 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.arrays import texts
from ullage.traces.nsys.pages import Bytes, Numbers, cells

MISSING = np.iinfo(np.int64).min
REACH = 136  # bytes that may be looked at beyond the last page; a header of one-byte size is shorter

_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((t - 12) // 2 for t in range(12, 256))], np.int64)  # by type
_WHOLE = (1, 2, 3, 4, 5, 6, 8, 9)  # types of whole numbers; 0 is NULL, 7 a float, 12 and more are blobs and texts
_TAKEN = (1, 1, 2, 4, 4, 8, 8, 8, 8)  # how many bytes are taken for a number of 0, 1, … 8
_IS_WHOLE = np.isin(np.arange(256), _WHOLE)


class UnusualError(Exception):
    """The records are of a form that is left to SQLite itself."""


@dataclass(frozen=True)
class SqliteRecords:
    """Records of one block of pages: where each header begins and its content ends, and the rowids of those that spill over
    onto further pages (which are not among the others)."""

    flat: Bytes
    header: Numbers
    end: Numbers
    spilled: Numbers
    damaged: int

    def __len__(self) -> int:
        return len(self.header)


def records(pages: Bytes, usable: int) -> SqliteRecords:
    """Return the records of a block of leaf pages."""
    start, end, damaged = cells(pages, usable)
    flat = np.concatenate((pages.reshape(-1), np.zeros(REACH, np.uint8)))
    length, at = _numbers(flat, start)
    header = _after(flat, at)
    whole = (length <= usable - 35) & (header + length <= end) & (length > 0)
    spills = length > usable - 35
    damaged += len(np.unique(start[~whole & ~spills] // pages.shape[1]))
    rowids = _numbers(flat, at[spills])[0]
    if whole.all():
        return SqliteRecords(flat, header, header + length, rowids, damaged)
    return SqliteRecords(flat, header[whole], (header + length)[whole], rowids, damaged)


class RecordColumns:
    """Where the values of some columns (by their place in the table, in order) lie in records; decodes any of them on demand.

    Records whose values would lie beyond their end are left out. Raises UnusualError for headers of 128 bytes and more.
    """

    def __init__(self, of: SqliteRecords, wanted: Sequence[int]) -> None:
        self._flat = of.flat
        count = max(wanted, default=-1) + 1
        if count > 120:
            raise UnusualError
        window = np.lib.stride_tricks.sliding_window_view(of.flat, count + 1)
        header = np.ascontiguousarray(window[of.header].T)
        size, types = header[0], header[1:]
        if len(size) and int(size.max()) >= 128:
            raise UnusualError
        if len(size) and int(size.min()) - 1 < count:  # columns that were added to the table later are not in older records
            types[np.arange(len(types))[:, None] >= size - 1] = 0
        self._find(of, types, size, frozenset(wanted))

    def _find(self, of: SqliteRecords, types: npt.NDArray[np.integer], size: Bytes, wanted: frozenset[int]) -> None:
        long = np.flatnonzero((types >= 128).any(axis=0)) if types.size and int(types.max()) >= 128 else of.header[:0]
        if len(long):
            types = types.astype(np.int32)
            types[:, long] = _long_types(of.flat, of.header[long], size[long], len(types))
        self._types, self._at = dict[int, npt.NDArray[np.integer]](), dict[int, Numbers]()
        self._begin, self._ahead, self._size = of.header + size, dict[int, int](), dict[int, int]()
        at, ahead, fixed = self._begin, 0, True
        for column in range(len(types)):
            sizes, alike = _sizes_alike(types[column])
            if column in wanted:
                self._types[column] = types[column]
                self._ahead |= {column: ahead} if fixed else {}
                self._at |= {} if fixed else {column: at + ahead}
                self._size |= {column: int(sizes[0])} if alike and len(sizes) else {}
            if alike:
                ahead += int(sizes[0]) if len(sizes) else 0
            else:
                at, fixed = at + sizes, False
        self._drop(at + ahead <= of.end)
        self._rows = self._beginnings(max(self._ahead.values(), default=0) + 8)

    def _drop(self, fits: npt.NDArray[np.bool_]) -> None:
        """Leave out the records whose values don't fit into them: they are damaged."""
        self.rows = int(fits.sum())
        if self.rows < len(fits):
            self._begin = self._begin[fits]
            self._types = {column: values[fits] for column, values in self._types.items()}
            self._at = {column: values[fits] for column, values in self._at.items()}

    def _beginnings(self, width: int) -> Bytes:
        """Return the first bytes of each record's values: as far as values lie at the same place in all of them, one copy serves all."""
        if width > REACH:
            self._at |= {column: self._begin + ahead for column, ahead in self._ahead.items()}
            self._ahead.clear()
            return np.zeros((self.rows, 0), np.uint8)
        everywhere = np.ndarray((len(self._flat) - width + 1,), f"V{width}", self._flat.data, strides=(1,))
        return np.asarray(everywhere[self._begin].view(np.uint8).reshape(self.rows, width), np.uint8)

    def whole(self, column: int) -> Numbers:
        """Return a column of whole numbers; a float is rounded, anything else is missing."""
        types = self._types[column]
        low, high = (int(types.min()), int(types.max())) if self.rows else (0, 0)
        if low == high and low in (0, 8, 9):
            return np.full(self.rows, MISSING if low == 0 else low - 8, np.int64)
        sizes = self._size.get(column)
        size = _TAKEN[min(int(_sizes(types).max()) if sizes is None else sizes, 8)]
        values = self._taken(column, size)
        if sizes is None:  # shorter numbers than were taken: the rest is the next column's
            values >>= 8 * (size - np.minimum(_sizes(types), size))
        elif sizes < size:
            values >>= 8 * (size - sizes)
        return values if 1 <= low <= high <= 6 else self._repair(values, types, column)

    def _taken(self, column: int, size: int) -> Numbers:
        """Return big-endian signed numbers of `size` bytes that begin where the column's values do."""
        if column in self._ahead:
            width = self._rows.shape[1]
            return np.ndarray((self.rows,), f">i{size}", self._rows.data, self._ahead[column], (width,)).astype(np.int64)
        return _window(self._flat, self._at[column], size)

    def _places(self, column: int) -> Numbers:
        return self._begin + self._ahead[column] if column in self._ahead else self._at[column]

    def _repair(self, values: Numbers, types: npt.NDArray[np.integer], column: int) -> Numbers:
        values = np.where(types == 9, 1, np.where(types == 8, 0, values))
        real = types == 7
        if real.any():
            floats = self._taken(column, 8)[real].view(np.float64)
            values[real] = np.where(np.abs(floats) < 2.0**62, np.rint(np.nan_to_num(floats)), 0).astype(np.int64)
        wrong = ~(np.isin(types, _WHOLE) | real) if int(types.max()) > 255 else ~(_IS_WHOLE[types] | real)
        values[wrong] = MISSING
        return values

    def text(self, column: int) -> pa.Array:
        """Return a column of texts; anything that is no text is null. Bytes that are no UTF-8 are replaced."""
        types = self._types[column].astype(np.int64)
        is_text = (types >= 13) & (types & 1 == 1)
        lengths = np.where(is_text, (types - 13) // 2, 0)
        ends = np.cumsum(lengths)
        offsets = np.concatenate(([0], ends)).astype(np.int32)
        places = np.repeat(self._places(column) - (ends - lengths), lengths) + np.arange(int(ends[-1]) if len(ends) else 0)
        data = self._flat[places].tobytes()
        try:
            data.decode()
        except UnicodeDecodeError:
            words = [data[a:b].decode(errors="replace") for a, b in pairwise(offsets)]
            return texts([word if known else None for word, known in zip(words, is_text.tolist(), strict=True)])
        valid = None if is_text.all() else pa.py_buffer(np.packbits(is_text, bitorder="little"))
        return pa.StringArray.from_buffers(len(types), pa.py_buffer(offsets), pa.py_buffer(data), valid)


def _window(flat: Bytes, at: Numbers, size: int) -> Numbers:
    """Return big-endian signed numbers of `size` bytes that begin anywhere."""
    if size == 1:
        return flat[at].view(np.int8).astype(np.int64)
    everywhere = np.ndarray((len(flat) - size + 1,), f">i{size}", flat.data, strides=(1,))
    return everywhere[at].astype(np.int64)


def _numbers(flat: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """Return the variable-length numbers that begin at `at` (at most nine bytes, the ninth with all its bits), and where each ends."""
    byte = flat[np.minimum(at, len(flat) - 1)].astype(np.int64)
    value, at = byte & 127, at + 1
    more = np.flatnonzero(byte >= 128)
    for number in range(1, 9):
        if not len(more):
            break
        byte = flat[np.minimum(at[more], len(flat) - 1)].astype(np.int64)
        value[more] = value[more] << 8 | byte if number == 8 else value[more] << 7 | byte & 127
        at[more] += 1
        more = more[byte >= 128]
    return value, at


def _after(flat: Bytes, at: Numbers) -> Numbers:
    """Return where the variable-length numbers end that begin at `at`."""
    four = _window(flat, at, 4)
    length = 1 + np.zeros(len(at), np.int64)
    for mask in (0x80000000, 0x80800000, 0x80808000, 0x80808080):
        length += four & mask == mask
    long = np.flatnonzero(length == 5)
    if len(long):
        length[long] = _numbers(flat, at[long])[1] - at[long]
    return at + length


def _sizes_alike(types: npt.NDArray[np.integer]) -> tuple[Numbers, bool]:
    """Return how many bytes values of some types take (of the first alone if all do the same), and whether all do the same."""
    if not len(types) or bool((types == types[0]).all()):
        return _sizes(types[:1]), True
    sizes = _sizes(types)
    return sizes, bool((sizes == sizes[0]).all())


def _sizes(types: npt.NDArray[np.integer]) -> Numbers:
    """Return how many bytes the values of some types take."""
    if types.dtype == np.uint8:
        return np.asarray(_SIZES[types], np.int64)
    return np.where(types < 12, _SIZES[np.minimum(types, 11)], (types.astype(np.int64) - 12) // 2)


def _long_types(flat: Bytes, header: Numbers, size: Bytes, count: int) -> npt.NDArray[np.int32]:
    """Return the types of columns in records that have a long text, whose type takes several bytes."""
    types = np.zeros((count, len(header)), np.int64)
    at, end = header + 1, header + size
    for column in range(count):
        value, after = _numbers(flat, at)
        inside = at < end
        types[column], at = np.where(inside, np.clip(value, 0, 2**31 - 1), 0), np.where(inside, after, at)
    return types.astype(np.int32)
