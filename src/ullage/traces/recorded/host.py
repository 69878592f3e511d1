"""What the host threads did: calls of CUDA's runtime and driver, MPI, regions, and what CUPTI itself cost them.

A call of the runtime and the driver's call inside it are two records; who sums them takes their union, thread by thread. A call that
failed put nothing on a device. MPI_Init and MPI_Finalize are the edges of the run (`mpi_clock`). A call of MPI gives the program its time
back when the recorder is done with it: it lasts until then, by what an empty call took, but never into the thread's next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from ullage.cupti.chunks import OPENMP, HostKind
from ullage.cupti.kinds import ActivityKind, call_name
from ullage.tables import CALLS, RECORDER
from ullage.traces.calls import call, operation
from ullage.traces.mpi_clock import edge
from ullage.traces.nsys.names import NsysWords, distinct
from ullage.traces.nsys.rows import coded
from ullage.traces.recorded.clock import SLACK, Mask
from ullage.traces.recorded.rows import MISSING, RecordingReading, Records, Whole, column, correlation
from ullage.traces.recorded.sums import laid_out

_CODES = {name: code for code, name in enumerate(CALLS)}
_SUBMITS = [_CODES[name] for name in ("launch", "graph", "copy")]
_THREAD = 2  # CUpti_ActivityObjectKind
# CUpti_ActivitySynchronizationType: those for which the host stands still, by the call that is commonest
_WAITS = {1: "cuEventSynchronize", 3: "cuStreamSynchronize", 4: "cuCtxSynchronize"}
_FOR_STREAM = 3
_OVERHEAD = {
    1: "driver compiler", 1 << 16: "CUPTI buffer flush", 2 << 16: "CUPTI instrumentation", 3 << 16: "CUPTI resource",
    4 << 16: "module loading", 5 << 16: "lazy function loading", 6 << 16: "command buffer full", 7 << 16: "CUPTI buffer request",
    8 << 16: "unified memory set-up",
}  # fmt: skip
_MPI = re.compile(r"^P?MPI_", re.IGNORECASE)  # what else is here is PyTorch's, whose collectives run on devices if they can


def is_mpi(name: str) -> bool:
    """Return whether a call of HOST records is one of MPI's, by its name."""
    return _MPI.match(name) is not None


def on_host(reading: RecordingReading, records: Mapping[int, Records]) -> Iterator[pa.RecordBatch]:
    """Yield CUPTI's records of the host's threads."""
    for kind in (ActivityKind.RUNTIME, ActivityKind.DRIVER):
        if kind in records:
            yield _calls(reading, records[kind], driver=kind == ActivityKind.DRIVER)
    if ActivityKind.SYNCHRONIZATION in records:
        told = _for_streams if calls_recorded(reading) else _waits
        yield told(reading, records[ActivityKind.SYNCHRONIZATION])
    if ActivityKind.OVERHEAD in records:
        yield _overhead(reading, records[ActivityKind.OVERHEAD])


def calls_recorded(reading: RecordingReading) -> bool:
    """Return whether calls were recorded, so that waits are among them: unless CUPTI's answers say otherwise."""
    answers = reading.told.answers()
    return not answers or any(answers.get(kind) == 0 for kind in (ActivityKind.RUNTIME, ActivityKind.DRIVER))


def _timed(reading: RecordingReading, records: Records, what: str) -> tuple[Records, Whole, Whole]:
    start, end = (reading.clock.cupti(records[edge]) for edge in ("start", "end"))
    good = reading.believed(start, end, what)
    return (records, start, end) if good.all() else (records[good], start[good], end[good])


def _calls(reading: RecordingReading, records: Records, *, driver: bool) -> pa.RecordBatch:
    records, start, end = _timed(reading, records, "calls of CUDA")
    reading.device_calls = True
    numbers, codes = distinct(column(records, "cbid"))
    names = NsysWords(codes.astype(np.int32), [call_name(driver, number) for number in numbers.tolist()])
    does = names.each(lambda name: _CODES[call(name)], _CODES["other"])
    failed = np.isin(does, _SUBMITS) & (column(records, "returnValue") > 0)
    return reading.intervals(
        start,
        end,
        kind="api",
        name=names,
        thread=column(records, "threadId"),
        correlation=correlation(records),
        call=coded(np.where(failed, _CODES["other"], does), CALLS),
    )


def _waits(reading: RecordingReading, records: Records) -> pa.RecordBatch:
    """Return CUPTI's records of waiting as calls; of which thread, they don't say."""
    records, start, end = _timed(reading, records[np.isin(records["type"], list(_WAITS))], "waits")
    numbers, codes = distinct(column(records, "type"))
    names = NsysWords(codes.astype(np.int32), [_WAITS[number] for number in numbers.tolist()])
    reading.device_calls = True
    thread = np.full(len(records), reading.process, np.int64)
    does = coded(np.full(len(records), _CODES["sync"]), CALLS)
    return reading.intervals(start, end, kind="api", name=names, thread=thread, correlation=correlation(records), call=does)


def _for_streams(reading: RecordingReading, records: Records) -> pa.RecordBatch:
    """Return for which stream a call waited; of waits for events CUPTI does not say on which stream these were recorded."""
    records, start, end = _timed(reading, records[records["type"] == _FOR_STREAM], "waits")
    return reading.intervals(start, end, kind="event", correlation=correlation(records), awaited_stream=column(records, "streamId"))


def _overhead(reading: RecordingReading, records: Records) -> pa.RecordBatch:
    records, start, end = _timed(reading, records, "rows of CUPTI's overhead")
    numbers, codes = distinct(column(records, "overheadKind"))
    names = NsysWords(codes.astype(np.int32), [_OVERHEAD.get(number, f"overhead {number}") for number in numbers.tolist()])
    thread = np.where(records["objectKind"] == _THREAD, column(records, "objectId.pt.threadId"), MISSING)
    return reading.intervals(start, end, kind="overhead", name=names, thread=thread)


def of_host(reading: RecordingReading, records: Records) -> Iterator[pa.RecordBatch]:
    """Yield records of HOST chunks: MPI, regions, calls that the recorder itself timed. Regions that are still open are kept."""
    if reading.clock.since_1970 is None and reading.told.buffers:  # CUPTI's clock is another one, and nothing says how they go together
        reading.problems.drop("host records on a clock that was never read", len(records), reading.place)
        return
    opened = records[records["kind"] == HostKind.OPEN]
    begun = reading.clock.host(opened["start"])
    for record, start in zip(opened, begun.tolist(), strict=True):
        reading.open[int(record["serial"])] = (start, int(record["thread"]), reading.told.host_names.get(int(record["name"]), ""))
    records = records[records["kind"] != HostKind.OPEN]
    records = records[records["kind"] != HostKind.THREAD]  # which are told already
    start, end = (reading.clock.host(records[edge]) for edge in ("start", "end"))
    good = reading.believed(start, end, "host records")
    for kind, one in _HOST.items():
        mine = good & (records["kind"] == kind)
        if mine.any():
            yield from one(reading, records[mine], start[mine], end[mine])
    reading.problems.drop("host records of an unknown kind", int((~np.isin(records["kind"], list(_HOST))).sum()), reading.place)


def _names(reading: RecordingReading, records: Records) -> NsysWords:
    numbers, codes = distinct(column(records, "name"))
    table = [reading.told.host_names.get(number, "") for number in numbers.tolist()]
    return NsysWords(codes.astype(np.int32), table).renamed(lambda text: text or None)


def _waiting(reading: RecordingReading, records: Records, start: Whole, end: Whole) -> Iterator[pa.RecordBatch]:
    for key, until, number in zip(_keys(records, start), end.tolist(), records["name"].tolist(), strict=True):
        reading.waiting[key] = (until, reading.told.host_names.get(number, ""))
    yield from ()


def _keys(records: Records, start: Whole) -> Iterator[tuple[int, int]]:
    return zip(records["thread"].tolist(), start.tolist(), strict=True)


def still_waiting(reading: RecordingReading) -> Iterator[pa.RecordBatch]:
    """Yield the calls of MPI that had not ended when they were last seen, until then; the program hung in them, or still is there.

    Whatever the call is, its time is no useful one, even if it is MPI_Init. They have no `operation`: no other rank's is its counterpart.
    """
    if not reading.waiting:
        return
    thread, start = (np.array(values, np.int64) for values in zip(*reading.waiting, strict=True))
    until, texts = zip(*reading.waiting.values(), strict=True)
    table = list(dict.fromkeys(texts))
    names = NsysWords(np.array([table.index(text) for text in texts], np.int32), table).renamed(lambda text: text or None)
    reading.messages |= any(_MPI.match(text) for text in table)
    for kind, mine, whose in _whose(reading, names, thread):
        yield reading.intervals(start[mine], np.array(until, np.int64)[mine], kind=kind, name=names.where(mine), thread=whose)


def _whose(reading: RecordingReading, names: NsysWords, thread: Whole) -> Iterator[tuple[str, Mask, Whole]]:
    """Yield which calls are the process' communication, which a helper's that communicates while the process goes on, and in which a
    thread of OpenMP waits for others; with the threads' numbers, which are OpenMP's own there."""
    own = reading.told.own_thread
    waits = names.each(lambda name: name.startswith(OPENMP), False).astype(bool)
    helps = names.each(lambda name: _MPI.match(name) is not None, False).astype(bool) & (own is not None) & (thread != own)
    yield from ((kind, mine, thread[mine]) for kind, mine in (("mpi", ~helps & ~waits), ("helper", helps)) if mine.any())
    if waits.any():
        number = np.array([MISSING if (n := reading.told.openmp_number(one)) is None else n for one in thread.tolist()], np.int64)
        waits &= number != MISSING
        yield "parallel", waits, number[waits]


def openmp_not_there(reading: RecordingReading, life: tuple[int, int] | None) -> Iterator[pa.RecordBatch]:
    """Yield when threads of OpenMP were not made yet, or not any more: a processor that waits for them has nothing to do."""
    if life is None:
        return
    for place, lives in enumerate(reading.told.workers):
        told = reading.clock.host(np.array([[begin, end or 0] for begin, end in lives], np.uint64).ravel()).reshape(-1, 2)
        ends = np.where([end is None for _, end in lives], life[1], told[:, 1])
        start = np.clip(np.concatenate([[life[0]], ends]), *life).astype(np.int64)
        end = np.clip(np.concatenate([told[:, 0], [life[1]]]), *life).astype(np.int64)
        gone = start < end
        names = NsysWords(np.zeros(int(gone.sum()), np.int32), [f"{OPENMP}thread not created"])
        yield reading.intervals(start[gone], end[gone], kind="parallel", name=names, thread=np.full(int(gone.sum()), place + 1, np.int64))


MOST_BETWEEN = 100_000  # ns that the recorder can take after a call; what says more is damaged


def with_recorder(start: Whole, end: Whole, thread: Whole, cost: int) -> Whole:
    """Return until when calls keep their threads, the recorder's `cost` (ns) after each included, but not into the thread's next call.

    >>> with_recorder(np.array([0, 120]), np.array([100, 150]), np.array([7, 7]), 30).tolist()
    [120, 180]
    """
    if not 0 < cost <= MOST_BETWEEN or not len(start):
        return end
    order = np.lexsort((start, thread))
    following = np.full(len(start), np.iinfo(np.int64).max)
    same = thread[order][1:] == thread[order][:-1]
    following[order[:-1][same]] = start[order[1:][same]]
    until: Whole = np.maximum(end, np.minimum(end + cost, following))
    return until


def _mpi(reading: RecordingReading, records: Records, start: Whole, end: Whole) -> Iterator[pa.RecordBatch]:
    for key in _keys(records, start) if reading.waiting else ():
        reading.waiting.pop(key, None)
    names = _names(reading, records)
    first = names.each(lambda name: edge(name) == "init", False).astype(bool)
    last = names.each(lambda name: edge(name) == "finalize", False).astype(bool)
    if first.any():
        reading.began = max(int(end[first].max()), reading.began or 0)
    if last.any():
        reading.ended = int(start[last].min()) if reading.ended is None else min(int(start[last].min()), reading.ended)
    kept = ~(first | last)
    thread = column(records, "thread")
    end = before_sums(reading, start, with_recorder(start, end, thread, reading.told.whole("mpi_between_ns") or 0), thread)
    waits = int(names.each(lambda name: name.startswith(OPENMP), False).sum())
    reading.calls += len(records) - waits
    reading.waits += waits
    if kept.any():
        size = np.where(records["bytes"] > 0, column(records, "bytes"), MISSING)
        yield from _talks(reading, start[kept], end[kept], names.where(kept), thread[kept], size[kept])


def _talks(
    reading: RecordingReading, start: Whole, end: Whole, names: NsysWords, thread: Whole, size: Whole | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield calls of MPI and of what else waits. Of sums, which have no `size`, no call is known to be another rank's counterpart."""
    reading.messages |= bool(names.each(lambda name: _MPI.match(name) is not None, False).any())
    for kind, mine, whose in _whose(reading, names, thread):
        if kind == "helper":
            _add_helpers(reading, whose, (end - start)[mine])
        named = names.where(mine)
        more = {} if size is None or kind == "parallel" else {"bytes": size[mine], "operation": named.renamed(operation)}
        yield reading.intervals(start[mine], end[mine], kind=kind, name=named, thread=whose, **more)


def _add_helpers(reading: RecordingReading, thread: Whole, took: Whole) -> None:
    for one in np.unique(thread).tolist():
        reading.helpers[one] = reading.helpers.get(one, 0) + int(took[thread == one].sum())


def _regions(reading: RecordingReading, records: Records, start: Whole, end: Whole) -> Iterator[pa.RecordBatch]:
    for serial in reading.open.keys() & set(records["serial"].tolist()):
        del reading.open[serial]
    reading.regions += len(records)
    yield reading.intervals(start, end, kind="region", name=_names(reading, records), thread=column(records, "thread"))


def _timed_calls(reading: RecordingReading, records: Records, start: Whole, end: Whole) -> Iterator[pa.RecordBatch]:
    names = _names(reading, records)
    does = names.each(lambda name: _CODES[call(name)], _CODES["other"])
    yield reading.intervals(start, end, kind="api", name=names, thread=column(records, "thread"), call=coded(does, CALLS))


def _paused(reading: RecordingReading, records: Records, start: Whole, end: Whole) -> Iterator[pa.RecordBatch]:  # noqa: ARG001 - as its neighbours
    reading.paused += start.tolist()
    yield from ()


def _own(reading: RecordingReading, records: Records, start: Whole, end: Whole) -> Iterator[pa.RecordBatch]:
    """Yield what the recorder noted of its own; it has no other name in a recording."""
    names = _names(reading, records)
    mine = names.codes < 0
    reading.held += int((end - start)[mine].sum())
    names = NsysWords(np.where(mine, len(names.table), names.codes).astype(np.int32), [*names.table, RECORDER])
    yield reading.intervals(start, end, kind="overhead", name=names, thread=column(records, "thread"))


def _off(reading: RecordingReading, records: Records, start: Whole, end: Whole) -> Iterator[pa.RecordBatch]:
    """Yield when threads were on no processor: for how long of each interval is known."""
    off = np.minimum(column(records, "bytes"), end - start)
    yield reading.intervals(start, end, kind="off", thread=column(records, "thread"), off=off)


def before_sums(reading: RecordingReading, start: Whole, end: Whole, thread: Whole) -> Whole:
    """Return the ends of calls, cut where the sums of their threads begin."""
    for one, since in reading.told.summed.items():
        moment = int(reading.clock.host(np.array([since], np.uint64))[0])
        end = np.where((thread == one) & (start <= moment), np.minimum(end, moment), end)
    return end


def _sums(reading: RecordingReading, records: Records, start: Whole, end: Whole) -> Iterator[pa.RecordBatch]:
    """Yield what sums say as intervals, one after another within the time that they are of: how long is known, not when."""
    good = records["bytes"] <= (end - start + SLACK).astype(np.uint64)
    reading.problems.drop("sums that are longer than the time that they are of", int((~good).sum()), reading.place)
    reading.stretch = max(reading.stretch, int((end - start)[good].max(initial=0)))
    calls, regions, absences = laid_out(reading, records[good], start[good])
    if absences.start:
        yield reading.intervals(*absences.times(), kind="off", thread=absences.threads())
    if regions.start:
        yield reading.intervals(*regions.times(), kind="region", name=regions.names(lambda name: name), thread=regions.threads())
    if calls.start:
        start, end = calls.times()
        names = calls.names(lambda number: reading.told.host_names.get(number, ""))
        yield from _talks(reading, start, end, names, calls.threads())


_HOST = {
    HostKind.WAITING: _waiting, HostKind.MPI: _mpi, HostKind.REGION: _regions, HostKind.API: _timed_calls, HostKind.OVERHEAD: _own,
    HostKind.PAUSE: _paused, HostKind.SUM: _sums, HostKind.OFF: _off,
}  # fmt: skip
