"""The calls and operations of all captures of a run on one clock, and which operations are one collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.collectives.alignment import ClockLine
from ullage.sums.lanes.collectives.matched import Matched, codes
from ullage.sums.lanes.gather import KIND, NOT_KNOWN
from ullage.sums.lanes.launches import Mask
from ullage.sums.lanes.observed import bounds
from ullage.sums.lanes.replaying.event_waits import EventWaits
from ullage.sums.lanes.replaying.work import CallColumns, CapturedWork, OperationColumns
from ullage.sums.lanes.run import Run
from ullage.sums.lanes.spans import Times
from ullage.sums.replay import own_durations

NOBODYS = "process not known"  # whose operations are of which no process is known


@dataclass(frozen=True)
class RunWork:
    """What a run's hosts and devices did, times in ns after the `origin` (a moment of the first capture's clock).

    Calls are sorted by process, thread and start, operations by start. `calls.process` and `operations.process` are places in `labels`,
    `calls.thread` and `operations.stream` number threads and streams over all of them. `group` numbers the collectives that were found on
    several ranks (-1: none); `own` is each operation's own duration, from when the last of its group began, and `until` when it so ends.
    `everybodys` says which of these groups all processes take part in. `alone` is how many collectives were found on one rank only.
    """

    calls: CallColumns
    operations: OperationColumns
    events: EventWaits
    group: Times
    own: Times
    until: Times
    everybodys: Mask
    labels: tuple[str, ...]
    words: tuple[str, ...]
    origin: int
    alone: int
    comparable: bool

    @property
    def elapsed(self) -> int:
        """From the origin to the end of the last operation or call, ns."""
        return int(max(self.operations.end.max(initial=0), self.calls.end.max(initial=0)))


def run_work(
    run: Run, matched: tuple[Matched, Matched], works: Sequence[CapturedWork], lines: dict[str, ClockLine] | None
) -> RunWork | None:
    """Return the work of a run while all of its ranks were recorded; None without any operation of a device or collective of hosts.

    `matched` are the collectives of the devices, and those of the hosts; twice the same where devices do none. `works` are those of the
    captures, in their order; `lines` says by how much each one's clock is ahead, None where they can't be compared: then each counts from
    its own first moment, and nothing is known to be a collective of several."""
    windows = [c.window for c in run.captures]
    low, high = run.shared or (0, 0)
    if run.shared is None and lines is not None:
        low, high = bounds(_moved(w, lines[c.recording.place]) for w, c in zip(windows, run.captures, strict=True)) or (0, 0)
    of = [lines[c.recording.place] for c in run.captures] if lines is not None else []
    group, of_hosts = (_groups(each, works, of) for each in matched)
    free = 1 + max((int(numbers.max(initial=NOT_KNOWN)) for numbers in group), default=NOT_KNOWN)
    group = [np.where(one >= 0, one, np.where(other >= 0, other + free, NOT_KNOWN)) for one, other in zip(group, of_hosts, strict=True)]
    words: dict[str, int] = {}
    calls, operations, events, before, done = [], [], [], 0, 0
    for number, (capture, work) in enumerate(zip(run.captures, works, strict=True)):
        line = lines[capture.recording.place] if lines is not None else ClockLine(0, 0, 0.0, 0.0, 0.0)
        first, last = (low, high) if lines is not None else windows[number]
        part = _Part(first, last, line, _places(run, capture.recording.place), len(run.processes))
        own, kept = part.calls(work, words)
        calls.append(own)
        ran, there = part.operations(work, words, number, group[number], kept, before)
        operations.append(ran)
        events.append(_events(work.events, kept, there, before, done))
        before, done = before + len(own["start"]), done + len(ran["start"])
    return _joined(run, calls, operations, events, tuple(words), low if lines is not None else windows[0][0], lines is not None)


def apart(work: RunWork) -> RunWork:
    """Return the same work as if no collective had been found on several ranks."""
    own = work.operations.end - work.operations.start
    alone = int((work.operations.kind == KIND["collective"]).sum())
    nobodys = np.full(len(own), NOT_KNOWN, np.int64)
    return replace(work, group=nobodys, own=own, until=work.operations.end, everybodys=work.everybodys[:0], alone=alone)


def _moved(pair: tuple[int, int], line: ClockLine) -> tuple[int, int]:
    by = line.at(np.array(pair, np.int64))
    return pair[0] - int(by[0]), pair[1] - int(by[1])


def _places(run: Run, place: str) -> dict[int, int]:
    return {p.key[1]: number for number, p in enumerate(run.processes) if p.key[0] == place}


_Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class _Part:
    """How one capture's rows become the run's: from `low` to `high` on the common clock, its processes' places."""

    low: int
    high: int
    line: ClockLine
    places: dict[int, int]
    nobody: int

    def calls(self, work: CapturedWork, words: dict[str, int]) -> tuple[_Columns, Times]:
        """Return the calls, and the new place of each old one (`NOT_KNOWN`: left out)."""
        ends = np.minimum(
            work.calls.start, self.high + self.line.at(work.calls.start)
        )  # of threads: they go on to the end of what is looked at
        start, end = (np.where(work.calls.start == work.calls.end, ends, edge) for edge in (work.calls.start, work.calls.end))
        columns, kept = self._cut({**vars(work.calls), "start": start, "end": end})
        table = _table(work, words)
        columns["name"], columns["before"] = table[columns["name"]], table[columns["before"]]
        columns["process"] = self._who(columns["process"])
        place = np.where(kept, np.cumsum(kept) - 1, NOT_KNOWN)
        return columns, place

    def operations(
        self, work: CapturedWork, words: dict[str, int], number: int, group: Times, kept: Times, before: int
    ) -> tuple[_Columns, Times]:
        """Return the operations, and the new place of each old one (`NOT_KNOWN`: left out); `before` is how many calls stand before this
        capture's."""
        submitted = np.append(kept, NOT_KNOWN)[work.operations.call] >= 0
        columns, there = self._cut({**vars(work.operations), "group": group}, submitted)
        columns["name"] = _table(work, words)[columns["name"]]
        columns["process"] = self._who(columns["process"])
        new = np.append(kept, NOT_KNOWN)[columns["call"]]
        columns["early"] = columns["early"] | ((columns["call"] >= 0) & (new < 0))
        columns["call"] = np.where(new >= 0, new + before, NOT_KNOWN)
        columns["capture"] = np.full(len(new), number, np.int64)
        return columns, np.where(there, np.cumsum(there) - 1, NOT_KNOWN)

    def _cut(self, columns: _Columns, late: Mask | bool = False) -> tuple[_Columns, Mask]:
        """Return the rows that begin before the time looked at ends (`late`: that are wanted though they do not), and which they are."""
        start, end = (columns[edge] - self.line.at(columns[edge]) - self.low for edge in ("start", "end"))
        kept = (end > 0) & ((start < self.high - self.low) | (start == end) & (start == self.high - self.low) | late)
        moved = columns | {"start": np.maximum(start, 0), "end": np.maximum(end, start)}
        return {name: values[kept] for name, values in moved.items()}, kept

    def _who(self, process: Times) -> Times:
        numbers = np.array(sorted(self.places), np.int64)
        if not len(numbers):
            return np.full(len(process), self.nobody)
        at = np.minimum(np.searchsorted(numbers, process), len(numbers) - 1)
        return np.where(numbers[at] == process, np.array([self.places[n] for n in numbers.tolist()])[at], self.nobody)


def _events(events: EventWaits, calls: Times, operations: Times, before: int, done: int) -> EventWaits:
    """Return the waits between what is kept of a capture: by the new places of its calls and operations, before which so many others stand.

    A call that waited for what had ended before waits for nothing."""
    after, holder = (np.append(operations, NOT_KNOWN)[places] for places in (events.after, events.before))
    call = np.append(calls, NOT_KNOWN)[events.call]
    kept = ((after >= 0) & (holder >= 0)) | (call >= 0)
    after, holder, call = (
        np.where(places >= 0, places + first, NOT_KNOWN)[kept] for places, first in ((after, done), (holder, done), (call, before))
    )
    return EventWaits(after, call, holder, events.sure[kept])


def _table(work: CapturedWork, words: dict[str, int]) -> Times:
    return np.array([*(words.setdefault(word, len(words)) for word in work.words), NOT_KNOWN], np.int64)


def _groups(matched: Matched, works: Sequence[CapturedWork], lines: Sequence[ClockLine]) -> list[Times]:
    """Return the number of each operation's collective, of those that several ranks were found in and whose ends show that none could
    leave before all had come."""
    rows = matched.rows
    device = np.array([lane.device for lane in matched.lanes], np.int64)[rows.lane] if len(rows) else rows.lane
    found = [np.full(len(w.operations), NOT_KNOWN, np.int64) for w in works]
    if not len(rows) or not lines:
        return found
    ahead = np.zeros(len(rows), np.int64)
    for number, line in enumerate(lines):
        ahead[rows.capture == number] = line.at(rows.start[rows.capture == number])
    at = np.flatnonzero(np.diff(rows.key, prepend=-1))
    start, end = rows.start - ahead, rows.end - ahead
    held = (np.minimum.reduceat(end, at) >= np.maximum.reduceat(start, at)) | np.minimum.reduceat(matched.together, at)
    owner = np.array([lane.process for lane in matched.lanes], np.int64)[rows.lane]
    for number, work in enumerate(works):
        mine = np.flatnonzero(held[rows.key] & (rows.capture == number))
        own = np.flatnonzero(work.operations.kind == KIND["collective"])
        ops = work.operations
        theirs = (device[mine], np.where(device[mine] < 0, owner[mine], 0), rows.stream[mine], rows.start[mine])
        ours = (ops.device[own], np.where(ops.device[own] < 0, ops.process[own], 0), ops.stream[own], ops.start[own])
        same = codes(*(np.concatenate(pair) for pair in zip(ours, theirs, strict=True)))
        place = np.full(int(same.max(initial=-1)) + 1, NOT_KNOWN, np.int64)
        place[same[: len(own)]] = own
        to = place[same[len(own) :]]
        found[number][to[to >= 0]] = rows.key[mine[to >= 0]]
    return found


def _joined(
    run: Run, calls: list[_Columns], operations: list[_Columns], events: list[EventWaits], words: tuple[str, ...], origin: int, clear: bool
) -> RunWork | None:
    called = {name: np.concatenate([part[name] for part in calls]) for name in calls[0]}
    ran = {name: np.concatenate([part[name] for part in operations]) for name in operations[0]}
    if not len(ran["start"]):
        return None
    order = np.lexsort((called["start"], called["thread"], called["process"]))
    called = {name: values[order] for name, values in called.items()}
    place = np.empty(len(order) + 1, np.int64)
    place[order], place[-1] = np.arange(len(order)), NOT_KNOWN
    ran["call"] = place[ran["call"]]
    order = np.lexsort((ran["end"], ran["start"]))
    ran = {name: values[order] for name, values in ran.items()}
    there = np.empty(len(order) + 1, np.int64)
    there[order], there[-1] = np.arange(len(order)), NOT_KNOWN
    waits = EventWaits(**{name: np.concatenate([getattr(part, name) for part in events]) for name in vars(events[0])})
    waits = replace(waits, after=there[waits.after], call=place[waits.call], before=there[waits.before])
    called["thread"] = codes(called["process"], called["thread"])
    ran["stream"] = codes(ran["process"], ran["device"], ran["stream"], ran.pop("capture"))
    group = _several(ran.pop("group"))
    own = np.rint(own_durations(ran["start"], ran["end"], group)).astype(np.int64)
    begun = ran["start"].copy()
    count = int(group.max(initial=-1)) + 1
    last = np.zeros(count + 1, np.int64)
    np.maximum.at(last, group, ran["start"])
    begun[group >= 0] = last[group[group >= 0]]
    users = len(np.unique(ran["process"]))
    members = np.bincount(np.unique(np.column_stack((group, ran["process"]))[group >= 0], axis=0)[:, 0], minlength=count)
    return RunWork(
        calls=CallColumns(**called),
        operations=OperationColumns(**ran),
        events=waits,
        group=group,
        own=own,
        until=begun + own,
        everybodys=members == users,
        labels=(*(p.label for p in run.processes), NOBODYS),
        words=words,
        origin=origin,
        alone=int(((ran["kind"] == KIND["collective"]) & (group < 0)).sum()),
        comparable=clear,
    )


def _several(group: Times) -> Times:
    """Return groups 0, 1, … of those that have two operations or more."""
    numbers, place, count = np.unique(group, return_inverse=True, return_counts=True)
    real = (numbers >= 0) & (count > 1)
    return np.where(real, np.cumsum(real) - 1, NOT_KNOWN)[place]
