"""Record batches into columns: the rows of one capture, sorted by what they are, as NumPy arrays without padding.

Batches of `tables.INTERVALS` are wide and sparse; a capture of millions of events must fit in little memory, so each batch
is cut at once into the columns that its kinds need.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.arrays import chosen, compact, one_view, plain
from ullage.memory import give_back
from ullage.recording import Recording
from ullage.sums.lanes.spans import Times
from ullage.tables import CALLS, KINDS

Number = TypeVar("Number", bound=np.generic)
Codes = npt.NDArray[np.int32]
NOT_KNOWN = -1  # of a whole number; process, thread, device, stream, correlation, … are never negative
KIND = {name: code for code, name in enumerate(KINDS)}
CALL = {name: code for code, name in enumerate(CALLS)}

_CODE_KINDS = ("operator", "function")
_DEVICE_KINDS = ("kernel", "collective", "memcpy", "memset", "graph", "lost")
_NUMBERS = (
    "process",
    "thread",
    "device",
    "stream",
    "correlation",
    "bytes",
    "sequence",
    "members",
    "blocks",
    "threads",
    "registers",
    "shared",
    "tokens",
    "off",
    "awaited_stream",
    "awaited",
)
_NOT_ON_DEVICE = ("thread", "tokens", "off", "awaited_stream", "awaited")
_WORDS = ("name", "operation", "group", "product")
_NARROW = (  # in 32 bits where they fit, since they are only ever compared
    "thread",
    "stream",
    "correlation",
    "sequence",
    "awaited_stream",
    "awaited",
    "members",
    "blocks",
    "threads",
    "registers",
    "shared",
)
_COLUMNS = {
    "device": ("kind", *(name for name in _NUMBERS if name not in _NOT_ON_DEVICE), *_WORDS),
    "calls": ("process", "thread", "correlation", "call", "name"),
    "events": ("process", "thread", "device", "stream", "correlation", "awaited_stream", "awaited"),
    "host": ("kind", "process", "thread", "bytes", "sequence", "members", "tokens", "off", "name", "operation", "group"),
}
CodeKey = tuple[str, int, int]  # kind, process, thread


class LaneRows:
    """Rows of one sort: `start` and `end` (ns) and the other columns as attributes, all NumPy arrays of one length.

    Whole numbers that are not known are `NOT_KNOWN`; `name`, `operation`, `group`, `product` are codes into `Capture.words`; `kind` and
    `call` are codes of `KIND` and `CALL`.
    """

    kind: npt.NDArray[np.int8]
    call: npt.NDArray[np.int8]
    process: Times
    thread: Times
    device: Times
    stream: Times
    correlation: Times
    bytes: Times
    sequence: Times
    members: Times
    blocks: Times
    threads: Times
    registers: Times
    shared: Times
    tokens: Times
    off: Times
    awaited_stream: Times
    awaited: Times
    name: Codes
    operation: Codes
    group: Codes
    product: Codes

    def __init__(self, start: Times, end: Times, **columns: npt.NDArray[np.generic]) -> None:
        self.start, self.end = start, end
        self._names = tuple(columns)
        for name, values in columns.items():
            setattr(self, name, values)

    def __len__(self) -> int:
        return len(self.start)

    def where(self, mask: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> LaneRows:
        """Return the rows where `mask` (or those at an array of positions); these very rows where the mask leaves none out."""
        if mask.dtype == np.bool_ and mask.all():
            return self
        return LaneRows(self.start[mask], self.end[mask], **{name: chosen(getattr(self, name), mask) for name in self._names})

    def of(self, *kinds: str) -> LaneRows:
        """Return the rows of some kinds."""
        return self.where(np.isin(self.kind, [KIND[k] for k in kinds]))


@dataclass
class Capture:
    """One capture in memory: rows on devices, calls of the GPU runtime, waits for events, other rows on hosts, and the words they use.

    `code` are the rows that name what a host thread ran, operators and Python functions: most of a profile, and so no more than their
    names, by kind, process and thread."""

    recording: Recording
    device: LaneRows
    calls: LaneRows
    events: LaneRows
    host: LaneRows
    code: dict[CodeKey, LaneRows]
    words: list[str]


def gather(batches: Iterable[pa.RecordBatch], recording: Recording) -> Capture:
    """Return a capture from record batches of `tables.INTERVALS`; the order of batches and rows doesn't matter."""
    words: dict[str, int] = {}
    parts: dict[str, list[dict[str, npt.NDArray[np.generic]]]] = {sort: [] for sort in _COLUMNS}
    code: dict[CodeKey, dict[str, list[npt.NDArray[np.generic]]]] = {}
    for batch in batches:
        for key, some in _named(batch, words):
            columns = code.setdefault(key, {"start": [], "end": [], "name": []})
            for name, values in some.items():
                columns[name].append(values)
        for sort, part in _cut(batch, words):
            parts[sort].append(part)
    give_back()
    rows = {sort: _rows(sort, parts.pop(sort)) for sort in _COLUMNS}
    named = {key: _joined(code[key]) for key in sorted(code)}
    return Capture(recording, rows["device"], rows["calls"], rows["events"], rows["host"], named, list(words))


def _cut(batch: pa.RecordBatch, words: dict[str, int]) -> Iterable[tuple[str, dict[str, npt.NDArray[np.generic]]]]:
    kind = _coded(batch["kind"], KIND)
    on_device = np.isin(kind, [KIND[k] for k in _DEVICE_KINDS])
    code, calls, events = np.isin(kind, [KIND[k] for k in _CODE_KINDS]), kind == KIND["api"], kind == KIND["event"]
    sorts = {"device": on_device, "calls": calls, "events": events, "host": ~(on_device | calls | events | code)}
    for sort, mask in sorts.items():
        if mask.any():
            part = {name: chosen(plain(batch[name], 0), mask) for name in ("start", "end")}
            for name in _COLUMNS[sort]:
                part[name] = chosen(kind if name == "kind" else _column(batch[name], name, words), mask)
            yield sort, part


def _named(batch: pa.RecordBatch, words: dict[str, int]) -> Iterable[tuple[CodeKey, dict[str, npt.NDArray[np.generic]]]]:
    """Yield a batch's operators and Python functions by thread."""
    kind = _coded(batch["kind"], KIND)
    for sort in _CODE_KINDS:
        places = np.flatnonzero(kind == KIND[sort])
        if len(places):
            start, end = (plain(batch[edge], 0)[places] for edge in ("start", "end"))
            process, thread = (plain(batch[who], NOT_KNOWN)[places] for who in ("process", "thread"))
            name = _worded(batch["name"], words)[places]
            order = np.lexsort((thread, process))
            edges = np.flatnonzero((np.diff(process[order], prepend=-2) != 0) | (np.diff(thread[order], prepend=-2) != 0))
            for rows in np.split(order, edges[1:]):
                yield (sort, int(process[rows[0]]), int(thread[rows[0]])), {"start": start[rows], "end": end[rows], "name": name[rows]}


def _joined(columns: dict[str, list[npt.NDArray[np.generic]]]) -> LaneRows:
    return LaneRows(**{name: np.concatenate(columns.pop(name)) for name in list(columns)})


def _column(values: pa.Array, name: str, words: dict[str, int]) -> npt.NDArray[np.generic]:
    if name == "call":
        return _coded(values, CALL)
    if name in _WORDS:
        return _worded(values, words)
    if values.null_count == len(values):
        return np.broadcast_to(np.int64(NOT_KNOWN), len(values))
    return plain(values, NOT_KNOWN).astype(np.int64, copy=False)


def _coded(values: pa.DictionaryArray, codes: dict[str, int]) -> npt.NDArray[np.int8]:
    table = np.array([codes[word] for word in values.dictionary.to_pylist()] + [NOT_KNOWN], np.int8)
    return table[_indices(values, len(table) - 1)]


def _worded(values: pa.DictionaryArray, words: dict[str, int]) -> Codes:
    if values.null_count == len(values):
        return np.broadcast_to(np.int32(NOT_KNOWN), len(values))
    if len(values.dictionary) > 2 * len(values):
        return _few(values, words)
    table = [words.setdefault(word, len(words)) for word in values.dictionary.to_pylist()]
    return np.array([*table, NOT_KNOWN], np.int32)[_indices(values, len(table))]


def _few(values: pa.DictionaryArray, words: dict[str, int]) -> Codes:
    """Return a column's codes where most of its dictionary, a table of all the file's words, is not in use: the others are not looked at.
    By NumPy, for Arrow's functions cost 10 MB when the first is called."""
    codes = plain(values.indices, NOT_KNOWN)
    used, first, place = np.unique(codes, return_index=True, return_inverse=True)
    table = np.full(len(used), NOT_KNOWN, np.int32)
    for at in np.argsort(first).tolist():
        if used[at] >= 0:
            table[at] = words.setdefault(values.dictionary[int(used[at])].as_py(), len(words))
    return table[place]


def _indices(values: pa.DictionaryArray, missing: int) -> npt.NDArray[np.int64]:
    codes = plain(values.indices, -1).astype(np.int64)
    return np.where(codes < 0, missing, codes)


def _rows(sort: str, parts: list[dict[str, npt.NDArray[np.generic]]]) -> LaneRows:
    def whole(name: str) -> npt.NDArray[np.generic]:
        if not parts:
            small = np.int8 if name in ("kind", "call") else np.int32 if name in _WORDS else np.int64
            return np.zeros(0, small)
        values = _as_one([part.pop(name) for part in parts])
        return compact(values) if name in _NARROW else values  # type: ignore[arg-type]

    return LaneRows(whole("start"), whole("end"), **{name: whole(name) for name in _COLUMNS[sort]})  # type: ignore[arg-type]


def _as_one(pieces: list[npt.NDArray[Number]]) -> npt.NDArray[Number]:
    """Return pieces of a column as one; where all are views of one and the same value, so is the column."""
    if all(piece.strides == (0,) and piece[0] == pieces[0][0] for piece in pieces):
        return np.broadcast_to(pieces[0][0], sum(map(len, pieces)))
    return one_view(np.concatenate(pieces))
