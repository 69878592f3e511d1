"""JAX profiles as xplane files (`*.xplane.pb`): all that XLA's profiler recorded, where the trace viewer's JSON holds a million events.

A protobuf message of planes, lines and events; names are numbers into tables of each plane. Times are ps from each line's start, and that
is ns from the profile's, which one plane tells in ns since 1970. The few fields that are needed are read off the bytes.

Source: github.com/openxla/xla, xla/tsl/profiler/protobuf/xplane.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.protobuf import WireError, fields, signed
from ullage.recording import Recording
from ullage.traces.jax_folder import repeats, session
from ullage.traces.jax_planes import Lives, Plane, describe, on_device, on_host, plane, stream
from ullage.traces.json_source import Source
from ullage.traces.row_batches import Row, batches
from ullage.traces.trace import File, Options, trace

_PLANES, _ID, _NAME, _LINES, _EVENT_NAMES, _STAT_NAMES, _PLANE_STATS = 1, 1, 2, 3, 4, 5, 6  # of a space and a plane
_LINE_NAME, _LINE_START, _EVENTS, _LINE_SHOWN = 2, 3, 4, 11  # of a line
_WHAT, _OFFSET, _DURATION, _STATS = 1, 2, 3, 4  # of an event
_BLOCK = 16 << 20  # bytes that are read at once


def _recognise(file: File) -> int:
    """Return 2 for a message whose first field is a plane with a name that XLA gives one."""
    try:
        number, value = next(fields(memoryview(file.head), cut=True))
        if number != _PLANES or not isinstance(value, memoryview):
            return 0
        named = next((v for n, v in fields(value[:4096], cut=True) if n == _NAME), None)
    except (WireError, StopIteration):
        return 0
    return 2 if (isinstance(named, memoryview) and bytes(named[:1]) == b"/") or _space(named) else 0


def _space(name: Any) -> bool:
    return isinstance(name, memoryview) and bytes(name) in (b"Task Environment", b"Steps")


@trace("xplane", recognise=_recognise, reads="JAX/XLA profiles (xplane.pb)", repeats=repeats, session=session)
def read(file: File, recording: Recording, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield what ran on devices, calls of the GPU's interface and steps; times in ns since 1970.

    A file that is cut or damaged gives the planes before the damage. Raises UllageError for a profile that tells of no device.
    """
    recording.source, recording.prefers, recording.covers = "JAX (XLA)", "ai", "session"
    recording.host = harmless(file.path.name.split(".")[0], 200)
    source, found, lives = Source(file, options.limit), list[Plane](), Lives()
    try:
        whole = memoryview(b"".join(iter(lambda: source.block(_BLOCK), b"")))
        base = _began(whole)
        recording.clock = "utc" if base else "own"
        for number, value in fields(whole):
            if number == _PLANES and isinstance(value, memoryview):
                yield from batches(_plane(value, base, found, lives), recording, problems)
    except WireError as error:
        recording.cut = f"{file.name} is damaged: {error}"
        if options.strict:
            raise UllageError(recording.cut, "copy the profile again; without --strict what comes before is used") from error
    finally:
        source.close()
    if recording.cut:
        problems.note(f"{recording.cut}; what comes before is used")
    describe(recording, found, lives, file.name)


def _began(whole: memoryview) -> int:
    """Return when the profile began, in ns since 1970; 0 where no plane tells. A damaged end is left to the reader of the planes."""
    try:
        for number, value in fields(whole):
            if number == _PLANES and isinstance(value, memoryview):
                told = dict(_own_stats(value))
                if isinstance(began := told.get("profile_start_time"), int):
                    return began
    except WireError:
        pass
    return 0


def _own_stats(raw: memoryview) -> Iterator[tuple[str, Any]]:
    """Yield what a small plane says of itself; nothing of one that has lines."""
    parts = list(fields(raw, cut=True)) if len(raw) < 1 << 16 else []
    if any(field == _LINES for field, _ in parts):
        return
    names = _Names({}, dict(_entry(value) for field, value in parts if field == _STAT_NAMES and isinstance(value, memoryview)))
    yield from (_stat(value, names) for field, value in parts if field == _PLANE_STATS and isinstance(value, memoryview))


@dataclass
class _Names:
    """What a plane's numbers of events and of their values mean."""

    events: dict[int, str]
    stats: dict[int, str]


def _plane(raw: memoryview, base: int, found: list[Plane], lives: Lives) -> Iterator[Row]:
    number, name, lines = 0, "", list[memoryview]()
    names = _Names({}, {})
    for field, value in fields(raw):
        if field == _ID and isinstance(value, int):
            number = value
        elif field == _LINES and isinstance(value, memoryview):
            lines.append(value)
        elif field == _NAME and isinstance(value, memoryview):
            name = _text(value)
        elif field in (_EVENT_NAMES, _STAT_NAMES) and isinstance(value, memoryview):
            key, called = _entry(value)
            (names.events if field == _EVENT_NAMES else names.stats)[key] = called
    of = plane(name, number)
    if of is not None:
        found.append(of)
        for at, line in enumerate(lines):
            yield from _line(line, base, at, of, names, lives)


def _entry(raw: memoryview) -> tuple[int, str]:
    """Return a number and its name: an entry of a map whose values are messages with a name in field 2."""
    key, called = 0, ""
    for field, value in fields(raw):
        if field == 1 and isinstance(value, int):
            key = value
        elif field == 2 and isinstance(value, memoryview):
            called = next((_text(v) for n, v in fields(value) if n == _NAME and isinstance(v, memoryview)), "")
    return key, called


def _line(raw: memoryview, base: int, at: int, of: Plane, names: _Names, lives: Lives) -> Iterator[Row]:
    name, begin, events = "", base, list[memoryview]()
    for field, value in fields(raw):
        if field == _EVENTS and isinstance(value, memoryview):
            events.append(value)
        elif field == _LINE_START and isinstance(value, int):
            begin = signed(value) + base
        elif field in (_LINE_NAME, _LINE_SHOWN) and isinstance(value, memoryview):
            name = name or _text(value)
    number = stream(of, name) if of.process is None else None
    if of.process is None and number is None:
        return
    for event in events:
        called, start, end, stats = _event(event, begin, names)
        if of.process is None:
            row = on_device(of, number or 0, called, start, end, stats)
        else:
            row = on_host(of.process, at, called, start, end, stats)
            lives.saw(of.process, called, start, end, row)
        if row is not None:
            yield row


def _event(raw: memoryview, begin: int, names: _Names) -> tuple[str, int, int, dict[str, Any]]:
    what = offset = length = 0
    stats: dict[str, Any] = {}
    for field, value in fields(raw):
        if field == _STATS and isinstance(value, memoryview):
            key, found = _stat(value, names)
            stats[key] = found
        elif isinstance(value, int):
            if field == _WHAT:
                what = value
            elif field == _OFFSET:
                offset = signed(value)
            elif field == _DURATION:
                length = max(signed(value), 0)
    return names.events.get(what, ""), begin + offset // 1000, begin + (offset + length) // 1000, stats


def _stat(raw: memoryview, names: _Names) -> tuple[str, Any]:
    """Return the name and value of one of an event's values; a reference stands for the name of another."""
    key = ""
    found: Any = None
    for field, value in fields(raw):
        match field, value:
            case 1, int():
                key = names.stats.get(value, "")
            case 3, int():
                found = value
            case 4, int():
                found = signed(value)
            case 5 | 6, memoryview():
                found = _text(value)
            case 7, int():
                found = names.stats.get(value, "")
    return key, found


def _text(raw: memoryview) -> str:
    return bytes(raw).decode("utf-8", "replace")
