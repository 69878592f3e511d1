"""The elements of one long JSON array, chunk by chunk, in bounded memory: what stands before it, after it, and its damage.

A chunk is cut where an element seems to end; the cut is right when what comes before it, closed by a bracket, decodes: the
decoder's state at the cut can only be "between two elements" then. No newline is relied on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from ullage.traces.json.salvage import BETWEEN, ERRORS, Fits, Salvaged, end_of_array, is_cut, place, salvage, valid_letters
from ullage.traces.json.source import JsonSource

T = TypeVar("T")
CHUNK = 2 << 20  # bytes that are decoded at once: with more, their objects outgrow the processor's cache
MOST = 64 << 20  # bytes that one element, or all that stands before or after the array, may have
_ANY_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_CLOSING = re.compile(rb"\}\s*\](?=\s*(?:\}\s*$|,\s*\"\w+\"\s*:\s*[\"\d]))")
_TAILS = (64 << 10, 1 << 20, MOST + CHUNK)
_TRIES = 4
_BRACKET = ord("]")
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def opening(source: JsonSource, key: str) -> tuple[bytes, bytes] | None:
    """Return what stands before an array and how the array begins; None when there is no such array.

    The array is the value of `key` in the file's one object, or the file itself. What stands before it is closed, so that it is
    an object by itself.
    """
    pattern = re.compile(rb'"' + re.escape(key.encode()) + rb'"\s*:\s*\[')
    text, seen = b"", 0
    while not source.ended and len(text) < MOST:
        text += source.block(1 << 20)
        body = text.removeprefix(b"\xef\xbb\xbf").lstrip()
        if body.startswith(b"["):
            return b"{}", body[1:]
        for match in pattern.finditer(text, seen):
            before = text[: match.start()].removeprefix(b"\xef\xbb\xbf") + b'"":null}'
            if _is_object(before, match.start()):
                return before, text[match.end() :]
        seen = max(0, len(text) - 256)
    return None


def _is_object(text: bytes, most: int) -> bool:
    """Return whether a text is an object, or is wrong before `most`: so damaged, not cut at the wrong depth."""
    try:
        _OBJECT.decode(text)
    except RecursionError:
        return True
    except UnicodeError:
        return _is_object(valid_letters(text), most)
    except ERRORS as error:
        at = place(error)
        return at is not None and at < most
    return True


@dataclass(frozen=True)
class ArrayChunk(Generic[T]):
    """Some elements in the order of the file, decoded, and the JSON text of exactly these, which holds until the next chunk."""

    elements: list[T]
    text: bytes | memoryview


class Array(Generic[T]):
    """Reads the elements of an array of which `start` is what was read of it already. `decode` turns an array's text into them.

    After the last chunk: `count` elements were given out, `repaired` of them put right, `dropped` could not be read (`damage` says
    where the first of either was), `after` is what follows the array, and `cut` says where it ends early, "" when it is closed.
    """

    def __init__(
        self, source: JsonSource, decode: Callable[[bytes | memoryview], list[T]], fits: Fits, start: bytes, chunk: int = CHUNK
    ) -> None:
        self.count, self.repaired, self.dropped = 0, 0, 0
        self.damage, self.cut, self.after = "", "", b""
        self._source, self._decode, self._fits, self._size = source, decode, fits, chunk
        self._rest: bytes | bytearray = start
        self._text, self._open = bytearray(), True

    def __iter__(self) -> Iterator[ArrayChunk[T]]:
        wanted = self._size
        while self._open:
            self._text = bytearray().join((b"[", self._rest, self._source.block(max(wanted - len(self._rest), 0))))
            self._rest = b""
            chunk = self._last() if self._source.ended else self._next()
            if chunk is None and len(self._text) > MOST:
                chunk = self._repaired(len(self._text), len(self._text))
            if chunk is None:
                self._rest = self._text[1:]
            wanted = self._size if chunk is not None else len(self._text) + self._size
            if chunk is not None:
                self.count += len(chunk.elements)
                yield chunk

    def remainder(self) -> bytes:
        """Return what follows the array, to the end of the file (or as much of it as may be kept)."""
        return self.after + (b"" if self._open else self._source.block(MOST))

    def _next(self) -> ArrayChunk[T] | None:
        """Return the next chunk, None when no place to cut was found in what is there."""
        for end, resume in _cuts(self._text):
            instead, self._text[end] = self._text[end], _BRACKET
            piece = memoryview(self._text)[: end + 1]
            try:
                chunk = ArrayChunk(self._decode(piece), piece)
            except ERRORS as error:
                closed, cut = end_of_array(error), is_cut(error, len(piece))
                if closed is None and not cut:
                    return self._repaired(end + 1, resume)
                self._text[end] = instead
                if closed is not None:
                    return self._close(closed)
                continue
            self._rest = self._text[resume:]
            return chunk
        return None

    def _last(self) -> ArrayChunk[T]:
        """Return all that is left, or all but the element inside which the file ends, which is left for the next call."""
        for end in _closings(self._text):
            try:
                return self._close(end)
            except ERRORS:
                continue
        try:
            return self._close(len(self._text))
        except ERRORS as error:
            closed = end_of_array(error)
            if closed is not None:
                return self._close(closed)
            whole = self._next() if is_cut(error, len(self._text)) else None
            return whole or self._repaired(len(self._text), len(self._text))

    def _close(self, end: int) -> ArrayChunk[T]:
        piece = memoryview(self._text)[:end]
        chunk = ArrayChunk(self._decode(piece), piece)
        self.after, self._open = bytes(self._text[end:]), False
        return chunk

    def _repaired(self, end: int, resume: int) -> ArrayChunk[T]:
        """Return what can be read of the text before `end`; what begins at `resume` is left for the next chunk."""
        found = salvage(bytes(self._text[:end]), self._fits)
        self._note(found, self._source.taken - len(self._text) + 1)
        at_end = self._source.ended and resume == len(self._text)
        if found.rest is not None and (at_end or found.rest.strip()):
            self.after, self._open = bytes(self._text[end - len(found.rest) :]), False
        elif at_end:
            self._open = False
            number, byte = self.count + len(found.elements) + found.dropped, self._source.taken
            self.cut = f"ends {'inside' if found.cut else 'after'} event {number + found.cut:,} (byte {byte:,})"
        elif found.cut:
            self.dropped += 1
        self._rest = self._text[resume:]
        return ArrayChunk(self._decode(found.text), found.text)

    def _note(self, found: Salvaged, offset: int) -> None:
        self.repaired += found.repaired
        self.dropped += found.dropped
        if found.first is not None and not self.damage:
            number, byte = found.first
            self.damage = f"event {self.count + number + 1:,} (byte {offset + byte:,})"


def _closings(text: bytearray) -> Iterator[int]:
    """Yield where the array may end in the last text of a file: one likely place, to save decoding it twice."""
    found = list(_CLOSING.finditer(text, max(0, len(text) - _TAILS[0])))
    if found:
        yield found[-1].end()


def _cuts(text: bytearray) -> Iterator[tuple[int, int]]:
    """Yield where an element may end and where the next one would begin, the last first: a few, likely ones."""
    for pattern in (BETWEEN, _ANY_BETWEEN):
        for tail in _TAILS:
            found = list(pattern.finditer(text, max(0, len(text) - tail)))
            if found:
                yield from ((m.start() + 1, m.end()) for m in reversed(found[-_TRIES:]))
                return
            if tail >= len(text):
                break
