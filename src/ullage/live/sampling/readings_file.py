"""Readings into one Parquet file that is whole or not there: it is written beside its name and takes it at the end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from ullage.checked_parquet import writer
from ullage.errors import UllageError
from ullage.tables import SAMPLES

HELD = 8_192  # rows that wait in memory for the next row group
BATCHES = 64  # of those that come in; each takes some 40 kB, however few rows it has, so that many are made one


class ParquetFile:
    """A file of `tables.SAMPLES` that grows by row groups. `close` gives it its name; `abandon` leaves nothing behind.

    An older file of that name stays until then. Raises UllageError when the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, 0
        self._part = path.with_name(f".{path.name}.part")
        self._held: list[pa.RecordBatch] = []
        self._waiting, self._abandoned = 0, False
        self._file: Any = self._tried(lambda: writer(self._part, SAMPLES, compression="zstd"))

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take in rows."""
        for batch in batches:
            self._held.append(batch)
            self._waiting += batch.num_rows
        if self._waiting >= HELD:
            self._write()
        elif len(self._held) >= BATCHES:
            self._held = self._table().combine_chunks().to_batches()

    def close(self) -> None:
        """Write what waits, and give the file its name; without a single row, or after a refusal, there is no file."""
        if self._abandoned:
            return
        self._write()
        self._tried(self._file.close)
        if self.rows:
            self._tried(lambda: self._part.replace(self.path))
        else:
            self.abandon()

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._abandoned = True
        self._part.unlink(missing_ok=True)

    def _write(self) -> None:
        if self._held:
            table = self._table()
            self._tried(lambda: self._file.write_table(table))
            self.rows += table.num_rows
            self._held, self._waiting = [], 0

    def _table(self) -> pa.Table:
        return pa.Table.from_batches(self._held, SAMPLES).unify_dictionaries()

    def _tried(self, act: Any) -> Any:
        try:
            return act()
        except OSError as error:
            self.abandon()
            reason = error.strerror or str(error)
            raise UllageError(f"{self.path} can't be written: {reason}", "free some space, or name another file") from error
