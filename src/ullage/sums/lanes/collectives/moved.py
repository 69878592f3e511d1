"""What collectives moved, and how long it took them: bytes and time by operation, process group and size.

Of a collective of which all ranks are recorded, time runs from the last rank's arrival to the end: that is how long it lasts on the rank
that came last, by that rank's own clock. Where arrivals can't be compared it is the shortest duration among the ranks; where not all
ranks are recorded too, but then it may hold waiting, and the bandwidth is at least what it gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.collectives.collectives import POINT_TO_POINT
from ullage.sums.lanes.collectives.matched import Matched, Participations, codes, machine
from ullage.sums.lanes.collectives.transfer import split
from ullage.sums.lanes.gather import NOT_KNOWN
from ullage.sums.lanes.reduce import Reduced
from ullage.sums.lanes.spans import Times

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MovedBytes:
    """Collectives of one operation in one process group ("": not recorded) of `members` ranks, of sizes within a factor of two.

    `bytes` and `time` (ns) are sums over `count`; `least` and `most` are the bytes of the smallest and the largest. `waiting`: not all
    ranks are recorded, so that time may hold waiting. `hosts` is on how many hosts the group is, None where that is not known.
    """

    operation: str
    group: str
    members: int
    least: int
    most: int
    count: int
    bytes: int
    time: int
    waiting: bool
    hosts: int | None


@dataclass(frozen=True)
class _Each:
    """A row for each collective: `whole` says whether all of its ranks are recorded, `hosts` on how many hosts they are (-1: not known)."""

    operation: Numbers
    group: Numbers
    members: Numbers
    bytes: Numbers
    time: Times
    whole: npt.NDArray[np.bool_]
    hosts: Numbers

    def where(self, chosen: npt.NDArray[np.bool_] | Numbers) -> _Each:
        return _Each(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})


def moved(captures: Sequence[Reduced], matched: Matched) -> tuple[MovedBytes, ...]:
    """Return what the devices' collectives moved, of those whose size and group size are known, the most bytes first.

    Where all ranks of some collectives are recorded, others of the same group and size, at the edges of a recording, are left out.
    """
    on_device = np.array([lane.device >= 0 for lane in matched.lanes], np.bool_)
    each = _joined(_together(matched, captures, on_device), _alone(matched, on_device))
    each = each.where((each.bytes > 0) & (each.members > 1) & (each.operation >= 0))
    if not len(each.bytes):
        return ()
    size = np.frexp(each.bytes.astype(np.float64))[1].astype(np.int64)  # 2^(size-1) <= bytes < 2^size
    which = codes(each.operation, each.group, each.members, size)
    best = np.bincount(which, weights=each.whole) > 0
    kept = np.flatnonzero(each.whole | ~best[which])
    kept = kept[np.argsort(which[kept], kind="stable")]
    found = [_moved(each.where(rows), matched.words) for rows in np.split(kept, np.flatnonzero(np.diff(which[kept])) + 1)]
    return tuple(sorted(found, key=lambda m: (-m.bytes, m.operation, m.group, m.least)))


def _moved(same: _Each, words: tuple[str, ...]) -> MovedBytes:
    group, hosts = int(same.group[0]), int(same.hosts.max())
    return MovedBytes(
        operation=words[int(same.operation[0])],
        group="" if group == NOT_KNOWN else words[group],
        members=int(same.members[0]),
        least=int(same.bytes.min()),
        most=int(same.bytes.max()),
        count=len(same.bytes),
        bytes=int(same.bytes.sum()),
        time=int(same.time.sum()),
        waiting=not bool(same.whole[0]),
        hosts=None if hosts == NOT_KNOWN else hosts,
    )


def _together(matched: Matched, captures: Sequence[Reduced], on_device: npt.NDArray[np.bool_]) -> _Each:
    """Return the collectives that were found on several ranks."""
    rows = matched.rows
    at = np.flatnonzero(np.diff(rows.key, prepend=-1))
    if not len(at) or not on_device.any():
        return _alone(matched, np.zeros_like(on_device))
    count = np.diff(np.append(at, len(rows)))
    whole = rows.whole[at] & np.minimum.reduceat(on_device[rows.lane], at)
    time = np.minimum.reduceat(rows.end - rows.start, at)
    key, lasted = _from_last_arrival(matched)
    time[key] = lasted
    members = np.maximum.reduceat(rows.members, at)
    return _Each(
        operation=_plain(rows, matched.words)[at],
        group=rows.group[at],
        members=np.where((members < 0) & whole, count, members),
        bytes=np.maximum.reduceat(rows.bytes, at),
        time=time,
        whole=whole,
        hosts=np.where(whole, _hosts(matched, captures, at), NOT_KNOWN),
    ).where(np.maximum.reduceat(on_device[rows.lane], at))


def _from_last_arrival(matched: Matched) -> tuple[Numbers, Times]:
    """Return the keys of collectives whose arrivals can be compared, and how long each lasted on the rank that came last."""
    parts = split(matched)
    order = np.lexsort((parts.arrival, parts.key))
    order = order[parts.compared[order]]
    last = order[np.diff(parts.key[order], append=-1) != 0]
    return parts.key[last], parts.end[last] - parts.start[last]


def _hosts(matched: Matched, captures: Sequence[Reduced], at: Numbers) -> Numbers:
    """Return on how many hosts the ranks of each collective are, -1 where a host has no name."""
    names: dict[str, int] = {}
    places = np.array([_host(captures[lane.capture], lane.process, names) for lane in matched.lanes], np.int64)[matched.rows.lane]
    collective = matched.rows.key
    pairs = np.unique(codes(collective, places), return_index=True)[1]
    several = np.bincount(collective[pairs], minlength=len(at))
    return np.where(np.minimum.reduceat(places, at) < 0, NOT_KNOWN, several)


def _host(capture: Reduced, process: int, names: dict[str, int]) -> int:
    host = next((p.host for p in capture.processes if p.key[1] == process), "")
    known = machine(capture.recording) if capture.recording.boot or not host else f"host {host}"
    return names.setdefault(known, len(names)) if known else NOT_KNOWN


def _alone(matched: Matched, on_device: npt.NDArray[np.bool_]) -> _Each:
    """Return the collectives that were found on one rank only, or that nobody could tell to be one."""
    rows = matched.alone.where(on_device[matched.alone.lane])
    nobody, unknown = np.zeros(len(rows), np.bool_), np.full(len(rows), NOT_KNOWN)
    return _Each(_plain(rows, matched.words), rows.group, rows.members, rows.bytes, rows.end - rows.start, nobody, unknown)


def _plain(rows: Participations, words: tuple[str, ...]) -> Numbers:
    """Return operations, where a send and a receive are one: two ranks that do them do the same."""
    if "sendrecv" not in words:
        return rows.operation
    points = [code for code, word in enumerate(words) if word in POINT_TO_POINT]
    return np.where(np.isin(rows.operation, points), words.index("sendrecv"), rows.operation)


def _joined(a: _Each, b: _Each) -> _Each:
    return _Each(**{name: np.concatenate((getattr(a, name), getattr(b, name))) for name in _Each.__dataclass_fields__})
