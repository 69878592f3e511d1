"""Why devices idle: what the host thread that launched next was doing meanwhile.

Each gap is charged to the thread whose call put the next work on the device. Until that call returns, the time is split by
what the thread did: communication, waiting for the device, other calls of the GPU's interface, descheduled, or useful (host
code). From the call's return to the work's begin it is `launched`: handed over, and held up by the device, by what the work
depends on, or by the driver. So is all of the gap before work that was launched before the recording began. Where the call was
not recorded otherwise, the process' launching threads stand in for it; after the last work, the thread that launches most.

HolisticTraceAnalysis splits idle time otherwise, by whole gaps of each stream: "host wait" where the launching call began after the
previous kernel's end, else "kernel wait" under a threshold, else "other"; the time before the first kernel and after the last
is left out. On one stream where every call was recorded, what is here `communication`, `sync`, `off` and `useful` between
kernels lies within its host wait, and its kernel wait and other lie within `offload` and `launched`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.memory import give_back
from ullage.sums.lanes.code.idle import Charge, NamedIdle
from ullage.sums.lanes.gather import CALL, KIND, NOT_KNOWN, Capture, LaneRows
from ullage.sums.lanes.launches import Launches, Mask, distinct, is_sorted, launches, only, puts
from ullage.sums.lanes.queues import StreamQueue, launch_delays, quantile, queues
from ullage.sums.lanes.spans import Spans, Times, clip, join, spans, subtract, union, within
from ullage.sums.lanes.states import DeviceState, Key, ProcessState, certainly_off

# What the host was doing while a device had nothing to do, in this order.
CAUSES = ("communication", "sync", "offload", "off", "useful", "launched", "unknown")
SHORT = 10_000  # ns; idle time in gaps shorter than this is that of launching kernel by kernel
LONGEST = 20  # gaps that are kept one by one

_COMMUNICATION, _SYNC, _OFFLOAD, _OFF, _USEFUL, _LAUNCHED, _UNKNOWN = range(len(CAUSES))
_BLOCK = 1 << 14  # pieces that are split at once
_ALL = -2  # instead of a thread: all that launch


@dataclass(frozen=True)
class Gap:
    """One span in which a device idled: when, its main cause, what ran before and after it, and what `code` its host was in.

    `code` has, by level ("operator", "annotation", "function"), what was innermost for the most of it, and as "around" the innermost
    Python function that lasts through most of it.
    """

    device: str
    start: int
    end: int
    cause: str
    before: str
    after: str
    code: dict[str, NamedIdle] = field(default_factory=dict)


@dataclass(frozen=True)
class Rhythm:
    """How a device is fed: how many gaps it has, their median in ns, the share of idle time in gaps shorter than `SHORT`.

    `delay` and `delay_95` are the median and the 95th percentile of the time in ns from the begin of a launching call to the begin
    of its (first) work on the device, over `launches` calls; None where calls and work can't be matched. A delay about as long
    as the call says that the device waits for the host; a long one, that work stands in a queue. `streams` has the same of each of
    the device's streams, and how long the queues are.
    """

    gaps: int = 0
    median: int | None = None
    short: float | None = None
    launches: int = 0
    delay: int | None = None
    delay_95: int | None = None
    streams: tuple[StreamQueue, ...] = ()


@dataclass(frozen=True)
class Idle:
    """A device's idle time in ns by cause (they add up to all of it), and its longest gaps, longest first.

    `owner` is the process on which it waited longest.
    """

    causes: dict[str, int]
    gaps: tuple[Gap, ...]
    owner: Key | None = None
    rhythm: Rhythm = Rhythm()


class _Pieces(NamedTuple):
    """The device's idle spans less what is in doubt: start, end, the gap each belongs to, and whom it is charged to.

    `process` and `thread` say whom (`NOT_KNOWN`: nobody); `called` and `returned` are the begin and end of the call that launched
    what ended the gap (endless where it is not known, long ago where it came before the recording).
    """

    start: Times
    end: Times
    gap: npt.NDArray[np.intp]
    process: Times
    thread: Times
    called: Times
    returned: Times

    def where(self, places: npt.NDArray[np.intp]) -> _Pieces:
        """Return those at some different places in their order; these very pieces where that is all of them."""
        return self if len(places) == len(self.start) else _Pieces(*(values[places] for values in self))


class _Thread(NamedTuple):
    """What a thread did: four disjoint sets of spans."""

    communication: Spans
    sync: Spans
    offload: Spans
    off: Spans


def idle(capture: Capture, device: DeviceState, processes: tuple[ProcessState, ...], seen: Spans) -> tuple[Idle, tuple[Charge, ...]]:
    """Return why a device idled while it was looked at, and which host threads answer for how much of it."""
    gaps = subtract(seen, device.busy)
    rows = _ran(capture, device)
    put = launches(capture.calls, rows)
    pieces = _pieces(gaps, device, rows, put, _main(capture, processes, device))
    longest = _longest(gaps)
    sums, kept = np.zeros(len(CAUSES), np.int64), np.zeros((len(longest), len(CAUSES)), np.int64)
    known = {p.key[1]: p for p in processes if p.key[0] == capture.recording.place}
    waited: dict[Key, int] = {}
    charges: list[Charge] = []
    for number in distinct(pieces.process):
        if number in known and (capture.calls.process == number).any():
            for gap, split in _of_process(capture, known[number], pieces):
                sums += split.sum(axis=0)
                waited[known[number].key] = waited.get(known[number].key, 0) + int(split.sum())
                _keep(kept, longest, gap, split)
            charges += _charges(known[number], pieces)
    del pieces
    give_back()  # what the steps before took would stand beside what the queues take
    sums[_UNKNOWN] += gaps.total - sums.sum()
    kept[:, _UNKNOWN] += (gaps.end - gaps.start)[longest] - kept.sum(axis=1)
    found = Idle(
        causes=dict(zip(CAUSES, sums.tolist(), strict=True)),
        gaps=_told(capture, device, gaps, rows, longest, kept),
        owner=max(waited, key=lambda key: waited[key]) if waited else next(iter(device.owners), None),
        rhythm=_rhythm(gaps, rows, put, seen),
    )
    return found, tuple(charges)


def _ran(capture: Capture, device: DeviceState) -> LaneRows:
    """Return what ran on the device, by start."""
    rows = capture.device
    ran = (rows.device == device.number) & (rows.end > rows.start) & (rows.kind != KIND["lost"])
    rows = only(rows, ran, "kind", "process", "stream", "correlation", "name")
    return rows if is_sorted(rows.start) else rows.where(np.argsort(rows.start, kind="stable"))


def _pieces(gaps: Spans, device: DeviceState, rows: LaneRows, put: Launches, main: tuple[int, int]) -> _Pieces:
    sure = subtract(gaps, device.unknown)
    gap = np.searchsorted(gaps.start, sure.start, side="right") - 1
    following = np.searchsorted(rows.start, gaps.end)[gap]
    last = following == len(rows)
    row = np.minimum(following, len(rows) - 1)
    if not len(rows):
        nobody = np.full(len(gap), NOT_KNOWN, np.int64)
        return _Pieces(sure.start, sure.end, gap, nobody, nobody, nobody, nobody)
    known, early = put.known[row] & ~last, put.early[row] & ~last
    ever, endless = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    process = np.where(last, main[0], rows.process[row])
    return _Pieces(
        start=sure.start,
        end=sure.end,
        gap=gap,
        process=np.where(process == NOT_KNOWN, main[0], process),
        thread=np.where(known, put.thread[row], np.where(last, main[1], _ALL)),
        called=np.where(known, put.start[row], np.where(early, ever, endless)),
        returned=np.where(known, put.end[row], np.where(early, ever, endless)),
    )


def _main(capture: Capture, processes: tuple[ProcessState, ...], device: DeviceState) -> tuple[int, int]:
    """Return the process and the thread that make the most launching calls, of those that own the device."""
    calls, most, found = capture.calls, 0, (device.owners[0][1] if device.owners else NOT_KNOWN, _ALL)
    for process in processes:
        if process.key in device.owners:
            mine = calls.process == process.key[1]
            works = mine & puts(calls)
            threads, counts = np.unique(calls.thread[works if works.any() else mine], return_counts=True)
            if len(threads) and counts.max() > most:
                most, found = counts.max(), (process.key[1], int(threads[counts.argmax()]))
    return found


def _of_process(capture: Capture, process: ProcessState, pieces: _Pieces) -> Iterator[tuple[npt.NDArray[np.intp], Times]]:
    """Yield, block by block, the gaps of the pieces that are charged to a process and their time by cause."""
    number = process.key[1]
    calls = only(capture.calls, capture.calls.process == number, "thread", "call")
    host = only(capture.host, capture.host.process == number, "kind", "thread", "off")
    for thread in distinct(pieces.thread[pieces.process == number]):
        threads = process.threads if thread == _ALL else (thread,)
        did = _did(calls, host, threads, process.window)
        chosen = np.flatnonzero((pieces.process == number) & (pieces.thread == thread))
        for first in range(0, len(chosen), _BLOCK):
            block = pieces.where(chosen[first : first + _BLOCK])
            yield block.gap, _split(block, did, process.window)


def _charges(process: ProcessState, pieces: _Pieces) -> Iterator[Charge]:
    """Yield what is charged to each thread of a process: the time until the launching call returned, within the process' window.

    Where several threads stand in for a call that was not recorded, nobody answers for it.
    """
    number, (low, high) = process.key[1], process.window
    for thread in distinct(pieces.thread[pieces.process == number]):
        if thread == _ALL and len(process.threads) != 1:
            continue
        block = pieces.where(np.flatnonzero((pieces.process == number) & (pieces.thread == thread)))
        begun, over = _handed(block)
        start, end = np.stack([np.maximum(block.start, low), begun], 1).ravel(), np.stack([np.minimum(begun, high), over], 1).ravel()
        real = end > start
        yield Charge(number, process.threads[0] if thread == _ALL else thread, Spans(start[real], end[real]), np.repeat(block.gap, 2)[real])


def _handed(pieces: _Pieces) -> tuple[Times, Times]:
    """Return when the launching call began and returned, as far as that is within each piece: from then on the work is handed over."""
    over = np.clip(pieces.returned, pieces.start, pieces.end)
    return np.clip(pieces.called, pieces.start, over), over


def _keep(kept: Times, longest: npt.NDArray[np.intp], gap: npt.NDArray[np.intp], split: Times) -> None:
    """Add the times of pieces to those of the longest gaps, where they are part of one."""
    order = np.argsort(longest, kind="stable")
    place = np.minimum(np.searchsorted(longest[order], gap), max(len(longest) - 1, 0))
    hit = np.flatnonzero(longest[order][place] == gap) if len(longest) else place[:0]
    np.add.at(kept, order[place[hit]], split[hit])


def _did(calls: LaneRows, host: LaneRows, threads: tuple[int, ...], window: tuple[int, int]) -> _Thread:
    """Return what some threads of a process did within its window; `calls` and `host` are the process' rows."""
    calls = only(calls, _among(calls.thread, threads), "call")
    talks, off = host.of("mpi"), host.of("off")
    off, waits = off.where(_among(off.thread, threads)), calls.where(calls.call == CALL["sync"])
    beside = host.of("computing")
    communication, called, sync = (clip(union(r.start, r.end), *window) for r in (talks, calls, waits))
    communication = subtract(communication, union(beside.start, beside.end))
    called = subtract(called, communication)
    sync = subtract(sync, communication)
    gone = clip(certainly_off(off, join(communication, called)), *window)
    return _Thread(communication, sync, subtract(called, sync), gone)


def _among(thread: Times, threads: tuple[int, ...]) -> Mask:
    return thread == threads[0] if len(threads) == 1 else np.isin(thread, threads)


def _split(pieces: _Pieces, did: _Thread, window: tuple[int, int]) -> Times:
    """Return the time of each piece (rows) by cause (columns), in ns; what lies outside the process' window is unknown.

    The launching call itself is `offload`, whatever it does inside.
    """
    alive = spans(window)
    begun, over = _handed(pieces)
    sync = within(did.sync, pieces.start, begun)
    talked = within(did.communication, pieces.start, begun)
    called = within(did.offload, pieces.start, begun) + over - begun
    off = within(did.off, pieces.start, begun)
    lived = within(alive, pieces.start, begun) + over - begun
    times = np.zeros((len(over), len(CAUSES)), np.int64)
    for cause, time in ((_COMMUNICATION, talked), (_SYNC, sync), (_OFFLOAD, called), (_OFF, off), (_LAUNCHED, pieces.end - over)):
        times[:, cause] = time
    times[:, _USEFUL] = lived - talked - sync - called - off
    return times


def _longest(gaps: Spans) -> npt.NDArray[np.intp]:
    """Return which gaps are the longest, the longest first."""
    long = gaps.end - gaps.start
    least = np.partition(long, -LONGEST)[-LONGEST] if len(long) > LONGEST else 0
    order = np.flatnonzero(long >= least)
    return order[np.argsort(-long[order], kind="stable")][:LONGEST]


def _told(capture: Capture, device: DeviceState, gaps: Spans, rows: LaneRows, order: npt.NDArray[np.intp], times: Times) -> tuple[Gap, ...]:
    reach = np.maximum.accumulate(rows.end)
    earlier = np.searchsorted(rows.start, gaps.start[order])  # how many began before each gap; the last of them to end ends there
    after = np.searchsorted(rows.start, gaps.end[order])

    def word(row: int) -> str:
        code = int(rows.name[row])
        return capture.words[code] if code >= 0 else _kind(int(rows.kind[row]))

    return tuple(
        Gap(
            device=device.key,
            start=int(gaps.start[g]),
            end=int(gaps.end[g]),
            cause=CAUSES[int(spent.argmax())],
            before=word(int(np.searchsorted(reach, reach[e - 1]))) if e else "",
            after=word(int(a)) if a < len(rows) else "",
        )
        for g, e, a, spent in zip(order, earlier, after, times, strict=True)
    )


def _kind(code: int) -> str:
    return next(name for name, number in KIND.items() if number == code)


def _rhythm(gaps: Spans, rows: LaneRows, put: Launches, seen: Spans) -> Rhythm:
    streams = queues(rows, put, seen)
    long, delays = gaps.end - gaps.start, launch_delays(rows, put, seen)
    total = int(long.sum())
    return Rhythm(
        gaps=len(long),
        median=quantile(long, 0.5),
        short=int(long[long < SHORT].sum()) / total if total else None,
        launches=len(delays),
        delay=quantile(delays, 0.5),
        delay_95=quantile(delays, 0.95),
        streams=streams,
    )
