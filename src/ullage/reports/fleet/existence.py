"""For how long the GPUs of a report exist: from first to last sight, or as an inventory says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import harmless
from ullage.sources.inventory import Listed
from ullage.sums.spans import Span, joined_spans, length

_PLACE = ("gpu", "cluster", "host", "index")


@dataclass(frozen=True)
class Existence:
    """When each GPU exists (ms): `seen` those that samples speak of, `unseen` those that only an inventory names.

    `listed` are the GPUs of `seen` that an inventory lists.
    """

    seen: dict[str | None, tuple[Span, ...]]
    unseen: dict[str, tuple[Span, ...]] = field(default_factory=dict)
    listed: frozenset[str | None] = frozenset()

    @property
    def total(self) -> float:
        """For how long all GPUs exist, added up (ms)."""
        return float(sum(length(spans) for spans in (*self.seen.values(), *self.unseen.values())))


def existence(sums: pa.Table, inventory: Sequence[Listed] = (), window: Span | None = None) -> Existence:
    """Return when the GPUs exist that sums by state speak of, and those of an inventory, within the window.

    A GPU that no inventory lists exists from its first to its last sight. A place that several GPUs held one after the other ends for
    each when the next is first seen there.
    """
    sights = sums.group_by("gpu").aggregate([("start_ms", "min"), ("last_ms", "max")]).to_pylist()
    seen: dict[str | None, tuple[Span, ...]] = {row["gpu"]: ((row["start_ms_min"], row["last_ms_max"]),) for row in sights}
    if not inventory:
        return Existence(seen)
    start, end = window or (min(spans[0][0] for spans in seen.values()), max(spans[0][1] for spans in seen.values()))
    places = _places(sums)
    told: dict[str, list[Span]] = defaultdict(list)
    lost: dict[str, list[Span]] = defaultdict(list)
    for entry in inventory:
        span = max(start, entry.start if entry.start is not None else start), min(end, entry.end if entry.end is not None else end)
        own = [(entry.gpu, span)] if entry.gpu in seen else _at_place(entry, span, places)
        if not own and span[0] < span[1]:
            lost[entry.name].append(span)
        for gpu, part in own:
            told[str(gpu)].append(part)
    found = {gpu: joined_spans(told[gpu]) if gpu in told else spans for gpu, spans in seen.items()}
    return Existence(found, {name: joined_spans(spans) for name, spans in lost.items()}, frozenset(told))


def _places(sums: pa.Table) -> dict[tuple[str | None, int | None], list[tuple[float, str, str | None]]]:
    """Return the GPUs that were seen at each host and number: first sight, name, cluster; in order of time."""
    rows = sums.group_by(list(_PLACE)).aggregate([("start_ms", "min")]).to_pylist()
    found: dict[tuple[str | None, int | None], list[tuple[float, str, str | None]]] = defaultdict(list)
    for row in rows:
        if row["gpu"] is not None:
            found[row["host"], row["index"]].append((row["start_ms_min"], row["gpu"], row["cluster"]))
    return {place: sorted(gpus, key=lambda one: one[:2]) for place, gpus in found.items()}


def _at_place(
    entry: Listed, span: Span, places: dict[tuple[str | None, int | None], list[tuple[float, str, str | None]]]
) -> list[tuple[str, Span]]:
    """Return the GPUs of an entry that names a place, and when each was there."""
    if entry.gpu is not None or entry.host is None:
        return []
    there = [
        (first, gpu)
        for first, gpu, cluster in places.get((entry.host, entry.index), ())
        if None in (entry.cluster, cluster) or cluster == entry.cluster
    ]
    edges = [span[0], *(int(first) for first, _ in there[1:]), span[1]]
    return [(gpu, (max(span[0], edges[at]), min(span[1], edges[at + 1]))) for at, (_, gpu) in enumerate(there)]


def outside(sums: pa.Table, found: Existence) -> dict[str, tuple[Span, ...]]:
    """Return the spans of the GPUs that were seen at a time for which an inventory says that they did not exist."""
    rows = sums.filter(pc.is_in(sums["gpu"], value_set=pa.array(sorted(str(gpu) for gpu in found.listed), pa.string())))
    ends = rows.group_by("gpu").aggregate([("start_ms", "min"), ("last_ms", "max")]).to_pylist()
    return {
        row["gpu"]: spans
        for row in ends
        if (spans := found.seen[row["gpu"]]) != joined_spans([*spans, (row["start_ms_min"], row["last_ms_max"])])
    }


def notes_of(found: Existence, before: float, after: float) -> list[str]:
    """Return what to say of an inventory: GPUs that were never seen, GPUs that it lacks, and GPU-hours that were observed outside it."""
    notes = []
    if found.unseen:
        hours = sum(length(spans) for spans in found.unseen.values()) / 3_600_000
        notes.append(
            f"{len(found.unseen):,} GPUs of the inventory were never seen (first: {harmless(min(found.unseen), 60)}): their {hours:,.1f} "
            "GPU-hours are unknown"
        )
    lacking = [str(gpu) for gpu in found.seen if gpu not in found.listed]
    if lacking and (found.unseen or found.listed):
        notes.append(
            f"{len(lacking):,} GPUs were seen that the inventory does not list (first: {harmless(min(lacking), 60)}): they exist from "
            "first to last sight"
        )
    if before > after:
        notes.append(f"{before - after:,.1f} GPU-hours were observed when the inventory says that their GPU was not there; left out")
    return notes
