"""The records of a Paraver trace from text to columns, many lines at a time.

A line is whole numbers between colons: `1:cpu:application:task:thread:begin:end:state`, and
`2:cpu:application:task:thread:time:type:value[:type:value…]`; `3:` are messages, `c:` communicators, `#` remarks.
All numbers of a block are read in one go, and lines are told apart by where they begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt

from ullage.errors import UllageError
from ullage.problems import Problems

Numbers = npt.NDArray[np.int64]
BLOCK = 8 << 20
_EMPTY = (b"::", b":\n", b"\n:", b"\n\n")  # a number is missing
_COLON, _NEWLINE, _ZERO, _NINE, _MINUS = b":\n09-"


@dataclass(frozen=True)
class ParaverRecords:
    """Of one block: rows of application, task and thread, and of `states` begin, end and state, of `events` time, type and value."""

    states: Numbers
    events: Numbers


def blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file in blocks of whole lines; what follows the last newline comes last, without one.

    Of a damaged file the whole lines before the damage come first, then its UllageError is raised.
    """
    rest = b""
    for data in _pieces(file):
        cut = data.rfind(b"\n") + 1
        if cut:
            yield rest + data[:cut]
            rest = data[cut:]
        else:
            rest += data
    if rest:
        yield rest


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    take = getattr(file, "read1", file.read)  # read would lose what comes before the damage
    parts: list[bytes] = []
    size = 0
    try:
        while part := take(BLOCK - size):
            parts.append(part)
            size += len(part)
            if size >= BLOCK:
                yield b"".join(parts)
                parts, size = [], 0
    except UllageError:
        if parts:
            yield b"".join(parts)
        raise
    if parts:
        yield b"".join(parts)


def records(block: bytes, wanted: Numbers, problems: Problems) -> ParaverRecords:
    """Return a block's states, and its events of the `wanted` types. Lines that are no records are left out and counted."""
    numbers, first, count = _numbers(_sound(block, problems))
    kind = numbers[first]
    is_state, is_event = (kind == 1) & (count == 8), (kind == 2) & (count >= 8) & (count % 2 == 0)
    problems.drop("lines that are not records", int((~is_state & ~is_event & (kind != 3)).sum()))
    at = first[is_state]
    states = np.stack([numbers[at + n] for n in range(2, 8)], axis=1) if len(at) else np.zeros((0, 6), np.int64)
    return ParaverRecords(states, _events(numbers, first[is_event], count[is_event], wanted))


def _events(numbers: Numbers, first: Numbers, count: Numbers, wanted: Numbers) -> Numbers:
    pairs = (count - 6) // 2
    line = np.repeat(first, pairs)
    nth = np.arange(len(line)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    at = line + 6 + 2 * nth
    keep = np.isin(numbers[at], wanted)
    line, at = line[keep], at[keep]
    return np.stack([*(numbers[line + n] for n in range(2, 6)), numbers[at], numbers[at + 1]], axis=1)


def _numbers(text: bytes) -> tuple[Numbers, Numbers, Numbers]:
    """Return all numbers of some lines, and where each line's begin and how many they are."""
    if not text:
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    raw = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero((raw == _COLON) | (raw == _NEWLINE))
    last = np.flatnonzero(raw[ends] == _NEWLINE)
    first = np.concatenate(([0], last[:-1] + 1))
    numbers = np.fromstring(text.replace(b"\n", b":")[:-1], dtype=np.int64, sep=":")
    return numbers, first, last + 1 - first


def _sound(block: bytes, problems: Problems) -> bytes:
    """Return a block's lines that consist of numbers alone, ended by a newline; remarks and communicators are passed over."""
    block = block.replace(b"\r\n", b"\n")
    if not block.endswith(b"\n"):
        block += b"\n"
    if not block.translate(None, b"0123456789:\n") and not any(empty in b"\n" + block for empty in _EMPTY):
        return block
    raw = np.frombuffer(block, np.uint8)
    digit = (raw >= _ZERO) & (raw <= _NINE)
    before = np.concatenate(([False], digit[:-1]))
    after = np.concatenate((digit[1:], [False]))
    fine = digit | (((raw == _COLON) | (raw == _NEWLINE)) & before) | ((raw == _MINUS) & ~before & after)
    ends = np.flatnonzero(raw == _NEWLINE)
    starts = np.concatenate(([0], ends[:-1] + 1))
    odd = np.zeros(len(ends), bool)
    odd[np.minimum(np.searchsorted(ends, np.flatnonzero(~fine)), len(ends) - 1)] = True
    remarks = odd & ((starts == ends) | np.isin(raw[np.minimum(starts, len(raw) - 1)], list(b"c#")))
    dropped = np.flatnonzero(odd & ~remarks)
    if len(dropped):
        example = block[starts[dropped[0]] : ends[dropped[0]]][:60].decode("utf-8", "replace")
        problems.drop("lines that are not records", len(dropped), where=example)
    keep = np.repeat(~odd, ends - starts + 1)
    return bytes(raw[keep])
