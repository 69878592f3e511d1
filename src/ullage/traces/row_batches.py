"""Rows into record batches, for formats whose events come one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from ullage.problems import Problems
from ullage.recording import Recording
from ullage.tables import intervals

Row = dict[str, Any]  # columns of `tables.INTERVALS`; what is not known is left out
ROWS = 1 << 16


def batches(rows: Iterable[Row], recording: Recording, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield rows as record batches of `tables.INTERVALS`, some ten thousand at once.

    Rows with numbers that can't be are counted and left out; those of devices also as `untimed`, so that nobody takes them for idle time.

    >>> rows = [{"start": 0, "end": 5, "kind": "kernel", "name": "gemm"}, {"start": 2**70, "end": 0}]
    >>> next(batches(rows, Recording("a.db"), Problems())).num_rows
    1
    """
    coming = iter(rows)
    while some := list(islice(coming, ROWS)):
        try:
            yield _batch(some)
        except (OverflowError, pa.ArrowException):
            fits = [_fits(row) for row in some]
            bad = [row for row, good in zip(some, fits, strict=True) if not good]
            problems.drop("events with impossible numbers", len(bad), recording.place)
            recording.untimed += sum("device" in row for row in bad)
            if any(fits):
                yield _batch([row for row, good in zip(some, fits, strict=True) if good])


def _batch(some: list[Row]) -> pa.RecordBatch:
    columns = dict.fromkeys(column for row in some for column in row)
    return intervals({column: [row.get(column) for row in some] for column in columns})


def _fits(row: Row) -> bool:
    """Return whether a row's numbers fit into their columns."""
    try:
        _batch([row])
    except (OverflowError, pa.ArrowException):
        return False
    return True


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
