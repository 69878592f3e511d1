"""JAX profiles as the trace viewer's JSON (`*.trace.json.gz`, `perfetto_trace.json.gz`), as `jax.profiler` and XLA write them.

Times are microseconds since the profile began. The trace viewer's file holds a million events at most; xplane files hold all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.traces.jax_folder import repeats, session
from ullage.traces.jax_planes import HostLives, TracePlane, describe, on_device, on_host, plane, stream
from ullage.traces.json.array import Array, opening
from ullage.traces.json.salvage import ERRORS
from ullage.traces.json.source import JsonSource
from ullage.traces.row_batches import Row, batches, whole
from ullage.traces.trace import File, TraceOptions, trace

MOST_EVENTS = 1_000_000  # of the trace viewer's file
_LONGEST = 10**9  # s: a time beyond is none
Number = int | float | str | None


class _Event(msgspec.Struct, gc=False):
    ph: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    name: str | None = ""
    ts: Number = None
    dur: Number = None
    args: dict[str, Any] | None = None


_EVENTS = msgspec.json.Decoder(list[_Event])
_EVENT = msgspec.json.Decoder(_Event)


def _recognise(file: File) -> int:
    """Return 2 for a list of events whose processes are a host and devices, called as XLA calls them."""
    start = file.head.lstrip()
    named = b'"/host:CPU"' in start or b'"/device:GPU:' in start or b'"/device:TPU:' in start
    return 2 if start.startswith((b"{", b"[")) and b'"process_name"' in start and named else 0


@dataclass
class _Lanes:
    """Which process and thread numbers of the file are which planes and lines, and when each host lived."""

    planes: dict[Any, TracePlane] = field(default_factory=dict)
    streams: dict[tuple[Any, Any], int] = field(default_factory=dict)
    threads: dict[tuple[Any, Any], int] = field(default_factory=dict)
    lives: HostLives = field(default_factory=HostLives)
    strange: int = 0

    def name(self, event: _Event) -> None:
        """Take in what a process or thread is called."""
        called = str((event.args or {}).get("name", ""))
        if event.name == "process_name":
            found = plane(called, whole(event.pid) or len(self.planes))
            if found is not None:
                self.planes[event.pid] = found
        elif event.name == "thread_name":
            self.threads[event.pid, event.tid] = len(self.threads)
            of = self.planes.get(event.pid)
            if of is not None and of.device is not None and (number := stream(of, called)) is not None:
                self.streams[event.pid, event.tid] = number

    def row(self, event: _Event, start: int, end: int) -> Row | None:
        """Return the row of an event, None for one that says nothing of its own."""
        of, name, args = self.planes.get(event.pid), event.name or "", event.args or {}
        if of is None:
            self.strange += 1
            return None
        if of.process is None:
            line = self.streams.get((event.pid, event.tid))
            return None if line is None else on_device(of, line, name, start, end, args)
        thread = whole(event.tid)
        row = on_host(of.process, self.threads.setdefault((event.pid, event.tid), 0) if thread is None else thread, name, start, end, args)
        self.lives.saw(of.process, name, start, end, row)
        return row


@trace("jax", recognise=_recognise, reads="JAX/XLA profiles (trace.json.gz of jax.profiler)", repeats=repeats, session=session)
def read(file: File, recording: Recording, options: TraceOptions, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield what ran on devices, calls of the GPU's interface and steps; times in ns since the profile began.

    Raises UllageError for a file without a list of events, and for a profile that tells of no device.
    """
    recording.source, recording.prefers, recording.covers = "JAX (XLA)", "ai", "session"
    recording.host = harmless(file.path.name.split(".")[0], 200)
    lanes, source = _Lanes(), JsonSource(file, options.limit)
    try:
        yield from batches(_rows(file, source, lanes, recording, options, problems), recording, problems)
    finally:
        source.close()
    describe(recording, list(lanes.planes.values()), lanes.lives, file.name)
    problems.drop("events of processes that nothing names", lanes.strange, file.name)


def _rows(file: File, source: JsonSource, lanes: _Lanes, recording: Recording, options: TraceOptions, problems: Problems) -> Iterator[Row]:
    found = opening(source, "traceEvents")
    if found is None:
        raise UllageError(f"{file.name} has no list of events (traceEvents)", "profile again with jax.profiler.trace")
    array = Array[_Event](source, _EVENTS.decode, _usable, found[1])
    count = timeless = 0
    for chunk in array:
        for event in chunk.elements:
            if event.ph == "M":
                lanes.name(event)
            elif event.ph == "X":
                count += 1
                start, end = _times(event)
                if start is None or end is None:
                    timeless += 1
                elif (row := lanes.row(event, start, end)) is not None:
                    yield row
        options.progress(f"{source.taken / 1e6:,.0f} MB, {array.count:,} events")
    _check(file, array, count, recording, options, problems)
    problems.drop("events without a time", timeless, file.name)
    recording.untimed += timeless


def _check(file: File, array: Array[_Event], count: int, recording: Recording, options: TraceOptions, problems: Problems) -> None:
    if array.cut:
        recording.cut = f"{file.name} {array.cut}"
    elif count >= MOST_EVENTS:
        recording.cut = f"{file.name} holds {count:,} events; the trace viewer writes no more than {MOST_EVENTS:,}, the rest is missing"
    if options.strict and (recording.cut or array.dropped or array.repaired):
        raise UllageError(recording.cut or f"{file.name} is not valid JSON at {array.damage}", "without --strict the rest of it is read")
    problems.drop("events that are not valid JSON", array.dropped, f"{file.name}, {array.damage}")
    problems.repair("events that were not valid JSON, put right", array.repaired, f"{file.name}, {array.damage}")


def _usable(text: bytes) -> bytes | None:
    try:
        _EVENT.decode(text)
    except ERRORS:
        return None
    return text


def _times(event: _Event) -> tuple[int | None, int | None]:
    """Return an event's start and end in ns, None where it tells none that can be."""
    try:
        start, length = float(event.ts or 0) * 1000, float(event.dur or 0) * 1000  # what is 0 is left out, as protobuf does
    except (TypeError, ValueError):
        return None, None
    if not (abs(start) < _LONGEST * 1e9 and 0 <= length < _LONGEST * 1e9):
        return None, None
    return round(start), round(start + length)
