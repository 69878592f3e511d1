"""What the calls and operations of a run waited for, as a graph that can be run again with other durations.

Certain are these waits, for the trace tells them:

- a host thread that submits work does one thing after another: calls, and between them whatever it did then;
- an operation begins after the one before it on its stream, and no earlier than the smallest latency of its process after the call that
  submitted it began;
- a call that waits (`cudaStreamSynchronize` and the like, a blocking copy) ends after the operation whose end explains its own: the last
  one to end while the call waited, `EXPLAINS` or less before it returned; `cudaDeviceSynchronize` after all that was submitted before;
- an operation begins after what its stream was told to wait for by an event, and a call that waits for an event or a stream ends after
  that, where the trace has it (`ullage.sums.lanes.replaying.event_waits`);
- operations that are one collective: none ends before the last has begun, and each one's own duration counts from there. A collective of
  MPI is an operation of the thread that waits in it; those of gloo run on threads of their own, and the process' main lane waits for
  those that end while it does nothing else (`ullage.sums.lanes.replaying.waits_of_hosts`).

Inferred: an operation that begins `COINCIDES` or less after one on another stream of its process ended, later than all of the above would
have had it, waited for that one: an event. A thread that made no call while others of its process did, and then soon after one of theirs
(in less than half of the time since its own last), was handed over to, as autograd's thread is.

Possible, for nothing tells, and a wait that something else outlasted leaves no trace: that an operation waited for all others of its
process that had ended when it began, a call that waits for all that was submitted before and had ended, a thread for any call of
another that had ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ullage.sums.lanes.gather import CALL
from ullage.sums.lanes.launches import Mask, distinct
from ullage.sums.lanes.replaying.event_waits import EventWaits
from ullage.sums.lanes.replaying.run_work import RunWork
from ullage.sums.lanes.replaying.spans_of_work import LIKELY, POSSIBLE, ZERO, SpanTable
from ullage.sums.lanes.spans import Times
from ullage.sums.wait_graph import Numbers, Parts, WaitGraph, WaitTable, wait_graph

COINCIDES = 5_000  # ns from an event's completion to the begin of what waited for it: a few µs on NVIDIA's GPUs
EXPLAINS = 50_000  # ns from an operation's end to the return of the call that waited for it, its thread being woken
AHEAD = 20_000  # ns by which a device's clock may be ahead of its host's
TOUCHES = 1_000  # ns by which an operation may begin before the one before it ended: time stamps of whole µs
MOST_STREAMS = 64  # of a process, whose possible waits are looked at; the busiest
_ALL_STREAMS = re.compile(r"(?i)(device|ctx|context)_?synchronize")
_EVENT = re.compile(r"(?i)event")


@dataclass(frozen=True)
class RunWaits:
    """The graph of a run, its spans, and what was found on the way.

    `call_moment`, `operation_moment` are the moments at which calls and operations begin; `leaves` and `lasts` say for each of them (calls
    first) from which moment its own duration counts, and which span that is. `ambiguous` and `handed` say of calls whether a thread of
    its process may have handed over to it, and whether that is likely; `common` is the shortest time in which it may have been.
    `launch_bound` says of operations that nothing but their launch held them up; `handover_call` says which call each one led to;
    `recorded` is how many waits of operations for events are, `inferred` how many were.
    """

    work: RunWork
    graph: WaitGraph
    spans: SpanTable
    call_moment: Numbers
    operation_moment: Numbers
    leaves: Numbers
    lasts: Numbers
    waits: Mask
    ambiguous: Mask
    handed: Mask
    common: Times
    launch_bound: Mask
    slack: Times
    handover_call: Numbers
    recorded: int
    inferred: int


class _Table:
    """Waits in the order in which they are found."""

    def __init__(self) -> None:
        self._rows: list[Parts] = []

    def add(self, after: Numbers, before: Numbers, *lag: Numbers | int) -> None:
        """Add waits, with up to three spans each."""
        spans = [*lag, *(ZERO,) * (3 - len(lag))]
        self._rows.append(
            np.column_stack([np.broadcast_to(np.asarray(column, np.int32), len(after)) for column in (after, before, *spans)])
        )

    def table(self) -> WaitTable:
        rows = np.concatenate(self._rows)
        self._rows.clear()
        return WaitTable(rows[:, 0], rows[:, 1], rows[:, 2:])


def run_waits(work: RunWork, *, forward: bool = False) -> RunWaits:
    """Return the graph of a run's work; `forward` leaves out waits for what came later, by the times that were recorded.

    Raises ValueError where some wait for one another in a circle, as clocks that are wrong and numbers that are mixed up make them."""
    return _Builder(work).built(forward)


class _Builder:
    """The tables that grow while waits are found."""

    def __init__(self, work: RunWork) -> None:
        self.work, self.calls, self.ops = work, work.calls, work.operations
        many, ran = len(self.calls), len(self.ops)
        groups = int(work.group.max(initial=-1)) + 1
        self.found, self.spans = _Table(), SpanTable()
        self.copies = self._blocking_copies()
        self.waits = self.calls.sort == CALL["sync"]
        self.waits[self.ops.call[self.copies]] = True
        waiting = np.cumsum(self.waits)
        later = 1 + many + int(self.waits.sum())
        self.call_at = 1 + np.arange(many)
        self.sync_at = np.where(self.waits, many + waiting, 0)  # when what a call waited for has ended
        self.op_at = later + np.arange(ran)
        self.group_at = later + ran + np.arange(groups)
        self.op_leaves = np.where(work.group >= 0, self.group_at[work.group] if groups else 0, self.op_at)
        self.op_span = self.spans.add("operation", work.own)
        self.submitted = np.where(self.ops.call >= 0, self.calls.start[self.ops.call] if many else 0, np.iinfo(np.int64).min)
        self.hosted = self.ops.device < 0  # a collective that a host waits in
        self.streams = [np.flatnonzero(self.ops.stream == s) for s in distinct(self.ops.stream[~self.hosted])]
        self.owner = np.array([self.ops.process[rows[0]] for rows in self.streams], np.int64)
        self.events = self._possible_events()

    def built(self, forward: bool) -> RunWaits:
        work = self.work
        until = self._synchronised()
        call_span = self.spans.add("call", self.calls.end - until)
        leaves = np.where(self.waits, self.sync_at, self.call_at)
        ambiguous, handed, common, giving = self._threads(leaves, call_span)
        inferred, launch_bound, slack = self._operations()
        self._groups()
        last = (work.until - work.own)[self._one_of_each()]
        recorded = np.concatenate(([0], self.calls.start, until[self.waits], self.ops.start, last))
        self.found.add(self.sync_at[self.waits], self.call_at[self.waits])
        table = self.found.table()
        if forward:
            came = recorded[table.before], recorded[table.after]
            table = table.where((came[0] < came[1]) | ((came[0] == came[1]) & (table.before < table.after)))
        graph = wait_graph(recorded, table)
        return RunWaits(
            work, graph, self.spans, self.call_at, self.op_at, np.concatenate((leaves, self.op_leaves)),
            np.concatenate((call_span, self.op_span)), self.waits, ambiguous, handed, common, launch_bound, slack, giving,
            int(((self.events.after >= 0) & self.events.sure).sum()), inferred,
        )  # fmt: skip

    def _one_of_each(self) -> Numbers:
        """Return one operation of each group."""
        numbers, first = np.unique(self.work.group, return_index=True)
        return np.asarray(first[numbers >= 0])

    def _groups(self) -> None:
        members = np.flatnonzero(self.work.group >= 0)
        self.found.add(self.group_at[self.work.group[members]], self.op_at[members])

    # -- calls that wait ------------------------------------------------------------------------------------------------

    def _synchronised(self) -> Times:
        """Add what calls waited for; return until when each did (its start where it did not)."""
        calls, rows = self.calls, self.copies
        until = calls.start.copy()
        self.found.add(self.sync_at[self.ops.call[rows]], self.op_leaves[rows], self.op_span[rows])
        np.maximum.at(until, self.ops.call[rows], self.work.until[rows])
        told = (self.events.call >= 0) & self.events.sure
        does = self.events.call[told]
        told &= self.events.before >= 0
        call, before = self.events.call[told], self.events.before[told]
        self.found.add(self.sync_at[call], self.op_leaves[before], self.op_span[before])
        np.maximum.at(until, call, self.work.until[before])
        perhaps = (self.events.call >= 0) & ~self.events.sure
        call, before = self.events.call[perhaps], self.events.before[perhaps]
        self.found.add(
            np.where(self.waits[call], self.sync_at[call], self.call_at[call]), self.op_leaves[before], self.op_span[before], POSSIBLE
        )
        open_ends = np.ones(len(calls), bool)  # calls of which it is not known what they waited for: it is looked for by their ends
        open_ends[does] = calls.end[does] - until[does] > EXPLAINS
        for process in distinct(calls.process):
            mine = np.flatnonzero((calls.process == process) & (calls.sort == CALL["sync"]) & open_ends)
            own = [rows for rows, owner in zip(self.streams, self.owner.tolist(), strict=True) if owner == process]
            if len(mine) and own:
                self._waited(mine, own, until)
        return until

    def _possible_events(self) -> EventWaits:
        """Return the recorded waits for events that the recorded times don't contradict, of calls that wait."""
        events = self.work.events
        until = np.append(self.work.until, np.iinfo(np.int64).min)[events.before]
        began = self.ops.start[events.after] + TOUCHES >= until if len(self.ops) else events.sure
        waited = ~events.sure
        if len(self.calls):
            waited |= self.waits[events.call] & (self.calls.end[events.call] + AHEAD >= until)
        good = np.where(events.after >= 0, began, waited)
        return EventWaits(**{name: values[good] for name, values in vars(events).items()})

    def _blocking_copies(self) -> Numbers:
        """Return the operations of copies whose calls returned when they were done, and the collectives that hosts wait in."""
        rows = np.flatnonzero(self.ops.call >= 0)
        rows = rows[(self.calls.sort[self.ops.call[rows]] == CALL["copy"]) | (self.ops.device[rows] < 0)]
        return np.asarray(rows[self.work.until[rows] <= self.calls.end[self.ops.call[rows]]], np.int64)

    def _waited(self, mine: Numbers, own: list[Numbers], until: Times) -> None:
        """Add the waits of a process' synchronising calls for operations on its streams."""
        start, end = self.calls.start[mine], self.calls.end[mine]
        names = [self.work.words[code] if code >= 0 else "" for code in self.calls.name[mine].tolist()]
        everything = np.array([bool(_ALL_STREAMS.search(name)) for name in names])
        if len(own) == 1:
            everything |= np.array([not _EVENT.search(name) for name in names])
        ended, last = self._last_on_streams(mine, own, 0)
        latest, longest, explained = _explaining(ended, start, end)
        beyond, after = self._last_on_streams(mine, own, AHEAD)  # the device's clock may be a little ahead of the host's
        other, further, fits = _explaining(beyond, start, end)
        ahead = ~explained & fits & (end - start > AHEAD)
        ended, last = np.where(ahead[:, None], beyond, ended), np.where(ahead[:, None], after, last)
        latest, longest, explained = np.where(ahead, other, latest), np.where(ahead, further, longest), explained | ahead
        until[mine] = np.maximum(until[mine], np.where(explained, longest, start))
        for place in range(len(own)):
            there = (last[:, place] >= 0) & (ended[:, place] <= until[mine])
            sure = there & (everything | (explained & (latest == place)))
            for chosen, switch in ((sure, ZERO), (there & ~sure, POSSIBLE)):
                rows = last[chosen, place]
                self.found.add(self.sync_at[mine[chosen]], self.op_leaves[rows], self.op_span[rows], switch)

    def _last_on_streams(self, mine: Numbers, own: list[Numbers], ahead: int) -> tuple[Times, Numbers]:
        """Return, a row for each call and a column for each stream, the last operation that was submitted before the call and had ended
        when it returned (or so many ns later), -1 for none, and when it ended."""
        start, end = self.calls.start[mine], self.calls.end[mine] + ahead
        ended = np.full((len(mine), len(own)), np.iinfo(np.int64).min >> 1)
        last = np.full((len(mine), len(own)), -1)
        for place, rows in enumerate(own):
            done, put = np.maximum.accumulate(self.work.until[rows]), np.maximum.accumulate(self.submitted[rows])
            at = np.minimum(np.searchsorted(done, end, side="right"), np.searchsorted(put, start, side="left")) - 1
            last[:, place] = np.where(at >= 0, rows[at], -1)
            ended[:, place] = np.where(at >= 0, done[at], ended[:, place])
        return ended, last

    # -- host threads ---------------------------------------------------------------------------------------------------

    def _threads(self, leaves: Numbers, call_span: Numbers) -> tuple[Mask, Mask, Times, Numbers]:
        """Add the order of each thread's calls, and what may have been handed over between threads."""
        calls, many = self.calls, len(self.calls)
        first = np.ones(many, bool)
        first[1:] = calls.thread[1:] != calls.thread[:-1]
        ended = np.where(first, 0, np.roll(calls.end, 1)) if many else calls.end
        gap = calls.start - ended
        talked = np.minimum(calls.talked, gap)
        gap_span, talk_span = self.spans.add("gap", gap - talked), self.spans.add("talk", talked)
        before = np.where(first, 0, np.roll(leaves, 1)) if many else leaves
        own = np.where(first, ZERO, np.roll(call_span, 1)) if many else call_span
        self.found.add(self.call_at, before, own, gap_span, talk_span)
        after, giver = self._givers(ended)
        lag = calls.start[after] - calls.end[giver]
        shortest = gap.copy()
        np.minimum.at(shortest, after, lag)
        ambiguous = shortest < gap
        handed = ambiguous & (shortest < gap // 2)
        likely = handed[after] & (lag == shortest[after])
        lag_span = self.spans.add("handover", lag)
        self.found.add(self.call_at[after], leaves[giver], call_span[giver], lag_span, np.where(likely, LIKELY, POSSIBLE))
        return ambiguous, handed, shortest, after

    def _givers(self, ended: Times) -> tuple[Numbers, Numbers]:
        """Return pairs of a call, and the last of another thread of its process that ended after its own thread's last call did."""
        calls, pairs = self.calls, []
        for process in distinct(calls.process):
            mine = np.flatnonzero(calls.process == process)
            threads = distinct(calls.thread[mine])
            for thread in threads if len(threads) > 1 else ():
                theirs, others = mine[calls.thread[mine] == thread], mine[calls.thread[mine] != thread]
                at = np.searchsorted(calls.end[theirs], calls.start[others], side="right") - 1
                good = (at >= 0) & (calls.end[theirs[np.maximum(at, 0)]] > ended[others])
                pairs.append(np.stack((others[good], theirs[at[good]])))
        both = np.concatenate(pairs, axis=1) if pairs else np.zeros((2, 0), np.int64)
        return both[0], both[1]

    # -- operations -----------------------------------------------------------------------------------------------------

    def _operations(self) -> tuple[int, Mask, Times]:
        """Add what operations waited for; return how many waits were inferred, whom only the launch held up, and how much longer than the
        smallest latency a launch may have taken that something else hid."""
        ops, work, start = self.ops, self.work, self.ops.start
        before = self._before_on_stream()
        launched = ops.call >= 0
        least, whose = self._latency(launched & ~self.hosted)
        latency_span = np.where(self.hosted, ZERO, self.spans.add("latency", least)[whose])
        latency = np.where(self.hosted, 0, least[whose])
        of_stream = np.where(before >= 0, work.until[before], np.iinfo(np.int64).min)
        of_launch = np.where(launched, self.submitted + latency, np.iinfo(np.int64).min)
        told = np.maximum(of_stream, of_launch)
        sure = np.flatnonzero((self.events.after >= 0) & self.events.sure)
        held, holder = self.events.after[sure], self.events.before[sure]
        np.maximum.at(told, held, work.until[holder])
        event = self._coinciding(told)
        bare = (before < 0) & ~launched & (event < 0)
        bare[held] = False
        arrival = np.where(event >= 0, work.until[event], np.where(bare, 0, told))
        delay_span = self.spans.add("delay", np.where(bare, 0, start - arrival))
        release_span = self.spans.add("release", np.where(bare | (~launched & (ops.early == 0)), start, 0))
        bound = launched & (of_launch >= told) & (event < 0) & (of_launch > of_stream)
        slack = self._slack(launched & ~self.hosted, bound & ~self.hosted, latency, np.minimum(start, arrival) - self.submitted)
        slack_span = self.spans.add("slack", np.zeros(len(ops), np.int64))
        rows = np.flatnonzero(before >= 0)
        self.found.add(self.op_at[rows], self.op_leaves[before[rows]], self.op_span[before[rows]], delay_span[rows])
        rows = np.flatnonzero(launched)
        self.found.add(self.op_at[rows], self.call_at[ops.call[rows]], latency_span[rows], slack_span[rows], delay_span[rows])
        self.found.add(self.op_at[held], self.op_leaves[holder], self.op_span[holder], delay_span[held])
        rows = np.flatnonzero((self.events.after >= 0) & ~self.events.sure)
        held, holder = self.events.after[rows], self.events.before[rows]
        self.found.add(self.op_at[held], self.op_leaves[holder], self.op_span[holder], LIKELY)
        rows = np.flatnonzero(event >= 0)
        self.found.add(self.op_at[rows], self.op_leaves[event[rows]], self.op_span[event[rows]], delay_span[rows])
        for rows, switch in ((np.flatnonzero(bare), ZERO), (np.flatnonzero(~bare & ~launched & (ops.early == 0)), POSSIBLE)):
            self.found.add(self.op_at[rows], np.zeros(len(rows), np.int64), release_span[rows], switch)
        self._possible()
        return int((event >= 0).sum()), bound, slack

    def _latency(self, launched: Mask) -> tuple[Times, Numbers]:
        """Return the smallest latency of each process (0 without any), and whose each operation's is."""
        whose = self.ops.process
        least = np.full(int(whose.max(initial=0)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(least, whose[launched], (self.ops.start - self.submitted)[launched])
        return np.where(least == np.iinfo(np.int64).max, 0, least), whose

    def _slack(self, launched: Mask, bound: Mask, least: Times, latency: Times) -> Times:
        """Return by how much a hidden launch may have been slower than the smallest latency: as the 95th percentile of those that were not
        hidden, but no slower than it can have been."""
        slack = np.zeros(len(self.ops), np.int64)
        for process in distinct(self.ops.process):
            mine = self.ops.process == process
            if (mine & bound).any():
                usual = int(np.quantile(latency[mine & bound], 0.95))
                hidden = mine & launched & ~bound
                slack[hidden] = np.maximum(np.minimum(latency[hidden], usual) - least[hidden], 0)
        return slack

    def _before_on_stream(self) -> Numbers:
        """Return the operation that each one follows on its stream: the last to end, of those that ended when it began; -1 for none."""
        before, until = np.full(len(self.ops), -1), self.work.until
        for rows in self.streams:
            order = np.argsort(until[rows], kind="stable")
            at = order[np.searchsorted(until[rows][order], self.ops.start[rows] + TOUCHES, side="right") - 1]
            ended = np.searchsorted(until[rows][order], self.ops.start[rows] + TOUCHES, side="right") > 0
            previous = np.arange(len(rows)) - 1
            touching = np.concatenate(([False], until[rows[:-1]] <= self.ops.start[rows[1:]] + TOUCHES))
            at = np.where(ended & (at < np.arange(len(rows))), at, np.where(touching, previous, -1))
            before[rows] = np.where(at >= 0, rows[at], -1)
        return before

    def _coinciding(self, told: Times) -> Numbers:
        """Return which operation of its process, by its end, explains why each began later than `told`; -1 for none."""
        ops, event = self.ops, np.full(len(self.ops), -1)
        for process in distinct(ops.process):
            mine = np.flatnonzero((ops.process == process) & ~self.hosted)
            late = mine[ops.start[mine] > told[mine]]
            order = mine[np.argsort(self.work.until[mine], kind="stable")]
            at = np.searchsorted(self.work.until[order], ops.start[late], side="right") - 1
            found = order[np.maximum(at, 0)]
            ended = self.work.until[found]
            good = (at >= 0) & (ended > told[late]) & (ops.start[late] - ended <= COINCIDES) & (ops.start[found] < ops.start[late])
            event[late[good]] = found[good]
        return event

    def _possible(self) -> None:
        """Add, for each operation, the last one on each other stream of its process that had ended when it began, where the operation
        before it on its own stream had not waited for it already."""
        for process in distinct(self.owner):
            own = [self.streams[place] for place in np.flatnonzero(self.owner == process)]
            own = sorted(own, key=len, reverse=True)[:MOST_STREAMS]
            ends = [np.sort(self.work.until[rows]) for rows in own]
            by_end = [rows[np.argsort(self.work.until[rows], kind="stable")] for rows in own]
            for here, rows in enumerate(own):
                for there, done in enumerate(ends):
                    if here == there:
                        continue
                    count = np.searchsorted(done, self.ops.start[rows], side="right")
                    new = np.flatnonzero(np.diff(count, prepend=0) > 0)
                    after, before = rows[new], by_end[there][count[new] - 1]
                    good = self.ops.start[before] < self.ops.start[after]
                    self.found.add(self.op_at[after[good]], self.op_leaves[before[good]], self.op_span[before[good]], POSSIBLE)


def _explaining(ended: Times, start: Times, end: Times) -> tuple[Numbers, Times, Mask]:
    """Return on which stream the last operation ended, when, and whether that explains when a call from `start` to `end` returned."""
    latest = ended.argmax(axis=1)
    longest = ended[np.arange(len(ended)), latest]
    return latest, longest, (longest > start) & (end - longest <= EXPLAINS)
