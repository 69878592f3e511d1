"""Idle time of which a capture can't say that it was idle.

Work that left no record on the device looks like idle time. What betrays it: a launch without any record, a replay of a graph
with far fewer records than its like, an event whose time can't be believed, a file that ends early, an event shorter than
the clock's step. From the moment such work may have begun, the device's gaps are in doubt until something proves it over: a
call that waits for the whole device returns; or, for work other than whole graphs, work launched later has begun on each
stream, for a stream runs its work in order. (A stream of which nothing at all was recorded is not reckoned with.) Otherwise
what is said here errs on the side of doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ullage.errors import harmless
from ullage.sums.lanes.gather import CALL, KIND, NOT_KNOWN, Capture, LaneRows
from ullage.sums.lanes.launches import Mask, distinct, launches, only, puts
from ullage.sums.lanes.spans import NONE, Spans, Times, intersect, join, subtract, union, within
from ullage.sums.lanes.states import DeviceState

_ENDLESS = np.iinfo(np.int64).max // 2
_MOST_STREAMS = 64  # of a process; with more, their order proves nothing
_OWN = 3  # launches with the same small number of records, and a tenth of all: another graph, not a damaged one


@dataclass(frozen=True)
class Doubt:
    """When a device may have worked though nothing says so, and why: one sentence for each reason."""

    spans: Spans = NONE
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suspicion:
    """When something unrecorded may have run, and what to say; `spans` may cover time in which the device is known to work."""

    spans: Spans
    reason: str


def doubted(capture: Capture, devices: Sequence[DeviceState], seen: Sequence[Spans]) -> tuple[DeviceState, ...]:
    """Return a capture's devices with their doubts filled in; `seen` is when each was looked at."""
    owners = {process for device in devices for _, process in device.owners}
    unrecorded = {process: tuple(_unrecorded(capture, process)) for process in sorted(owners)}
    found = (doubt(capture, device, looked, unrecorded) for device, looked in zip(devices, seen, strict=True))
    return tuple(replace(device, unknown=d.spans, doubts=d.reasons) for device, d in zip(devices, found, strict=True))


def unknown(capture: Capture, device: DeviceState, seen: Spans) -> Spans:
    """Return the part of a device's idle time, within `seen`, in which it may have run something that was not recorded."""
    return doubt(capture, device, seen).spans


def doubt(capture: Capture, device: DeviceState, seen: Spans, unrecorded: Mapping[int, Iterable[Suspicion]] | None = None) -> Doubt:
    """Return the part of a device's idle time, within `seen`, that may have been work, and the reasons to think so.

    A suspicion that falls wholly into time when the device is known to work is no reason. `unrecorded` is what is suspected of
    the processes, where that is known already.
    """
    idle = subtract(seen, device.busy)
    found, reasons = [], []
    for suspicion in _suspicions(capture, device, idle, unrecorded):
        part = intersect(suspicion.spans, idle)
        if part.pieces:
            found.append(part)
            reasons.append(suspicion.reason)
    if device.graph.pieces:
        reasons.append(_graphs(capture, device))
    return Doubt(join(*found), tuple(reasons))


def _suspicions(
    capture: Capture, device: DeviceState, idle: Spans, unrecorded: Mapping[int, Iterable[Suspicion]] | None
) -> Iterator[Suspicion]:
    recording = capture.recording
    if recording.cut:
        yield Suspicion(idle, f"cannot tell idle: the file ends early ({harmless(recording.cut)})")
    if recording.untimed:
        what = _count(recording.untimed, "device event has", "device events have")
        yield Suspicion(idle, f"cannot tell idle: {what} no usable time")
    here = (capture.device.device == device.number) | (capture.device.device == NOT_KNOWN)
    rows = only(capture.device, here, "kind")
    yield from _lost(rows, idle)
    yield from _short(rows, device.resolution)
    for _, process in device.owners:
        yield from _unrecorded(capture, process) if unrecorded is None else unrecorded[process]


def _lost(rows: LaneRows, idle: Spans) -> Iterator[Suspicion]:
    """Yield the time from each event of unbelievable length to the end of the first gap that it may have filled."""
    start = rows.start[rows.kind == KIND["lost"]]
    if not len(start) or not idle.pieces:
        return
    gap = np.searchsorted(idle.end, start, side="right")
    real = gap < idle.pieces
    reach = union(start[real], idle.end[gap[real]])
    yield Suspicion(reach, f"cannot tell idle: {_count(len(start), 'device event has', 'device events have')} no believable duration")


def _short(rows: LaneRows, resolution: int) -> Iterator[Suspicion]:
    """Yield the time in which events ran that the clock shows as lasting no time at all.

    Start and duration are each cut down to whole steps, so such an event is over two steps after its start.
    """
    empty = (rows.start == rows.end) & (rows.kind != KIND["lost"])
    if resolution > 1 and empty.any():
        what = _count(int(empty.sum()), "device event is", "device events are")
        reach = union(rows.start[empty], rows.start[empty] + 2 * resolution)
        yield Suspicion(reach, f"cannot tell idle: {what} shorter than the clock's step of {resolution:,} ns")


def _unrecorded(capture: Capture, process: int) -> Iterator[Suspicion]:
    """Yield what a process launched of which the devices have no records, or too few."""
    calls, rows = capture.calls, capture.device
    mine = ((rows.process == process) | (rows.process == NOT_KNOWN)) & (rows.correlation != NOT_KNOWN)
    recorded = np.sort(rows.correlation[mine])
    if not len(recorded):
        return  # the source has no correlations, so nothing can be missed
    put = only(calls, (calls.process == process) & (calls.correlation != NOT_KNOWN) & puts(calls), "thread", "correlation", "call", "name")
    counts = np.searchsorted(recorded, put.correlation, side="right") - np.searchsorted(recorded, put.correlation)
    graph = put.call == CALL["graph"]
    silent = _silent(capture, process, put, counts)
    few = _few(put, np.where(graph, counts, 0)) if graph.any() else graph
    few &= ~np.isin(put.correlation, rows.correlation[mine & (rows.kind == KIND["graph"])])
    for suspects, one, many, what in (
        (silent & graph, "graph launch has", "graph launches have", "no kernel records"),
        (few, "graph replay has", "graph replays have", "far fewer records than the like"),
        (silent & ~graph, "launch or copy has", "launches or copies have", "no device record"),
    ):
        if suspects.any():
            over = _until(put.end[suspects], _waits(capture, process))
            if what != "no kernel records":
                over = np.minimum(over, _overtaken(capture, process, put.end[suspects]))
            number = len(np.unique(put.correlation[suspects]))
            yield Suspicion(union(put.start[suspects], over), f"cannot tell idle: {_count(number, one, many)} {what}")


def _silent(capture: Capture, process: int, put: LaneRows, counts: Times) -> Mask:
    """Return which of a process' calls that put work on a device have no record of it.

    Left out: what is recorded into a graph instead of run; a call inside (or around) one that has records, which is the same call
    seen at another level; single kernels and copies where most of them have no records, for then that is how the source is; and a
    copy whose call was shorter than any that has a record: a copy of no bytes returns at once, without any work.
    """
    silent: Mask = counts == 0
    for kind in ("launch", "copy"):
        these = put.call == CALL[kind]
        if 2 * int((~silent & these).sum()) <= int(these.sum()):
            silent &= ~these
    if not silent.any():
        return silent
    silent &= ~_names(put, capture.words, "Prefetch", "HostFunc")
    silent &= within(_capturing(capture, process), put.start, put.start + 1) == 0
    silent &= (put.call != CALL["copy"]) | (put.end - put.start >= _shortest(put, counts, len(capture.words)))
    for thread in distinct(put.thread[silent]):
        heard = (put.thread == thread) & (counts > 0)
        mine = np.flatnonzero((put.thread == thread) & silent)
        silent[mine] = within(union(put.start[heard], put.end[heard]), put.start[mine], put.end[mine]) == 0
    return silent


def _shortest(put: LaneRows, counts: Times, words: int) -> Times:
    """Return for each call how long the shortest call of its name is that has records; 0 where none has."""
    shortest = np.full(words + 1, _ENDLESS)  # the last is that of NOT_KNOWN
    heard = counts > 0
    np.minimum.at(shortest, put.name[heard], (put.end - put.start)[heard])
    return np.where(shortest == _ENDLESS, 0, shortest)[put.name]


def _few(put: LaneRows, counts: Times) -> Mask:
    """Return which calls have less than half the records of the median of their like (by thread and name).

    A small count that many launches share is another graph's.
    """
    few = np.zeros(len(put), bool)
    some = np.flatnonzero(counts)
    for thread, name in set(zip(put.thread[some].tolist(), put.name[some].tolist(), strict=True)):
        like = some[(put.thread[some] == thread) & (put.name[some] == name)]
        _, of, often = np.unique(counts[like], return_inverse=True, return_counts=True)
        own = (often >= _OWN) & (10 * often >= len(like))
        few[like] = (2 * counts[like] < np.median(counts[like])) & ~own[of]
    return few


def _capturing(capture: Capture, process: int) -> Spans:
    """Return when a process records calls into a graph instead of running them."""
    calls = capture.calls
    mine = calls.process == process
    begin = np.sort(calls.start[mine & _names(calls, capture.words, "StreamBeginCapture")])
    end = np.sort(calls.end[mine & _names(calls, capture.words, "StreamEndCapture")])
    after = np.searchsorted(end, begin)
    real = after < len(end)
    return union(begin[real], end[after[real]])


def _waits(capture: Capture, process: int) -> tuple[Times, Times]:
    """Return the calls that wait for all of a device: their starts, sorted, and the first moment at which one begun then or later returns.

    A wait for one stream proves something only where one stream is all that is in use. With several devices in one process a wait
    doesn't say for which one it is, so nothing is proof.
    """
    calls, rows = capture.calls, only(capture.device, capture.device.process == process, "device", "stream")
    if len(distinct(rows.device)) > 1:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    kinds = ["DeviceSynchronize", "CtxSynchronize"]
    if len(distinct(rows.stream)) == 1 and rows.stream[0] != NOT_KNOWN:
        kinds.append("StreamSynchronize")
    waits = (calls.process == process) & (calls.call == CALL["sync"]) & _names(calls, capture.words, *kinds)
    start, end = calls.start[waits], calls.end[waits]
    order = np.argsort(start)
    return start[order], np.minimum.accumulate(end[order][::-1])[::-1]


def _overtaken(capture: Capture, process: int, moment: Times) -> Times:
    """Return, for each moment, when work launched at it or later has begun on every stream of a process; endless where it hasn't."""
    mine = (capture.device.process == process) & (capture.device.kind != KIND["lost"])
    rows = only(capture.device, mine, "process", "device", "stream", "correlation")
    put = launches(capture.calls, rows)
    pairs = [(d, s) for d in distinct(rows.device) for s in distinct(rows.stream[rows.device == d])]
    if not 0 < len(pairs) <= _MOST_STREAMS or (rows.stream == NOT_KNOWN).any():
        return np.full(len(moment), _ENDLESS)
    over = np.full(len(moment), -_ENDLESS)
    for device, stream in pairs:
        later = np.flatnonzero((rows.device == device) & (rows.stream == stream) & put.known)
        later = later[np.argsort(put.start[later], kind="stable")]
        begun = np.minimum.accumulate(rows.start[later][::-1])[::-1]
        over = np.maximum(over, _until(moment, (put.start[later], begun)))
    return over


def _until(moment: Times, over: tuple[Times, Times]) -> Times:
    """Return, for each moment, the second time of the first pair whose first time is at it or later; endless without one."""
    start, end = over
    at = np.searchsorted(start, moment)
    return np.append(end, _ENDLESS)[at]


def _names(calls: LaneRows, words: list[str], *parts: str) -> Mask:
    """Return which calls' names contain one of some parts."""
    used = np.flatnonzero(np.bincount(calls.name + 1, minlength=1)) - 1
    chosen = np.zeros(len(words) + 1, bool)  # the last is that of NOT_KNOWN
    chosen[[code for code in used.tolist() if code >= 0 and any(part in words[code] for part in parts)]] = True
    return chosen[calls.name]


def _graphs(capture: Capture, device: DeviceState) -> str:
    rows = capture.device
    number = int(((rows.kind == KIND["graph"]) & (rows.device == device.number)).sum())
    return f"cannot tell kernels from gaps and copies: {_count(number, 'graph was', 'graphs were')} recorded as a whole"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
