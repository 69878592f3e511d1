"""What a process and its devices did within some time, as sums that add up: sums first, ratios last.

Of a stretch of time the states of host and devices are found once (`States`); any part of it (a region's spans) is then measured in
them. Times of stretches that don't overlap are added, so a run of days needs no more memory than its last seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np

from ullage.sums.lanes.doubt import doubt
from ullage.sums.lanes.gather import KIND, NOT_KNOWN, Capture
from ullage.sums.lanes.launches import distinct, puts
from ullage.sums.lanes.spans import NONE, Spans, clip, intersect, join, spans, subtract, union
from ullage.sums.lanes.spans import Times as Moments
from ullage.sums.lanes.states import DeviceState, flatten, host_spans, off_spans, recorder_spans

MOST_THREADS = 256  # whose calls are told apart; of more, those with the lowest numbers


@dataclass(frozen=True)
class DeviceTimes:
    """Of one device in ns: a kernel runs, only a collective, only a memory operation; `unknown` is idle time that may have been work,
    `graph` the part of `kernel` known only as graphs run as a whole."""

    kernel: int = 0
    collective: int = 0
    memory: int = 0
    unknown: int = 0
    graph: int = 0

    def __add__(self, other: DeviceTimes) -> DeviceTimes:
        return DeviceTimes(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Times:
    """Of one process in ns: how long it was looked at, communicated, and was in CUDA's interface by thread; and of its devices.

    `open` is how much of it lies after a thread's last call that is known, while the program runs: CUPTI tells of a call when it is over.
    For `recorder` what records the process held it up; `off` is how long each thread was on no processor and did none of the rest.

    >>> one = Times(10, 1, {7: 4}, {0: DeviceTimes(kernel=5)})
    >>> both = one + Times(20, 0, {7: 1, 8: 2}, {1: DeviceTimes(memory=3)})
    >>> both.elapsed, both.offload, sorted(both.devices)
    (30, {7: 5, 8: 2}, [0, 1])
    """

    elapsed: int = 0
    communication: int = 0
    offload: Mapping[int, int] = field(default_factory=dict)
    devices: Mapping[int, DeviceTimes] = field(default_factory=dict)
    open: Mapping[int, int] = field(default_factory=dict)
    recorder: int = 0
    off: Mapping[int, int] = field(default_factory=dict)

    def __add__(self, other: Times) -> Times:
        numbers = self.devices.keys() | other.devices.keys()
        return Times(
            self.elapsed + other.elapsed,
            self.communication + other.communication,
            _added(self.offload, other.offload),
            {n: self.devices.get(n, DeviceTimes()) + other.devices.get(n, DeviceTimes()) for n in sorted(numbers)},
            _added(self.open, other.open),
            self.recorder + other.recorder,
            _added(self.off, other.off),
        )


def _added(some: Mapping[int, int], more: Mapping[int, int]) -> dict[int, int]:
    return {thread: some.get(thread, 0) + more.get(thread, 0) for thread in sorted(some.keys() | more.keys())}


@dataclass(frozen=True)
class States:
    """What a process and its devices did when, within `seen`; `regions` has when it was in each region.

    `open` is what lies after each thread's last known call, while the program runs. `lanes` is how long each thread was in CUDA's
    interface, and whether it put work on a device: a process' host lane is the busiest.
    """

    seen: Spans
    communication: Spans
    offload: dict[int, Spans]
    lanes: dict[int, tuple[bool, int]]
    devices: dict[int, DeviceState]
    regions: dict[str, Spans]
    open: dict[int, Spans] = field(default_factory=dict)
    recorder: Spans = NONE
    off: dict[int, Spans] = field(default_factory=dict)

    def times(self, within: Spans | None = None) -> Times:
        """Return the sums of all of it, or of what lies within some spans."""
        looked = self.seen if within is None else intersect(self.seen, within)
        if not looked.pieces:
            return Times()

        def of(state: Spans) -> int:
            return intersect(state, looked).total

        return Times(
            looked.total,
            of(self.communication),
            {thread: of(calls) for thread, calls in self.offload.items()},
            {n: DeviceTimes(of(d.kernel), of(d.collective), of(d.memory), of(d.unknown), of(d.graph)) for n, d in self.devices.items()},
            {thread: of(rest) for thread, rest in self.open.items()},
            of(self.recorder),
            {thread: of(absent) for thread, absent in self.off.items()},
        )


def states(
    capture: Capture,
    process: int,
    seen: Spans,
    open_regions: Iterable[tuple[int, int, str]] = (),
    running: Iterable[int] | None = None,
) -> States:
    """Return what a process and its devices did within `seen`; regions that are still open last to its end.

    `running` are the threads known from before of a program that goes on; None of one, or a time, that is over.
    """
    threads = distinct(capture.calls.thread)[:MOST_THREADS]
    communication = host_spans(capture, process, ())[0]
    offload = {thread: host_spans(capture, process, (thread,))[1] for thread in threads}
    recorder = recorder_spans(capture, process, communication)
    clocked = {*threads, capture.recording.own_thread.get(process, NOT_KNOWN)}
    off = {thread: off_spans(capture, process, (thread,), join(communication, recorder, offload.get(thread, NONE))) for thread in clocked}
    return States(
        seen=seen,
        communication=intersect(communication, seen),
        offload={thread: intersect(calls, seen) for thread, calls in offload.items()},
        recorder=intersect(recorder, seen),
        off={thread: intersect(absent, seen) for thread, absent in off.items() if absent is not None},
        lanes={thread: _lane(capture, thread, seen) for thread in threads},
        devices={n: _device(capture, process, n, seen) for n in distinct(capture.device.device) if n != NOT_KNOWN},
        regions=_regions(capture, seen, open_regions),
        open={} if running is None else {thread: _since_last_call(capture, thread, seen) for thread in {*threads, *running}},
    )


def _since_last_call(capture: Capture, thread: int, seen: Spans) -> Spans:
    last = capture.calls.end[capture.calls.thread == thread].max(initial=0)
    return intersect(seen, spans((int(last), int(seen.end[-1])))) if seen.pieces else NONE


def _lane(capture: Capture, thread: int, seen: Spans) -> tuple[bool, int]:
    calls = capture.calls.where(capture.calls.thread == thread)
    return bool(puts(calls).any()), intersect(union(calls.start, calls.end), seen).total


def _device(capture: Capture, process: int, number: int, seen: Spans) -> DeviceState:
    rows = capture.device.where(capture.device.device == number)
    kernel, collective, memory = (intersect(state, seen) for state in flatten(rows))
    single = rows.kind == KIND["kernel"]
    graph = subtract(kernel, union(rows.start[single], rows.end[single])) if (rows.kind == KIND["graph"]).any() else NONE
    owner = (capture.recording.place, process)
    state = DeviceState(str(number), "", (owner,), kernel, collective, memory, number=number, graph=graph)
    found = doubt(capture, state, seen)
    idle = subtract(seen, state.busy)
    unknown = join(found.spans, intersect(under_way(capture, seen), idle))
    return replace(state, unknown=unknown, doubts=found.reasons)


def unrecorded(capture: Capture) -> tuple[Moments, Moments]:
    """Return start and correlation of the calls that put work on a device of which no record has come."""
    calls = capture.calls
    silent = puts(calls) & (calls.correlation != NOT_KNOWN) & ~np.isin(calls.correlation, capture.device.correlation)
    return calls.start[silent], calls.correlation[silent]


def under_way(capture: Capture, seen: Spans) -> Spans:
    """Return when work may run that was launched after the last of which a record has come: CUPTI tells of it when it is over."""
    start, correlation = unrecorded(capture)
    latest = capture.device.correlation.max(initial=NOT_KNOWN)
    start = start[correlation > latest]
    return spans((int(start.min()), int(seen.end[-1]))) if len(start) and seen.pieces else NONE


def _regions(capture: Capture, seen: Spans, open_regions: Iterable[tuple[int, int, str]]) -> dict[str, Spans]:
    if not seen.pieces:
        return {}
    named, last = capture.host.of("region"), int(seen.end[-1])
    edges: dict[str, list[Spans]] = {}
    for code in distinct(named.name):
        mine = named.name == code
        edges.setdefault(capture.words[code] if code >= 0 else "(unnamed)", []).append(union(named.start[mine], named.end[mine]))
    for start, _, name in open_regions:
        edges.setdefault(name or "(unnamed)", []).append(spans((start, last)))
    found = {name: clip(join(*sets), int(seen.start[0]), last) for name, sets in edges.items()}
    return {name: within for name, within in found.items() if within.pieces}
