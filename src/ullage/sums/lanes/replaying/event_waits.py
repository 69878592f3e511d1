"""Which operations, and which calls of the host, waited for which operations of another stream, because an event said so.

A stream is a queue. `cudaEventRecord` marks a place in one, `cudaStreamWaitEvent` puts a wait for that mark into another: what that stream
is given later begins after what the first was given before the mark, and after what the first then waited for itself. So a wait passes
through streams that do nothing in between. `cudaEventSynchronize` and `cudaStreamSynchronize` are such waits of a host thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ullage.sums.lanes.gather import NOT_KNOWN, Capture, LaneRows
from ullage.sums.lanes.launches import Mask, launches
from ullage.sums.lanes.spans import Times

_Stream = tuple[int, int, int]  # process, device, stream


@dataclass(frozen=True)
class EventWaits:
    """Waits for events, a row each: the operation `after` (or the `call`; `NOT_KNOWN` for the other of the two) waits for the operation
    `before` (`NOT_KNOWN`: a call that waits for nothing). `sure` is false where it is recorded that the other stream is waited for, but
    not up to which operation."""

    after: Times
    call: Times
    before: Times
    sure: Mask

    def joined(self, other: EventWaits) -> EventWaits:
        """Return both one's waits."""
        return EventWaits(*(np.concatenate((getattr(self, name), getattr(other, name))) for name in vars(self)))


# The last operation of each stream that must have ended, by its place in that stream's queue, and whether that is sure.
_Front = dict[tuple[_Stream, bool], int]


@dataclass
class _Queue:
    """What one stream was given: when each operation was submitted, which ones these are, and the waits that were put between them."""

    put: Times
    operations: Times
    waits: list[tuple[int, _Front]] = field(default_factory=list)

    def given(self, when: int) -> int:
        """Return how many operations it had been given before a moment."""
        return int(np.searchsorted(self.put, when, side="left"))


class _Asked(NamedTuple):
    """A wait: the stream that waits (None: the host, in its call at the place `call`) and the one that is waited for; when this was asked
    for, and when the event was recorded (None: not known)."""

    waiting: _Stream | None
    awaited: _Stream
    when: int
    recorded: int | None
    call: int


def event_waits(capture: Capture, ops: LaneRows, submitted: Times, known: Mask, call: Times) -> EventWaits:
    """Return the waits for events between a capture's operations, which are meant by their places among `ops`.

    `submitted` is when the call that put each operation on its stream began, as far as that is `known`; `call` has for each of the
    capture's `events` which call of a host thread it is, `NOT_KNOWN` where none is kept."""
    queues = _queues(ops, submitted, known)
    rows: set[tuple[int, int, int, bool]] = set()
    for wait in _asked(capture, queues, call):
        until = wait.when if wait.recorded is None else wait.recorded
        front = _front(queues, wait.awaited, until, wait.recorded is not None or wait.waiting is None)
        after = NOT_KNOWN
        if wait.waiting is not None:
            queue = queues[wait.waiting]
            queue.waits.append((wait.when, front))
            first = queue.given(wait.when)
            if first == len(queue.operations):
                continue
            after = int(queue.operations[first])
        place = wait.call if wait.waiting is None else NOT_KNOWN
        rows |= {(after, place, int(queues[of].operations[at]), sure) for (of, sure), at in front.items() if of != wait.waiting}
        if not front and wait.waiting is None:
            rows.add((NOT_KNOWN, place, NOT_KNOWN, True))
    after_, call_, before, sure_ = np.array(sorted(rows), np.int64).reshape(-1, 4).T
    return EventWaits(after_, call_, before, sure_.astype(bool))


def _queues(ops: LaneRows, submitted: Times, known: Mask) -> dict[_Stream, _Queue]:
    at = np.flatnonzero(known & (ops.stream != NOT_KNOWN))
    at = at[np.lexsort((ops.start[at], submitted[at], ops.stream[at], ops.device[at], ops.process[at]))]
    who = np.column_stack((ops.process[at], ops.device[at], ops.stream[at]))
    begins = np.append(True, (who[1:] != who[:-1]).any(axis=1))[: len(at)]
    edges = [*np.flatnonzero(begins).tolist(), len(at)]
    found = {}
    for low, high in pairwise(edges):
        process, device, stream = who[low].tolist()
        found[process, device, stream] = _Queue(submitted[at[low:high]], at[low:high])
    return found


def _asked(capture: Capture, queues: dict[_Stream, _Queue], call: Times) -> Iterator[_Asked]:
    """Yield the waits in the order in which they were asked for. Streams that were given nothing but waits get queues, too."""
    events = capture.events
    asked = launches(capture.calls, events)
    marks = LaneRows(events.start, events.end, process=events.process, correlation=events.awaited)
    recorded = launches(capture.calls, marks)
    when = np.where(asked.known, asked.start, events.start)
    for row in np.argsort(when, kind="stable").tolist():
        process, device, host = int(events.process[row]), int(events.device[row]), bool(events.stream[row] == NOT_KNOWN)
        moment = int(recorded.start[row]) if recorded.known[row] else None
        if (events.awaited[row] != NOT_KNOWN and moment is None) or (moment is not None and moment > when[row]):
            continue  # recorded before the recording of calls began, or numbers that are mixed up
        awaited = _named(queues, process, device, int(events.awaited_stream[row]))
        waiting = None if host else _named(queues, process, device, int(events.stream[row]))
        if awaited is not None and (call[row] != NOT_KNOWN if host else waiting is not None):
            yield _Asked(waiting, awaited, int(when[row]), moment, int(call[row]))


def _named(queues: dict[_Stream, _Queue], process: int, device: int, stream: int) -> _Stream | None:
    """Return the stream of a number that is meant: that of the device, or the only one; None where several may be."""
    if (process, device, stream) in queues:
        return process, device, stream
    others = [key for key in queues if key[0] == process and key[2] == stream]
    if not others:
        queues[process, device, stream] = _Queue(np.zeros(0, np.int64), np.zeros(0, np.int64))
        return process, device, stream
    return others.pop() if len(others) == 1 else None


def _front(queues: dict[_Stream, _Queue], stream: _Stream, until: int, sure: bool) -> _Front:
    """Return what has ended when all has that a stream was given before a moment."""
    queue = queues[stream]
    given = queue.given(until)
    since = int(queue.put[given - 1]) if given else None
    front: _Front = {(stream, sure): given - 1} if given else {}
    for asked, others in reversed(queue.waits):
        if since is not None and asked <= since:
            break  # the last operation waited for them
        if asked < until:
            for (of, certain), at in others.items():
                key = (of, certain and sure)
                front[key] = max(front.get(key, at), at)
    return front
