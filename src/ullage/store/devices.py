"""The devices of some rows, and where rows of the same devices lie among the parts of a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ullage.store.manifest import StoreFolder, StorePart
from ullage.store.parts import TAIL_ROWS, read_ranges, read_tails
from ullage.sums.ordering import Ints, Mask, chosen, column_of, keys, milliseconds, one_batch, starts_of
from ullage.sums.windows import SILENCE_MS
from ullage.tables import SETTLED

NEVER = np.int64(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class StoredDevices:
    """Distinct (gpu, mig) pairs, sorted, each with the first and last time (ms) of its rows."""

    gpu: pa.Array
    mig: pa.Array
    first: Ints
    last: Ints

    def __len__(self) -> int:
        return len(self.first)

    def find(self, table: pa.Table) -> Ints:
        """Return, for each row of a table in one batch with `gpu` and `mig`, the number of its device here; -1: none."""
        gpus, migs = _words(self.gpu), _words(self.mig)
        ours = _pairs(self.gpu, self.mig, gpus, migs)
        theirs = _pairs(column_of(table, "gpu"), column_of(table, "mig"), gpus, migs)
        order = np.argsort(ours)
        place = np.minimum(np.searchsorted(ours, theirs, sorter=order), len(ours) - 1)
        number = order[place]
        return np.where(ours[number] == theirs, number, -1)


def devices_of(rows: pa.Table) -> StoredDevices:
    """Return the devices of sorted rows in one batch (at least one row)."""
    device, _ = keys(rows)
    starts = starts_of(device)
    ends = np.append(starts[1:], len(device)) - 1
    time, at = milliseconds(column_of(rows, "time")), pa.array(starts)
    return StoredDevices(column_of(rows, "gpu").take(at), column_of(rows, "mig").take(at), time[starts], time[ends])


def _words(column: pa.Array) -> pa.Array:
    return column.dictionary.unique().drop_null()


def _pairs(gpu: pa.Array, mig: pa.Array, gpus: pa.Array, migs: pa.Array) -> Ints:
    """One number for each (gpu, mig) among the known words; -1 where either is not known."""
    high, low = _numbers(gpu, gpus), _numbers(mig, migs)
    return np.where((high < 0) | (low < 0), -1, high * (len(migs) + 1) + low)


def _numbers(words: pa.Array, known: pa.Array) -> Ints:
    """Each row's place (from 1) among the known words; 0 for null, -1 for a word that is not among them."""
    places: Ints = pc.fill_null(pc.index_in(words.dictionary, value_set=known), -2).to_numpy().astype(np.int64) + 1
    codes: Ints = pc.fill_null(words.indices, len(places)).to_numpy()
    return np.append(places, 0)[codes]


# --- where rows of these devices lie ---


@dataclass(frozen=True)
class Lying:
    """How the rows of one part lie to some devices: for each device that both have, its number and range there."""

    number: Ints
    first: Ints
    last: Ints
    overlaps: Mask


def lying(devices: StoredDevices, ranges: pa.Table) -> Lying:
    """Return how a part with these `ranges` (`parts.read_ranges`) lies to the devices."""
    number = devices.find(ranges)
    both = number >= 0
    number, first, last = number[both], ranges["first"].to_numpy()[both], ranges["last"].to_numpy()[both]
    return Lying(number, first, last, (first <= devices.last[number]) & (last >= devices.first[number]))


def reachable(folder: StoreFolder, parts: Iterable[StorePart], devices: StoredDevices) -> dict[StorePart, pa.Table]:
    """Return the parts, with their ranges, whose rows may overlap the devices' rows or follow within the silence."""
    first, last = int(devices.first.min()), int(devices.last.max())
    return {part: read_ranges(folder, part) for part in parts if part.last >= first and part.first <= last + SILENCE_MS}


def affected(devices: StoredDevices, ranges: Mapping[StorePart, pa.Table]) -> tuple[StorePart, ...]:
    """Return the parts that change when rows of these devices come in.

    They are the parts among whose rows they fall, and the part that holds the next row of a device, since that row's
    span and growth are counted from the row before it.
    """
    places = {part: lying(devices, table) for part, table in ranges.items()}
    following = np.full(len(devices), NEVER)
    covered = np.zeros(len(devices), np.bool_)
    for place in places.values():
        covered[place.number[place.overlaps & (place.last > devices.last[place.number])]] = True
        np.minimum.at(following, place.number, np.where(_after(place, devices), place.first, NEVER))
    return tuple(part for part, place in places.items() if place.overlaps.any() or _next(place, devices, following, covered).any())


def untangled(
    folder: StoreFolder, parts: Iterable[StorePart], devices: StoredDevices | None, replaced: Iterable[StorePart]
) -> tuple[StorePart, ...]:
    """Return the parts to make anew so that no device's rows come to lie in one part before and behind its rows in another.

    What is made anew joins the rows of all `replaced` parts and of new rows of these `devices` (None: no rows come in); a part
    that holds a device's rows in between must be joined too, and so on. Looking back at the last rows of a part, and ahead to
    the next part, rests on it.
    """
    chosen_parts, others = list(replaced), [part for part in parts if part not in set(replaced)]
    while True:
        joined = _joined(devices, [read_ranges(folder, part) for part in chosen_parts])
        first, last = int(joined.first.min()), int(joined.last.max())
        near = [part for part in others if part.last >= first and part.first <= last]
        found = [part for part in near if lying(joined, read_ranges(folder, part)).overlaps.any()]
        if not found:
            return tuple(chosen_parts)
        chosen_parts += found
        others = [part for part in others if part not in set(found)]


def _joined(devices: StoredDevices | None, ranges: Iterable[pa.Table]) -> StoredDevices:
    """Return the devices of some rows and parts, each with the range of all its rows there."""
    tables = list(ranges)
    if devices is not None:
        tables.append(pa.table({"gpu": devices.gpu, "mig": devices.mig, "first": devices.first, "last": devices.last}))
    text = pa.schema([("gpu", pa.string()), ("mig", pa.string()), ("first", pa.int64()), ("last", pa.int64())])
    spans = (
        pa.concat_tables([table.select(text.names).cast(text) for table in tables])
        .group_by(["gpu", "mig"])
        .aggregate([("first", "min"), ("last", "max")])
    )
    gpu, mig = (spans[name].combine_chunks().dictionary_encode() for name in ("gpu", "mig"))
    return StoredDevices(gpu, mig, spans["first_min"].to_numpy(), spans["last_max"].to_numpy())


def _after(place: Lying, devices: StoredDevices) -> Mask:
    last = devices.last[place.number]
    return np.asarray((place.first > last) & (place.first <= last + SILENCE_MS))


def _next(place: Lying, devices: StoredDevices, following: Ints, covered: Mask) -> Mask:
    return np.asarray(_after(place, devices) & (place.first == following[place.number]) & ~covered[place.number])


def neighbours(folder: StoreFolder, parts: Iterable[StorePart], devices: StoredDevices, first: int, last: int) -> pa.Table | None:
    """Return the last rows that `parts` hold of the devices, as far as rows from `first` to `last` (ms) look back at them.

    Parts that end before `first` are asked from the latest back, until every device has its `TAIL_ROWS`.
    """
    near = sorted((p for p in parts if p.last >= first - SILENCE_MS and p.first <= last), key=lambda p: p.last, reverse=True)
    found: list[pa.Table] = []
    newest = np.full((len(devices), TAIL_ROWS), np.iinfo(np.int64).min)  # ascending times before `first`, by device
    for part in near:
        if part.last < first and bool((newest[:, 0] >= part.last).all()):
            break
        tail = read_tails(folder, part, SETTLED.names)
        number = devices.find(tail)
        found.append(chosen(tail, number >= 0))
        _remember(newest, number, milliseconds(column_of(tail, "time")), first)
    return one_batch(pa.concat_tables(found)) if any(t.num_rows for t in found) else None


def _remember(newest: Ints, number: Ints, time: Ints, first: int) -> None:
    """Put the times of rows before `first` into each device's list of newest times."""
    rows = np.flatnonzero((number >= 0) & (time < first))
    starts = np.flatnonzero(np.concatenate(([True], np.diff(number[rows]) != 0))) if len(rows) else rows
    for step in range(TAIL_ROWS):  # a tail has at most that many rows a device
        at = starts + step
        at = at[(at < len(rows))]
        at = at[number[rows[at]] == number[rows[at - step]]]
        device = number[rows[at]]
        newest[device, 0] = np.maximum(newest[device, 0], time[rows[at]])
        newest[device] = np.sort(newest[device], axis=1)
