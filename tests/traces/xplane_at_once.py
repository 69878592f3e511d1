"""xplane files read a second time, at once: a whole message in memory, split into its fields as they come."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

Field = tuple[int, Any]


class Damaged(Exception):
    """Bytes that are no message."""


def number(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if at >= len(raw):
            raise Damaged
        value |= (raw[at] & 0x7F) << (7 * place)
        at += 1
        if raw[at - 1] < 0x80:
            return value % 2**64, at
    raise Damaged


def split(raw: bytes) -> list[Field]:
    """Return all fields of a message: integers, or bytes."""
    found, at = list[Field](), 0
    while at < len(raw):
        tag, at = number(raw, at)
        kind = tag % 8
        if tag < 8 or kind not in (0, 1, 2, 5):
            raise Damaged
        if kind == 0:
            value, at = number(raw, at)
            found.append((tag // 8, value))
            continue
        length, at = {1: (8, at), 5: (4, at)}[kind] if kind != 2 else number(raw, at)
        if at + length > len(raw):
            raise Damaged
        found.append((tag // 8, raw[at : at + length]))
        at += length
    return found


def signed(value: int) -> int:
    return int(struct.unpack("<q", struct.pack("<Q", value))[0])


def last(found: list[Field], which: int, kind: type, default: Any) -> Any:
    return next((value for name, value in reversed(found) if name == which and isinstance(value, kind)), default)


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def named(found: list[Field], which: int) -> dict[int, str]:
    """Return a map from numbers to names."""
    names = {}
    for entry in (split(value) for name, value in found if name == which and isinstance(value, bytes)):
        inner = last(entry, 2, bytes, b"")
        names[last(entry, 1, int, 0)] = next((text(v) for name, v in split(inner) if name == 2 and isinstance(v, bytes)), "")
    return names


def stats(event: list[Field], names: dict[int, str]) -> dict[str, Any]:
    found = {}
    for raw in (value for name, value in event if name == 4 and isinstance(value, bytes)):
        key, value = "", None
        for which, told in split(raw):
            if which == 1 and isinstance(told, int):
                key = names.get(told, "")
            elif which in (3, 4, 7) and isinstance(told, int):
                value = {3: told, 4: signed(told), 7: names.get(told, "")}[which]
            elif which in (5, 6) and isinstance(told, bytes):
                value = text(told)
        found[key] = value
    return found


def began(raw: bytes) -> int:
    """Return when a profile began: what the first small plane without lines says that says so."""
    for plane in (value for name, value in split(raw) if name == 1 and isinstance(value, bytes) and len(value) < 65536):
        found = split(plane)
        told = stats([(4, value) for name, value in found if name == 6], named(found, 5))
        if 3 not in [name for name, _ in found] and isinstance(told.get("profile_start_time"), int):
            return int(told["profile_start_time"])
    return 0


def events(raw: bytes) -> Iterator[tuple[str, int, str, int, str, int, int, dict[str, Any]]]:
    """Yield every event of a file: its plane's name and number, its line's name and place, its own name, start and end (ns), its values.

    Raises Damaged where anything is no message."""
    base = began(raw)
    for plane in (split(value) for name, value in split(raw) if name == 1 and isinstance(value, bytes)):
        whose, number_of = text(last(plane, 2, bytes, b"")), last(plane, 1, int, 0)
        names, values = named(plane, 4), named(plane, 5)
        for place, line in enumerate(split(value) for name, value in plane if name == 3 and isinstance(value, bytes)):
            called = next((text(value) for name, value in line if name in (2, 11) and value and isinstance(value, bytes)), "")
            start = signed(last(line, 3, int, 0)) + base
            for event in (split(value) for name, value in line if name == 4 and isinstance(value, bytes)):
                begin, length = signed(last(event, 2, int, 0)), max(signed(last(event, 3, int, 0)), 0)
                what = names.get(last(event, 1, int, 0), "")
                yield whose, number_of, called, place, what, start + begin // 1000, start + (begin + length) // 1000, stats(event, values)
