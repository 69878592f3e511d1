"""PyTorch profiles (Kineto, in Chrome's trace format): one JSON file a process, plain or packed, whole or damaged.

Rows are held as narrow columns until the end of the file: the base of the times may stand there, and so may what tells a true time
from a false one. Of operators and Python functions, most of a file, no more is kept than when, on which thread and what they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.memory import give_back
from ullage.problems import Problems
from ullage.recording import Process, Recording
from ullage.traces.json.array import Array, opening
from ullage.traces.json.source import JsonSource
from ullage.traces.kineto.belief import believable
from ullage.traces.kineto.columns import KinetoColumns
from ullage.traces.kineto.event import Event, events, usable
from ullage.traces.kineto.gradients import gradients
from ullage.traces.kineto.launches import KinetoLaunches, on_host
from ullage.traces.kineto.meta import Metadata
from ullage.traces.kineto.part import KinetoPart, distinct
from ullage.traces.kineto.products import OperatorProducts, in_blocks
from ullage.traces.kineto.regions import in_regions, no_collector
from ullage.traces.trace import File, TraceOptions, trace

_HANDED = 100  # parts that are handed on before what they took is given back
_DAMAGE = 100_000  # events that can't be read, from which on a file of mostly such is given up
_EPOCH = 10**18  # ns; a file whose times are later than this counts from 1970 (it is 2001)
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*(?:\[|$)')
_BARE = re.compile(rb'^\[\s*\{[^\[\]]*"ph"\s*:\s*"')
_MARKS = (b'"deviceProperties"', b'"distributedInfo"', b'"schemaVersion"', b'"baseTimeNanoseconds"')
_DEVICE = ("kernel", "collective", "memcpy", "memset", "lost")


def recognise(file: File) -> int:
    """Return how sure it is that a file is a PyTorch profile: a JSON object with an array traceEvents, or an array of events."""
    start = file.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    marked = any(mark in start for mark in _MARKS)
    if start.startswith(b"{"):
        if _ARRAY.search(start):
            return 2 if marked or b'"cat"' in start else 1
        return 1 if marked and b'"schemaVersion"' in start else 0  # the events begin beyond the head
    return 1 if _BARE.match(start) else 0


@trace("kineto", recognise=recognise, reads="PyTorch profiles (Kineto JSON, plain or gzip)")
def read(file: File, recording: Recording, options: TraceOptions, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield what a profile holds. Times are integer ns since 1970 when the file tells its base, else since the file's own zero."""
    columns, metadata = _read(file, recording, options, problems)
    _describe(file, recording, options, columns, metadata)
    base = _base(recording, columns, metadata, problems)
    parts = _settled(file, recording, columns, metadata, problems)
    for process, (first, last) in (columns.lived or columns.traced).items():
        recording.saw(process, first + base, last + base)
    while parts:
        yield parts.pop(0).batch(base)  # let go as it is handed on
        if len(parts) % _HANDED == 0:
            give_back()


def _read(
    file: File, recording: Recording, options: TraceOptions, problems: Problems, hosted: bool = False
) -> tuple[KinetoColumns, Metadata]:
    """Return a file's events and metadata. Only a file whose hosts run collectives needs its operators; where that comes up after the
    first of them (`hosted`), it is read again: that is rare, and operators are most of a file."""
    columns, metadata, source = KinetoColumns(), Metadata(), JsonSource(file, options.limit)
    try:
        found = opening(source, "traceEvents")
        if found is None:
            hint = "export it again with torch.profiler's export_chrome_trace"
            raise UllageError(f"{file.name} has no list of events (traceEvents){f': it is {source.fault}' if source.fault else ''}", hint)
        metadata.read(found[0])
        columns.operators.wanted = hosted or metadata.may_be_on_host
        shared = in_regions(file, options, source.taken - len(found[1]), columns.operators.wanted)
        if shared is not None:
            _follow(shared.after, metadata)
            again = _hosted(shared.columns, metadata)
            return _read(file, recording, options, problems, hosted=True) if again else (shared.columns, metadata)
        array = Array[Event](source, events, usable, found[1])
        with no_collector():
            for chunk in array:
                columns.add(chunk)
                _refuse(file, options, array)
                options.progress(f"{source.taken / 1e6:,.0f} MB, {array.count:,} events")
        columns.join()
        _finish(file, recording, array, source, metadata)
    finally:
        source.close()
    if _hosted(columns, metadata):
        return _read(file, recording, options, problems, hosted=True)
    _damage(file, options, array, recording, metadata, problems)
    return columns, metadata


def _hosted(columns: KinetoColumns, metadata: Metadata) -> bool:
    """Return whether hosts run collectives, and the operators beside them were let go."""
    return not columns.operators.wanted and (metadata.may_be_on_host or any(part.kind == "mpi" and len(part) for part in columns.parts))


def _finish(file: File, recording: Recording, array: Array[Event], source: JsonSource, metadata: Metadata) -> None:
    """Take in what follows the events, or note where they end early."""
    if array.cut:
        recording.cut = f"{file.name} {array.cut}" + (f"; it is {source.fault}" if source.fault else "")
        return
    _follow(array.remainder(), metadata)


def _follow(after: bytes, metadata: Metadata) -> None:
    """Take in what stands behind the array of events."""
    after = after.strip().removeprefix(b",")
    if after and not (after.startswith(b"}") and len(after) == 1):
        metadata.read(b"{" + after)


def _refuse(file: File, options: TraceOptions, array: Array[Event]) -> None:
    if options.strict and (array.repaired or array.dropped):
        raise UllageError(f"{file.name} is not valid JSON at {array.damage}", "without --strict the rest of it is read")
    if array.dropped > max(_DAMAGE, array.count):
        raise UllageError(
            f"{file.name} is damaged in {array.dropped:,} places, first at {array.damage}: too many to go on", "export it again"
        )


def _damage(file: File, options: TraceOptions, array: Array[Event], recording: Recording, metadata: Metadata, problems: Problems) -> None:
    if options.strict and recording.cut:
        raise UllageError(recording.cut, "export the profile again; without --strict what there is is read")
    if options.strict and not metadata.whole:
        raise UllageError(f"{file.name} has metadata that is not valid JSON", "without --strict the rest of it is read")
    where = f"{file.name}, {array.damage}"
    problems.drop("events that are not valid JSON", array.dropped, where)
    problems.repair("events that were not valid JSON, put right", array.repaired, where)
    problems.drop("parts of the metadata that are not valid JSON", int(not metadata.whole), file.name)
    if recording.cut:
        problems.note(f"{recording.cut}; what comes before is used")


def _describe(file: File, recording: Recording, options: TraceOptions, columns: KinetoColumns, metadata: Metadata) -> None:
    recording.source, recording.prefers, recording.covers = "kineto", "ai", "process"
    recording.resolution = 1000 if columns.whole_microseconds else 1
    metadata.describe(recording, file.path.name, options.rank)
    hosts = {number for part in columns.parts if part.kind == "api" for number in distinct(part.numbers["process"]).tolist() if number >= 0}
    for number in hosts | set(columns.lived):
        recording.processes[number] = Process(None, harmless(columns.names.get(number, "")), recording.host)


def _base(recording: Recording, columns: KinetoColumns, metadata: Metadata, problems: Problems) -> int:
    """Return what to add to the times, and say by which clock they go then."""
    starts = [part.start for part in columns.parts if len(part)]
    seen = [first for first, _ in (columns.lived or columns.traced).values()]
    middle = int(np.median(np.concatenate(starts))) if starts else seen[0] if seen else 0
    if middle > _EPOCH:
        recording.clock = "utc"
        if metadata.base:
            problems.note(f"{recording.place} gives a base time, but its times count from 1970 already; the base is not added")
        return 0
    if metadata.base is None:
        return 0
    recording.clock = "utc"
    return metadata.base


def _settled(file: File, recording: Recording, columns: KinetoColumns, metadata: Metadata, problems: Problems) -> list[KinetoPart]:
    """Return the rows that can be true; what ran on a device at a time that can't be believed is counted."""
    for what, count in columns.bad.items():
        problems.drop(what, count, file.name)
    recording.untimed += columns.untimed
    problems.drop("events on hosts with an impossible duration", columns.impossible, file.name)
    parts = columns.parts + on_host(columns.launches, metadata) + (columns.waits if metadata.on_host(None) else [])
    columns.parts = []
    parts += columns.operator_steps if not any(part.kind == "step" for part in parts) else []
    parts += columns.operators.beside(parts)
    bounds = believable(parts, columns.lived.values())
    launches, asked = KinetoLaunches(columns.launches), OperatorProducts(columns.products, parts)
    in_blocks(parts)
    true = (part for found in (*parts, *columns.code) for part in _true(file, found, bounds, recording, problems))
    told = [asked.tell(part) if part.kind == "kernel" else launches.tell(part) for part in true if len(part)]
    return told + (gradients(columns.sequenced) if any(part.kind == "module" for part in told) else [])


def _true(file: File, part: KinetoPart, bounds: tuple[int, int] | None, recording: Recording, problems: Problems) -> list[KinetoPart]:
    if bounds is None:
        return [part]
    begun = (part.start >= bounds[0]) & (part.start <= bounds[1])
    ended = part.end <= bounds[1]
    whole = begun & ended
    if whole.all():
        return [part]
    if part.kind not in _DEVICE:
        problems.drop("events on hosts at an impossible time", int((~whole).sum()), file.name)
        return [part.where(whole)]
    recording.untimed += int((~begun).sum())
    if part.kind == "lost":  # counted already
        return [part.where(begun)]
    problems.drop("device events at an impossible time", int((~begun).sum()), file.name)
    problems.drop("device events that end at an impossible time", int((begun & ~ended).sum()), file.name)
    endless = part.where(begun & ~ended)
    return [part.where(whole), replace(endless, kind="lost", end=endless.start)]
