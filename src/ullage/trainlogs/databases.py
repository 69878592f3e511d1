"""SQLite files of metrics trackers, asked without changing them, and their runs by name."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from ullage.errors import UnreadableError
from ullage.problems import Problems

MAGIC: Final = b"SQLite format 3\0"
_DAMAGED: Final = (sqlite3.Error, UnicodeError)  # the library can't say in UTF-8 which damaged name it means


def has_columns(path: Path, start: bytes, table: str, columns: set[str]) -> bool:
    """Return whether a file is an SQLite database with this table and these columns of it."""
    if not start.startswith(MAGIC):
        return False
    try:
        with closing(_connected(path)) as database:
            return columns <= {row[1] for row in database.execute(f'PRAGMA table_info("{table}")')}
    except _DAMAGED:
        return False


def rows_of(path: Path, question: str, problems: Problems) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that answer a question; of a damaged file those before the damage. Raises UnreadableError where none can be."""
    count = 0
    try:
        with closing(_connected(path)) as database:
            for row in database.execute(question):
                count += 1
                yield row
    except _DAMAGED as error:
        if not count:
            raise UnreadableError(f"{path.name} can't be read: {error}", "copy the database again while nothing writes to it") from error
        problems.cut_short("databases that can't be read to their end", f"{path.name} after {count:,} rows ({error})")


def run_labels(names: Mapping[str, str | None]) -> dict[str, str]:
    """Return by a run's id what it is called: its name, and where several have one name, or none, its id.

    >>> run_labels({"a1": "big", "b2": "small", "c3": "small", "d4": None})
    {'a1': 'big', 'b2': 'b2', 'c3': 'c3', 'd4': 'd4'}
    """
    count = Counter(names.values())
    return {run: name if name and count[name] == 1 else run for run, name in names.items()}


def _connected(path: Path) -> sqlite3.Connection:
    """Open a database to be read: also what a running training has not yet written into the file itself."""
    running = Path(f"{path}-wal").exists()
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{'' if running else '&immutable=1'}", uri=True)
    database.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return database
