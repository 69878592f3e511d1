"""An Nsight Systems database as a file: opened so that nothing is ever written, its tables and columns found by name.

Nsight Systems makes a table only when it has something to put there, changes columns between versions, and appends `_V2`,
`_V3` to a table's name when its meaning changes. So nothing is taken for granted but what `sqlite_schema` lists.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ullage.errors import UllageError, harmless

MAGIC = b"SQLite format 3\0"
JOURNAL = slice(18, 20)  # of the header: 2 where there is a log of writes beside the file, else 1
_OWN = re.compile(
    r"^(CUPTI_ACTIVITY_KIND_\w+|NVTX_EVENTS(_V\d+)?|MPI_\w+_EVENTS|GPU_METRICS|OSRT_API|META_DATA_(EXPORT|CAPTURE)|EXPORT_META_DATA|TARGET_INFO_SESSION_START_TIME)$"
)


@dataclass(frozen=True)
class SqliteTable:
    """A table: its name in the file, its columns in the order in which they are stored, the page at which its tree begins.

    `plain` says that its rows can be read off the pages: they are stored under a rowid and no column is computed. `key` is the
    column that is the rowid under another name (its stored value is NULL).
    """

    name: str
    columns: tuple[str, ...]
    root: int
    plain: bool
    key: str | None = None

    def __contains__(self, column: str) -> bool:
        return column in self.columns


@dataclass
class Database:
    """An open database. `damage` has, for each table, why it could not be read to the end."""

    path: Path
    connection: sqlite3.Connection
    tables: dict[str, SqliteTable]
    damage: dict[str, str] = field(default_factory=dict)

    def table(self, base: str) -> SqliteTable | None:
        """Return the newest version of a table: `base`, `base_V2`, …; None when there is none."""
        versions = {0: self.tables[base]} if base in self.tables else {}
        for name, table in self.tables.items():
            if name.startswith(base + "_V") and (number := name[len(base) + 2 :]).isdecimal():
                versions[int(number)] = table
        return versions[max(versions)] if versions else None

    def rows(self, base: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield rows of a small table, with None for columns that it doesn't have; nothing when there is no such table.

        Names that go into SQL are our own words, and tables' names that hold no quotation mark.
        """
        table = self.table(base)
        if table is not None:
            names = [f'"{c}"' if c in table else "NULL" for c in columns]
            yield from self.query(table.name, f'SELECT {", ".join(names)} FROM "{table.name}"')  # noqa: S608

    def query(self, table: str, sql: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query on a table; where the file is damaged they end, and `damage` says so."""
        try:
            yield from self.connection.execute(sql, values)
        except (sqlite3.Error, UnicodeError) as error:  # SQLite quotes the file in what it says of it
            self.damage.setdefault(table, harmless(str(error)))

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


def opened(path: Path) -> Database:
    """Open a database for reading. Raises UllageError for one that is damaged at the root, locked away or compressed.

    `immutable` keeps SQLite from locking the file and from writing anything beside it, so a file that another program holds
    locked, and one on a medium that can't be written, are read like any other.
    """
    try:
        with path.open("rb") as file:
            plain = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise UllageError(f"{harmless(str(path))} can't be opened: {error.strerror or error}") from error
    if not plain:
        raise UllageError(
            f"{harmless(str(path))} is a compressed SQLite database, which can't be read in place",
            "unpack it first: gunzip, bunzip2 or unxz",
        )
    try:
        connection = _connected(path)
        connection.text_factory = lambda data: data.decode(errors="replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        return _listed(path, connection)
    except (sqlite3.Error, UnicodeError) as error:
        raise UllageError(
            f"{harmless(str(path))} is a damaged SQLite database ({harmless(str(error))})",
            "export the report again: nsys export --type sqlite --force-overwrite true REPORT.nsys-rep",
        ) from error


def _connected(path: Path) -> sqlite3.Connection:
    """Return a connection to a database. One in a file without a name (an upload) is read whole: SQLite opens nothing but names."""
    if path.resolve().exists():
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    whole = bytearray(path.read_bytes())
    whole[JOURNAL] = b"\1\1"  # as `immutable` does: nothing is looked for beside it
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.deserialize(whole)
    return connection


def _listed(path: Path, connection: sqlite3.Connection) -> Database:
    """Return the database with its tables, as far as they can be listed.

    SQLite refuses a file that is shorter than its header says, unless the schema is said to be writable; nothing is, `mode=ro`.
    """
    try:
        return Database(path, connection, dict(_tables(connection)))
    except (sqlite3.DatabaseError, UnicodeError) as error:
        connection.execute("PRAGMA writable_schema = ON")
        return Database(path, connection, dict(_tables(connection)), {"sqlite_schema": harmless(str(error))})


def _tables(connection: sqlite3.Connection) -> Iterator[tuple[str, SqliteTable]]:
    """Yield the tables; views and virtual tables, which could run anything, are not looked at."""
    listed = connection.execute("SELECT name, rootpage, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0").fetchall()
    for name, root, sql in listed:
        if isinstance(name, str) and '"' not in name:
            infos = connection.execute(f'PRAGMA table_xinfo("{name}")').fetchall()
            keyed = [i for i in infos if i[5]]
            key = keyed[0][1] if len(keyed) == 1 and str(keyed[0][2]).upper() == "INTEGER" else None
            plain = not any(i[6] for i in infos) and re.search(r"(?i)without\s+rowid", str(sql)) is None
            yield name, SqliteTable(name, tuple(i[1] for i in infos), int(root), plain, key)


def is_nsight(tables: dict[str, SqliteTable]) -> bool:
    """Return whether a database's tables are those of an Nsight Systems export."""
    return any(_OWN.match(name) for name in tables)
