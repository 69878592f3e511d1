"""Counters that only grow: GPU-seconds by owner, lost by factor, added up hour by hour of the samples' own time.

A report on a moving window is no counter: hours leave it, and a series that is doubted later takes its hours along. So each hour is asked
about once, when it has passed and what may come late has come, by the same question as the fleet's page; its sums are added and kept.
What comes later still is in the pages and no longer in the counters. The first time, all whole hours that the store holds are one question.
Hours that can't be read, or not to their end, are not counted yet: they are asked about again, and later ones wait for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from ullage.errors import NoSampleError
from ullage.store.durable import write_whole
from ullage.units import HOUR_MS

SETTLED_MS = 600_000  # ms after an hour's end at which it is asked about: how late a reading may be
HOUR_S = 3600.0  # s of a GPU-hour


class CountedTotals(msgspec.Struct, frozen=True):
    """GPU-seconds up to a time (ms): by owner, lost by factor, and gained by factor where a clock ran faster than the peak's.

    `since` is the start of the first hour that counted; None: none has yet.
    """

    since: int | None = None
    until: int | None = None
    owned: dict[str, float] = msgspec.field(default_factory=dict)
    lost: dict[str, float] = msgspec.field(default_factory=dict)
    gained: dict[str, float] = msgspec.field(default_factory=dict)

    def with_hours(self, since: int, until: int, ledger: Mapping[str, float], losses: Mapping[str, float]) -> CountedTotals:
        """Return the totals with those of further hours, in GPU-hours."""
        owned = {owner: hours for owner, hours in ledger.items() if owner != "total"}
        lost = {name: max(0.0, hours) for name, hours in losses.items()}
        gained = {name: max(0.0, -hours) for name, hours in losses.items()}
        parts = (_added(self.owned, owned), _added(self.lost, lost), _added(self.gained, gained))
        return CountedTotals(since if self.since is None else self.since, until, *parts)


def _added(before: Mapping[str, float], hours: Mapping[str, float]) -> dict[str, float]:
    return {name: before.get(name, 0.0) + hours.get(name, 0.0) * HOUR_S for name in {**before, **hours}}


@dataclass
class TotalsBook:
    """The totals of one store, kept in a file beside it so that a service that starts again goes on counting."""

    file: Path
    document_of: Callable[[int, int], Mapping[str, Any]]  # the fleet's document of a window (ms); NoSampleError where it has no sample
    totals: CountedTotals = field(init=False)
    failures: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self.totals = _read(self.file)

    def look(self) -> None:
        """Take over what another process has counted."""
        self.totals = _read(self.file)

    def count(self, window: tuple[int, int] | None) -> None:
        """Count the whole hours that have passed, of the samples of a window (ms).

        Raises UllageError where they can't be read or nothing can be kept: then they are still to be counted.
        """
        if window is None:
            return
        with self._lock:
            due = due_hours(self.totals.until, window)
            if due is None:
                return
            try:
                counted = self._counted(*due)
                _write(self.file, counted)
            except Exception:
                self.failures += 1
                raise
            self.totals = counted

    def _counted(self, since: int, until: int) -> CountedTotals:
        try:
            found = self.document_of(since, until)
        except NoSampleError:
            return self.totals.with_hours(since, until, {}, {})
        losses = {row["name"]: row["gpu_hours"] or 0.0 for row in found["losses"]}
        return self.totals.with_hours(since, until, found["ledger"], losses)


def due_hours(counted: int | None, window: tuple[int, int]) -> tuple[int, int] | None:
    """Return the start and the end (ms) of the whole hours that can be counted and are not; None where there is none.

    >>> due_hours(None, (1_800_000, 3 * HOUR_MS)), due_hours(2 * HOUR_MS, (1_800_000, 3 * HOUR_MS)), due_hours(None, (0, HOUR_MS))
    ((0, 7200000), None, None)
    """
    first, last = window
    until = (last - SETTLED_MS) // HOUR_MS * HOUR_MS
    since = first // HOUR_MS * HOUR_MS if counted is None else counted
    return (since, until) if until > since else None


def _read(file: Path) -> CountedTotals:
    try:
        return msgspec.json.decode(file.read_bytes(), type=CountedTotals)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return CountedTotals()  # a counter that begins again is what Prometheus expects of one


def _write(file: Path, totals: CountedTotals) -> None:
    def write(into: IO[bytes]) -> None:
        into.write(msgspec.json.encode(totals))

    write_whole(file.parent, file.name, write)
