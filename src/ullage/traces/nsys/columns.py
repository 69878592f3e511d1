"""Columns of a big table in batches, as NumPy arrays: off the pages where that is possible, else by SQLite itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from ullage.arrays import texts as texts_of
from ullage.traces.nsys.file import Database, SqliteTable
from ullage.traces.nsys.pages import Numbers, SqlitePages
from ullage.traces.nsys.records import MISSING, RecordColumns, SqliteRecords, UnusualError, records

ROWS = 100_000  # of a batch, about

Batch = dict[str, Any]  # a NumPy array of whole numbers, or an Arrow array of texts, by column


def batches(database: Database, base: str, numbers: Sequence[str], texts: Sequence[str] = ()) -> Iterator[Batch]:
    """Yield columns of a table, by name, in batches of about `ROWS` rows; nothing when there is no such table.

    Whole numbers are int64 with `MISSING` for NULL, texts are Arrow strings. A column that the table lacks is missing in
    every row. What can't be read is in `database.damage` afterwards.
    """
    table = database.table(base)
    if table is None:
        return
    parts: list[Batch] = []
    rows = 0
    for part in _parts(database, table, numbers, texts):
        parts.append(part)
        rows += len(part[numbers[0]])
        if rows >= ROWS:
            yield _joined(parts)
            parts, rows = [], 0
    if rows:
        yield _joined(parts)


def _joined(parts: list[Batch]) -> Batch:
    def whole(name: str) -> Any:
        columns = [part[name] for part in parts]
        if isinstance(columns[0], np.ndarray):
            return np.concatenate(columns)
        return pa.concat_arrays(columns)

    return parts[0] if len(parts) == 1 else {name: whole(name) for name in parts[0]}


def _parts(database: Database, table: SqliteTable, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[Batch]:
    pages = SqlitePages(database.path)
    try:
        if not table.plain or (texts and pages.text != "utf-8"):
            yield from by_sqlite(database, table, numbers, texts)
            return
        leaves, damaged = pages.leaves(table.root)
        for number, block in enumerate(pages.blocks(leaves)):
            found = records(block, pages.usable)
            damaged += found.damaged
            try:
                yield _decoded(found, table, numbers, texts)
            except UnusualError:
                if number:
                    raise
                yield from by_sqlite(database, table, numbers, texts)
                return
            if len(found.spilled):
                yield from _spilled(database, table, found.spilled, numbers, texts)
        if damaged:
            database.damage.setdefault(table.name, f"{damaged:,} of its {len(leaves):,} pages are damaged")
    except UnusualError:
        database.damage.setdefault(table.name, "its rows change their form midway")
    finally:
        pages.close()


def _decoded(found: SqliteRecords, table: SqliteTable, numbers: Sequence[str], texts: Sequence[str]) -> Batch:
    ordinals = {name: table.columns.index(name) for name in (*numbers, *texts) if name in table}
    columns = RecordColumns(found, sorted(ordinals.values()))
    batch: Batch = {}
    for name in numbers:
        batch[name] = columns.whole(ordinals[name]) if name in ordinals else np.full(columns.rows, MISSING, np.int64)
    for name in texts:
        batch[name] = columns.text(ordinals[name]) if name in ordinals else pa.nulls(columns.rows, pa.string())
    return batch


def _spilled(database: Database, table: SqliteTable, rowids: Numbers, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[Batch]:
    """Yield the rows that are too long for a page, found one by one."""
    ids: Iterable[int] = iter(rowids.tolist())
    while some := list(islice(ids, 500)):
        marks = ",".join("?" * len(some))
        yield from by_sqlite(database, table, numbers, texts, f"WHERE rowid IN ({marks})", tuple(some))


def by_sqlite(
    database: Database, table: SqliteTable, numbers: Sequence[str], texts: Sequence[str], where: str = "", values: tuple[Any, ...] = ()
) -> Iterator[Batch]:
    """Yield columns of a table as SQLite itself gives them, row by row."""
    names = [f'"{c}"' if c in table else "NULL" for c in (*numbers, *texts)]
    rows = database.query(table.name, f'SELECT {", ".join(names)} FROM "{table.name}" {where}', values)  # noqa: S608
    while some := list(islice(rows, ROWS // 4)):
        columns = list(zip(*some, strict=True))
        batch: Batch = {name: _whole(column) for name, column in zip(numbers, columns, strict=False)}
        for name, column in zip(texts, columns[len(numbers) :], strict=True):
            batch[name] = texts_of([v if isinstance(v, str) else None for v in column])
        yield batch


def _whole(column: Sequence[object]) -> Numbers:
    return np.array([v if type(v) is int else round(v) if type(v) is float and abs(v) < 2**62 else MISSING for v in column], np.int64)
