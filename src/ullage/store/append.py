"""New rows come in: cut into pieces, freed of what is known, settled, written, and committed piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import UllageError
from ullage.job_names import separate_names
from ullage.store import units
from ullage.store.devices import StoredDevices, affected, devices_of, lying, neighbours, reachable, untangled
from ullage.store.manifest import ChangedMeanwhileError, Manifest, StoreFolder, StorePart
from ullage.store.parts import read_part, write_days
from ullage.store.rewrite import rewrite
from ullage.sums.ordering import Mask, chosen, column_of, has_value, milliseconds, numbers, one_batch, pack
from ullage.sums.ratio_units import settle_ratio_units, without_dead_clocks
from ullage.sums.windows import DERIVED, derive, merge, unequal
from ullage.tables import FIELDS, SAMPLES, Flag

CHUNK_ROWS = 2_000_000  # rows settled and committed at a time: this bounds the memory

States = npt.NDArray[np.int8]
ABSENT, KNOWN, CHANGES = np.int8(0), np.int8(1), np.int8(2)


@dataclass(frozen=True)
class Appended:
    """What an append did: rows that are new, rows that changed a stored one, rows already known, parts written.

    `percent` counts readings that were percent under the name of a ratio, `impossible` those of each field beyond any ratio.
    """

    rows_new: int = 0
    rows_changed: int = 0
    rows_known: int = 0
    parts: int = 0
    percent: int = 0
    impossible: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: Appended) -> Appended:
        return Appended(
            self.rows_new + other.rows_new,
            self.rows_changed + other.rows_changed,
            self.rows_known + other.rows_known,
            self.parts + other.parts,
            self.percent + other.percent,
            {name: self.impossible.get(name, 0) + other.impossible.get(name, 0) for name in {**self.impossible, **other.impossible}},
        )


def append(
    folder: StoreFolder,
    batches: Iterable[pa.RecordBatch | pa.Table],
    now: Callable[[], int],
    *,
    gap_ms: int | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> Appended:
    """Store rows of `SAMPLES` and return what was done; the caller holds the lock.

    Every `chunk_rows` rows are one commit. What was committed when an error or a kill ends the work stays stored, and
    is recognised when the same rows come again.
    """
    manifest, done = folder.read(), Appended()
    for chunk in chunks(batches, chunk_rows):
        try:
            manifest, more = _add(folder, manifest, chunk, now, gap_ms)
        except ChangedMeanwhileError:
            manifest, more = folder.repeated(partial(_add_anew, folder, chunk, now, gap_ms))
        done += more
    return done


def _add_anew(folder: StoreFolder, chunk: pa.Table, now: Callable[[], int], gap_ms: int | None) -> tuple[Manifest, Appended]:
    return _add(folder, folder.read(), chunk, now, gap_ms)


# --- pieces ---


def chunks(batches: Iterable[pa.RecordBatch | pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield merged tables made from about `rows` rows each.

    The last row of each device is held back for the next piece, so that a scrape that is cut in two, or a field that
    comes a batch later, does not make the next piece rewrite this one. When `batches` raises UllageError, what came
    before is yielded, and then it is raised.
    """
    waiting: list[pa.Table] = []
    count = 0
    failure: UllageError | None = None
    try:
        for table in _pieces(batches, rows):
            waiting.append(table)
            count += table.num_rows
            if count >= rows:
                ready, held = _without_last(merge(pa.concat_tables(waiting)), rows // 2)
                if ready.num_rows:
                    yield ready
                waiting, count = [held], held.num_rows
    except UllageError as error:
        failure = error
    if count:
        yield merge(pa.concat_tables(waiting))
    if failure is not None:
        raise failure


def _pieces(batches: Iterable[pa.RecordBatch | pa.Table], rows: int) -> Iterator[pa.Table]:
    for batch in batches:
        table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        for start in range(0, table.num_rows, rows):
            yield one_batch(table.select(SAMPLES.names).slice(start, rows))


def _without_last(merged: pa.Table, most: int) -> tuple[pa.Table, pa.Table]:
    """Rows without the last row of each device, and those last rows; all rows and none when there are too many devices."""
    devices = devices_of(merged)
    if len(devices) > most:
        return merged, merged.slice(0, 0)
    last = milliseconds(column_of(merged, "time")) == devices.last[devices.find(merged)]
    return chosen(merged, ~last), chosen(merged, last)


# --- one piece ---


def _add(folder: StoreFolder, manifest: Manifest, chunk: pa.Table, now: Callable[[], int], gap_ms: int | None) -> tuple[Manifest, Appended]:
    """Commit one merged piece; return the manifest after it and what was done."""
    manifest, chunk, found = _settled(folder, manifest, chunk, now)
    manifest, done = _commit(folder, manifest, chunk, now, gap_ms)
    return manifest, done + found


def _settled(folder: StoreFolder, manifest: Manifest, chunk: pa.Table, now: Callable[[], int]) -> tuple[Manifest, pa.Table, Appended]:
    """Return the piece in the units that its exporters are known to use, which may put right what is stored.

    The file of units is written before the piece: after a kill it knows of rows that come again, and never too little.
    """
    habits = units.read(folder.path)
    settled = settle_ratio_units(chunk, habits)
    if settled.changed:
        manifest = units.restate(folder, manifest, settled.habits, settled.changed, now)
    if settled.habits != habits:
        units.write(folder, settled.habits)
    return manifest, without_dead_clocks(settled.rows), Appended(percent=settled.percent, impossible=settled.impossible)


def _commit(
    folder: StoreFolder, manifest: Manifest, chunk: pa.Table, now: Callable[[], int], gap_ms: int | None
) -> tuple[Manifest, Appended]:
    devices = devices_of(chunk)
    ranges = reachable(folder, manifest.parts, devices)
    state = _states(folder, chunk, devices, ranges)
    new, changed, known = (int(np.count_nonzero(state == s)) for s in (ABSENT, CHANGES, KNOWN))
    counts = Appended(new, changed, known)
    if counts.rows_known:
        chunk = chosen(chunk, state != KNOWN)
        if not chunk.num_rows:
            return manifest, counts
        devices = devices_of(chunk)
    replaced = affected(devices, ranges)
    if replaced:
        replaced = untangled(folder, manifest.parts, devices, replaced)
        parts = rewrite(folder, manifest, replaced, chunk, gap_ms=gap_ms)
    else:
        around = neighbours(folder, manifest.parts, devices, int(devices.first.min()), int(devices.last.max()))
        parts = write_days(folder, derive(chunk, gap_ms=gap_ms, before=around))
    return folder.replace(manifest, replaced, parts, now()), counts + Appended(parts=len(parts))


def _states(folder: StoreFolder, chunk: pa.Table, devices: StoredDevices, ranges: dict[StorePart, pa.Table]) -> States:
    """For each row: is its device and time absent from the store, known with all that it says, or would it change a row?"""
    state = np.full(chunk.num_rows, ABSENT)
    names = [name for name in SAMPLES.names if column_of(chunk, name).null_count < chunk.num_rows]
    number = devices.find(chunk)
    for part, table in ranges.items():
        place = lying(devices, table)
        if place.overlaps.any():
            gpus = devices.gpu.take(pa.array(place.number[place.overlaps])).cast(pa.string()).unique()
            stored = read_part(folder, part, sorted({*names, "gpu", "mig", "model"}, key=SAMPLES.names.index), gpus)
            ours, theirs = _matches(
                number, milliseconds(column_of(chunk, "time")), devices.find(stored), milliseconds(column_of(stored, "time"))
            )
            state[ours] = np.where(_changes(chunk, ours, stored, theirs, names), CHANGES, KNOWN)
    return state


def _matches(*device_and_time: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The row numbers of pairs that have the same device and time: ours (sorted, unique), theirs (device -1: nobody)."""
    our_device, our_time, their_device, their_time = device_and_time
    both = pack(np.concatenate((our_device, their_device)) + 1, np.concatenate((our_time, their_time)))
    ours, theirs = both[: len(our_time)], both[len(our_time) :]
    place = np.minimum(np.searchsorted(ours, theirs), len(ours) - 1)
    hit = (ours[place] == theirs) & (their_device >= 0)
    return place[hit], np.flatnonzero(hit)


def _changes(chunk: pa.Table, ours: npt.NDArray[np.int64], stored: pa.Table, theirs: npt.NDArray[np.int64], names: Sequence[str]) -> Mask:
    """Where our row says something that the stored row of the same device and time does not."""
    flags, kept = column_of(chunk, "flags").to_numpy()[ours], column_of(stored, "flags").to_numpy()[theirs]
    # these are about neighbours, copies and exporters, not about the row
    arrival = np.uint16(DERIVED | Flag.COPIED | Flag.REORDERED | Flag.NAMED_RATIO | Flag.PERCENT)
    changes = (flags & ~kept & ~arrival) != 0
    settled = (kept & Flag.CONFLICT) != 0  # the first value won already
    for name in names:
        if name in ("time", "gpu", "mig", "flags"):
            continue
        mine, other = column_of(chunk, name).take(pa.array(ours)), column_of(stored, name).take(pa.array(theirs))
        known, has = (has_value(c) for c in (mine, other))
        changes |= known & ~has
        if name == "job":
            changes |= known & has & _more_jobs(mine, other)
        elif name in FIELDS:
            changes |= known & has & ~settled & unequal(numbers(mine), numbers(other))
        elif name == "model":
            changes |= (
                known
                & has
                & ~settled
                & pc.fill_null(pc.not_equal(mine.cast(pa.string()), other.cast(pa.string())), False).to_numpy(zero_copy_only=False)
            )
    return np.asarray(changes)


def _more_jobs(mine: pa.Array, other: pa.Array) -> Mask:
    """Where our job names one that the stored row's jobs do not."""
    ours, theirs = mine.cast(pa.string()), other.cast(pa.string())
    more = pc.fill_null(pc.not_equal(ours, theirs), False).to_numpy(zero_copy_only=False).copy()
    for row in np.flatnonzero(more).tolist():
        more[row] = not set(separate_names(ours[row].as_py())) <= set(separate_names(theirs[row].as_py()))
    return np.asarray(more)
