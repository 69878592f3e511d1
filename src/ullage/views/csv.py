"""The tables of a view as CSV: plain values in the units of their columns, one file a table."""

from __future__ import annotations

import csv
import io
import math

from ullage.errors import UllageError, harmless
from ullage.views.view import Column, Table, View, cell_of, heading_of


def table_csv(table: Table) -> str:
    """Return a table as CSV (RFC 4180): all rows but totals, plain values, nothing for what is not known; heads are keys with their units.

    A column without a name only draws what another one holds, and is left out.
    """
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\r\n")
    named = [number for number, column in enumerate(table.columns) if head(column)]
    rows.writerow([_plain(head(table.columns[number])) for number in named])
    rows.writerows([[_plain(cell_of(row[number]).value) for number in named] for row in table.rows])
    return written.getvalue()


def head(column: Column) -> str:
    """Return the head of a column: its key, and its unit where it has one that the key doesn't end with.

    >>> from ullage.views.notation import FACTOR, GPU_HOURS
    >>> head(Column("OFU", FACTOR)), head(Column("ullage, GPU-hours", GPU_HOURS, key="ullage"))
    ('OFU', 'ullage (GPU-hours)')
    """
    unit, name = column.notation.unit, column.key or heading_of(column)
    return name if not name or unit in ("", "1", "ratio") or name.endswith(unit) else f"{name} ({unit})"


def chosen_table(view: View, name: str = "") -> Table:
    """Return the table of a view that is called so, the first one without a name. Raises UllageError for one that it has not."""
    if not view.tables:
        raise UllageError("this report has no table", "write it as .json")
    if name and name not in view.tables:
        raise UllageError(f"this report has no table '{harmless(name, 40)}'", f"it has {', '.join(view.tables)}")
    return view.tables[name] if name else next(iter(view.tables.values()))


def _plain(value: str | float | None) -> str | float | None:
    if isinstance(value, str):
        # a spreadsheet takes what begins so for a formula
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    return None if value is None or not math.isfinite(value) else value
