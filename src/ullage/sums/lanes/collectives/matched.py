"""Collectives laid together: a row for each on each rank, the clocks of the captures, and by how much they differ.

How the rows of one collective are found: `ullage.sums.lanes.collectives.matching`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ullage.recording import Recording
from ullage.sums.lanes.collectives.alignment import AlignedClock, ClockLine, clocks
from ullage.sums.lanes.collectives.collectives import TOGETHER
from ullage.sums.lanes.observed import time_inside
from ullage.sums.lanes.reduce import Reduced
from ullage.sums.lanes.spans import Spans, Times

Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CollectiveLane:
    """Who takes part in collectives: a process with one of its devices. `device` is its place in `Reduced.devices` (-1: none)."""

    capture: int
    place: str
    process: int
    device: int
    rank: int | None
    label: str


@dataclass(frozen=True)
class Participations:
    """One row for each collective on each lane: columns of one length, times in ns by the capture's own clock.

    `operation` and `group` are codes into the words of all captures; `kind` is `operation` with sends and receives as one.
    `chain` is the sequence that a row belongs to: its group, or its stream where no group is recorded. `key` is the same for
    the same collective (-1: not matched), and `whole` says whether all who took part in it are there. `place` tells rows apart.
    """

    lane: Codes
    capture: Codes
    start: Times
    end: Times
    operation: Codes
    kind: Codes
    group: Codes
    stream: Codes
    sequence: Times
    bytes: Times
    members: Codes
    chain: Codes
    key: Codes
    whole: Mask
    place: Codes

    def __len__(self) -> int:
        return len(self.start)

    def where(self, chosen: Mask | Codes) -> Participations:
        """Return the rows where `chosen` (or those at an array of positions)."""
        return Participations(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})


@dataclass(frozen=True)
class Matched:
    """The collectives that were found on two lanes or more: `rows` in the order of `key` (0, 1, …), the lanes, the clocks.

    `alone` are the rows that were not matched. `words` are what the codes of both mean. `notes` say what was not matched, and why.
    """

    lanes: tuple[CollectiveLane, ...]
    rows: Participations
    clocks: tuple[AlignedClock, ...]
    words: tuple[str, ...]
    notes: tuple[str, ...]
    alone: Participations

    @property
    def count(self) -> int:
        """How many collectives were matched."""
        return int(self.rows.key[-1]) + 1 if len(self.rows) else 0

    @property
    def together(self) -> Mask:
        """Return for each row whether all ranks leave its collective at one moment."""
        return np.isin(self.rows.operation, [code for code, word in enumerate(self.words) if word in TOGETHER])


def during(found: Matched, looked: Sequence[Spans]) -> Matched:
    """Return the collectives that run, on some rank, while its lane is `looked` at (by the lanes' places); each counts in full."""

    def inside(rows: Participations) -> Mask:
        chosen = np.zeros(len(rows), np.bool_)
        for lane, when in enumerate(looked):
            mine = np.flatnonzero(rows.lane == lane)
            chosen[mine] = time_inside(when, rows.start[mine], rows.end[mine]) >= 0
        return chosen

    keys = found.rows.key[inside(found.rows)]
    return replace(found, rows=renumbered(found.rows.where(np.isin(found.rows.key, keys))), alone=found.alone.where(inside(found.alone)))


def codes(*columns: Codes) -> Codes:
    """Return one number for each different combination of the columns' values: 0, 1, … in their order.

    >>> codes(np.array([7, 7, 3]), np.array([1, 2, 1])).tolist()
    [1, 2, 0]
    """
    order = np.lexsort(columns[::-1])
    new = np.zeros(len(order), np.int64)
    for column in columns:
        new[1:] |= column[order][1:] != column[order][:-1]
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(new)
    return found


def renumbered(rows: Participations) -> Participations:
    """Return rows in the order of their keys, which become 0, 1, …"""
    rows = rows.where(np.lexsort((rows.lane, rows.key)))
    return replace(rows, key=codes(rows.key))


def clocks_of(found: Matched, owners: Sequence[str]) -> tuple[AlignedClock, ...]:
    """Return the clock of each capture; `owners` says whose clock it went by, "" where it is its own alone.

    Captures of one host and boot have one clock: they are never shifted against one another, for their ends scatter by what the host's
    threads wait for its processors. Clocks that both claim to count from 1970 differ only if by more than their ends scatter.
    """
    rows = found.rows.where(found.together)
    known = {owner: place for place, owner in reversed(list(enumerate(owners))) if owner}
    first = np.array([known.get(owner, place) for place, owner in enumerate(owners)], np.int64)
    which, group = np.unique(first, return_inverse=True)
    told = clocks(group[rows.capture] if len(rows) else rows.capture, rows.key, rows.end, len(which))
    reference = next((place for place in which.tolist() if told[group[place]].reference), 0)
    return tuple(
        replace(clock, capture=place, line=_settled(clock.line, bool(owners[place] and owners[reference])))
        for place, clock in enumerate(told[number] for number in group.tolist())
    )


def _settled(line: ClockLine | None, since_1970: bool) -> ClockLine | None:
    """Return a clock's line; that of the reference itself where both count from 1970 and differ by no more than their ends scatter."""
    if line is None or not since_1970 or line.drift or abs(line.offset) > line.residual:
        return line
    return replace(line, offset=0)


def clock_owners(captures: Sequence[Reduced]) -> list[str]:
    """Return whose clock each capture went by: its machine's, if it counts from 1970; of an unknown machine its own; "" for others."""
    return ["" if c.recording.clock != "utc" else machine(c.recording) or f"capture {place}" for place, c in enumerate(captures)]


def machine(recording: Recording) -> str:
    """Return what tells the machine of a recording apart: its boot, for containers' names may be alike on different ones; else its host.

    >>> machine(Recording("a.json", host="node", boot="1f0c")), machine(Recording("a.json", host="node")), machine(Recording("a.json"))
    ('boot 1f0c', 'host node', '')
    """
    return f"boot {recording.boot}" if recording.boot else f"host {recording.host}" if recording.host else ""


def shifts_of(found: Matched, time: Times) -> tuple[Times, Mask]:
    """Return by how much each row's clock is ahead of the reference's at `time`, in ns, and for which rows that is known."""
    lines = [clock.line or ClockLine(0, 0, 0.0, 0.0, 0.0) for clock in found.clocks]
    whose = found.rows.capture
    origin, offset = (np.array([getattr(line, name) for line in lines], np.int64)[whose] for name in ("origin", "offset"))
    drift = np.array([line.drift for line in lines])[whose]
    known = np.array([clock.line is not None for clock in found.clocks], np.bool_)[whose]
    return offset + np.rint(drift * (time - origin)).astype(np.int64), known
