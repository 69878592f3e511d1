"""What is kept of one capture so that it can be run again: the calls of its host threads and the operations of its devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.code.levels import by_thread, levels
from ullage.sums.lanes.collectives.collectives import Collectives, host_collectives
from ullage.sums.lanes.gather import CALL, KIND, NOT_KNOWN, Capture, Codes, LaneRows
from ullage.sums.lanes.launches import Mask, launches, only, puts
from ullage.sums.lanes.observed import Observed
from ullage.sums.lanes.replaying.event_waits import EventWaits, event_waits
from ullage.sums.lanes.replaying.waits_of_hosts import HeldCollectives, collectives_of_hosts
from ullage.sums.lanes.spans import NONE, Times, join, union, within
from ullage.sums.lanes.states import ProcessState

_RAN = tuple(KIND[k] for k in ("kernel", "collective", "memcpy", "memset", "graph"))
# A call within another (the driver's within the runtime's) is part of it; the outer one does what any of them does, the first of these.
_STRONGEST = ("sync", "copy", "graph", "launch", "other")
_RANK = np.array([_STRONGEST.index(word) for word in CALL] + [_STRONGEST.index("other")])  # the last is that of NOT_KNOWN


@dataclass(frozen=True)
class CallColumns:
    """The outermost calls of host threads that submit work, sorted by process, thread and start; times in ns.

    A thread that went on after its last call has one more, without duration, where it ended. `sort` is a code of `CALL`; `name` and
    `before` are codes into the words: the call's name, and what the thread was in between the call before it and this one (`NOT_KNOWN`:
    nothing that has a name). In `talked` ns of the time between, it communicated.
    """

    start: Times
    end: Times
    process: Times
    thread: Times
    sort: Times
    name: Codes
    before: Codes
    talked: Times

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class OperationColumns:
    """Operations of devices, sorted by start; times in ns. `kind` is a code of `KIND`, `device` the place among the capture's devices.
    Collectives that hosts themselves run are operations too, of no device (`NOT_KNOWN`), whose stream is the thread that calls them.

    `call` is the place of the call that submitted it, `NOT_KNOWN` where that is not recorded; `early` says of these which were submitted
    before the recording began.
    """

    start: Times
    end: Times
    process: Times
    device: Times
    stream: Times
    kind: Times
    name: Codes
    call: Times
    early: Times

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class CapturedWork:
    """One capture's calls and operations, what they are known to have waited for by events, the collectives
    that hosts run, and the words that names are codes into."""

    calls: CallColumns
    operations: OperationColumns
    events: EventWaits
    hosted: Collectives
    words: tuple[str, ...]


def captured_work(capture: Capture, seen: Observed, processes: Sequence[ProcessState]) -> CapturedWork:
    """Return the calls and operations of a capture whose device rows have their owners, of the processes and the time looked at.

    Collectives of hosts are operations, and what waits for them are calls."""
    hosted = host_collectives(capture, seen.window)
    held = collectives_of_hosts(capture, hosted, processes)
    calls = _outermost(capture, seen, held.calls)
    before, talked, more = _between(capture, calls, held)
    operations, events = _operations(capture, seen, calls, held)
    every = [*capture.words, *more]
    used, codes = np.unique(np.concatenate((calls.name, before, operations.name)), return_inverse=True)
    known = used[used >= 0]
    new = np.where(used < 0, NOT_KNOWN, np.cumsum(used >= 0) - 1).astype(np.int32)
    name, before, ran = np.split(new[codes], (len(calls), 2 * len(calls)))
    return CapturedWork(
        CallColumns(**{**vars(calls), "name": name, "before": before, "talked": talked}),
        OperationColumns(**{**vars(operations), "name": ran}),
        events,
        hosted,
        tuple(every[code] for code in known.tolist()),
    )


def _outermost(capture: Capture, seen: Observed, held: LaneRows) -> CallColumns:
    low, high = seen.window
    who = ("process", "thread", "name", "call")
    both = {name: np.concatenate((getattr(capture.calls, name), getattr(held, name))) for name in who}
    rows = LaneRows(np.concatenate((capture.calls.start, held.start)), np.concatenate((capture.calls.end, held.end)), **both)
    rows = rows.where((rows.end > low) & (rows.start < high) & np.isin(rows.process, list(seen.lives)))
    rows = rows.where(np.lexsort((-rows.end, rows.start, rows.thread, rows.process)))
    outer: Mask = np.zeros(len(rows), bool)
    sort: Times = np.zeros(len(rows), np.int64)
    for places in _submitting(rows):
        reach = np.maximum.accumulate(rows.end[places])
        begins: Mask = np.concatenate(([True], rows.start[places[1:]] >= reach[:-1]))
        outer[places[begins]] = True
        does: Times = np.minimum.reduceat(_RANK[rows.call[places]], np.flatnonzero(begins))
        sort[places[begins]] = np.array([CALL[word] for word in _STRONGEST])[does]
    kept, last = rows.where(outer), _last_moments(capture, seen, rows.where(outer))
    columns = {name: np.concatenate((getattr(kept, name), getattr(last, name))) for name in ("start", "end", "process", "thread", "name")}
    sort = np.concatenate((sort[outer], np.full(len(last), CALL["other"])))
    order = np.lexsort((columns["end"], columns["start"], columns["thread"], columns["process"]))
    blank = np.full(len(sort), NOT_KNOWN, np.int32)
    return CallColumns(
        **{name: values[order] for name, values in columns.items()}, sort=sort[order], before=blank, talked=np.zeros_like(sort)
    )


def _last_moments(capture: Capture, seen: Observed, calls: LaneRows) -> LaneRows:
    """Return a call that does nothing at the end of each thread that went on after its last call, so that what it did then counts."""
    ends: dict[tuple[int, int], int] = {}
    did = capture.host.of("mpi", "region", "module", "step")
    found = [(who, did.end[places]) for who, places in by_thread(did.process, did.thread)]
    for who, end in [*found, *(((process, thread), rows.end) for (_, process, thread), rows in capture.code.items())]:
        ends[who] = max(ends.get(who, 0), int(end.max(initial=0)))
    rows = []
    for who, places in by_thread(calls.process, calls.thread):
        until = min(ends.get(who, 0), seen.lives[who[0]][1])
        if until > calls.end[places].max():
            rows.append((until, *who))
    moment, process, thread = np.array(rows, np.int64).reshape(-1, 3).T
    return LaneRows(moment, moment, process=process, thread=thread, name=np.full(len(rows), NOT_KNOWN, np.int32))


def _submitting(rows: LaneRows) -> list[npt.NDArray[np.intp]]:
    """Return the places of the calls of each thread that submits work: others (watchdogs, loaders) ask or wait for what these do, and the
    time between their calls is nobody's work. All threads of a process of which none submits any."""
    threads = [(process, places, bool(puts(rows.where(places)).any())) for (process, _), places in by_thread(rows.process, rows.thread)]
    some = {process for process, _, submits in threads if submits}
    return [places for process, places, submits in threads if submits or process not in some]


def _between(capture: Capture, calls: CallColumns, held: HeldCollectives) -> tuple[Codes, Times, list[str]]:
    """Return what each call's thread was in half-way between the call before and this one: the innermost operator, else the range or
    module; as codes into the capture's words and, behind these, the ranges that are returned too. And how long it communicated, ns."""
    if not len(calls):
        return calls.before, calls.talked, []
    same = np.zeros(len(calls), bool)
    same[1:] = (calls.process[1:] == calls.process[:-1]) & (calls.thread[1:] == calls.thread[:-1])
    ended = np.where(same, np.roll(calls.end, 1), calls.start)
    middle = ended + (calls.start - ended) // 2
    named = levels(capture)
    operator = named["operator"].around(calls.process, calls.thread, middle)
    around = named["annotation"].around(calls.process, calls.thread, middle)
    code = np.where(operator >= 0, operator, np.where(around >= 0, around + len(capture.words), NOT_KNOWN))
    talks, talked = capture.host.of("mpi"), np.zeros(len(calls), np.int64)
    spoken = dict(held.silent)
    for who, places in by_thread(talks.process, talks.thread):
        spoken[who] = join(spoken.get(who, NONE), union(talks.start[places], talks.end[places]))
    for who, places in by_thread(calls.process, calls.thread) if spoken else ():
        if who in spoken:
            talked[places] = within(spoken[who], ended[places], calls.start[places])
    return code, talked, named["annotation"].names


def _operations(capture: Capture, seen: Observed, calls: CallColumns, held: HeldCollectives) -> tuple[OperationColumns, EventWaits]:
    rows, (low, high) = capture.device, seen.window
    devices = np.unique(rows.device)
    devices = devices[devices != NOT_KNOWN]
    ran = np.isin(rows.kind, _RAN) & (rows.end > low) & (rows.start < high) & (rows.end >= rows.start) & (rows.device != NOT_KNOWN)
    rows = only(rows, ran, "kind", "process", "device", "stream", "correlation", "name")
    rows = rows.where(np.lexsort((rows.end, rows.start)))
    put = launches(capture.calls, rows)
    call = _callers(calls, rows, put.known, put.start, put.thread)
    asked = launches(capture.calls, capture.events)
    waits = event_waits(
        capture, rows, put.start, put.known | put.early, _callers(calls, capture.events, asked.known, asked.start, asked.thread)
    )
    run = held.operations
    within = _callers(calls, run, np.ones(len(run), bool), run.start, run.thread)
    many = len(run)
    start, end = np.concatenate((rows.start, run.start)), np.concatenate((rows.end, run.end))
    order = np.lexsort((end, start))
    order = order[(order < len(rows)) | (np.concatenate((call, within))[order] >= 0)]  # what no call that is kept waits for is left out
    columns = {
        "start": start,
        "end": end,
        "process": np.concatenate((rows.process, run.process)),
        "device": np.concatenate((np.searchsorted(devices, rows.device), np.full(many, NOT_KNOWN))),
        "stream": np.concatenate((rows.stream, run.stream)),
        "kind": np.concatenate((rows.kind.astype(np.int64), np.full(many, KIND["collective"]))),
        "name": np.concatenate((rows.name, run.name)),
        "call": np.concatenate((call, within)),
        "early": np.concatenate(((put.early | (put.known & (call == NOT_KNOWN))).astype(np.int64), np.zeros(many, np.int64))),
    }
    place = np.full(len(start) + 1, NOT_KNOWN)
    place[order] = np.arange(len(order))
    waits = replace(waits, after=place[waits.after], before=place[waits.before])
    waits = waits.joined(_waits_for_hosts(calls, held, place[len(rows) :]))
    return OperationColumns(**{name: values[order] for name, values in columns.items()}), waits


def _waits_for_hosts(calls: CallColumns, held: HeldCollectives, place: Times) -> EventWaits:
    """Return what threads waited for of collectives that run on other threads of the host, and these for one another; `place` says where
    each collective stands among the operations."""
    waits = held.waits
    asking = _callers(calls, waits, np.ones(len(waits), bool), waits.start, waits.thread)
    after, before = (place[np.concatenate(pair)] for pair in zip((np.full(len(waits), -1), held.waited), held.queued, strict=True))
    call = np.concatenate((asking, np.full(len(held.queued[0]), NOT_KNOWN)))
    good = (before >= 0) & ((after >= 0) | (call >= 0))
    sure = np.concatenate((held.sure, np.ones(len(held.queued[0]), bool)))
    return EventWaits(after[good], call[good], before[good], sure[good])


def _callers(calls: CallColumns, rows: LaneRows, known: Mask, start: Times, thread: Times) -> Times:
    """Return the place of the outermost call around each known launch."""
    found = np.full(len(rows), NOT_KNOWN, np.int64)
    mine = dict(by_thread(calls.process, calls.thread))
    launched = np.flatnonzero(known)
    for who, places in by_thread(rows.process[launched], thread[launched]):
        if who in mine:
            own, sought = mine[who], launched[places]
            at = np.searchsorted(calls.start[own], start[sought], side="right") - 1
            good = (at >= 0) & (calls.end[own[np.maximum(at, 0)]] >= start[sought])
            found[sought[good]] = own[at[good]]
    return found
