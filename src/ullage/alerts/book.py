"""The alerts that are open, in SQLite: one a problem, with hysteresis; who has acknowledged or silenced what; what is still to be sent."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from ullage.alerts.measured_fix import MeasuredFix
from ullage.alerts.problem import SURE_AT_ONCE, Problem
from ullage.errors import NoSuchNameError, UllageError, harmless

State = Literal["pending", "open", "resolved"]
What = Literal["opened", "resolved", "reminder"]
AGAIN = 2  # looks in which a problem that is not sure must be seen before it is told
GONE = 3  # looks in a row without a problem after which it is over
REMIND_S = 86_400.0  # after which one that is open and that nobody has acknowledged is told again
CALM_S = 3_600.0  # within which one that comes back is told to nobody: it went and came
KEPT_S = 30 * 86_400.0  # for which what is over is kept
MOST_TRIES = 20  # to send one notice to one place

_TABLES = """
CREATE TABLE IF NOT EXISTS alerts (
    key TEXT PRIMARY KEY, problem BLOB NOT NULL, state TEXT NOT NULL, first_seen REAL NOT NULL, last_seen REAL NOT NULL,
    opened REAL, resolved REAL, hits INTEGER NOT NULL, misses INTEGER NOT NULL, told REAL,
    acknowledged_by TEXT NOT NULL DEFAULT '', note TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS silences (
    number INTEGER PRIMARY KEY, owner TEXT NOT NULL, kind TEXT NOT NULL, until REAL NOT NULL, by TEXT NOT NULL, note TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS notices (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL, what TEXT NOT NULL, at REAL NOT NULL, outlet TEXT NOT NULL,
    problem BLOB NOT NULL, sent REAL, tries INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS fixes (key TEXT PRIMARY KEY, fix BLOB NOT NULL, measured REAL NOT NULL);
CREATE TABLE IF NOT EXISTS profiles (
    key TEXT NOT NULL, place TEXT NOT NULL, by TEXT NOT NULL, at REAL NOT NULL, note TEXT NOT NULL, PRIMARY KEY (key, place)
);
"""
_COLUMNS = "problem, state, first_seen, last_seen, opened, resolved, acknowledged_by, note"


@dataclass(frozen=True)
class Alert:
    """A problem and what became of it: times in s since 1970."""

    problem: Problem
    state: State
    first_seen: float
    last_seen: float
    opened: float | None
    resolved: float | None
    acknowledged_by: str
    note: str


@dataclass(frozen=True)
class Silence:
    """Until when (s) nobody is told of an owner's problems, or of one kind ("" means any)."""

    number: int
    owner: str
    kind: str
    until: float
    by: str
    note: str

    def covers(self, problem: Problem) -> bool:
        """Return whether it is for a problem of this owner and kind."""
        return self.owner in ("", problem.owner) and self.kind in ("", problem.kind)


@dataclass(frozen=True)
class TakenProfile:
    """A profile that came for an alert: the path or address of it or of its report, from whom, and when (s)."""

    key: str
    place: str
    by: str
    at: float
    note: str


@dataclass(frozen=True)
class Notice:
    """What is to be said to one outlet."""

    number: int
    what: What
    at: float
    outlet: str
    problem: Problem


class AlertBook:
    """Alerts in one file. Whatever ends the process, what was to be said is said when it runs again; only the notice
    that was on its way then may be said a second time.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        with self._open() as connection:
            connection.executescript(_TABLES)

    def look(self, problems: Iterable[Problem], now: float, outlets: Sequence[str] = ()) -> None:
        """Note which problems are seen now; whoever listens at `outlets` is to be told of what opened and what is over."""
        seen = {problem.key: problem for problem in problems}
        with self._open() as connection:
            for key, problem in seen.items():
                self._note_problem(connection, key, problem, now)
            for key in [row[0] for row in connection.execute("SELECT key FROM alerts WHERE state != 'resolved'") if row[0] not in seen]:
                self._not_seen(connection, key, now, outlets)
            self._tell(connection, now, outlets)
            connection.execute("DELETE FROM alerts WHERE state = 'resolved' AND resolved < ?", (now - KEPT_S,))
            connection.execute("DELETE FROM fixes WHERE key NOT IN (SELECT key FROM alerts WHERE state = 'resolved')")
            connection.execute("DELETE FROM profiles WHERE key NOT IN (SELECT key FROM alerts)")
            connection.execute("DELETE FROM silences WHERE until < ?", (now,))
            connection.execute("DELETE FROM notices WHERE (sent IS NOT NULL OR tries >= ?) AND at < ?", (MOST_TRIES, now - KEPT_S))

    def alerts(self, *states: State) -> list[Alert]:
        """Return the alerts in some states (all without any), those that cost most first."""
        marks = ", ".join("?" * len(states))
        chosen = f"WHERE state IN ({marks})" if states else ""
        with self._open() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM alerts {chosen}", states).fetchall()  # noqa: S608 - marks and names of ours
        found = [Alert(msgspec.json.decode(row[0], type=Problem), *row[1:]) for row in rows]
        return sorted(found, key=lambda one: (one.state != "open", -one.problem.gpu_hours, one.problem.key))

    def acknowledge(self, key: str, by: str, note: str = "") -> None:
        """Say that somebody looks after an alert: nobody is reminded of it. Raises NoSuchNameError for one that is not open."""
        with self._open() as connection:
            done = connection.execute(
                "UPDATE alerts SET acknowledged_by = ?, note = ? WHERE key = ? AND state != 'resolved'", (by, note, key)
            )
            if not done.rowcount:
                raise NoSuchNameError(f"no alert '{harmless(key, 200)}' is open", "the list of alerts has their keys")

    def silence(self, owner: str, kind: str, until: float, by: str, note: str = "") -> int:
        """Tell nobody of an owner's problems, or of a kind of them, until a time; returns the number of the silence."""
        if not owner and not kind:
            raise UllageError("a silence is for an owner, a kind of problem, or both", "name one")
        with self._open() as connection:
            made = connection.execute(
                "INSERT INTO silences (owner, kind, until, by, note) VALUES (?, ?, ?, ?, ?)", (owner, kind, until, by, note)
            )
            return int(made.lastrowid or 0)

    def unsilence(self, number: int) -> None:
        """End a silence."""
        with self._open() as connection:
            connection.execute("DELETE FROM silences WHERE number = ?", (number,))

    def silences(self, now: float) -> list[Silence]:
        """Return the silences that hold."""
        with self._open() as connection:
            return [Silence(*row) for row in connection.execute("SELECT * FROM silences WHERE until >= ? ORDER BY number", (now,))]

    def attach_profile(self, key: str, place: str, by: str, now: float, note: str = "") -> None:
        """Keep that a profile came for an alert, open or over. Raises NoSuchNameError for an alert that there is not."""
        with self._open() as connection:
            if connection.execute("SELECT 1 FROM alerts WHERE key = ?", (key,)).fetchone() is None:
                raise NoSuchNameError(f"there is no alert '{harmless(key, 200)}'", "the list of alerts has their keys")
            connection.execute("INSERT OR REPLACE INTO profiles VALUES (?, ?, ?, ?, ?)", (key, place, by, now, note))

    def profiles(self) -> dict[str, list[TakenProfile]]:
        """Return the profiles that came, by the alert's key, the newest first."""
        found: dict[str, list[TakenProfile]] = {}
        with self._open() as connection:
            for row in connection.execute("SELECT key, place, by, at, note FROM profiles ORDER BY at DESC, place"):
                found.setdefault(row[0], []).append(TakenProfile(*row))
        return found

    def keep_fix(self, key: str, fix: MeasuredFix, now: float) -> None:
        """Keep what the fix of a problem brought, in place of what was measured before."""
        with self._open() as connection:
            connection.execute("INSERT OR REPLACE INTO fixes VALUES (?, ?, ?)", (key, msgspec.json.encode(fix), now))

    def fixes(self) -> dict[str, tuple[MeasuredFix, float]]:
        """Return what fixes brought, and when that was measured (s), by the alert's key."""
        with self._open() as connection:
            rows = connection.execute("SELECT key, fix, measured FROM fixes").fetchall()
        return {key: (msgspec.json.decode(fix, type=MeasuredFix), measured) for key, fix, measured in rows}

    def waiting(self, outlet: str) -> list[Notice]:
        """Return what is still to be said to an outlet, the oldest first."""
        with self._open() as connection:
            rows = connection.execute(
                "SELECT number, what, at, outlet, problem FROM notices WHERE outlet = ? AND sent IS NULL AND tries < ? ORDER BY number",
                (outlet, MOST_TRIES),
            ).fetchall()
        return [Notice(number, what, at, to, msgspec.json.decode(data, type=Problem)) for number, what, at, to, data in rows]

    def sent(self, notice: Notice, now: float) -> None:
        """Note that a notice was sent."""
        with self._open() as connection:
            connection.execute("UPDATE notices SET sent = ? WHERE number = ?", (now, notice.number))

    def failed(self, notice: Notice) -> None:
        """Note that a notice could not be sent; it is tried again, so many times."""
        with self._open() as connection:
            connection.execute("UPDATE notices SET tries = tries + 1 WHERE number = ?", (notice.number,))

    @staticmethod
    def _note_problem(connection: sqlite3.Connection, key: str, problem: Problem, now: float) -> None:
        row = connection.execute("SELECT state, hits, resolved, told FROM alerts WHERE key = ?", (key,)).fetchone()
        data = msgspec.json.encode(problem)
        if row is None or row[0] == "resolved":
            calm = row is not None and row[3] is not None and row[2] is not None and now - row[2] < CALM_S
            state = "open" if problem.confidence == SURE_AT_ONCE else "pending"
            connection.execute(
                "INSERT OR REPLACE INTO alerts (key, problem, state, first_seen, last_seen, opened, hits, misses, told) "
                "VALUES (?, ?, ?, ?, ?, ?, 1, 0, ?)",
                (key, data, state, now, now, now if state == "open" else None, now if calm else None),
            )
            return
        opens = row[0] == "pending" and (row[1] + 1 >= AGAIN or problem.confidence == SURE_AT_ONCE)
        connection.execute(
            "UPDATE alerts SET problem = ?, last_seen = ?, hits = hits + 1, misses = 0, state = ?, opened = COALESCE(opened, ?) "
            "WHERE key = ?",
            (data, now, "open" if opens else row[0], now if opens else None, key),
        )

    @staticmethod
    def _not_seen(connection: sqlite3.Connection, key: str, now: float, outlets: Sequence[str]) -> None:
        state, misses, told, problem = connection.execute(
            "SELECT state, misses, told, problem FROM alerts WHERE key = ?", (key,)
        ).fetchone()
        if state == "pending":
            connection.execute("DELETE FROM alerts WHERE key = ?", (key,))
        elif misses + 1 < GONE:
            connection.execute("UPDATE alerts SET misses = misses + 1 WHERE key = ?", (key,))
        else:
            connection.execute("UPDATE alerts SET state = 'resolved', resolved = ? WHERE key = ?", (now, key))
            if told is not None:
                _write_down(connection, key, "resolved", now, outlets, problem)

    def _tell(self, connection: sqlite3.Connection, now: float, outlets: Sequence[str]) -> None:
        silences = [Silence(*row) for row in connection.execute("SELECT * FROM silences WHERE until >= ?", (now,))]
        rows = connection.execute("SELECT key, problem, told, acknowledged_by FROM alerts WHERE state = 'open'").fetchall()
        for key, data, told, by in rows:
            problem = msgspec.json.decode(data, type=Problem)
            if any(one.covers(problem) for one in silences):
                continue
            if told is None or (now - told >= REMIND_S and not by):
                _write_down(connection, key, "opened" if told is None else "reminder", now, outlets, data)
                connection.execute("UPDATE alerts SET told = ? WHERE key = ?", (now, key))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are kept when all went well, and none of them where not."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.file, timeout=30)
            try:
                with connection:
                    yield connection
            finally:
                connection.close()
        except (sqlite3.Error, OSError) as error:
            damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
            hint = "remove that file: alerts begin anew, without silences" if damaged else "see the disk and who may write"
            raise UllageError(f"the alerts in {harmless(str(self.file))} can't be kept: {error}", hint) from error


def _write_down(connection: sqlite3.Connection, key: str, what: What, now: float, outlets: Sequence[str], problem: bytes) -> None:
    connection.executemany(
        "INSERT INTO notices (key, what, at, outlet, problem) VALUES (?, ?, ?, ?, ?)", [(key, what, now, one, problem) for one in outlets]
    )
