"""The time in which all ranks of a run were recorded, and how much of the rest is not known.

Profilers are started and stopped rank by rank. What a rank did while its profiler was off is not known: to count it as nothing makes
ranks look unbalanced, so they are compared while all of them are known, on one clock. Over all the time in which any rank was
recorded the efficiencies lie within bounds, whatever the others did then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ullage.sums.lanes.collectives.alignment import AlignedClock, ClockLine
from ullage.sums.lanes.gather import NOT_KNOWN
from ullage.sums.lanes.observed import Pair, TableTime, bounds
from ullage.sums.lanes.run import DevicePart, HostPart, Run, device_parts, host_parts, identity
from ullage.sums.lanes.spans import NONE, ends, intersect, join, spans
from ullage.sums.lanes.states import ProcessState

ALL_OF_IT = 0.99  # of the time in which any rank was recorded; where all ranks were for less of it, the report says so
_SAME = ClockLine(0, 0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Rest:
    """A run over all the time in which any of its ranks was recorded: `elapsed` ns.

    `unknown` is how long what each process did is not known, in the order of `hosts`; `devices` have their unknown time included.
    """

    elapsed: int
    unknown: tuple[int, ...]
    hosts: tuple[HostPart, ...]
    devices: tuple[DevicePart, ...]


def with_common(run: Run, clocks: Sequence[AlignedClock] = ()) -> Run:
    """Return the run, to be looked at while all of its processes were recorded; as it is where there is no such time, or where it can't
    be told: the captures' clocks can't be compared. `clocks` are the captures', in their order."""
    limited = [p for p in run.processes if p.known is not None]
    lines = clock_lines(run, clocks)
    if not limited or lines is None:
        return run
    seen = [_moved(p.known, lines[p.key[0]], -1) for p in limited if p.known is not None]
    low, high = max(first for first, _ in seen), min(last for _, last in seen)
    if low >= high:
        return run
    limits = {place: _moved((low, high), line, 1) for place, line in lines.items()}
    windows = {p.key: intersect(spans(p.window), spans(limits[p.key[0]])) for p in run.processes}
    if not all(w.pieces for w in windows.values()):
        return run
    return replace(run, common=windows, shared=(low, high), recorded=bounds(seen), limits=limits)


def beyond(run: Run) -> dict[str, Pair]:
    """Return the captures whose tables are of more than the time in which all ranks were recorded, by place, and that time by their
    clocks; of a run that was looked at by `with_common`."""
    return {
        c.recording.place: limit
        for c in run.captures
        if (limit := run.limits.get(c.recording.place)) is not None and (c.tables.window[0] < limit[0] or c.tables.window[1] > limit[1])
    }


def beyond_region(run: Run, region: str) -> dict[str, TableTime]:
    """Return the captures whose tables are of another time than the trees of a region, by place, and that time by their clocks."""
    windows = run.region(region)
    kept = {c.recording.place: c for c in run.captures}
    devices = {identity(kept[d.place], d): d for d in run.devices}
    found = {}
    for place, capture in kept.items():
        inside = {p.key[1]: windows.get(p.key, NONE) for p in capture.processes}
        seen = {d.number: run.seen(devices[identity(capture, d)], windows) for d in capture.devices}
        anywhere = join(*inside.values())
        time = TableTime(ends(join(anywhere, *seen.values())), inside, seen | {NOT_KNOWN: anywhere}, region)
        if not time.equals(capture.tables):
            found[place] = time
    return found


def clock_lines(run: Run, clocks: Sequence[AlignedClock]) -> dict[str, ClockLine] | None:
    """Return by how much each capture's clock is ahead of the first one's, by its place; None where that is not known of all."""
    if len(run.captures) == 1:
        return {run.captures[0].recording.place: _SAME}
    aligned = {run.captures[c.capture].recording.place: c.line for c in clocks if c.line is not None}
    if len(aligned) == len(run.captures):
        return aligned
    if any(c.recording.clock != "utc" for c in run.captures):
        return None
    return {c.recording.place: aligned.get(c.recording.place, _SAME) for c in run.captures}


def _moved(pair: Pair, line: ClockLine, sign: int) -> Pair:
    """Return two moments of a capture's clock on the reference's (sign −1), or two of the reference's on the capture's (+1)."""
    first, last = pair
    by = line.at(np.array([first, last], np.int64))
    return first + sign * int(by[0]), last + sign * int(by[1])


def rest(run: Run) -> Rest | None:
    """Return the run over all the time in which anything of it was recorded, None where all of that is known of all ranks."""
    limited = [p for p in run.processes if p.known is not None]
    lives = run.lives()
    longest = max((_length(p.known) for p in limited), default=0)
    elapsed = _length(run.recorded) if run.recorded is not None else max(run.elapsed(lives), longest)
    unknown = tuple(max(elapsed - _length(p.known), 0) if p.known is not None else 0 for p in run.processes)
    if not limited or not any(unknown):
        return None
    dark = {p.key: p for p in run.processes}
    parts = tuple(
        _darkened(part, elapsed, _unseen([dark[key] for key in run.users(part.device, lives)], elapsed))
        for part in device_parts(run, lives, elapsed)
    )
    return Rest(elapsed, unknown, host_parts(run, lives), parts)


def _unseen(users: Iterable[ProcessState], elapsed: int) -> int:
    """Return how long none of a device's users was recorded."""
    known = [p.known for p in users]
    if None in known or not known:
        return 0
    return max(elapsed - spans(*(k for k in known if k is not None)).total, 0)


def _darkened(part: DevicePart, elapsed: int, unseen: int) -> DevicePart:
    return replace(part, idle=elapsed - part.kernel - part.collective - part.memory, unknown=part.unknown + unseen)


def _length(pair: Pair | None) -> int:
    return pair[1] - pair[0] if pair is not None else 0


def partly(run: Run) -> int | None:
    """Return in how many ns any rank was recorded, None where all were for about as long.

    The bounds say what else there is; this is for words."""
    remaining = rest(run)
    if remaining is None or (run.elapsed() >= ALL_OF_IT * remaining.elapsed and not _unequal(run)):
        return None
    return remaining.elapsed


def _unequal(run: Run) -> bool:
    """Return whether ranks that are not compared while all were recorded were recorded for unequal times."""
    lengths = _lengths(run)
    return run.common is None and min(lengths.values()) < ALL_OF_IT * max(lengths.values())


def _lengths(run: Run) -> dict[str, int]:
    return {p.label: _length(p.known or p.window) for p in run.processes}


def recorded_notes(run: Run) -> tuple[str, ...]:
    """Return what a reader must know of how long ranks were recorded."""
    if partly(run) is None:
        return ()
    lengths = _lengths(run)
    short, long = min(lengths, key=lengths.__getitem__), max(lengths, key=lengths.__getitem__)
    if lengths[short] < lengths[long]:
        told = f"{short} was recorded for {lengths[short] / 1e9:.3g} s, {long} for {lengths[long] / 1e9:.3g} s"
    else:
        told = "ranks were recorded at different times"
    if run.common is None:
        rule = "they can't be compared at one time, so what was not recorded counts as lost; the bounds hold whatever it was"
    else:
        rule = (
            f"the efficiencies{'' if beyond(run) else ' and the tables'} are of the time in which all ranks were"
            f"{', tables of kernels and idle time of all that was recorded' if beyond(run) else ''}"
            "; the bounds hold for all of the time in which any rank was, whatever ranks did that were not recorded"
        )
    return (f"{told}: {rule}. Start and stop the profiler behind a barrier",)
