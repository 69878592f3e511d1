"""Recordings: what a program wrote down of itself under `ullage run`, or after `ullage.live.start()`. A file is one process.

A recording is read twice: first what it says of itself (clocks and the names of host records may stand anywhere), then its records,
one buffer at a time. One that ends early (the program was killed) is read as far as it goes, with what the program's threads left in
their rings; `chunks` and `rings` say what the files hold. A run lasts
from when the recorder came into the program, its start as a rule, to its end, as TALP counts; with MPI from MPI_Init to MPI_Finalize.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa

from ullage.cupti.chunks import MAGIC, OPENMP, Chunk, ChunkType, EarlyEnd, chunks
from ullage.cupti.decoding import decode
from ullage.cupti.endings import RINGS
from ullage.cupti.kinds import ActivityKind
from ullage.cupti.layouts import Layouts, layouts
from ullage.cupti.releases import release
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.traces.recorded import notes, rings
from ullage.traces.recorded.device import on_devices
from ullage.traces.recorded.facts import RecordingFacts
from ullage.traces.recorded.host import of_host, on_host, openmp_not_there, still_waiting
from ullage.traces.recorded.nccl import nccl_collectives
from ullage.traces.recorded.ranges import ranges, unended
from ullage.traces.recorded.rows import RecordingReading
from ullage.traces.trace import File, TraceOptions, trace

WHERE = 16  # bytes before a buffer's records: context and stream


@trace(
    "recording",
    recognise=lambda file: 2 * file.head.startswith(MAGIC),
    reads="recordings of `ullage run` (*.ullage)",
    beside=(RINGS,),
)
def read(file: File, recording: Recording, options: TraceOptions, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield a recording's intervals, in the order in which they were written.

    Raises UllageError for a recording of a release of CUPTI that is not known, and for one that holds no event; with `options.strict`
    also for one that ends early.
    """
    recording.source, recording.by_process, recording.covers = "Ullage recording", True, "run"
    told = RecordingFacts()
    damage = _skimmed(file, told, options)
    left = rings.of(file, told)
    recording.cut = rings.cut(told, left, damage)
    if options.strict and recording.cut:
        raise UllageError(f"{file.name} is not whole ({recording.cut})", "read it without --strict: what is there is good")
    reading = begun(file.name, told, recording, problems, rank=options.rank)
    with file.open() as opened:
        for chunk in _whole(opened, file.name, told.length):
            for batch in intervals(reading, chunk):
                if batch.num_rows:
                    yield batch
            options.progress(f"{reading.rows:,} rows")
    yield from rings.appended(reading, left)
    hung = sum(not name.startswith(OPENMP) for _, name in reading.waiting.values())
    reading.problems.repair("calls of MPI that never ended end where they were last seen", hung, reading.place)
    yield from still_waiting(reading)
    life = reading.life()
    yield from openmp_not_there(reading, life)
    yield from unended(reading, life[1] if life is not None else 0)
    yield from _paused(reading)
    _ended(reading)


def _skimmed(file: File, told: RecordingFacts, options: TraceOptions) -> EarlyEnd | None:
    """Take in what a recording says of itself; return where the file ends early, None where it doesn't."""
    read = 0
    with file.open() as opened:
        try:
            for chunk in chunks(opened, file.name):
                read += len(chunk.payload)
                if read > options.limit:
                    raise UllageError(f"{file.name} unpacks to more than {options.limit:,} bytes", "raise --limit if it is to be trusted")
                told.add(chunk)
        except EarlyEnd as cut:
            return cut
    return None


def _whole(opened: IO[bytes], name: str, length: int) -> Iterator[Chunk]:
    """Yield the chunks of so many bytes: what was written since is in the rings as well."""
    try:
        yield from itertools.takewhile(lambda chunk: chunk.offset < length, chunks(opened, name))
    except EarlyEnd:
        return  # told already


def begun(place: str, told: RecordingFacts, recording: Recording, problems: Problems, rank: int | None = None) -> RecordingReading:
    """Return a recording of which what it says of itself is known, ready for `intervals`. Raises UllageError for an unknown CUPTI."""
    notes.who(told, recording, rank)
    return RecordingReading(
        place=place,
        recording=recording,
        problems=problems,
        told=told,
        process=told.whole("pid") or 0,
        clock=told.clock(),
        layouts=layouts_of(place, told),
    )


def layouts_of(place: str, told: RecordingFacts) -> Layouts | None:
    """Return how the records of a recording are laid out, None where it has none yet. Raises UllageError for an unknown CUPTI."""
    if not told.buffers:
        return None
    version = told.whole("cupti")
    if version is None:
        raise UllageError(f"{place} doesn't say which CUPTI wrote it", "its beginning is damaged: record again")
    try:
        return layouts(release(version))
    except UllageError as error:
        raise UllageError(f"{place} can't be read: {error.problem}", error.hint) from error


def intervals(reading: RecordingReading, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    """Yield the intervals of one chunk; some batches may be empty."""
    if chunk.type == ChunkType.NAMES and not chunk.flags:
        reading.name(chunk.names())
    elif chunk.type == ChunkType.HOST:
        yield from of_host(reading, chunk.host())
    elif chunk.type == ChunkType.BUFFER:
        yield from _buffer(reading, chunk.payload)


def _buffer(reading: RecordingReading, payload: bytes) -> Iterator[pa.RecordBatch]:
    assert reading.layouts is not None
    decoded = decode(memoryview(payload)[WHERE:], reading.layouts)
    for kind, count in decoded.unknown.items():
        reading.unknown[kind] = reading.unknown.get(kind, 0) + count
    if decoded.stopped:
        reading.problems.drop("ends of activity buffers", 1, f"{reading.place}, {decoded.stopped}")
        reading.recording.untimed += 1  # a device event at least may have been among the rest
    if ActivityKind.DEVICE in decoded.records:
        notes.devices(reading, decoded.records[ActivityKind.DEVICE])
    if ActivityKind.MARKER in decoded.records:
        yield from ranges(reading, decoded.records[ActivityKind.MARKER])
    yield from on_host(reading, decoded.records)
    yield from on_devices(reading, decoded.records)


def _paused(reading: RecordingReading) -> Iterator[pa.RecordBatch]:
    """Yield for each device a point where recording was stopped: what it did until it was taken up again is not known."""
    told = reading.clock.host(np.array([begin for begin, _ in reading.told.pauses], np.uint64))
    moments = told if len(told) else np.array(reading.paused, np.int64)  # the recorder notes the same pauses, but for one without end
    for device in sorted(reading.used) if len(moments) else ():
        yield reading.intervals(moments, moments, kind="lost", device=np.full(len(moments), device, np.int64))
    if len(moments):
        often = "once" if len(moments) == 1 else f"{len(moments):,} times"
        reading.problems.note(f"recording was stopped {often}: what happened meanwhile is not known, and counts as idle")


def _ended(reading: RecordingReading) -> None:
    """Say what the recording says at its end. Raises UllageError where it holds nothing."""
    notes.people(reading)
    notes.losses(reading)
    reading.recording.nccl = nccl_collectives(reading.told, reading.problems, reading.place)
    if not reading.rows and not reading.recording.untimed and reading.recording.nccl is None:
        if reading.told.end is None:
            raise UllageError(
                f"{reading.place} holds no event: the program was killed, or became another, before anything was flushed",
                "flush more often: ullage run --flush 100",
            )
        why = "; ".join(notes.refusals(reading.told))
        raise UllageError(
            f"{reading.place} holds no event of a GPU, of MPI or of regions" + (f" ({why})" if why else ""),
            "did the program use CUDA? `ullage cupti check` says what stands in the way",
        )
    for remark in notes.remarks(reading):
        reading.problems.note(remark)
    reading.recording.cost = notes.cost(reading)
    reading.recording.summed = notes.summed(reading)
