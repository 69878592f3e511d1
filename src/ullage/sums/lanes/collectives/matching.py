"""The same collective found on every rank that took part in it.

By its process group and its number within the group, where the source has them. Else by its place in the order: all ranks do
the collectives of a group (of a stream, where no group is recorded) in one order, so two sequences that agree in operations
and sizes are the same collectives, shifted if one recording began later (`ullage.sums.lanes.collectives.shifts`). What is ambiguous is
left unmatched, with a note.

Groups of different ranks may bear one name; then more ranks know the name than the group has members, and since it isn't
recorded which belong together, nothing is matched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ullage.errors import harmless
from ullage.sums.lanes.collectives.collectives import POINT_TO_POINT
from ullage.sums.lanes.collectives.exchanges import common_exchanges, named_exchanges
from ullage.sums.lanes.collectives.matched import (
    Codes,
    CollectiveLane,
    Mask,
    Matched,
    Participations,
    clock_owners,
    clocks_of,
    codes,
    renumbered,
    shifts_of,
)
from ullage.sums.lanes.collectives.shifts import shift
from ullage.sums.lanes.gather import NOT_KNOWN
from ullage.sums.lanes.reduce import Reduced


def match(captures: Sequence[Reduced]) -> Matched:
    """Return the collectives that several lanes of `captures` have in common, and how their clocks differ."""
    words: dict[str, int] = {}
    notes: list[str] = []
    lanes, rows = _table(captures, words)
    names, every = tuple(words), _collapsed(rows)
    points = _named_points(every) & (len(lanes) > 1)
    if len(lanes) > 1:
        rows = _chained(every.where(~points))
        rows = _ordered(_numbered(rows), names, [r.recording.clock for r in captures], notes)
    all_there, owners = len(lanes) >= max((r.recording.ranks or 0 for r in captures), default=0), clock_owners(captures)
    rows = _believed(rows, names, all_there, notes)
    found = common_exchanges(Matched(lanes, rows, (), names, (), every), owners)
    found = _aligned(named_exchanges(found, every.where(points), owners, all_there), owners, notes)
    found = replace(found, alone=every.where(~np.isin(every.place, found.rows.place)))
    return replace(found, notes=(*_unmatched_points(found), *notes))


def _table(captures: Sequence[Reduced], words: dict[str, int]) -> tuple[tuple[CollectiveLane, ...], Participations]:
    lanes: list[CollectiveLane] = []
    parts: list[dict[str, npt.NDArray[np.int64]]] = []
    for number, reduced in enumerate(captures):
        found = reduced.collectives
        who = (found.process.astype(np.int64) << 32) + found.device + 1
        used, lane = np.unique(who, return_inverse=True)
        table = np.array([*(words.setdefault(word, len(words)) for word in found.words), NOT_KNOWN], np.int64)
        parts.append(
            {name: getattr(found, name).astype(np.int64) for name in ("start", "end", "stream", "sequence", "bytes", "members")}
            | {"lane": lane + len(lanes), "capture": np.full(len(found), number, np.int64)}
            | {"operation": table[found.operation], "group": table[found.group]}
        )
        lanes += [_lane(reduced, number, int(pair >> 32), int(pair & 0xFFFFFFFF) - 1, used) for pair in used]
    columns = {name: np.concatenate([part[name] for part in parts]) if parts else np.zeros(0, np.int64) for name in _READ}
    points = np.isin(columns["operation"], [code for word, code in words.items() if word in POINT_TO_POINT])
    blank = np.full(len(points), NOT_KNOWN, np.int64)
    kind = np.where(points, -2, columns["operation"])
    place, nobody = np.arange(len(points)), np.zeros(len(points), np.bool_)
    return tuple(lanes), Participations(**columns, kind=kind, chain=blank, key=blank, whole=nobody, place=place)


_READ = ("lane", "capture", "start", "end", "operation", "group", "stream", "sequence", "bytes", "members")
_POINT = -2  # the kind of sends and receives


def _lane(reduced: Reduced, capture: int, process: int, device: int, used: Codes) -> CollectiveLane:
    known = next((p for p in reduced.processes if p.key[1] == process), None)
    rank = known.rank if known else reduced.recording.rank
    label = known.label if known else f"rank {rank}" if rank is not None else reduced.recording.place
    several = int((used >> 32 == process).sum()) > 1
    return CollectiveLane(capture, reduced.recording.place, process, device, rank, f"{label}, GPU {device}" if several else label)


def _collapsed(rows: Participations) -> Participations:
    """Return one row where several kernels, one after the other, bear one number: they are one collective."""
    rows = rows.where(np.lexsort((rows.start, rows.kind == _POINT, rows.group, rows.lane)))
    new = np.ones(len(rows), np.bool_)
    new[1:] = rows.sequence[1:] < 0
    for column in (rows.lane, rows.group, rows.kind == _POINT, rows.sequence):
        new[1:] |= column[1:] != column[:-1]
    at = np.flatnonzero(new)
    if len(at) == len(rows):
        return rows
    end, size = np.maximum.reduceat(rows.end, at), np.add.reduceat(np.maximum(rows.bytes, 0), at)
    return replace(rows.where(at), end=end, bytes=size)


def _named_points(rows: Participations) -> Mask:
    """Return which rows are sends and receives in named groups of more than two: which of them meet is not recorded."""
    return np.asarray((rows.kind == _POINT) & (rows.group >= 0) & (rows.members != 2))


def _unmatched_points(found: Matched) -> list[str]:
    out = _named_points(found.alone) & (len(found.lanes) > 1)
    if not out.any():
        return []
    named = _quoted(found.words, found.alone.group[out])
    return [f"{int(out.sum()):,} sends and receives in {named} are not matched: which of them meet is not recorded"]


def _quoted(words: tuple[str, ...], groups: Codes) -> str:
    named = [f"'{harmless(words[code], 40)}'" for code in np.unique(groups) if code >= 0]
    more = f" and {len(named) - 3:,} more" if len(named) > 3 else ""
    return f"group{'s' if len(named) > 1 else ''} {', '.join(named[:3])}{more}"


def _chained(rows: Participations) -> Participations:
    """Give each row its chain: its group; without one, the place of its stream among those of its lane."""
    pair = codes(rows.lane, np.where(rows.group < 0, rows.stream, NOT_KNOWN))
    bare = rows.group < 0
    first = np.full(int(rows.lane.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, rows.lane[bare], pair[bare])
    place = np.where(bare, pair - first[rows.lane], NOT_KNOWN)
    return replace(rows, chain=codes(rows.group, place, (rows.sequence >= 0).astype(np.int64)))


def _numbered(rows: Participations) -> Participations:
    """Give the same key to rows with the same group and number; a number that comes again later is another collective."""
    numbered = rows.sequence >= 0
    point = (rows.kind == _POINT).astype(np.int64)
    order = np.lexsort((rows.start, rows.sequence, point, rows.group, rows.lane))
    same = codes(rows.lane, rows.group, point, rows.sequence)[order]
    begins = np.concatenate(([0], np.flatnonzero(same[1:] != same[:-1]) + 1)) if len(same) else np.zeros(0, np.int64)
    again = np.empty(len(rows), np.int64)
    again[order] = np.arange(len(rows)) - np.repeat(begins, np.diff(np.append(begins, len(rows))))
    return replace(rows, key=np.where(numbered, codes(rows.group, point, rows.sequence, again), NOT_KNOWN))


def _ordered(rows: Participations, words: tuple[str, ...], clock: list[str], notes: list[str]) -> Participations:
    """Give the same key to rows at the same place of a chain, where nothing numbers them."""
    sized = ~np.isin(rows.operation, [code for code, word in enumerate(words) if word in POINT_TO_POINT | {"alltoall"}])
    signature = codes(rows.kind, np.where(sized, rows.bytes, NOT_KNOWN), rows.members)
    bare = np.flatnonzero(rows.sequence < 0)
    bare = bare[np.lexsort((rows.start[bare], rows.lane[bare], rows.chain[bare]))]
    key, free = rows.key.copy(), int(rows.key.max(initial=NOT_KNOWN)) + 1
    unnamed = 0
    for chain in np.split(bare, np.flatnonzero(np.diff(rows.chain[bare])) + 1):
        segments = np.split(chain, np.flatnonzero(np.diff(rows.lane[chain])) + 1)
        if len(segments) < 2:
            continue
        named, placed = bool(rows.group[chain[0]] >= 0), _placed(rows, segments, signature, clock)
        refused = sum(place is None for place in placed)
        if refused:
            what = _quoted(words, rows.group[chain]) if named else _stream(int(rows.stream[chain[0]]))
            notes.append(
                f"the collectives of {what} are not matched on {refused if named else len(segments)} of {len(segments)} ranks: "
                "they have no numbers, and their order fits in no way, or in several"
            )
        if refused and not named:
            continue  # who belongs together is not known, so one that doesn't fit makes all doubtful
        unnamed += 0 if named else len(chain)
        lowest = min(place for place in placed if place is not None)
        for segment, place in zip(segments, placed, strict=True):
            if place is not None:
                key[segment] = free + place - lowest + np.arange(len(segment))
        free = int(key.max()) + 1
    if unnamed:
        notes.append("no process groups are recorded: collectives are matched by their order on each stream, among all ranks")
    return replace(rows, key=key)


def _stream(number: int) -> str:
    return f"stream {number}" if number >= 0 else "gloo"


def _placed(rows: Participations, segments: list[Codes], signature: Codes, clock: list[str]) -> list[int | None]:
    """Return where each lane's part of a chain begins, counted from the longest one's begin; None where it can't be told."""
    longest = max(segments, key=len)
    reference = int(rows.capture[longest[0]])

    def place(segment: Codes) -> int | None:
        capture = int(rows.capture[segment[0]])
        same = capture == reference or clock[capture] == clock[reference] == "utc"
        return shift(signature[longest], signature[segment], rows.end[longest], rows.end[segment], same)

    return [0 if segment is longest else place(segment) for segment in segments]


def _believed(rows: Participations, words: tuple[str, ...], all_there: bool, notes: list[str]) -> Participations:
    """Return the matched rows in the order of their keys, without those that contradict themselves."""
    known = renumbered(rows.where(rows.key >= 0))
    at = np.flatnonzero(np.diff(known.key, prepend=-1))
    if not len(at):
        return known
    count = np.diff(np.append(at, len(known)))
    differ = np.minimum.reduceat(known.kind, at) != np.maximum.reduceat(known.kind, at)
    members = np.maximum.reduceat(known.members, at)
    crowded = (members > 0) & (count > members)
    if (differ & (count > 1)).any():
        notes.append(f"{int((differ & (count > 1)).sum()):,} collectives are not matched: ranks do different operations under one number")
    if crowded.any():
        shared = _quoted(words, known.group[at[crowded]])
        notes.append(f"more ranks know {shared} than it has members: which of them belong together is not recorded; not matched")
    good = (count > 1) & ~differ & ~crowded
    lanes = _lanes_of(rows)[known.chain[at]]
    whole = np.where(members > 0, count == members, (count == lanes) & all_there)
    kept = replace(known, whole=np.repeat(whole, count)).where(np.repeat(good, count))
    return renumbered(kept)


def _lanes_of(rows: Participations) -> Codes:
    """Return how many lanes each chain is on."""
    pairs = codes(rows.chain, rows.lane)
    first = np.unique(pairs, return_index=True)[1]
    return np.bincount(rows.chain[first])


def _aligned(found: Matched, owners: Sequence[str], notes: list[str]) -> Matched:
    """Return the same with the captures' clocks, and without chains whose ends don't coincide: they are no common collectives."""
    found = replace(found, clocks=clocks_of(found, owners))
    strange = _strange(found)
    if len(strange):
        out = np.isin(found.rows.chain, strange)
        groups = found.rows.group[out]
        what = _quoted(found.words, groups) if (groups >= 0).any() else "streams without a group"
        notes.append(f"the collectives of {what} are not matched: they don't end at the same moment on different ranks")
        found = replace(found, rows=renumbered(found.rows.where(~out)))
        found = replace(found, clocks=clocks_of(found, owners))
    partly = int(np.unique(found.rows.key[~found.rows.whole]).size)
    if partly:
        notes.append(f"{partly:,} collectives are not split, since not all ranks that took part in them are there")
    return found


def _strange(found: Matched) -> Codes:
    """Return the chains whose collectives' ends lie further apart than the collectives last."""
    rows = found.rows
    ahead, known = shifts_of(found, rows.end)
    at = np.flatnonzero(np.diff(rows.key, prepend=-1))
    if not len(at):
        return at
    end = rows.end - ahead
    apart = np.maximum.reduceat(end, at) - np.minimum.reduceat(end, at)
    longest = np.maximum.reduceat(rows.end - rows.start, at)
    sure = np.minimum.reduceat(known & found.together, at)
    chain = rows.chain[at]
    chains = np.unique(chain[sure])
    return np.array([c for c in chains if np.median(apart[sure & (chain == c)]) > np.median(longest[sure & (chain == c)])], np.int64)
