"""Collectives split into transfer and waiting: when data moves, and when a rank only waits for one that comes late.

Of a collective that no rank can leave before all have come, nothing moves before the last arrival: until then each rank
waits, from then on data moves. Where clocks can't be compared, and for operations that don't hold all ranks (a broadcast,
a send), the shortest duration among the ranks counts as transfer, at the end of each: the last to come waits for nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.collectives.matched import CollectiveLane, Matched, shifts_of
from ullage.sums.lanes.run import Run, identity
from ullage.sums.lanes.spans import NONE, Spans, Times, intersect, join, subtract, union
from ullage.sums.lanes.states import DeviceState

ENOUGH = 0.95  # share of a device's exposed collective time that must be matched before it is split


@dataclass(frozen=True)
class Split:
    """The matched collectives of which all ranks are there, a row each on each lane, in the order of `key`; times in ns.

    `start`, `moving` and `end` are on the lane's own clock: it waits from `start` to `moving`, and data moves from `moving` to
    `end`. `arrival` is the start by the common clock. `compared` says whether arrivals were compared, not only durations.
    """

    key: npt.NDArray[np.int64]
    lane: npt.NDArray[np.int64]
    start: Times
    moving: Times
    end: Times
    arrival: Times
    compared: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Straggler:
    """A lane that others wait for: of `collectives`, it came `last` so many times, `lost` ns after the last but one in all.

    `waited` is how long it waited itself, in ns. Time in which several collectives wait counts once.
    """

    label: str
    rank: int | None
    collectives: int
    last: int
    lost: int
    waited: int


@dataclass(frozen=True)
class Skew:
    """How far apart ranks come to a collective, first to last, in ns: over `collectives`, the median, the 95th percentile, the most."""

    collectives: int
    median: int
    percentile_95: int
    worst: int


def split(matched: Matched) -> Split:
    """Return when each lane waited and when data moved, in each collective of which all ranks are there."""
    ahead, known = shifts_of(matched, matched.rows.start)
    rows, together = matched.rows.where(matched.rows.whole), matched.together[matched.rows.whole]
    ahead, known = ahead[matched.rows.whole], known[matched.rows.whole]
    at = np.flatnonzero(np.diff(rows.key, prepend=-1))
    count = np.diff(np.append(at, len(rows)))
    arrival = rows.start - ahead
    if not len(at):
        return Split(rows.key, rows.lane, rows.start, rows.start, rows.end, arrival, together)
    compared = np.repeat(np.minimum.reduceat(known & together, at), count)
    last = np.repeat(np.maximum.reduceat(arrival, at), count) + ahead
    shortest = np.repeat(np.minimum.reduceat(rows.end - rows.start, at), count)
    moving = np.where(compared, np.minimum(np.maximum(last, rows.start), rows.end), rows.end - shortest)
    return Split(rows.key, rows.lane, rows.start, moving, rows.end, arrival, compared)


def with_transfer(run: Run, matched: Matched) -> Run:
    """Return the run with the part of each device's exposed collective time in which data moves.

    Only what is proven waiting is taken out: a collective that wasn't matched counts as transfer, and so does a moment at
    which one of two collectives waits while the other moves data. A device of whose exposed collective time less than
    `ENOUGH` was matched has no `transfer` (None).
    """
    found = _times(run, matched)
    if not found:
        return run
    names = _identities(run)
    return replace(run, devices=tuple(_split(device, found.get(name)) for name, device in zip(names, run.devices, strict=True)))


_Found = tuple[Spans, Spans]  # when a device waits in matched collectives, when it moves data in them


def _split(device: DeviceState, found: _Found | None) -> DeviceState:
    if coverage(device, found) < ENOUGH:
        return replace(device, transfer=None)
    waiting, moving = found or (NONE, NONE)
    return replace(device, transfer=subtract(device.collective, subtract(waiting, moving)))


def coverage(device: DeviceState, found: _Found | None) -> float:
    """Return which share of a device's exposed collective time lies in matched collectives; 1 where there is none."""
    if not device.collective.pieces:
        return 1.0
    return intersect(join(*found), device.collective).total / device.collective.total if found else 0.0


def _identities(run: Run) -> list[str]:
    """Return what tells the run's devices apart, in their order."""
    return list(dict.fromkeys(identity(capture, device) for capture in run.captures for device in capture.devices))


def _times(run: Run, matched: Matched) -> dict[str, _Found]:
    """Return when each device waits and when it moves data, by its identity."""
    places = {capture.recording.place: capture for capture in run.captures}
    parts = split(matched)
    found: dict[str, _Found] = {}
    for number, mine in _by_lane(parts.lane):
        lane = matched.lanes[number]
        if lane.device < 0 or lane.place not in places:
            continue
        capture = places[lane.place]
        name = identity(capture, capture.devices[lane.device])
        waiting, moving = union(parts.start[mine], parts.moving[mine]), union(parts.moving[mine], parts.end[mine])
        old = found.get(name, (NONE, NONE))
        found[name] = (join(old[0], waiting), join(old[1], moving))
    return found


def _by_lane(lane: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Return each lane that has rows, and the places of its rows."""
    order = np.argsort(lane, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(lane[order])) + 1)
    return [(int(lane[part[0]]), part) for part in parts if len(part)]


def stragglers(matched: Matched) -> tuple[Straggler, ...]:
    """Return the lanes in the order of what the others lost by waiting for them, the most first; () where none can be compared."""
    parts = split(matched)
    parts = Split(**{name: getattr(parts, name)[parts.compared] for name in Split.__dataclass_fields__})
    at = np.flatnonzero(np.diff(parts.key, prepend=-1))
    if not len(at):
        return ()
    order = np.lexsort((parts.arrival, parts.key))
    ends = np.append(at[1:], len(order)) - 1
    last, before = order[ends], order[ends - 1]
    late = parts.arrival[last] > parts.arrival[before]
    last, before = last[late], before[late]
    caused = {number: (parts.arrival[before[mine]], parts.arrival[last[mine]]) for number, mine in _by_lane(parts.lane[last])}
    nobody = (last[:0], last[:0])
    found = (
        _straggler(matched.lanes[number], (parts.start[mine], parts.moving[mine]), caused.get(number, nobody))
        for number, mine in _by_lane(parts.lane)
    )
    return tuple(sorted(found, key=lambda s: (-s.lost, -s.last, s.label)))


def _straggler(lane: CollectiveLane, waited: tuple[Times, Times], lost: tuple[Times, Times]) -> Straggler:
    return Straggler(lane.label, lane.rank, len(waited[0]), len(lost[0]), union(*lost).total, union(*waited).total)


def skew(matched: Matched) -> Skew | None:
    """Return how far apart ranks come to their collectives, None where that can't be compared."""
    parts = split(matched)
    at = np.flatnonzero(np.diff(parts.key, prepend=-1))
    if not len(at) or not parts.compared.any():
        return None
    apart = (np.maximum.reduceat(parts.arrival, at) - np.minimum.reduceat(parts.arrival, at))[parts.compared[at]]
    median, most = (int(np.percentile(apart, share, method="nearest")) for share in (50, 95))
    return Skew(len(apart), median, most, int(apart.max()))


def transfer_notes(run: Run, matched: Matched) -> tuple[str, ...]:
    """Return what a reader must know of the split: what was not matched, how sure the clocks are, which devices are not split."""
    notes = list(matched.notes)
    parts = split(matched)
    found = _times(run, matched)
    if found and not parts.compared.all():
        count = int(np.unique(parts.key[~parts.compared]).size)
        notes.append(f"in {count:,} collectives the shortest duration among the ranks counts as transfer: arrivals can't be compared")
    fitted = [clock.line for clock in matched.clocks if clock.line is not None and not clock.reference]
    if fitted:
        residual, worst = max(line.residual for line in fitted) / 1e3, max(line.worst for line in fitted) / 1e3
        notes.append(f"clocks were aligned by the ends of collectives: residual {residual:.3g} µs (median), {worst:.3g} µs (most)")
    lacking = [c.matches for c in matched.clocks if c.line is None]
    if lacking and matched.count:
        notes.append(f"the clocks of {len(lacking)} captures could not be aligned: fewer than 3 common collectives")
    low = [coverage(d, found.get(name)) for name, d in zip(_identities(run), run.devices, strict=True)]
    short = [share for share in low if share < ENOUGH]
    if found and short:
        notes.append(
            f"collectives are not split into transfer and waiting: on {len(short)} of {len(low)} devices only "
            f"{100 * min(short):.0f} % of their time could be matched"
        )
    return tuple(notes)
