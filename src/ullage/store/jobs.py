"""Job records at rest: one small Parquet file, replaced in one step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from ullage.checked_parquet import opened, write_table
from ullage.errors import UllageError, harmless
from ullage.store.manifest import StoreFolder
from ullage.tables import JOBS

NAME = "jobs.parquet"
ADDED = ("state", "queue_start")  # columns that files of older stores do not have
KEY = ("job", "host", "index", "gpu", "start")


def read(folder: Path) -> pa.Table:
    """Return the job records of a store (`JOBS`), none when there is no file. Raises UllageError when it is damaged."""
    path = folder / NAME
    if not path.exists():
        return JOBS.empty_table()
    try:
        with opened(path) as file:
            table = file.read()
        for column in (field for field in JOBS if field.name in ADDED and field.name not in table.column_names):
            table = table.append_column(column, pa.nulls(len(table), column.type))
        return table.select(JOBS.names).cast(JOBS)
    except (OSError, KeyError, pa.ArrowException, UnicodeError) as error:
        raise UllageError(
            f"the store's job records {path} are damaged ({harmless(str(error))})", "bring them back from a backup, or remove that file"
        ) from error


def add(folder: StoreFolder, records: pa.Table) -> int:
    """Merge records into the file and return how many it holds; the later of two values wins, null says nothing.

    Nothing is written when that changes nothing. The caller holds the lock.
    """
    stored = read(folder.path)
    table = merged(pa.concat_tables([stored, records.select(JOBS.names).cast(JOBS)]))
    if not table.equals(stored):
        _write(folder, table)
    return int(table.num_rows)


def drop(folder: StoreFolder, limit: int) -> None:
    """Remove records of jobs that ended before `limit` (ms). The caller holds the lock."""
    table = read(folder.path)
    old = pc.fill_null(pc.less(table["end"].cast(pa.int64()), limit), False)
    if pc.any(old).as_py():
        _write(folder, table.filter(pc.invert(old)))


def rename(folder: StoreFolder, renamed: Callable[[pa.Table], pa.Table]) -> None:
    """Keep the records as they are `renamed`; those that become one job's are merged. The caller holds the lock."""
    stored = read(folder.path)
    table = merged(renamed(stored))
    if not table.equals(stored):
        _write(folder, table)


def merged(records: pa.Table) -> pa.Table:
    """Return one record per job, host, index, gpu and start, sorted so, with the last value that is not null of each column.

    >>> rows = [{"job": "7", "host": "n1", "end": None, "mfu": 0.4}, {"job": "7", "host": "n1", "end": None, "mfu": 0.5}]
    >>> merged(pa.Table.from_pylist(rows, JOBS))["mfu"].to_pylist()
    [0.5]
    """
    columns = [name for name in JOBS.names if name not in KEY]
    # "last" skips nulls
    grouped = records.group_by(list(KEY), use_threads=False).aggregate([(name, "last") for name in columns])
    table = grouped.rename_columns([name.removesuffix("_last") for name in grouped.column_names])
    return table.select(JOBS.names).cast(JOBS).sort_by([(name, "ascending") for name in KEY])


def _write(folder: StoreFolder, table: pa.Table) -> None:
    def write(file: IO[bytes]) -> None:
        write_table(table, file, compression="zstd")

    folder.write_whole(NAME, write, "jobs")
