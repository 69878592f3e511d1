"""What each device and each host did when: disjoint states over a window, from which every time in the trees is measured.

A device is, by precedence, in a compute kernel, in a collective, in a memory operation, or idle (Ullage equations, section
5; TALP paper, section 4.2). Streams are merged first, so time on two streams counts once. A host is, by precedence, in
communication, held up by what records it, in the GPU's interface (offload), or useful.

A device's `unknown` is idle time of which the capture can't say that it was idle: see `ullage.sums.lanes.doubt`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ullage.sums.lanes.gather import CALL, KIND, NOT_KNOWN, Capture, LaneRows
from ullage.sums.lanes.residency import NO_RESIDENCY, Residency
from ullage.sums.lanes.spans import NONE, Spans, Times, intersect, join, subtract, union, within
from ullage.tables import RECORDER

Key = tuple[str, int]  # of a process: the capture's place, and the process' number in it


@dataclass(frozen=True)
class DeviceState:
    """One device: three disjoint sets of spans, and what is not known.

    `key` tells physical devices apart over all captures; `owners` are the processes that use it; `first` and `last` bound what
    was recorded; `resolution` is the step of the time stamps in ns; `transfer` the part of `collective` in which data moves (None
    unless collectives were matched across ranks). `number` is the device's in its capture. `graph` is the part of `kernel` in
    which only a graph's run as a whole was recorded, none of its kernels; `doubts` say in words why `unknown` and `graph` are there.
    `place` is its capture's: where nobody is known to own it, it may be anybody's there.
    `collective_all` and `memory_all` are when collectives and memory operations run, whether or not computing hides them; `resident` says
    of how many SMs kernels and collectives made use.
    """

    key: str
    name: str
    owners: tuple[Key, ...]
    kernel: Spans
    collective: Spans
    memory: Spans
    unknown: Spans = NONE
    transfer: Spans | None = None
    sms: int | None = None
    launches: int = 0
    bytes: int = 0
    resolution: int = 1
    number: int = -1
    graph: Spans = NONE
    doubts: tuple[str, ...] = ()
    collective_all: Spans = NONE
    memory_all: Spans = NONE
    place: str = ""
    resident: Residency = NO_RESIDENCY

    @property
    def busy(self) -> Spans:
        """When the device does anything."""
        return join(self.kernel, self.collective, self.memory)


@dataclass(frozen=True)
class RegionOccurrences:
    """Steps or occurrences of a region in the order of their start: names and times in ns; they may nest or overlap."""

    names: tuple[str, ...]
    start: Times
    end: Times


MAIN = 0  # the number of a process' main thread among those that wait for one another, as OpenMP counts


@dataclass(frozen=True)
class ThreadWaits:
    """An OpenMP-like thread of a process: when it waits, disjoint sets by reason; the rest of the process' time it is useful.

    `serialisation`: nothing is parallel; `scheduling`: work is handed out; `imbalance`: others have more of it.
    """

    thread: int
    serialisation: Spans
    scheduling: Spans
    imbalance: Spans

    @property
    def waiting(self) -> Spans:
        """When the thread waits, for whatever reason."""
        return join(self.serialisation, self.scheduling, self.imbalance)


@dataclass(frozen=True)
class ProcessState:
    """One host process: its window, and disjoint sets of spans within it; what is in none of them is useful time.

    `known` is from when to when all that it did was recorded, None: always. In `recorder` what records it held it up.
    `sync` is the part of `offload` in which it waits for the device. `regions` has the union of each region's occurrences,
    `occurrences` each of them, `steps` the profiler's steps. `off` is when its own thread was on no processor and did none of the rest,
    as far as that is certain; `off_known` whether it was recorded.
    `workers` are the OpenMP-like threads, where the source has them; the `MAIN` one is among them if it
    waits. `threads` are those whose calls count,
    of `callers` that make any.
    `counters` are the hardware's over useful time, empty unless the window holds all that they were summed over.
    """

    key: Key
    label: str
    rank: int | None
    host: str
    window: tuple[int, int]
    offload: Spans
    communication: Spans
    sync: Spans = NONE
    off: Spans = NONE
    regions: dict[str, Spans] = field(default_factory=dict)
    occurrences: dict[str, RegionOccurrences] = field(default_factory=dict)
    steps: RegionOccurrences | None = None
    workers: tuple[ThreadWaits, ...] = ()
    threads: tuple[int, ...] = ()
    callers: int = 0
    calls: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    known: tuple[int, int] | None = None
    recorder: Spans = NONE
    off_known: bool = False


def flatten(rows: LaneRows) -> tuple[Spans, Spans, Spans]:
    """Return when a device computes, when it only communicates, when it only moves memory: merged over streams, disjoint.

    A graph of which no kernel was recorded one by one counts as compute; `doubt` says how sure that is.
    """

    def runs(*kinds: str) -> Spans:
        of = np.isin(rows.kind, [KIND[k] for k in kinds])
        return union(rows.start[of], rows.end[of])

    kernel = runs("kernel", "graph")
    collective = subtract(runs("collective"), kernel)
    memory = subtract(runs("memcpy", "memset"), join(kernel, collective))
    return kernel, collective, memory


def host_spans(capture: Capture, process: int, threads: tuple[int, ...]) -> tuple[Spans, Spans, Spans]:
    """Return when a process communicates, when it is otherwise in the GPU's interface, and the part of that in which it waits.

    A collective that runs beside an operator costs nothing meanwhile. `threads` limits whose calls count; a process counts as in a
    call while any of them is. Nested and duplicate rows of one call count once.
    """
    calls, host = capture.calls, capture.host
    mine = (calls.process == process) & np.isin(calls.thread, threads)
    waits = mine & (calls.call == CALL["sync"])
    talks = (host.kind == KIND["mpi"]) & (host.process == process)
    works = (host.kind == KIND["computing"]) & (host.process == process)
    communication = subtract(union(host.start[talks], host.end[talks]), union(host.start[works], host.end[works]))
    told = join(communication, recorder_spans(capture, process, communication))
    offload = subtract(union(calls.start[mine], calls.end[mine]), told)
    sync = subtract(union(calls.start[waits], calls.end[waits]), told)
    return communication, offload, sync


def recorder_spans(capture: Capture, process: int, communication: Spans) -> Spans:
    """Return when what records a process held it up while it did not communicate: its main thread, or one that calls MPI."""
    if RECORDER not in capture.words:
        return NONE
    host = capture.host.where(capture.host.process == process)
    lanes = [process, *np.unique(host.thread[host.kind == KIND["mpi"]]).tolist()]
    held = (host.kind == KIND["overhead"]) & (host.name == capture.words.index(RECORDER)) & np.isin(host.thread, lanes)
    return subtract(union(host.start[held], host.end[held]), communication)


def off_spans(capture: Capture, process: int, threads: tuple[int, ...], busy: Spans) -> Spans | None:
    """Return when a process was on no processor, as far as that is certain beside what else it did (`busy`); None where nobody recorded it.

    `threads` are those of its host lane; of several, or of none, the process' own one counts.
    """
    recording, host = capture.recording, capture.host
    lane = threads if len(threads) == 1 else (recording.own_thread.get(process, NOT_KNOWN),)
    if lane[0] not in recording.cpu_clocks.get(process, ()):
        return None
    return certainly_off(host.where((host.kind == KIND["off"]) & (host.process == process) & (host.thread == lane[0])), busy)


def certainly_off(rows: LaneRows, busy: Spans) -> Spans:
    """Return when a thread was off by its rows of kind `off`, outside of what it is known to have done.

    Of some rows only how long it was off is known. As much of that as can lie in `busy` may do so; the rest stands at the row's end. What
    is busy where a row begins is over by then, but for what the recorder took of it.
    """
    part = rows.off != NOT_KNOWN
    start, end, off = rows.start[part], rows.end[part], rows.off[part]
    if busy.pieces:
        around = np.searchsorted(busy.start, start, side="right") - 1
        start = np.where(around >= 0, np.clip(busy.end[around], start, end), start)
    least = np.maximum(np.minimum(off, end - start) - within(busy, start, end), 0)
    before = np.concatenate([[0], np.cumsum(busy.end - busy.start)])  # busy time before each span
    free = busy.start - before[:-1]  # time of nothing to do before each span
    last = np.searchsorted(busy.start, end)  # spans that begin before each row's end: none lasts beyond it by more than is cut below
    over = np.maximum(busy.end[np.maximum(last - 1, 0)] - end, 0) * (last > 0) if busy.pieces else np.zeros(len(end), np.int64)
    target = end - (before[last] - over) - least
    begin = target + before[np.searchsorted(free, target)]
    return subtract(join(union(rows.start[~part], rows.end[~part]), union(begin[least > 0], end[least > 0])), busy)


_REASONS = (
    ("scheduling", re.compile(r"(?i)sched|fork")),
    ("serialisation", re.compile(r"(?i)idle|outside|not created|not recorded|i/o|others|tracing disabled")),
)


def waits_for(name: str) -> str:
    """Return why a thread waits, told by what its state is called: a field of `ThreadWaits`.

    >>> waits_for("Scheduling and Fork/Join"), waits_for("Idle"), waits_for("Synchronization")
    ('scheduling', 'serialisation', 'imbalance')
    """
    return next((reason for reason, pattern in _REASONS if pattern.search(name)), "imbalance")


def workers(rows: LaneRows, words: list[str], seen: Spans) -> tuple[ThreadWaits, ...]:
    """Return a process' threads that wait for one another, from its rows of kind `parallel`, cut to when it is looked at."""
    reasons = {int(code): waits_for(words[code] if code >= 0 else "") for code in np.unique(rows.name)}
    found = []
    for thread in np.unique(rows.thread):
        sets = {"serialisation": NONE, "scheduling": NONE, "imbalance": NONE}
        mine = rows.where(rows.thread == thread)
        for reason in sets:
            of = np.isin(mine.name, [code for code, why in reasons.items() if why == reason])
            sets[reason] = subtract(intersect(union(mine.start[of], mine.end[of]), seen), join(*sets.values()))
        found.append(ThreadWaits(int(thread), **sets))
    return tuple(found)


Host = Literal["busiest", "union"]


def host_threads(capture: Capture, process: int, seen: Spans, host: Host = "busiest") -> tuple[int, ...]:
    """Return the threads whose calls are a process' host lane: the one that is longest in the GPU's interface while the process was
    observed (`seen`), or all of them.

    The busiest is sought among threads that put work on a device, if any do: watchdogs and loaders only ask or wait, and their
    waiting is nobody's loss. Of equally busy threads the one with the lowest number counts.
    """
    calls = capture.calls.where(capture.calls.process == process)
    works = np.isin(calls.call, [CALL["launch"], CALL["graph"], CALL["copy"]])
    if host == "union" or not len(calls):
        return tuple(int(t) for t in np.unique(calls.thread))

    def busy(thread: int) -> int:
        mine = calls.thread == thread
        return intersect(union(calls.start[mine], calls.end[mine]), seen).total

    return (max(np.unique(calls.thread[works] if works.any() else calls.thread).tolist(), key=busy),)
