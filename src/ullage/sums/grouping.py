"""Sums added up over other keys: from (device, job) to devices, users, hosts, hours."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

_LARGEST = ("last_ms", "model", "cluster", "host", "user", "namespace", "index", "job", "share", "owner", "measured", "summed")
_SMALLEST = ("start_ms", "other_model")


def collapse(sums: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return `sums` with a row per distinct `keys`: quantities added, the window widened, names the largest of theirs.

    >>> table = pa.table({"gpu": ["a", "a", "b"], "span_ms": [10, 20, 5], "last_ms": [3, 9, 4]})
    >>> collapse(table, ["gpu"]).to_pylist()
    [{'gpu': 'a', 'span_ms': 30, 'last_ms': 9}, {'gpu': 'b', 'span_ms': 5, 'last_ms': 4}]
    """
    columns = [name for name in sums.column_names if name not in keys]
    how = ["max" if name in _LARGEST else "min" if name in _SMALLEST else "sum" for name in columns]
    plain = pa.table({name: _plain(sums[name]) for name in sums.column_names})
    grouped = plain.group_by(list(keys), use_threads=False).aggregate(list(zip(columns, how, strict=True)))
    return grouped.rename_columns([*keys, *columns] if grouped.column_names[: len(keys)] == list(keys) else [*columns, *keys])


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_decimal(kind):  # DuckDB adds integers up to 128 bits
        return column.cast(pa.int64())
    return column.cast(pa.string()) if pa.types.is_null(kind) or pa.types.is_dictionary(kind) else column
