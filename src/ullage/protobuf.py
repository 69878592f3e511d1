"""Protocol buffers' wire format, written and read: numbers, doubles, bytes and messages, each after its field's number.

Source: Protocol Buffers documentation, "Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

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
            raise WireError(f"the field at byte {at:,} says that it is {length:,} bytes long, {size - at:,} are left")
        yield field, raw[at : at + length]
        at += length


def _read_varint(raw: memoryview, at: int) -> tuple[int, int]:
    """Return an integer and where it ends."""
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
