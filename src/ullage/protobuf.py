"""Protocol buffers' wire format, written and read: numbers, doubles, bytes and messages, each after its field's number.

Source: Protocol Buffers documentation, "Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """Return an integer in base 128, least digits first; a negative one as its 64-bit complement.

    >>> varint(150).hex(), varint(-1).hex()
    ('9601', 'ffffffffffffffffff01')
    """
    value &= 0xFFFF_FFFF_FFFF_FFFF
    if value < 0x80:
        return bytes((value,))
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def number(field: int, value: int) -> bytes:
    """Return a field that holds an integer, a truth value or an enumeration.

    >>> number(1, 150).hex()
    '089601'
    """
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """Return a field that holds a double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    """Return a field that holds a message: its own fields, one after the other.

    >>> message(3, number(1, 150)).hex()
    '1a03089601'
    """
    body = b"".join(parts)
    return varint(field << 3 | _LENGTH) + varint(len(body)) + body


def string(field: int, text: str) -> bytes:
    """Return a field that holds text; what can't be written as UTF-8 becomes a question mark.

    >>> string(2, "testing").hex()
    '120774657374696e67'
    """
    return message(field, text.encode("utf-8", "replace"))


class WireError(Exception):
    """Bytes that are no message, or end inside one."""


class EndOfBytesError(WireError):
    """Bytes that end inside a message."""


def fields(raw: memoryview, *, cut: bool = False) -> Iterator[tuple[int, int | memoryview]]:
    """Yield a message's fields: integers as they are (64 bits, without sign), all else as the bytes that they are made of.

    Raises WireError where the bytes are no message. With `cut` the last field may be shorter than it says.

    >>> written = number(1, 150) + string(2, "hi")
    >>> [(field, value if isinstance(value, int) else bytes(value)) for field, value in fields(memoryview(written))]
    [(1, 150), (2, b'hi')]
    """
    at, size = 0, len(raw)
    while at < size:
        tag, at = _read_varint(raw, at)
        field, kind = tag >> 3, tag & 7
        if field == 0:
            raise WireError(f"byte {at:,} begins a field without a number")
        if kind == _VARINT:
            value, at = _read_varint(raw, at)
            yield field, value
            continue
        if kind == _LENGTH:
            length, at = _read_varint(raw, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise WireError(f"byte {at:,} begins a field of an unknown sort")
        if at + length > size and not cut:
            raise _too_long(at, length, size - at)
        yield field, raw[at : at + length]
        at += length


class MessageStream:
    """Messages read in pieces: as much is held as is asked for at once, or a block. `read` gives the next so many bytes, fewer at the end.

    >>> import io
    >>> stream = MessageStream(io.BytesIO(number(1, 150) + string(2, "hi") + string(3, "left out")).read, block=4)
    >>> [(field, value, bytes(stream.take(size)) if field == 2 else size) for field, value, size in stream.fields()]
    [(1, 150, 0), (2, None, b'hi'), (3, None, 8)]
    """

    def __init__(self, read: Callable[[int], bytes], block: int = 4 << 20) -> None:
        self._read, self._block = read, block
        self._held, self._at, self._before = b"", 0, 0

    @property
    def position(self) -> int:
        """How many bytes were passed."""
        return self._before + self._at

    def fields(self, size: int | None = None) -> Iterator[tuple[int, int | None, int]]:
        """Yield the fields of a message of so many bytes (None: of all): the number, an integer as it is, else None and how many bytes it
        is, to be taken, or gone through as a message, before the next field is asked for; what is not is skipped.

        Raises WireError as `fields` does, and EndOfBytesError where the bytes end."""
        begin = self.position
        end = None if size is None else begin + size
        while self.position < end if end is not None else self._fill(1):
            tag = self._varint(begin, end)
            field, kind = tag >> 3, tag & 7
            if field == 0:
                raise WireError(f"byte {self.position - begin:,} begins a field without a number")
            if kind == _VARINT:
                yield field, self._varint(begin, end), 0
                continue
            if kind == _LENGTH:
                length = self._varint(begin, end)
            elif kind in (_FIXED64, _FIXED32):
                length = 8 if kind == _FIXED64 else 4
            else:
                raise WireError(f"byte {self.position - begin:,} begins a field of an unknown sort")
            at = self.position
            if end is not None and at + length > end:
                raise _too_long(at - begin, length, end - at)
            yield field, None, length
            try:
                self.skip_to(at + length)
            except EndOfBytesError as error:
                if end is not None:
                    raise
                raise _too_long(at, length, self.position - at) from error

    def peek(self, size: int) -> memoryview:
        """Return the next `size` bytes, which stay the next ones."""
        if not self._fill(size):
            raise EndOfBytesError(f"it ends at byte {self._before + len(self._held):,}")
        return memoryview(self._held)[self._at : self._at + size]

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes."""
        found = self.peek(size)
        self._at += size
        return found

    def skip_to(self, position: int) -> None:
        """Pass over what comes before a position."""
        while position > self._before + len(self._held):
            self._at = len(self._held)
            if not self._fill(1):
                raise EndOfBytesError(f"it ends at byte {self.position:,}")
        self._at = max(position - self._before, self._at)

    def _fill(self, size: int) -> bool:
        """Hold `size` bytes that are not passed, and return whether there are as many."""
        if len(self._held) - self._at >= size:
            return True
        parts = [self._held[self._at :]]
        self._before, self._at = self.position, 0
        missing = size - len(parts[0])
        while missing > 0 and (part := self._read(max(self._block, missing))):
            parts.append(part)
            missing -= len(part)
        self._held = b"".join(parts)
        return missing <= 0

    def _varint(self, begin: int, end: int | None) -> int:
        """Return the next integer of a message that begins and ends there."""
        at = self._at
        if at < len(self._held) and self._held[at] < 0x80 and (end is None or self._before + at < end):  # most are of one byte
            self._at = at + 1
            return self._held[at]
        value = shift = 0
        while shift < 70:
            if (self._at >= len(self._held) and not self._fill(1)) or (end is not None and self.position >= end):
                if end is not None and self.position < end:
                    raise EndOfBytesError(f"it ends at byte {self.position:,}")
                raise WireError(f"it ends inside a number at byte {self.position - begin:,}")
            byte = self._held[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF
            shift += 7
        raise WireError(f"a number at byte {self.position - begin:,} is too long")


def _too_long(at: int, length: int, left: int) -> WireError:
    return WireError(f"the field at byte {at:,} says that it is {length:,} bytes long, {left:,} are left")


def _read_varint(raw: memoryview, at: int) -> tuple[int, int]:
    """Return an integer and where it ends."""
    if at < len(raw) and raw[at] < 0x80:  # most are of one byte
        return raw[at], at + 1
    value = shift = 0
    while shift < 70:
        if at >= len(raw):
            raise WireError(f"it ends inside a number at byte {at:,}")
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise WireError(f"a number at byte {at:,} is too long")


def signed(value: int) -> int:
    """Return a 64-bit integer with its sign.

    >>> signed(2**64 - 1), signed(5)
    (-1, 5)
    """
    return value - 2**64 if value >= 2**63 else value
