"""Ways to harm a trace file, and what must come of it: a report or one clear error, never a traceback, never a hang."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ullage import trace
from ullage.errors import UllageError
from ullage.render.trace_json import record
from ullage.reports.trace.trace import TraceReport
from ullage.views.json_text import json_text

NASTY: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 10**400, 1.5, -0.0, 1e308, -1e308),
    *("", "x", "5", "NaN", "\x1b[31m", "\u202e", "a" * 10_000, [], {}, [1], {"a": 1}, [[[]]]),
)
CELLS: tuple[Any, ...] = (None, "text", "", b"\x00\xff", 1.5, -1, 0, 2**63 - 1, -(2**63), float("inf"), 1e308, "9" * 400, b"\xff" * 70_000)
SECONDS = 60  # a report of the files used here takes well under one


@contextmanager
def in_time(seconds: int = SECONDS) -> Iterator[None]:
    """Fail, rather than hang, when something takes far longer than it should."""

    def late(*_: object) -> None:
        raise AssertionError(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def answer(path: Path) -> TraceReport | UllageError:
    """Read a file and render it as text and JSON: return the report, or the one error that a user would see."""
    with in_time():
        try:
            report = trace(str(path))
        except UllageError as error:
            assert error.problem and error.problem.isprintable(), error
            return error
        assert all(sign.isprintable() or sign == "\n" for sign in str(report))
        json_text(record(report))  # refuses NaN
        return report


def flipped(data: bytes, times: int, draw: random.Random, low: int = 0, high: int | None = None) -> bytes:
    """Return bytes with some of them changed."""
    found = bytearray(data)
    for _ in range(times):
        found[draw.randrange(low, high or len(found))] = draw.randrange(256)
    return bytes(found)


def torn(data: bytes, draw: random.Random) -> bytes:
    """Return bytes that were cut, that lack a piece, that hold a piece twice, or of which some are changed."""
    a, b, long = draw.randrange(len(data)), draw.randrange(len(data)), draw.choice((1, 10, 1000, 50_000))
    return draw.choice(
        (data[:a], data[:a] + data[a + long :], data[:a] + data[b : b + long] + data[a:], flipped(data, long // 10 + 1, draw))
    )


def spoilt(value: Any, share: float, draw: random.Random) -> Any:
    """Return plain data with some of its values replaced by nasty ones."""
    if isinstance(value, dict):
        return {k: draw.choice(NASTY) if draw.random() < share else spoilt(v, share, draw) for k, v in value.items()}
    if isinstance(value, list):
        return [spoilt(v, share, draw) for v in value]
    return draw.choice(NASTY) if draw.random() < share else value


def each_spoilt(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the place of every value in plain data, with the value."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key), part
        yield from each_spoilt(part, (*path, key))


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy of plain data with another value at one place."""
    copy = json.loads(json.dumps(value))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return copy


def spoil_database(path: Path, draw: random.Random) -> None:
    """Change a database by SQL: columns renamed, dropped and added, tables dropped and doubled, cells of any type."""
    connection = sqlite3.connect(path, isolation_level=None)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
    for _ in range(draw.choice((1, 1, 2, 5))):
        table = draw.choice(tables)
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        if not columns:
            continue
        _spoil(connection, table, draw.choice(columns), draw)
    connection.close()


def _spoil(connection: sqlite3.Connection, table: str, column: str, draw: random.Random) -> None:
    change, values = draw.choice(
        (
            (f'ALTER TABLE "{table}" DROP COLUMN "{column}"', ()),
            (f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "other"', ()),
            (f'ALTER TABLE "{table}" ADD COLUMN "another" DEFAULT 5', ()),
            (f'DROP TABLE "{table}"', ()),
            (f'INSERT INTO "{table}" SELECT * FROM "{table}"', ()),
            (f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % ? = 0', (draw.choice(CELLS), draw.choice((1, 2, 7)))),
            (f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % ? = 0', (draw.choice(CELLS), draw.choice((1, 2, 7)))),
        )
    )
    with suppress(sqlite3.Error):  # a constraint of the schema, or a table that is gone: then the file stays as it is
        connection.execute(change, values)
