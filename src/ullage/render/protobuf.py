"""Protocol buffers' wire format, as much of it as writing needs: numbers, doubles, bytes and messages, each after its field's number.

Source: Protocol Buffers documentation, "Encoding".
"""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _LENGTH = 0, 1, 2


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
