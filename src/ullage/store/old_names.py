"""Names that are kept for a shorter time than samples are: once a day is so long over, one word stands for all names of that day.

Rows stay, and so does every sum. A word and not null: that somebody held the GPU stays known, and a row that comes again does not bring its
name back. The word sorts before names, so that of a job that lasted beyond the limit the name that is still known is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from ullage.store.footers import holds_only
from ullage.store.manifest import StoreFolder
from ullage.store.parts import read_part, write_days
from ullage.tables import SETTLED
from ullage.units import DAY_MS

NO_LONGER_KNOWN = "(no longer known)"


def name_limits(kept_ms: Mapping[str, int], newest: int) -> dict[str, int]:
    """Return for each field when the first day (UTC) begins whose names are kept (ms): whole days, for a part of a store is of one.

    >>> name_limits({"user": 2 * DAY_MS}, newest=10 * DAY_MS + 5)["user"] // DAY_MS
    8
    """
    return {name: (newest - span) // DAY_MS * DAY_MS for name, span in kept_ms.items()}


def without_old_names(table: pa.Table, limits: Mapping[str, int]) -> pa.Table:
    """Return samples, or records of jobs that ended, in which no name is older than its field's limit (ms)."""
    time = table["time" if "time" in table.column_names else "end"].cast(pa.int64())
    for place, column in enumerate(table.schema):
        limit = limits.get(column.name)
        if limit is None or not pc.any(old := pc.fill_null(pc.less(time, limit), False)).as_py():
            continue
        words = table[column.name].cast(pa.string())
        word = pa.scalar(NO_LONGER_KNOWN, pa.string())
        table = table.set_column(place, column, pc.if_else(pc.and_(old, pc.is_valid(words)), word, words).cast(column.type))
    return table


def forget_old_names(folder: StoreFolder, limits: Mapping[str, int], now: Callable[[], int]) -> int:
    """Write parts anew that hold names older than the limits (ms), a commit each, and return how many; the caller holds the lock.

    Footers tell which parts those are: one that was done is not read again.
    """
    manifest, done = folder.read(), 0
    for part in manifest.parts:
        due = {name: limit for name, limit in limits.items() if name in SETTLED.names and part.last < limit}
        if all(holds_only(folder.at(part.file), name, NO_LONGER_KNOWN) for name in due):
            continue
        new = write_days(folder, without_old_names(read_part(folder, part), due))
        manifest, done = folder.replace(manifest, (part,), new, now()), done + 1
    return done
