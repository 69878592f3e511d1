"""Rows of samples in order: numbers for devices, keys that sort, and tables whose empty columns cost nothing.

`tables.SAMPLES` has a column for all that any device can report, and one fleet reports a few of them. The functions
here keep the columns without a value as one shared array of nulls, so that a wide table costs what it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]


class Nulls:
    """Arrays of nulls of one length, made once for each type."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._made: dict[pa.DataType, pa.Array] = {}

    def of(self, kind: pa.DataType) -> pa.Array:
        """Return the array of nulls of a type."""
        if kind not in self._made:
            self._made[kind] = pa.nulls(self.rows, kind)
        return self._made[kind]


def empty(column: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether a column has no value at all."""
    return bool(column.null_count == len(column))


def one_batch(table: pa.Table) -> pa.Table:
    """Return the table with one chunk a column and one dictionary for each column of words."""
    nulls = Nulls(table.num_rows)
    return pa.table([nulls.of(c.type) if empty(c) else whole(c) for c in table.columns], schema=table.schema)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a chunked column as one array, with one dictionary."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if not column.num_chunks:
        return pa.array([], column.type)
    return pa.concat_arrays(column.unify_dictionaries().chunks if pa.types.is_dictionary(column.type) else column.chunks)


def column_of(table: pa.Table, name: str) -> pa.Array:
    """Return a column of a table in one batch as an array."""
    return whole(table[name])


def chosen(table: pa.Table, rows: Numbers) -> pa.Table:
    """Return the rows of a table in one batch that a mask or an array of row numbers names, in one batch.

    >>> chosen(pa.table({"a": [5, 6, 7]}), np.array([True, False, True]))["a"].to_pylist()
    [5, 7]
    """
    index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    nulls = Nulls(len(index))
    columns = [nulls.of(c.type) if empty(c) else take(whole(c), index) for c in table.columns]
    return pa.table(columns, schema=table.schema)


def take(column: pa.Array, index: Ints) -> pa.Array:
    """Return rows of a column by number; -1 gives null."""
    return column.take(pa.array(index, mask=index < 0) if len(index) and index.min() < 0 else pa.array(index))


def numbers(column: pa.Array) -> Numbers:
    """Return the numbers of a column, 0 where null; for words, their codes; for times, milliseconds."""
    plain = column.indices if pa.types.is_dictionary(column.type) else column
    if pa.types.is_timestamp(plain.type):
        plain = plain.cast(pa.int64())
    return np.asarray((pc.fill_null(plain, 0) if plain.null_count else plain).to_numpy())


def has_value(column: pa.Array) -> Mask:
    """Return where a column has a value."""
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False))


def milliseconds(time: pa.Array) -> Ints:
    """Return an Arrow timestamp column as integer milliseconds since 1970."""
    return np.asarray(time.cast(pa.int64()).to_numpy(), np.int64)


# --- order ---


def device_codes(gpu: pa.Array, mig: pa.Array) -> Ints:
    """Return a number for each row's device, in the order of (gpu, mig) by value with null first."""
    gpus, migs = _ranks(gpu), _ranks(mig)
    return gpus * (int(migs.max(initial=0)) + 1) + migs


def _ranks(column: pa.Array) -> Ints:
    """Each row's place (from 1) among the distinct words in alphabetical order; null is 0."""
    if empty(column):
        return np.zeros(len(column), np.int64)
    places: Ints = pc.rank(column.dictionary, tiebreaker="dense").to_numpy().astype(np.int64)
    places[~has_value(column.dictionary)] = 0
    codes: Ints = pc.fill_null(column.indices, len(places)).to_numpy()
    return np.append(places, 0)[codes]


def pack(high: Ints, low: Ints) -> Ints:
    """Return one integer per row that sorts and compares as the pair (high, low) does; `high` is not negative.

    >>> key = pack(np.array([0, 1, 0]), np.array([7, 5, 9]))
    >>> np.argsort(key).tolist()
    [0, 2, 1]
    """
    if not len(low):
        return np.zeros(0, np.int64)
    range_bits = (int(low.max()) - int(low.min())).bit_length()
    if range_bits + int(high.max()).bit_length() > 62:  # centuries at many devices: ranks do as well
        low = np.unique(low, return_inverse=True)[1].reshape(-1)
        range_bits = int(low.max()).bit_length()
    return np.asarray((high << range_bits) | (low - low.min()))


def keys(table: pa.Table) -> tuple[Ints, Ints]:
    """Return (device number, key) of each row of samples; keys sort and compare as (gpu, mig, time) do."""
    device = device_codes(column_of(table, "gpu"), column_of(table, "mig"))
    return device, pack(device, milliseconds(column_of(table, "time")))


def sorting(key: Ints) -> Ints | None:
    """Return the rows' numbers sorted by key, equal ones in their order; None when they are sorted already."""
    return None if bool((key[1:] >= key[:-1]).all()) else np.argsort(key, kind="stable")


def in_order(tables: Sequence[pa.Table]) -> pa.Table:
    """Return all rows of tables of samples as one table in one batch, sorted by (gpu, mig, time)."""
    table = one_batch(pa.concat_tables(tables))
    order = sorting(keys(table)[1])
    return table if order is None else chosen(table, order)


def starts_of(device: Ints) -> Ints:
    """Return where each run of equal numbers begins.

    >>> starts_of(np.array([3, 3, 5])).tolist()
    [0, 2]
    """
    return np.flatnonzero(np.concatenate(([True], device[1:] != device[:-1]))[: len(device)])
