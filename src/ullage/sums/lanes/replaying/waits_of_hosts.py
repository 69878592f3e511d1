"""Collectives that hosts run themselves, as operations that calls wait for.

A thread waits in a collective of MPI: the call is the wait. Gloo runs collectives on threads of its own; no event says who waits, but when
a process does nothing else while one runs is known (`ProcessState.communication`). So each such time is a wait of the process' main lane,
for the collectives that end in it. One that ends while the lane computes may be waited for from then on. A collective begins when the
lane had come so far, or, where the lane waits already, after the one that ended before it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.collectives.collectives import Collectives
from ullage.sums.lanes.gather import CALL, KIND, NOT_KNOWN, Capture, Codes, LaneRows
from ullage.sums.lanes.launches import Mask, puts
from ullage.sums.lanes.spans import Spans, Times
from ullage.sums.lanes.states import ProcessState

_COLUMNS = ("process", "thread", "stream", "name", "call")


@dataclass(frozen=True)
class HeldCollectives:
    """What hosts did for collectives: `calls` of their threads, and the collectives as `operations`, each of which belongs to the call of
    its `thread` in which it begins.

    Each of `waits` is a call that waits for the operation at its place in `waited`, surely or possibly (`sure`). `queued` are pairs of
    operations of which the first waits for the second. `silent` is when threads communicate in a way that is no collective, by process
    and thread."""

    calls: LaneRows
    operations: LaneRows
    waits: LaneRows
    waited: Times
    sure: Mask
    queued: tuple[Times, Times]
    silent: dict[tuple[int, int], Spans]


def collectives_of_hosts(capture: Capture, hosted: Collectives, processes: Sequence[ProcessState]) -> HeldCollectives:
    """Return what threads of a capture's hosts did for the collectives that these run."""
    names = _names(capture, hosted)
    own = (hosted.device == NOT_KNOWN) & (hosted.stream != NOT_KNOWN)
    process, thread = hosted.process.astype(np.int64), hosted.stream.astype(np.int64)
    does = np.full(len(hosted), CALL["other"], np.int8)
    called = LaneRows(hosted.start, hosted.end, process=process, thread=thread, stream=thread, name=names, call=does).where(own)
    calls, operations, waits = [called], [called], [called.where(np.zeros(len(called), bool))]
    waited: list[Times] = []
    sure: list[Mask] = [np.zeros(0, bool)]
    queued: list[Times] = []
    silent: dict[tuple[int, int], Spans] = {}
    count = len(called)
    for state in processes:
        mine = np.flatnonzero((hosted.stream == NOT_KNOWN) & (process == state.key[1]))
        if not len(mine):
            continue
        lane = (state.key[1], _lane(capture, state))
        part = pooled(hosted.start[mine], hosted.end[mine], names[mine], state.communication, lane)
        calls.append(part.calls)
        operations.append(part.operations)
        waits.append(part.waits)
        waited.append(part.waited + count)
        sure.append(part.sure)
        queued.append(np.stack(part.queued) + count)
        silent |= part.silent
        count += len(mine)
    pairs = np.concatenate([np.zeros((2, 0), np.int64), *queued], axis=1)
    places = np.concatenate([np.zeros(0, np.int64), *waited])
    return HeldCollectives(_one(calls), _one(operations), _one(waits), places, np.concatenate(sure), (pairs[0], pairs[1]), silent)


def _names(capture: Capture, hosted: Collectives) -> Codes:
    """Return what each collective is called, by its process, thread and start; those of gloo by process and start alone."""
    talks = capture.host.of("mpi")
    names = np.full(len(hosted), NOT_KNOWN, np.int32)
    for pooled in (True, False):
        mine = np.flatnonzero((hosted.stream == NOT_KNOWN) == pooled)
        thread = [
            np.zeros(n, np.int64) if pooled else values for n, values in ((len(talks), talks.thread), (len(mine), hosted.stream[mine]))
        ]
        pairs = ((talks.process, hosted.process[mine]), thread, (talks.start, hosted.start[mine]))
        who = np.column_stack([np.concatenate(pair).astype(np.int64) for pair in pairs])
        called, same = np.unique(who, axis=0, return_inverse=True)
        known = np.full(len(called), NOT_KNOWN, np.int32)
        known[same.ravel()[: len(talks)]] = talks.name
        names[mine] = known[same.ravel()[len(talks) :]]
    return names


def _lane(capture: Capture, state: ProcessState) -> int:
    """Return the thread of a process that waits for its collectives: the one that is longest in the GPU's interface, of those that submit
    work; else the one that computes beside collectives; else the one whose operators take longest."""
    number = state.key[1]
    if puts(capture.calls.where(capture.calls.process == number)).any():
        return state.threads[0]
    beside = capture.host.where((capture.host.process == number) & (capture.host.kind == KIND["computing"]))
    time: dict[int, int] = {}
    for thread in np.unique(beside.thread).tolist():
        rows = beside.where(beside.thread == thread)
        time[thread] = int((rows.end - rows.start).sum())
    for (kind, process, thread), rows in capture.code.items() if not time else ():
        if kind == "operator" and process == number:
            time[thread] = int((rows.end - rows.start).sum())
    return max(time, key=lambda thread: (time[thread], -thread)) if time else number


def pooled(start: Times, end: Times, names: Codes, exposed: Spans, lane: tuple[int, int]) -> HeldCollectives:
    """Return what a lane did for collectives that ran on other threads, of which it waited while they were `exposed`."""
    ended = np.searchsorted(exposed.start, end, side="left") - 1
    seen: Mask = (ended >= 0) & (end <= np.append(exposed.end, 0)[ended])
    used = np.zeros(exposed.pieces + 1, bool)
    used[ended[seen]] = True
    begun = np.searchsorted(exposed.start, start, side="right") - 1
    inside = (begun >= 0) & used[begun] & (start < np.append(exposed.end, 0)[begun])
    spans, marks = np.flatnonzero(used[:-1]), np.concatenate((start[~inside], end[~seen]))
    last = np.full(exposed.pieces, NOT_KNOWN, np.int32)
    order = np.flatnonzero(seen)[np.argsort(end[seen], kind="stable")]
    last[ended[order]] = names[order]
    calls = _rows(
        lane,
        np.concatenate((exposed.start[spans], marks)),
        np.concatenate((exposed.end[spans], marks)),
        np.concatenate((last[spans], np.full(len(marks), NOT_KNOWN, np.int32))),
        np.concatenate((np.full(len(spans), CALL["sync"], np.int8), np.full(len(marks), CALL["other"], np.int8))),
    )
    by_end = np.argsort(end, kind="stable")
    before = by_end[np.maximum(np.searchsorted(end[by_end], start, side="right") - 1, 0)]
    since = np.append(exposed.start, 0)[begun]
    chained = np.flatnonzero(inside & (start > since) & (end[before] <= start) & (end[before] > since) & (before != np.arange(len(start))))
    return HeldCollectives(
        calls,
        _rows(lane, start, end, names, np.full(len(start), CALL["other"], np.int8)),
        _rows(lane, np.where(seen, np.append(exposed.start, 0)[ended], end), end, names, np.full(len(end), CALL["sync"], np.int8)),
        np.arange(len(end)),
        seen,
        (chained, before[chained]),
        {lane: Spans(exposed.start[~used[:-1]], exposed.end[~used[:-1]])},
    )


def _rows(lane: tuple[int, int], start: Times, end: Times, name: Codes, call: npt.NDArray[np.int8]) -> LaneRows:
    process, thread = (np.full(len(start), number, np.int64) for number in lane)
    return LaneRows(start, end, process=process, thread=thread, stream=np.full(len(start), NOT_KNOWN, np.int64), name=name, call=call)


def _one(parts: list[LaneRows]) -> LaneRows:
    start, end = (np.concatenate([getattr(part, edge) for part in parts]) for edge in ("start", "end"))
    return LaneRows(start, end, **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS})
