"""JAX profiles as xplane files (`*.xplane.pb`): all that XLA's profiler recorded, where the trace viewer's JSON holds a million events.

A protobuf message of planes, lines and events; names are numbers into tables of each plane. Times are ps from each line's start, and that
is ns from the profile's, which one plane tells in ns since 1970. The few fields that are needed are read off the bytes, event by event: the
tables of names stand behind the lines that use them, so a file is gone through twice, for names and lines and then for events.

Source: github.com/openxla/xla, xla/tsl/profiler/protobuf/xplane.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.protobuf import EndOfBytesError, MessageStream, WireError, fields, signed
from ullage.recording import Recording
from ullage.traces.jax_folder import repeats, session
from ullage.traces.jax_planes import HostLives, TracePlane, describe, on_device, on_host, plane, stream
from ullage.traces.json.source import JsonSource
from ullage.traces.row_batches import Row, batches
from ullage.traces.trace import File, TraceOptions, trace

_PLANES, _ID, _NAME, _LINES, _EVENT_NAMES, _STAT_NAMES, _PLANE_STATS = 1, 1, 2, 3, 4, 5, 6  # of a space and a plane
_LINE_NAME, _LINE_START, _EVENTS, _LINE_SHOWN = 2, 3, 4, 11  # of a line
_WHAT, _OFFSET, _DURATION, _STATS = 1, 2, 3, 4  # of an event
_SMALL = 1 << 16  # bytes of a plane that may tell when the profile began


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
def read(file: File, recording: Recording, options: TraceOptions, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield what ran on devices, calls of the GPU's interface and steps; times in ns since 1970.

    A file that is cut or damaged gives the planes before the damage. Raises UllageError for a profile that tells of no device.
    """
    recording.source, recording.prefers, recording.covers = "JAX (XLA)", "ai", "session"
    recording.host = harmless(file.path.name.split(".")[0], 200)
    found, lives = list[TracePlane](), HostLives()
    with closing(JsonSource(file, options.limit)) as source:
        layout = _layout(MessageStream(source.block))
        fault = layout.fault or source.fault
    recording.clock = "utc" if layout.began else "own"
    try:
        with closing(JsonSource(file, options.limit)) as source:
            events = MessageStream(source.block)
            for of in layout.planes:
                found.append(of.plane)
                yield from batches(_rows(events, of, layout.began, lives), recording, problems)
    except WireError as error:
        fault = str(error)
    if fault:
        recording.cut = f"{file.name} is damaged: {fault}"
        if options.strict:
            raise UllageError(recording.cut, "copy the profile again; without --strict what comes before is used")
        problems.note(f"{recording.cut}; what comes before is used")
    describe(recording, found, lives, file.name)


@dataclass
class _Names:
    """What a plane's numbers of events and of their values mean."""

    events: dict[int, str]
    stats: dict[int, str]


@dataclass(frozen=True)
class _LineLayout:
    """A line: where its fields stand in the file, which line of its plane it is, its name, and its start in ns from the profile's."""

    position: int
    size: int
    number: int
    name: str
    start: int


@dataclass(frozen=True)
class _PlaneLayout:
    """A plane in which something ran, what names mean there, and its lines."""

    plane: TracePlane
    names: _Names
    lines: list[_LineLayout]


@dataclass
class _Layout:
    """What a file holds up to its first `fault` ("": none): its planes, and when the profile `began`, in ns since 1970 (0: not told)."""

    planes: list[_PlaneLayout]
    began: int
    fault: str


def _layout(stream: MessageStream) -> _Layout:
    found, told = _Layout([], 0, ""), False
    try:
        for number, value, size in stream.fields():
            if number != _PLANES or value is not None:
                continue
            with suppress(EndOfBytesError):  # the stream itself says so, of the whole plane
                told = told or _tells_begin(stream, size, found)
                if not found.fault:
                    _add_plane(stream, size, found)
    except WireError as error:
        found.fault = found.fault or str(error)
    return found


def _tells_begin(stream: MessageStream, size: int, found: _Layout) -> bool:
    """Note when the profile began, if the next plane tells it; return whether it does, or is damaged: then no other is asked."""
    if size >= _SMALL:
        return False
    try:
        began = dict(_own_stats(stream.peek(size))).get("profile_start_time")
    except EndOfBytesError:
        raise
    except WireError:
        return True
    if isinstance(began, int):
        found.began = began
    return isinstance(began, int)


def _add_plane(stream: MessageStream, size: int, found: _Layout) -> None:
    """Add a plane, if anything ran in it: of one with a damaged line the lines before it, of a damaged one nothing."""
    number, name, names = 0, "", _Names({}, {})
    lines, damaged = list[_LineLayout](), list[str]()
    try:
        for what, value, length in stream.fields(size):
            if what == _ID and value is not None:
                number = value
            elif what == _NAME and value is None:
                name = _text(stream.take(length))
            elif what == _LINES and value is None and not damaged:
                _add_line(stream, length, lines, damaged)
            elif what in (_EVENT_NAMES, _STAT_NAMES) and value is None:
                key, called = _entry(stream, length)
                (names.events if what == _EVENT_NAMES else names.stats)[key] = called
    except EndOfBytesError:
        raise
    except WireError as error:
        found.fault = str(error)
        return
    of = plane(name, number)
    if of is not None:
        found.planes.append(_PlaneLayout(of, names, lines))
        found.fault = damaged[0] if damaged else ""


def _add_line(stream: MessageStream, size: int, lines: list[_LineLayout], damaged: list[str]) -> None:
    """Add a line, or what is wrong with it."""
    position, name, start = stream.position, "", 0
    try:
        for what, value, length in stream.fields(size):
            if what == _LINE_START and value is not None:
                start = signed(value)
            elif what in (_LINE_NAME, _LINE_SHOWN) and value is None:
                name = name or _text(stream.take(length))
    except EndOfBytesError:
        raise
    except WireError as error:
        damaged.append(str(error))
        return
    lines.append(_LineLayout(position, size, len(lines), name, start))


def _own_stats(raw: memoryview) -> Iterator[tuple[str, Any]]:
    """Yield what a small plane says of itself; nothing of one that has lines."""
    parts = list(fields(raw, cut=True))
    if any(what == _LINES for what, _ in parts):
        return
    named = (value for what, value in parts if what == _STAT_NAMES and isinstance(value, memoryview))
    names = _Names({}, dict(_entry(MessageStream(BytesIO(raw).read), len(raw)) for raw in named))
    yield from (_stat(value, names) for what, value in parts if what == _PLANE_STATS and isinstance(value, memoryview))


def _entry(stream: MessageStream, size: int) -> tuple[int, str]:
    """Return a number and its name: an entry of a map whose values are messages with a name in field 2."""
    key, called = 0, ""
    for what, value, length in stream.fields(size):
        if what == 1 and value is not None:
            key = value
        elif what == 2 and value is None:
            called = next((_text(stream.take(n)) for w, v, n in stream.fields(length) if w == _NAME and v is None), "")
    return key, called


def _rows(events: MessageStream, of: _PlaneLayout, began: int, lives: HostLives) -> Iterator[Row]:
    """Yield the rows of a plane's events; `events` gives the file from a place before it on."""
    process = of.plane.process
    for line in of.lines:
        queue = stream(of.plane, line.name) if process is None else None
        if process is None and queue is None:
            continue
        events.skip_to(line.position)
        for what, value, length in events.fields(line.size):
            if what != _EVENTS or value is not None:
                continue
            called, start, end, stats = _event(events.take(length), line.start + began, of.names)
            if process is None:
                row = on_device(of.plane, queue or 0, called, start, end, stats)
            else:
                row = on_host(process, line.number, called, start, end, stats)
                lives.saw(process, called, start, end, row)
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
