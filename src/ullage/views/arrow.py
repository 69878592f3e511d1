"""The tables of a view for Arrow: typed columns in the units of the view, for Parquet, pandas, Polars and DuckDB."""

from __future__ import annotations

import io
import math
from importlib import import_module
from itertools import chain, count

import pyarrow as pa

from ullage.checked_parquet import write_table
from ullage.views.csv import head
from ullage.views.view import Column, Table, Value, cell_of, heading_of


def arrow_table(table: Table) -> pa.Table:
    """Return a table as Arrow: all rows but totals, null for what is not known, columns called as in CSV.

    Whole numbers are int64, other numbers float64, and words are strings; each field's metadata has its `unit` and its `heading`. A
    column without a name only draws what another one holds, and is left out. Of columns of one name the later ones get a number.
    """
    named = [(number, column) for number, column in enumerate(table.columns) if head(column)]
    names = _names_apart([head(column) for _, column in named])
    columns = [_column(column, [cell_of(row[number]).value for row in table.rows]) for number, column in named]
    version = import_module("ullage").__version__  # by name: the package's own module imports from above this room
    fields = [
        pa.field(name, column.type, metadata={"unit": of.notation.unit, "heading": heading_of(of)})
        for name, column, (_, of) in zip(names, columns, named, strict=True)
    ]
    return pa.table(columns, schema=pa.schema(fields, metadata={"table": table.name, "ullage": version}))


def parquet_bytes(table: Table) -> bytes:
    """Return a table as a Parquet file, its pages with checksums."""
    buffer = io.BytesIO()
    write_table(arrow_table(table), buffer)
    return buffer.getvalue()


def arrow_bytes(table: Table) -> bytes:
    """Return a table as an Arrow IPC file, which is also called Feather."""
    made, buffer = arrow_table(table), io.BytesIO()
    with pa.ipc.new_file(buffer, made.schema) as written:
        written.write_table(made)
    return buffer.getvalue()


def _column(column: Column, values: list[Value]) -> pa.Array:
    known = [value for value in values if value is not None]
    numbers = [value for value in known if not isinstance(value, str)]
    if len(numbers) < len(known) or not (known or column.notation.numeric):
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    if known and all(isinstance(value, int) and abs(value) < 2**63 for value in numbers):
        return pa.array(values, pa.int64())
    return pa.array([None if value is None or not math.isfinite(float(value)) else float(value) for value in values], pa.float64())


def _names_apart(names: list[str]) -> list[str]:
    """Return names of which none stands twice.

    >>> _names_apart(["job", "time", "time"])
    ['job', 'time', 'time 2']
    """
    apart: dict[str, None] = {}
    for name in names:
        free = chain([name], (f"{name} {number}" for number in count(2)))
        apart[next(one for one in free if one not in apart)] = None
    return list(apart)
