"""Rows into record batches, for formats whose events come one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from ullage.tables import intervals

Row = dict[str, Any]  # columns of `tables.INTERVALS`; what is not known is left out
ROWS = 1 << 16


def batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Yield rows as record batches of `tables.INTERVALS`, some ten thousand at once.

    >>> next(batches([{"start": 0, "end": 5, "kind": "kernel", "name": "gemm"}])).num_rows
    1
    """
    coming = iter(rows)
    while some := list(islice(coming, ROWS)):
        columns = dict.fromkeys(column for row in some for column in row)
        yield intervals({column: [row.get(column) for row in some] for column in columns})


def whole(value: Any) -> int | None:
    """Return a whole number that a tool wrote as a number or as text, None for anything else.

    >>> whole("12"), whole(7), whole("a"), whole(2**70), whole(None)
    (12, 7, None, None, None)
    """
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if -(2**63) <= found < 2**63 else None
