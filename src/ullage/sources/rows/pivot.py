"""Readings into wide rows: from one column a field (who, when, value) to one row a device and time.

For every source that comes one number at a time: the Prometheus API, saved responses, long CSV. Give it a piece that
fits into memory (a chunk of time); rows of one device and time that fall into two pieces are merged when they settle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.problems import Problems
from ullage.tables import IDENTITY, Flag, samples

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.uint16]
Who = Mapping[str, str | int | None]


@dataclass(frozen=True)
class FieldReadings:
    """Readings of one field, any order: arrays of one length. `who` numbers the device (see `Identities`), time in ms.

    `parts` says that several readings of one device and time are of its parts, and their mean is the device's.
    """

    field: str
    who: Ints
    time: Ints
    values: Floats
    flags: Flags
    parts: bool = False


@dataclass(frozen=True)
class Wide:
    """Rows sorted by (who, time), each once; a field's array is NaN where nobody read it. `copies` were merged."""

    who: Ints
    time: Ints
    fields: dict[str, Floats] = field(default_factory=dict)
    flags: Flags = field(default_factory=lambda: np.zeros(0, np.uint16))
    copies: int = 0


def pivot(columns: Sequence[FieldReadings]) -> Wide:
    """Return one row for each (who, time) that occurs in any column, by exact time.

    Copies of a reading within a column count once: the first that is not missing stays, the row is flagged COPIED,
    and CONFLICT where copies differ. Of two columns for one field (an old and a new name) the later fills only what
    the earlier left open. Flags of a row are those of all its readings together. Empty input gives no rows.

    >>> who, zero = np.array([0, 0]), np.zeros(2, np.uint16)
    >>> wide = pivot([
    ...     FieldReadings("sm_active", who, np.array([10, 20]), np.array([0.5, 0.25]), zero),
    ...     FieldReadings("power", who, np.array([20, 30]), np.array([300.0, 200.0]), zero),
    ... ])
    >>> wide.time.tolist(), wide.fields["sm_active"].tolist(), wide.fields["power"].tolist()
    ([10, 20, 30], [0.5, 0.25, nan], [nan, 300.0, 200.0])
    """
    columns = [column for column in columns if len(column.time)]
    if not columns:
        return Wide(np.zeros(0, np.int64), np.zeros(0, np.int64))
    keys, people, times = _keys(columns)
    rows = _rows(keys)
    fields: dict[str, Floats] = {}
    flags = np.zeros(len(rows), np.uint16)
    copies = 0
    for column, key in zip(columns, keys, strict=True):
        at = np.arange(len(rows)) if key is rows or np.array_equal(key, rows) else np.searchsorted(rows, key)
        if column.parts:
            placed = mean_by_row(column.values, at, len(rows))
        else:
            placed, repeated = _place(column.values, at, flags)
            copies += repeated
        marked = np.flatnonzero(column.flags)
        np.bitwise_or.at(flags, at[marked], column.flags[marked])
        before = fields.get(column.field)
        fields[column.field] = placed if before is None else np.where(np.isnan(before), placed, before)
    who, when = np.divmod(rows, len(times))
    return Wide(people[who], times[when], fields, flags, copies)


def _keys(columns: Sequence[FieldReadings]) -> tuple[list[Ints], Ints, Ints]:
    """Return one integer per reading that sorts by (who, time), and the devices and times that it counts through."""
    people = _distinct([column.who for column in columns])
    times = _distinct([column.time for column in columns])
    keys: list[Ints] = []
    before: FieldReadings | None = None
    for column in columns:
        if before is None or not (np.array_equal(column.who, before.who) and np.array_equal(column.time, before.time)):
            keys.append(np.searchsorted(people, column.who) * len(times) + np.searchsorted(times, column.time))
        else:
            keys.append(keys[-1])  # the fields of one scrape have the same devices and times
        before = column
    return keys, people, times


def _distinct(parts: Sequence[Ints]) -> Ints:
    """Return the distinct values, sorted. Whole numbers of a narrow range are ticked off rather than sorted."""
    lowest, highest = min(int(part.min()) for part in parts), max(int(part.max()) for part in parts)
    if highest - lowest > 8 * sum(map(len, parts)) + 1_000_000:
        return np.unique(np.concatenate(parts))
    seen = np.zeros(highest - lowest + 1, bool)
    for part in parts:
        seen[part - lowest] = True
    return np.flatnonzero(seen) + lowest


def _rows(keys: Sequence[Ints]) -> Ints:
    """Return the sorted union; the usual case, equal and rising keys, costs a comparison."""
    first = keys[0]
    others = [key for key in keys[1:] if key is not first and not np.array_equal(key, first)]
    if not others and bool(np.all(np.diff(first) > 0)):
        return first
    return np.unique(np.concatenate([first, *others]))


def _place(values: Floats, at: Ints, flags: Flags) -> tuple[Floats, int]:
    """Return the values at their rows, NaN elsewhere, and how many were copies; flags the rows that had copies."""
    placed = np.full(len(flags), np.nan)
    known = ~np.isnan(values)
    placed[at[known][::-1]] = values[known][::-1]  # the last assignment stays: the first reading
    count = np.bincount(at, minlength=len(flags))
    repeated = len(at) - int(np.count_nonzero(count))
    if repeated:
        flags[count > 1] |= np.uint16(Flag.COPIED)
        differ = known & (placed[at] != values)
        flags[at[differ]] |= np.uint16(Flag.CONFLICT)
    return placed, repeated


def mean_by_row(values: Floats, at: Ints, rows: int) -> Floats:
    """Return the mean of the values that are known at each row, NaN where none is.

    >>> mean_by_row(np.array([1.0, 3.0, np.nan]), np.array([0, 0, 1]), 2).tolist()
    [2.0, nan]
    """
    known = ~np.isnan(values)
    count = np.bincount(at[known], minlength=rows)
    total = np.bincount(at[known], values[known], rows)
    mean: Floats = np.divide(total, count, out=np.full(rows, np.nan), where=count > 0)
    return mean


class Identities:
    """Numbers for devices: `code` gives each distinct identity a number, `columns` gives the identity columns back."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str | int | None, ...], int] = {}
        self._people: list[tuple[str | int | None, ...]] = []

    def code(self, who: Who) -> int:
        """Return the number of an identity: a mapping with the keys of `tables.IDENTITY`; what is left out is None.

        >>> devices = Identities()
        >>> devices.code({"gpu": "GPU-1"}), devices.code({"gpu": "GPU-2"}), devices.code({"gpu": "GPU-1", "host": None})
        (0, 1, 0)
        """
        key = tuple(who.get(name) for name in IDENTITY.names)
        code = self._codes.setdefault(key, len(self._people))
        if code == len(self._people):
            self._people.append(key)
        return code

    def columns(self, codes: Ints) -> dict[str, pa.Array]:
        """Return the identity columns for an array of numbers; words are dictionary-encoded, with only those in use."""
        used, inverse = np.unique(codes, return_inverse=True)
        people = [self._people[code] for code in used.tolist()]
        order = pa.array(inverse.astype(np.int32))
        return {field.name: _encoded([person[number] for person in people], field.type, order) for number, field in enumerate(IDENTITY)}


def _encoded(words: list[str | int | None], kind: pa.DataType, order: pa.Array) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return pa.array(words, kind).take(order)
    encoded = pa.array(words, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.take(order), encoded.dictionary)


def batch(wide: Wide, devices: Identities, problems: Problems, where: str = "") -> pa.RecordBatch:
    """Return the rows as a `tables.SAMPLES` record batch, without those in which nothing is known and nothing flagged."""
    problems.repair("copies of a reading (same device, same time) were counted once", wide.copies, where)
    told = wide.flags != 0
    for values in wide.fields.values():
        told |= ~np.isnan(values)
    problems.drop("rows without any value", int(len(told) - told.sum()), where)
    columns: dict[str, Any] = {"time": wide.time[told], **devices.columns(wide.who[told]), "flags": wide.flags[told]}
    return samples(columns | {name: values[told] for name, values in wide.fields.items()})
