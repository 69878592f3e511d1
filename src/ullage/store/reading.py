"""Settled samples in Parquet files as one Ibis table, asked by DuckDB where they lie."""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from ullage.checked_parquet import verify
from ullage.errors import UllageError, did_you_mean, harmless
from ullage.store.footers import Footers, footers_of, largest
from ullage.store.interruption import InterruptedQuestionError, current_interruption
from ullage.store.spark_session import DUCKDB, spark_address
from ullage.sums.windows import SILENCE_MS
from ullage.tables import FIELDS, JOBS, SETTLED
from ullage.written_values import expanded_path

CONSTANT = ("cluster", "flags", "sharers")  # what is grouped by, and is the same in most stores
SPARK = "pyspark"  # Ibis's name of it
MEMORY = "1GB"  # DuckDB's own limit; beyond it, it spills to the system's temporary folder


def engine_connection(engine: str, memory: str = MEMORY) -> Any:
    """Return an Ibis connection to an engine by its name: "duckdb", or where a Spark is. Raises UllageError where there is none."""
    if (address := spark_address(engine)) is None:
        return connection(memory)
    from ullage.store.spark import SparkOfStores

    return SparkOfStores(address)


def connection(memory: str = MEMORY) -> Any:
    """Return an Ibis connection to a DuckDB in memory: all cores, `memory` at most, no network, times in UTC."""
    from ullage.store.sql_templates import DuckDBOfTemplates

    spill = tempfile.TemporaryDirectory(prefix="ullage-", ignore_cleanup_errors=True)
    made = DuckDBOfTemplates().connect(
        threads=os.cpu_count() or 1,
        memory_limit=memory,
        temp_directory=spill.name,
        preserve_insertion_order=False,
        autoinstall_known_extensions=False,
        autoload_known_extensions=False,
    )
    weakref.finalize(made, spill.cleanup)
    if (interruption := current_interruption()) is not None:
        interruption.watch(made)
    return made


def batches_of(table: Any, rows: int = 100_000) -> pa.RecordBatchReader:
    """Return what an Ibis table over DuckDB holds, so many rows at a time: in bounded memory, however much it is."""
    engine = table.get_backend()
    if engine.name == SPARK:
        return engine.to_pyarrow(table).to_reader(rows)
    return engine.con.sql(table.compile()).to_arrow_reader(rows)


@contextmanager
def asking(place: str) -> Iterator[None]:
    """Turn DuckDB's refusals (a damaged file, no memory, a full disk) into a UllageError that names the place asked."""
    import duckdb

    try:
        yield
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):
        raise  # our own question is wrong
    except duckdb.InterruptException as error:
        raise InterruptedQuestionError from error
    except duckdb.OutOfMemoryException as error:
        problem = f"there is not enough memory to ask {harmless(place)}: {harmless(str(error))}"
        raise UllageError(problem, "ask for a shorter time") from error
    except duckdb.Error as error:
        raise UllageError(
            f"{harmless(place)} can't be read to the end: {harmless(str(error))}",
            "a file of it is damaged (`ullage store info FOLDER --check` names it), or the disk is full",
        ) from error


def settled_table(
    con: Any, files: Sequence[Path], columns: Sequence[str] | None, since: int | None, until: int | None, *, foreign: bool = False
) -> Any:
    """Return an Ibis table over Parquet files of `SETTLED`: `columns` (None: all), samples with since < time <= until (ms).

    A sample at `until` speaks for the time before it, and one at `since` for what came before the window. Of `foreign` files, which
    nobody looked through when they were written, readings outside what a device can give (NaN too) are missing.
    Raises UllageError for a column that is not in `SETTLED`.
    """
    told = footers_of(files)
    told = replace(told, same={}) if foreign else told
    wanted = list(SETTLED.names if columns is None else columns)
    unknown = next((name for name in wanted if name not in SETTLED.names), None)
    if unknown is not None:
        raise UllageError(f"samples have no column '{harmless(unknown)}'", did_you_mean(unknown, SETTLED.names, "ullage metrics"))
    table = _table(con, files)
    lost = next((name for name in sorted(told.full) if name not in table.columns), None)
    if lost is not None:
        raise UllageError(
            f"a file of the samples holds the column '{harmless(lost)}' under a name that is none: its schema is damaged",
            "`ullage store info FOLDER --check` names the file; copy it again",
        )
    if since is not None:
        table = table.filter(table.time > _time(since))
    if until is not None:
        table = table.filter(table.time <= _time(until))
    return table.select(**{name: (_plausible if foreign else _column)(table, name, told) for name in wanted})


def reach_of(files: Sequence[Path]) -> int:
    """Return for how long before it (ms) a sample of some files speaks at most, as their footers tell; a day where they don't."""
    try:
        found = largest(files, "span_ms")
    except (OSError, pa.ArrowException, UnicodeError):
        found = None
    return SILENCE_MS if found is None else min(found, SILENCE_MS)


def _table(con: Any, files: Sequence[Path]) -> Any:
    """An Ibis table over files as they are."""
    if not files:
        return _empty(con)
    if con.name == SPARK:
        return con.read_files(files)
    return con.read_parquet([_literal(f) for f in files], hive_partitioning=False, union_by_name=True)


def _literal(file: Path) -> str:
    """DuckDB reads a name as a pattern: what a pattern means something by, stands for itself in brackets."""
    return re.sub(r"([*?\[])", r"[\1]", str(file))


def _time(milliseconds: int) -> Any:
    import ibis

    return ibis.literal(datetime.fromtimestamp(milliseconds / 1000, UTC))


def _empty(con: Any) -> Any:
    import ibis

    if con.name == SPARK:
        return ibis.memtable(SETTLED.empty_table(), schema=ibis.schema({f.name: _type(f.name) for f in SETTLED}))
    return con.create_table(ibis.util.gen_name("empty"), schema=ibis.schema({f.name: _type(f.name) for f in SETTLED}), temp=True)


def _type(name: str, nullable: bool = True) -> Any:
    """The Ibis type of a column of `SETTLED`; words are strings to DuckDB."""
    import ibis.expr.datatypes as types

    kind = SETTLED.field(name).type
    if pa.types.is_timestamp(kind):
        return types.Timestamp("UTC", nullable=nullable)
    return types.String(nullable=nullable) if pa.types.is_dictionary(kind) else types.dtype(kind).copy(nullable=nullable)


def _column(table: Any, name: str, told: Footers) -> Any:
    """A column as `SETTLED` has it; what the files do not have is null, or what it is when nothing is known.

    The type of a reading that is never missing says so, and so does the null that stands for one that always is, and the one value of
    `CONSTANT`: sums are spared the question (see `ullage.sums.held`).
    """
    import ibis

    if name in CONSTANT and name in told.same:
        return ibis.literal(told.same[name], _type(name))
    if name in told.full and name in FIELDS:
        return table[name].cast(_type(name, nullable=False))
    if name in table.columns and name not in told.empty:
        same = table[name].type() == _type(name) or name == "time"
        return table[name] if same else table[name].cast(_type(name))
    if name == "sharers":
        return table.job.notnull().cast("int8") if "job" in table.columns else ibis.literal(0, "int8")
    return ibis.literal(0, _type(name)) if name == "flags" else ibis.null(_type(name))


def _plausible(table: Any, name: str, told: Footers) -> Any:
    import ibis

    column = _column(table, name, replace(told, full=told.full - {name}))
    field = FIELDS.get(name)
    if field is None or field.whole or name not in table.columns or name in told.empty:
        return column
    # a file's statistics leave NaN out, and DuckDB concludes from them that no comparison and no isnan() can find any
    sane = column.try_cast("int64").notnull() & column.between(field.lowest, field.highest)
    return sane.ifelse(column, ibis.null(_type(name)))


class SettledFiles:
    """Settled samples in Parquet files that are no store: read in place, never written. Made by `open_settled`."""

    def __init__(self, files: Sequence[Path], memory: str = MEMORY, engine: str = DUCKDB) -> None:
        self.files = tuple(files)
        self._connection = engine_connection(engine, memory)
        self._verified = self._connection.name == SPARK  # which does so itself

    def samples(self, columns: Sequence[str] | None = None, since: int | None = None, until: int | None = None) -> Any:
        """Return an Ibis table of `SETTLED` (see `settled_table`); files whose pages have checksums are held against them first, once.

        Raises UllageError for a file that is damaged.
        """
        for file in () if self._verified else self.files:
            _verify(file)
        self._verified = True
        return settled_table(self._connection, self.files, columns, since, until, foreign=True)

    def speaking(self, since: int | None, until: int | None) -> Any:
        """Return the samples that speak for a time in the window (ms), as `Store.speaking` does."""
        return self.samples(since=since, until=None if until is None else until + reach_of(self.files))

    def jobs(self) -> pa.Table:
        """Return the job records (`JOBS`): none."""
        return JOBS.empty_table()

    def window(self) -> tuple[int, int] | None:
        """Return the first and the last sample's time in ms, None when there is no sample."""
        table = self.samples(["time"])
        ends = table.aggregate(first=table.time.min(), last=table.time.max()).to_pyarrow()
        first, last = (ends[name].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())[0].as_py() for name in ("first", "last"))
        return None if first is None else (first, last)


def open_settled(path: str | Path, memory: str = MEMORY, engine: str = DUCKDB) -> SettledFiles:
    """Return what a Parquet file (or a pattern such as "days/*.parquet") of settled samples holds, asked in place by an engine.

    The columns `time` (a timestamp, UTC), `gpu` and `span_ms` must be there; other columns of `SETTLED` are null where
    they are missing. Raises UllageError for a file that is missing, no Parquet, or lacks those columns.
    """
    place = expanded_path(path)
    pattern = place.name if any(sign in place.name for sign in "*?[") and not place.exists() else None
    files = sorted(place.parent.glob(pattern)) if pattern else [place]
    if not files or not files[0].is_file():
        raise UllageError(f"there is no file '{path}'", "give a Parquet file of settled samples, a pattern, or the folder of a store")
    for file in files:
        _check(file)
    return SettledFiles(files, memory, engine)


def is_settled(path: Path) -> bool:
    """Return whether a file is Parquet with the columns that settled samples must have."""
    try:
        _check(path)
    except (UllageError, OSError):
        return False
    return True


def _verify(file: Path) -> None:
    """DuckDB does not look at checksums, so that somebody else has to."""
    try:
        verify(file)
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise UllageError(f"{file} is a damaged Parquet file: {harmless(str(error))}", "copy or write it again") from error


def _check(file: Path) -> None:
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise UllageError(f"{file} is no Parquet file that can be read: {harmless(str(error))}", "export it again") from error
    missing = [name for name in ("time", "gpu", "span_ms") if name not in schema.names]
    if missing:
        raise UllageError(
            f"{file} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}: it is not settled samples",
            "give it to `ullage fleet` as a telemetry source, which settles it",
        )
    if not pa.types.is_timestamp(schema.field("time").type):
        raise UllageError(f"the column time of {file} is {schema.field('time').type}, not a timestamp", "write it as timestamp[ms, UTC]")
