"""When each process and each device of a capture was observed. It is decided here and nowhere else: every window, elapsed time,
balance and bound derives from it, over ranks by `ullage.sums.lanes.common`.

A process lives from its first to its last event. Device work whose process isn't known may be that of any process that uses the
device, or of any at all where none is known to; the lives of these reach as far as it does. Where MPI was recorded, TALP's clock
counts: a process lives from when MPI_Init returned to when MPI_Finalize was called (dlb, `talp_mpi_init`, `talp_mpi_finalize`),
whatever the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.errors import UllageError
from ullage.recording import Covers
from ullage.sums.lanes.gather import KIND, NOT_KNOWN, Capture, LaneRows
from ullage.sums.lanes.launches import distinct
from ullage.sums.lanes.spans import BLOCK, Spans, Times, clip, intersect, same_time, spans, union, within
from ullage.sums.lanes.window import TraceWindow

Pair = tuple[int, int]  # first and last moment, ns

_RAN = tuple(KIND[k] for k in ("kernel", "collective", "memcpy", "memset", "graph"))
_DID = tuple(KIND[k] for k in ("mpi", "parallel", "computing"))
_FRAMES = tuple(KIND[k] for k in ("region", "step"))
_HOSTED = tuple(KIND[k] for k in ("mpi", "region", "step", "parallel"))


@dataclass(frozen=True)
class Observed:
    """What is looked at of a capture: `window` in all, `lives` of each process that counts.

    `known` is from when to when all that a process did was recorded, None: always. `entire` says whether that is all that was
    observed. `left_out` is the time in ns in which devices worked, summed over devices, but the clock of MPI did not run. `rule` is the
    window in words.
    """

    window: Pair
    lives: dict[int, Pair]
    known: dict[int, Pair | None]
    entire: bool = True
    left_out: int = 0
    rule: str = "first-last"

    def of_device(self, users: Iterable[int]) -> Spans:
        """Return when a device is looked at: while one of its users lives; while any process does where none is known."""
        lives = [self.lives[p] for p in users if p in self.lives] or list(self.lives.values())
        return spans(*lives) if lives else spans(self.window)

    def cut(self, ran: Spans) -> Spans:
        """Return what of a device's work may be looked at: that in the window, all where that is all that was observed. Who else uses
        the device, in another capture, may be looked at when its users here are not."""
        return ran if self.entire else clip(ran, *self.window)


@dataclass(frozen=True)
class TableTime:
    """When tables look at the processes and devices of a capture, by their numbers: while these are observed, or while in a `region`.

    `window` is from the first to the last of it."""

    window: Pair
    processes: Mapping[int, Spans]
    devices: Mapping[int, Spans]
    region: str | None = None

    def equals(self, other: TableTime) -> bool:
        """Return whether both look at the same time of the same devices and processes."""
        return self.region == other.region and all(
            mine.keys() == theirs.keys() and all(same_time(when, theirs[number]) for number, when in mine.items())
            for mine, theirs in ((self.processes, other.processes), (self.devices, other.devices))
        )


def observe(capture: Capture, window: TraceWindow | None = None, limit: Pair | None = None) -> Observed:
    """Return what is looked at of a capture whose device rows have their owners, as far as these are known; nothing outside of `limit`.

    Raises UllageError for a capture or a window that holds nothing."""
    window = (window or TraceWindow()).settled(capture)
    frames = _FRAMES if window.kind == "steps" else ()  # a step may begin with a wait that no operator shows
    lives = {p: life for p in hosts(capture) if (life := _life(capture, p, frames)) is not None}
    lives = _reaching(capture, {p: life for p, life in lives.items() if life[0] < life[1]} or lives)  # of one moment nothing is known
    whole = bounds(lives.values()) or bounds(_moments(capture))
    if whole is None or whole[0] >= whole[1]:
        raise UllageError(
            f"{capture.recording.place} holds nothing that lasts of a GPU, of calls to it or of MPI",
            "record with CPU and GPU activities switched on",
        )
    left_out = 0
    if capture.recording.mpi_clock and lives:
        clocked = {p: _clocked(capture, p, life) for p, life in lives.items()}
        left_out = _worked(capture, lives) - _worked(capture, clocked)
        lives, whole = clocked, bounds(clocked.values()) or whole
    chosen = _limited(window.of(capture, whole), limit)
    lives = {p: (max(low, chosen[0]), min(high, chosen[1])) for p, (low, high) in lives.items()}
    lives = {p: life for p, life in lives.items() if life[0] < life[1]}
    return Observed(chosen, lives, _known(capture.recording.covers, chosen, lives), chosen == whole, left_out, window.words)


def _limited(window: Pair, limit: Pair | None) -> Pair:
    return window if limit is None else (max(window[0], limit[0]), min(window[1], limit[1]))


def _known(covers: Covers, window: Pair, lives: dict[int, Pair]) -> dict[int, Pair | None]:
    return {p: {"process": life, "session": window, "run": None}[covers] for p, life in lives.items()}


def hosts(capture: Capture) -> list[int]:
    """Return the processes that count: those that use the GPU or MPI; failing these, all that did anything."""
    host = capture.host
    working = _different(capture.calls) | _different(host.of("mpi"))
    named = _different(host.where(np.isin(host.kind, _HOSTED))) | set(capture.recording.extent)
    return sorted((working or named) - {NOT_KNOWN})


def _different(rows: LaneRows) -> set[int]:
    return set(distinct(rows.process))


def _life(capture: Capture, process: int, frames: tuple[int, ...] = ()) -> Pair | None:
    """Return the first and last moment of a process: of its calls, its operators, what it put on devices, and of `frames` if asked.

    What only frames these counts of processes that show nothing else.
    """
    stated = [capture.recording.extent[process]] if process in capture.recording.extent else []
    framed = _moments(capture, frames, process) if frames else []
    return bounds([*_moments(capture, process=process), *stated, *framed]) or bounds(_moments(capture, _FRAMES, process))


def _moments(capture: Capture, frames: tuple[int, ...] = (), process: int | None = None) -> list[Pair]:
    """Return the first and last moment of each sort of row, of all processes or of one; `frames` are kinds of host rows to look at
    instead of what a program does."""
    seen = []
    for rows, kinds in ((capture.device, _RAN), (capture.calls, None), (capture.host, frames or _DID)):
        of = np.ones(len(rows), bool) if kinds is None else np.isin(rows.kind, kinds)
        if process is not None:
            of &= rows.process == process
        if of.any():
            seen.append((int(rows.start[of].min()), int(rows.end[of].max())))
    return seen


def _reaching(capture: Capture, lives: dict[int, Pair]) -> dict[int, Pair]:
    """Return the lives, as far as device work reaches that nobody is known to have put there and that lies outside the lives of all
    who may have."""
    rows = capture.device
    nobodys = ~np.isin(rows.process, list(lives)) & np.isin(rows.kind, _RAN)
    reached = dict(lives)
    for device in distinct(rows.device[nobodys]):
        mine = rows.device == device
        users = _users(rows.where(mine), lives)
        together = bounds(lives[p] for p in users)
        begin, end = int(rows.start[mine & nobodys].min()), int(rows.end[mine & nobodys].max())
        if together is None:
            continue
        for p in users:
            low, high = reached[p]
            reached[p] = (min(low, begin) if begin < together[0] else low, max(high, end) if end > together[1] else high)
    return reached


def _users(rows: LaneRows, lives: dict[int, Pair]) -> set[int]:
    """Return whose rows on one device may be: those of whom some are; of all where that is not known of any."""
    return set(distinct(rows.process)) & set(lives) or set(lives)


def _clocked(capture: Capture, process: int, life: Pair) -> Pair:
    """Return a life by MPI's clock; a clock that ends before it begins is none."""
    begin, end = capture.recording.mpi_clock.get(process, (None, None))
    low, high = life[0] if begin is None else begin, life[1] if end is None else end
    return (low, high) if low < high else life


def _worked(capture: Capture, lives: dict[int, Pair]) -> int:
    """Return how long devices worked while their users lived, summed over devices, in ns."""
    rows, total = capture.device, 0
    for device in distinct(rows.device):
        mine = rows.where(rows.device == device)
        real = np.isin(mine.kind, _RAN)
        ran, lived = union(mine.start[real], mine.end[real]), spans(*(lives[p] for p in _users(mine, lives)))
        total += intersect(ran, lived).total
    return total


def time_seen(rows: LaneRows, seen: Mapping[int, Spans]) -> Times:
    """Return for how many ns each row on a device runs while its device is looked at; −1 for those that are outside, where what is of no
    length is inside if it begins there."""
    found = np.full(len(rows), -1, np.int64)
    for device, when in seen.items():
        mine = np.flatnonzero(rows.device == device)
        for low in range(0, len(mine), BLOCK):
            some = mine[low : low + BLOCK]
            found[some] = time_inside(when, rows.start[some], rows.end[some])
    return found


def time_inside(when: Spans, start: Times, end: Times) -> Times:
    """Return for how many ns intervals run within spans; −1 for those that are outside.

    >>> time_inside(spans((0, 10), (20, 30)), np.array([5, 10, 20, 12]), np.array([25, 15, 20, 12])).tolist()
    [10, -1, 0, -1]
    """
    time = within(when, start, np.maximum(end, start))
    return np.where((time > 0) | holds(when, start), time, -1)


def holds(when: Spans, moments: Times) -> npt.NDArray[np.bool_]:
    """Return which moments lie within spans, their ends not counted."""
    at = np.searchsorted(when.start, moments, side="right") - 1
    return (at >= 0) & (moments < np.append(when.end, 0)[at])


def bounds(seen: Iterable[Pair]) -> Pair | None:
    """Return the first and last of several pairs of moments, None without any."""
    pairs: Sequence[Pair] = list(seen)
    return (min(s[0] for s in pairs), max(s[1] for s in pairs)) if pairs else None
