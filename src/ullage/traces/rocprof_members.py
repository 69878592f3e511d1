"""The records of rocprofv3's JSON, some at once: what stands before them, and each sort's array after the other, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

import msgspec

from ullage.traces.json.array import CHUNK, MOST, Array
from ullage.traces.json.salvage import ERRORS, end_of_array
from ullage.traces.json.source import JsonSource

T = TypeVar("T")
_BLOCK = 1 << 20
_RECORDS = re.compile(rb'"buffer_records"\s*:\s*\{')
_MEMBER = re.compile(rb'[\s,]*"([^"\\]*)"\s*:\s*(\S)')
_CLOSED = re.compile(rb"\s*\}")
_TOOL = msgspec.json.Decoder(dict[str, list[dict[str, msgspec.Raw]] | dict[str, msgspec.Raw]])
_CLOSINGS = ((b'"":null}]}', True), (b'"":null}}', False))


def header(source: JsonSource, needed: Sequence[str]) -> tuple[bytes, bytes, bool] | None:
    """Return what stands before the first process' records, closed so that it is an object by itself; how the records begin; and whether
    processes are a list. None where one of the `needed` members is not there: it may stand behind the records."""
    text, seen = b"", 0
    while not source.ended and len(text) < MOST:
        text += source.block(_BLOCK)
        for match in _RECORDS.finditer(text, seen):
            for closing, is_list in _CLOSINGS:
                before = text[: match.start()] + closing
                found = _processes(before)
                if found is not None:
                    whole = len(found) == 1 and set(needed) <= found[0].keys()
                    return (before, text[match.end() :], is_list) if whole else None
        seen = max(0, len(text) - 256)
    return None


def _processes(text: bytes) -> list[dict[str, msgspec.Raw]] | None:
    try:
        try:
            found = _TOOL.decode(text)
        except UnicodeError:
            found = _TOOL.decode(text.decode("utf-8", "replace"))
    except ERRORS:
        return None
    processes = next(iter(found.values()), [])
    return processes if isinstance(processes, list) else [processes]


class Members(Generic[T]):
    """Reads an object whose members are arrays, of which `start` is what was read behind its brace. `decode` turns the text of some
    elements of the member of a name into them.

    Afterwards `after` is what was read from the object's closing brace on; `damage` says what is wrong with it, "" where it is whole.
    """

    def __init__(self, source: JsonSource, start: bytes, decode: Callable[[str, bytes | memoryview], list[T]]) -> None:
        self.after, self.damage = start, ""
        self._source, self._decode = source, decode

    def __iter__(self) -> Iterator[tuple[str, list[T]]]:
        while not self.damage:
            member = self._filled(_MEMBER)
            if member is None:
                if _CLOSED.match(self.after) is None:
                    self.damage = f"it ends early (byte {self._source.taken:,})"
                return
            name = member[1].decode("utf-8", "replace")
            if member[2] != b"[":
                self._skip(member.start(2))
                continue
            array = Array[T](self._source, partial(self._decode, name), _unusable, self.after[member.end() :], CHUNK)
            for chunk in array:
                yield name, chunk.elements
            self.after = array.after
            if array.cut or array.dropped or array.repaired:
                self.damage = array.cut or f"damaged at {array.damage}"

    def _filled(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """Return how a member begins, None where the object ends."""
        while (found := pattern.match(self.after)) is None and _CLOSED.match(self.after) is None and len(self.after) < MOST:
            more = self._source.block(_BLOCK)
            if not more:
                return None
            self.after += more
        return found

    def _skip(self, begin: int) -> None:
        """Pass over a member that is no array."""
        self.after = self.after[begin:]
        while True:
            end = _length(self.after)
            if end is not None:
                self.after = self.after[end:]
                return
            more = self._source.block(_BLOCK)
            if not more or len(self.after) > MOST:
                self.damage = f"it ends early (byte {self._source.taken:,})"
                return
            self.after += more


def _length(text: bytes) -> int | None:
    """Return where the value that a text begins with ends, None where it is not whole.

    >>> _length(b'{"a": [1]}, "b": 2}'), _length(b'[1, 2')
    (10, None)
    """
    try:
        _VALUE.decode(text)
    except ERRORS as error:
        return end_of_array(error)
    return None  # nothing follows: the value may go on


_VALUE = msgspec.json.Decoder(msgspec.Raw)


def _unusable(_: bytes) -> bytes | None:
    return None
