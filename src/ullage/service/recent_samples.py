"""The samples of the last minutes, of every device, as a Parquet file: what `ullage top --source http://SERVICE` shows."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.checked_parquet import write_table
from ullage.reports.fleet.where import Condition, rows_that_fit
from ullage.service.watched import WatchedStore
from ullage.store.store import Store
from ullage.tables import SAMPLES

RECENT_MS = 300_000  # as long as the curves of `ullage top`
MOST_ROWS = 200_000  # 20,000 GPUs every 30 s for five minutes, some 10 MB

Ints = npt.NDArray[np.int64]


@dataclass
class RecentSamples:
    """The files of a store's last minutes: one for each part of the fleet that somebody may see, made anew when the store has changed."""

    store: WatchedStore
    _files: dict[str, bytes] = field(default_factory=dict)
    _version: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def file(self, part: Condition | None) -> bytes:
        """Return the file of what fits a condition (None: of all). Any thread may ask. Raises UllageError for a damaged store."""
        with self._lock:
            version = self.store.version()
            if version != self._version:
                self._files, self._version = {}, version
            if str(part) not in self._files:
                self._files[str(part)] = samples_file(recent_samples(self.store, part))
            return self._files[str(part)]


def recent_samples(store: WatchedStore, part: Condition | None, most_rows: int = MOST_ROWS) -> pa.Table:
    """Return the samples (`tables.SAMPLES`) of `RECENT_MS` up to the last one, of less time where they would be too many."""
    until, found = store.last_ms(), Store.open(store.path)
    times = found.samples(["time"], until - RECENT_MS, until).time.value_counts(name="rows").to_pyarrow()
    if not len(times):  # the newest sample is ahead of the clock, and all others are silent
        return SAMPLES.empty_table()
    since = earliest_time(np.array(times["time"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())), np.array(times["rows"]), most_rows) - 1
    rows = found.samples(SAMPLES.names, since, until)
    table: pa.Table = rows.order_by(["time", "gpu", "mig"]).to_pyarrow()
    if part is not None:  # before words are numbered: a dictionary has the names of rows that were taken out, too
        table = table.filter(pa.array(rows_that_fit(part, table)))
    return table.cast(SAMPLES)


def earliest_time(times: Ints, counts: Ints, most: int) -> int:
    """Return the time from which on there are at most so many rows, where `counts` are those of each time; the last time at the least.

    >>> earliest_time(np.array([30, 10, 20]), np.array([4, 4, 4]), 9)
    20
    """
    order = np.argsort(times)[::-1]
    fitting = int((np.cumsum(counts[order]) <= most).sum())
    return int(times[order][max(0, fitting - 1)])


def samples_file(table: pa.Table) -> bytes:
    """Return a table as a Parquet file."""
    file = io.BytesIO()
    write_table(table, file, compression="zstd")
    return file.getvalue()
