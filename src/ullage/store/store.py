"""The store: settled samples at rest in one folder or on object storage (`store.bucket`), appended to atomically, asked through Ibis.

manifest.json                           which files are the store; replaced in one step
samples/day=2026-08-10/part-<hash>.parquet   rows of `tables.SETTLED`, sorted by (gpu, mig, time)
tails/part-<hash>.parquet               each device's range and last rows in that part
rollups/part-<hash>.*.parquet           what a report adds up over that part (`store.rollups`)
jobs.parquet                            job records (`tables.JOBS`)
pseudonyms.json                         fields whose names are not kept (`store.hidden_names`)
units.json                              in which unit exporters write their ratios (`sums.ratio_units`)
received/                               samples that were sent and are not stored yet (`ullage serve`)
lock                                    held by the one writer
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from ullage.errors import UllageError
from ullage.store import append, jobs, upkeep
from ullage.store.append import Appended
from ullage.store.bucket import bucket_folder, is_bucket
from ullage.store.durable import Hook, nothing
from ullage.store.hidden_names import NAME as HIDDEN
from ullage.store.hidden_names import hidden_fields, hide_names, refuse_names
from ullage.store.manifest import NAME, Manifest, StoreFolder, StorePart
from ullage.store.old_names import forget_old_names, name_limits, without_old_names
from ullage.store.parts import read_tails
from ullage.store.reading import MEMORY, SPARK, engine_connection, reach_of, settled_table
from ullage.store.rollups import RolledSums, files_of, is_rolled, read_rollup, roll_up
from ullage.store.spark_session import DUCKDB
from ullage.sums.windows import SILENCE_MS
from ullage.written_values import expanded_path

Result = TypeVar("Result")
OURS = frozenset({NAME, HIDDEN, "samples", "tails", "rollups", "received", "jobs.parquet", "units.json", "lock"})


@dataclass(frozen=True)
class Info:
    """What a store holds: counts, sizes in bytes, first and last time in ms (None when empty), rows by day."""

    folder: str
    rows: int
    devices: int
    jobs: int
    parts: int
    bytes: int
    first: int | None
    last: int | None
    days: dict[str, int]


def _clock() -> int:
    return time.time_ns() // 1_000_000


class Store:
    """A store that is open. Reading never locks and always sees the last commit; one process writes at a time."""

    def __init__(
        self,
        folder: StoreFolder,
        *,
        now: Callable[[], int] = _clock,
        wait_s: float = 60.0,
        say: Callable[[str], None] = nothing,
        memory: str = MEMORY,
        engine: str = DUCKDB,
    ) -> None:
        self.path, self.now, self.memory, self.engine = folder.path, now, memory, engine
        self._folder = folder
        self._wait_s, self._say = wait_s, say

    @classmethod
    def open(cls, folder: str | Path, create: bool = False, *, hook: Hook = nothing, objects: Any = None, **options: Any) -> Store:
        """Return the store in a folder, or at an address such as s3://BUCKET/FOLDER; with `create`, make it when there is none.

        Raises UllageError when there is no store, or its manifest or one of its files is damaged or missing.
        `options`: `wait_s` and `say` for the lock, `memory` for DuckDB, `engine` for another one than it; `now`, `hook` and `objects`
        (see `bucket_folder`) for tests.
        """
        where = bucket_folder(str(folder), hook, objects) if is_bucket(folder) else StoreFolder(expanded_path(folder), hook)
        store = cls(where, **options)
        where.refresh()
        if create and not (store.path / NAME).exists():
            where.create(OURS)
        store._folder.check(store.manifest())
        return store

    @property
    def name(self) -> str:
        """How people call the place where it lies."""
        return self._folder.name

    def manifest(self) -> Manifest:
        """Return the list of live parts as it stands now."""
        return self._folder.read()

    def append(
        self,
        rows: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch | pa.Table],
        *,
        gap_ms: int | None = None,
        chunk_rows: int = append.CHUNK_ROWS,
    ) -> Appended:
        """Store rows of `tables.SAMPLES` (any order, partial rows, copies) and return what was new, changed, and known.

        Rows are settled and committed `chunk_rows` at a time, which bounds the memory. When this returns, everything
        is on the disk. When it raises or the process is killed, every commit before that stays, and appending the same
        rows again skips what is stored: the same content never changes the store. Give one iterable rather than many
        calls: scrapes that are cut between two batches are then put together before they are written. When the
        iterable raises UllageError, what came before is stored, and then it is raised.
        `gap_ms` is the longest time that a sample may stand for (see `windows.settle`). Names of fields that are hidden are refused.
        """
        batches = [rows] if isinstance(rows, pa.Table | pa.RecordBatch) else rows
        with self._lock():
            return append.append(self._folder, self._without_names(batches), self.now, gap_ms=gap_ms, chunk_rows=chunk_rows)

    def add_jobs(self, records: pa.Table) -> int:
        """Store job records (`tables.JOBS`) and return how many there are now.

        Records of one job, host, index, gpu and start are one; the later ones' values replace the earlier ones'.
        """

        def add() -> int:
            refuse_names(self.name, records, hidden_fields(self.path))
            return jobs.add(self._folder, records)

        return self._alone(add)

    def hide_names(self, fields: Iterable[str], renamed: Callable[[pa.Table], pa.Table] = lambda records: records) -> None:
        """Refuse from now on whatever brings names of some fields: pseudonyms stand in their place.

        Job records that are there are kept as they are `renamed`, since samples get their names; samples stay as they are.
        """
        if not {*fields} <= {*hidden_fields(self.path)}:

            def hide() -> None:
                jobs.rename(self._folder, renamed)  # first: who is killed in between does both again
                hide_names(self._folder, fields)

            self._alone(hide)

    def _without_names(self, tables: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[pa.Table | pa.RecordBatch]:
        """Yield tables of which none has a name that is not kept. Raises UllageError for one that has."""
        hidden = hidden_fields(self.path)
        for table in tables:
            refuse_names(self.name, table, hidden)
            yield table

    def samples(self, columns: Sequence[str] | None = None, since: int | None = None, until: int | None = None) -> Any:
        """Return an Ibis table of `tables.SETTLED` as stored now, with since < time <= until (ms), asked by DuckDB.

        The parts of that time are read through first, once, and raise UllageError where one is not as it was written: DuckDB does not
        look at checksums.
        """
        parts = self.manifest().parts
        parts = tuple(p for p in parts if (since is None or p.last > since) and (until is None or p.first <= until))
        self._verify(parts)
        return settled_table(self._connection, [self._folder.at(p.file) for p in parts], columns, since, until)

    def speaking(self, since: int | None, until: int | None) -> Any:
        """Return the samples that speak for a time in the window (ms), and perhaps some that come soon after it.

        A sample speaks for the time before it: one that comes after `until` may reach back into the window. What lies outside is cut
        off by `sums.devices.within`.
        """
        if until is None:
            return self.samples(since=since)
        near = [p for p in self.manifest().parts if p.last > until and p.first <= until + SILENCE_MS]
        return self.samples(since=since, until=until + reach_of([self._folder.at(p.file) for p in near]))

    def roll_up(self, say: Callable[[str], None] = nothing) -> int:
        """Add up what a fleet's report asks of each part that has no roll-up yet, and keep it; returns how many were made.

        A report then reads sums instead of samples, and says the same.
        """
        parts = [part for part in self.manifest().parts if not is_rolled(self._folder, part)]
        for number, part in enumerate(parts, 1):
            say(f"adding up part {number:,} of {len(parts):,}")
            with self._lock():
                if part in self.manifest().parts:
                    roll_up(self._folder, self._connection, part)
        return len(parts)

    def rolled(self, since: int | None = None, until: int | None = None) -> RolledSums | None:
        """Return the roll-ups of the parts whose samples speak only for times in the window (ms), and the samples of the other parts.

        None: no part of the window has a roll-up.
        """
        parts = self.manifest().parts
        near = [p for p in parts if (since is None or p.last > since) and (until is None or p.first <= until + SILENCE_MS)]
        inside = [p for p in near if (since is None or p.first > since) and (until is None or p.last <= until)]
        self._folder.fetch(name for part in inside for name in files_of(part.file))
        found = {part: made for part in inside if (made := read_rollup(self._folder, part)) is not None}
        found = {part: made for part, made in found.items() if since is None or made.start >= since}
        if not found:
            return None
        others = [part for part in near if part not in found]
        self._verify(others)
        files = [self._folder.at(part.file) for part in others]
        return RolledSums(list(found.values()), settled_table(self._connection, files, None, None, None) if files else None)

    def jobs(self) -> pa.Table:
        """Return the job records (`tables.JOBS`)."""
        return jobs.read(self.path)

    def window(self) -> tuple[int, int] | None:
        """Return the first and the last sample's time in ms, None when there is no sample."""
        parts = self.manifest().parts
        return (min(p.first for p in parts), max(p.last for p in parts)) if parts else None

    def info(self) -> Info:
        """Return what the store holds."""
        parts, window = self.manifest().parts, self.window()
        pairs = {pair for p in parts for pair in _devices(self._folder, p)}
        days: dict[str, int] = {}
        for part in parts:
            days[part.day] = days.get(part.day, 0) + part.rows
        sizes = [self._folder.size(name) or 0 for p in parts for name in (p.file, p.tail)]
        first, last = window or (None, None)
        return Info(self.name, sum(days.values()), len(pairs), self.jobs().num_rows, len(parts), sum(sizes), first, last, days)

    def verify(self) -> None:
        """Read every part and raise UllageError for the first that is not as it was written."""
        parts, folder = self.manifest().parts, replace(self._folder, _sound=set())
        folder.verify(parts)
        for part in parts:
            read_tails(folder, part)
        self.jobs()

    def compact(self, **options: int) -> upkeep.Kept:
        """Merge small parts, remove what nobody needs, and return what was done (see `upkeep.compact`)."""
        return self._alone(lambda: upkeep.compact(self._folder, self.now, **options))

    def retain(self, days: int, **options: int) -> upkeep.Kept:
        """Drop samples, and jobs that ended, more than `days` days before the newest sample that is not ahead (see `upkeep.retain`)."""
        if days < 1:
            raise UllageError(f"{days} days can't be kept", "keep at least 1 day")

        def drop() -> upkeep.Kept:
            limit = upkeep.oldest_kept(self.manifest(), days, self.now())
            kept = upkeep.retain(self._folder, days, self.now, **options)
            jobs.drop(self._folder, limit)
            return kept

        return self._alone(drop)

    def name_limits(self, kept_ms: Mapping[str, int], now: int) -> dict[str, int]:
        """Return for each field from when on its names are kept (ms): `kept_ms` before the newest sample that is not later than `now`."""
        window = self.window()
        return name_limits(kept_ms, min(window[1], now)) if window else {}

    def forget_names(self, kept_ms: Mapping[str, int], now: int) -> int:
        """Put one word in the place of names that are older than `name_limits`, in samples and in records of jobs that ended.

        Returns how many parts were written anew. Fields are columns of words of `tables.SAMPLES` and `tables.JOBS`; the job's own must
        stay, for jobs that can't be told apart are one.
        """

        def forget() -> int:
            limits = self.name_limits(kept_ms, now)
            jobs.rename(self._folder, lambda records: without_old_names(records, limits))
            return forget_old_names(self._folder, limits, self.now)

        return self._alone(forget)

    @cached_property
    def _connection(self) -> Any:
        return engine_connection(self.engine, self.memory)

    def _verify(self, parts: Iterable[StorePart]) -> None:
        """Look through parts before they are asked; Spark does so itself, where it reads."""
        if self._connection.name != SPARK:
            self._folder.verify(parts)

    def _lock(self) -> AbstractContextManager[None]:
        return self._folder.lock(self._wait_s, self._say)

    def _alone(self, work: Callable[[], Result]) -> Result:
        """Do a piece of work that may be done again while nobody else writes, or as if nobody did."""
        with self._lock():
            return self._folder.repeated(work)


def _devices(folder: StoreFolder, part: Any) -> set[tuple[str | None, str | None]]:
    table = read_tails(folder, part, ("gpu", "mig"))
    plain = pa.table({name: table[name].cast(pa.string()) for name in ("gpu", "mig")})
    return {(row["gpu"], row["mig"]) for row in plain.group_by(["gpu", "mig"]).aggregate([]).to_pylist()}
