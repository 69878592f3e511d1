"""Rows of one kind, kept as narrow columns until the file's metadata, which may stand at its end, is known."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage import arrays
from ullage.arrays import chosen, coded, compact
from ullage.tables import CALLS, INTERVALS, KINDS, intervals
from ullage.traces.calls import call

Times = npt.NDArray[np.int64]
Numbers = dict[str, npt.NDArray[np.signedinteger[Any]]]
NOT_KNOWN = -1
MOST_ROWS = 100_000  # of a part that is joined of smaller ones


@dataclass(frozen=True)
class CodedWords:
    """A column of words: a code a row (`NOT_KNOWN` for none) into a list of words."""

    codes: npt.NDArray[np.int32]
    words: list[str]

    def values(self) -> list[str | None]:
        """Return the word of each row."""
        return [self.words[code] if code >= 0 else None for code in self.codes.tolist()]

    def are(self, fits: Callable[[str], object]) -> npt.NDArray[np.bool_]:
        """Return in which rows the word fits; each word is looked at once."""
        return np.array([*(bool(fits(word)) for word in self.words), False], bool)[self.codes]

    def arrow(self) -> pa.DictionaryArray:
        """Return it as Arrow keeps words."""
        return coded(self.codes, self.words)


@dataclass(frozen=True)
class KinetoPart:
    """Rows of one of `tables.KINDS`: times in ns since the file's base, whole numbers (negative: not known) and words by column."""

    kind: str
    start: Times
    end: Times
    numbers: Numbers = field(default_factory=dict)
    words: dict[str, CodedWords] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    def where(self, mask: npt.NDArray[np.bool_]) -> KinetoPart:
        """Return the rows where `mask`."""
        return replace(
            self,
            start=self.start[mask],
            end=self.end[mask],
            numbers={name: chosen(values, mask) for name, values in self.numbers.items()},
            words={name: CodedWords(found.codes[mask], found.words) for name, found in self.words.items()},
        )

    def batch(self, base: int) -> pa.RecordBatch:
        """Return the rows as a batch of `tables.INTERVALS`, with `base` ns added to the times."""
        columns: dict[str, object] = {"start": self.start + base, "end": self.end + base, "kind": _same(self.kind, KINDS, len(self))}
        columns |= {name: _known(name, values) for name, values in self.numbers.items()}
        columns |= {name: found.arrow() for name, found in self.words.items()}
        if self.kind == "api":
            columns["call"] = _calls(self.words["name"])
        return intervals(columns)


def numbers(values: Sequence[object]) -> Times:
    """Return whole numbers from what a file has in their place: those that are none become `NOT_KNOWN`."""
    try:
        return from_memory(array("q", values))  # in half the time that NumPy takes for a list
    except (TypeError, OverflowError):
        pass
    try:
        return np.array([NOT_KNOWN if value is None else value for value in values], np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([whole(value) for value in values], np.int64)


def from_memory(values: array[Any]) -> npt.NDArray[Any]:
    """Return the numbers of Python's own kind of array as NumPy's, in the same memory."""
    return np.frombuffer(values, values.typecode) if values else np.zeros(0, values.typecode)


def whole(value: object) -> int:
    """Return a whole number from what a file has in its place, `NOT_KNOWN` where it is none."""
    if value is None:
        return NOT_KNOWN
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return NOT_KNOWN
    return number if -(2**63) <= number < 2**63 else NOT_KNOWN


def narrow(values: Times) -> npt.NDArray[np.int32]:
    """Return whole numbers in half the memory; those that don't fit become `NOT_KNOWN`."""
    return np.where((values >= 0) & (values < 2**31), values, NOT_KNOWN).astype(np.int32)


def joined(parts: list[KinetoPart]) -> list[KinetoPart]:
    """Return the rows of many small parts in few large ones, which take less time to handle; rows of one sort stay in their order.

    The list is emptied, so that small parts are let go as they are joined.
    """
    sorts: dict[tuple[object, ...], list[KinetoPart]] = {}
    for part in parts:
        sorts.setdefault((part.kind, *part.numbers, *part.words), []).append(part)
    parts.clear()
    found = []
    for same in sorts.values():
        while same:
            count, rows = 1, len(same[0])
            while count < len(same) and rows + len(same[count]) <= MOST_ROWS:
                rows += len(same[count])
                count += 1
            found.append(as_one(same[:count]))
            del same[:count]
    return found


def as_one(parts: Sequence[KinetoPart]) -> KinetoPart:
    """Return the rows of parts of one kind, which have the same columns."""
    first = parts[0]
    return KinetoPart(
        first.kind,
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.end for part in parts]),
        {name: compact(np.concatenate([part.numbers[name] for part in parts])) for name in first.numbers},
        {name: _one_column([part.words[name] for part in parts]) for name in first.words},
    )


def _one_column(columns: Sequence[CodedWords]) -> CodedWords:
    known: dict[str, int] = {}
    codes = np.concatenate([shared(column, known) for column in columns])
    return CodedWords(codes, list(known))


def shared(column: CodedWords, known: dict[str, int]) -> npt.NDArray[np.int32]:
    """Return the codes of a column in a list of words that several columns share."""
    table = np.array([*(known.setdefault(word, len(known)) for word in column.words), NOT_KNOWN], np.int32)
    return table[column.codes]


class NumberCodes:
    """Codes by whole numbers; of a number that occurs twice, the last code counts."""

    def __init__(self, keys: Times, codes: npt.NDArray[np.int32]) -> None:
        order = np.argsort(keys, kind="stable")
        self._keys, self._codes = keys[order], codes[order]

    def of(self, keys: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[np.int32]:
        """Return the code of each key, `NOT_KNOWN` for one that the table lacks."""
        if not len(self._keys):
            return np.full(len(keys), NOT_KNOWN, np.int32)
        at = np.maximum(np.searchsorted(self._keys, keys, side="right") - 1, 0)
        return np.where(self._keys[at] == keys, self._codes[at], NOT_KNOWN).astype(np.int32)


def distinct(values: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[np.signedinteger[Any]]:
    """Return the numbers that occur, in their order: faster than `np.unique`, which hashes them."""
    ranked = np.sort(values)
    return ranked[np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1])[: len(ranked)])]


class _Codes(dict[str | None, int]):
    """The code of each word: a new word gets the next one."""

    def __missing__(self, word: str | None) -> int:
        code = self[word] = len(self)
        return code


def words(values: Sequence[str | None], known: dict[str, str]) -> CodedWords:
    """Return a column of words. `known` holds one copy of each word that was seen before."""
    table = _Codes()
    codes = np.fromiter(map(table.__getitem__, values), np.int32, len(values))
    if None in table:
        codes[codes == table[None]] = NOT_KNOWN
    return CodedWords(codes, [known.setdefault(word, word) if word is not None else "" for word in table])


def _known(name: str, values: npt.NDArray[np.signedinteger[Any]]) -> pa.Array:
    wide = values.astype(INTERVALS.field(name).type.to_pandas_dtype(), copy=False)  # Arrow's own cast costs 10 MB when it is first called
    return arrays.numbers(wide, values < 0)


def _same(word: str, vocabulary: Iterable[str], length: int) -> pa.DictionaryArray:
    names = list(vocabulary)
    return coded(np.full(length, names.index(word), np.int8), names)


def _calls(names: CodedWords) -> pa.DictionaryArray:
    table = np.array([CALLS.index(call(word)) for word in names.words], np.int8)
    return coded(table[names.codes], CALLS)
