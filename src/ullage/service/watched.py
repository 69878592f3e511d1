"""The store that is served: which version of it lies on the disk, and up to when its samples reach."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ullage.errors import UllageError
from ullage.service.served import ReadPlace
from ullage.store.jobs import NAME as JOBS_NAME
from ullage.store.manifest import NAME
from ullage.store.store import Store

_FILES = (NAME, JOBS_NAME)  # what a commit replaces


class WatchedStore:
    """A folder with a store, or where one will be; whoever fills it may be another process.

    What a span before now counts back from is the time of day for a store that is filled while it is served (`live`), and the last sample
    for one that lies still. `reported` is a folder with job records beside a store that others fill: what jobs said of themselves.
    `prices` is a file of prices: what it says of money is part of every answer, and so of the version.
    """

    def __init__(
        self,
        path: Path,
        *,
        live: bool = False,
        reported: Path | None = None,
        prices: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path, self.live, self.reported, self.prices, self._clock = path, live, reported, prices, clock
        self._known: tuple[str, tuple[int, int] | None, str] = ("", None, "")

    def version(self) -> str:
        """Return what changes whenever the store does; "" where there is none."""
        found = []
        beside = None if self.reported is None else self.reported / JOBS_NAME
        for file in (*(self.path / name for name in _FILES), *filter(None, (beside, self.prices))):
            try:
                seen = file.stat()
            except OSError:
                found.append("")
            else:
                found.append(f"{seen.st_mtime_ns:x}.{seen.st_size:x}.{seen.st_ino:x}")
        return "-".join(found) if found[0] else ""

    def window(self) -> tuple[int, int] | None:
        """Return the first and the last sample's time (ms); None for a store that is empty, absent, or can't be read."""
        return self._look()[1]

    def problem(self) -> str:
        """Return why the store can't be read; "" where it can."""
        return self._look()[2]

    @property
    def place(self) -> ReadPlace:
        """What a question reads."""
        beside = None if self.reported is None else self.reported / JOBS_NAME
        jobs = (str(beside),) if beside is not None and beside.exists() else ()
        return ReadPlace(str(self.path), jobs, "" if self.prices is None else str(self.prices))

    @property
    def kept_reports(self) -> Path:
        """The store that keeps what jobs say of themselves: this one, or one beside it where others fill this one."""
        return self.path if self.reported is None else self.reported

    def last_ms(self) -> int:
        """Return the time of the last sample that is not of a later time than now, in ms since 1970; now where there is none."""
        now, window = round(self._clock() * 1000), self.window()
        return now if window is None else window[1] if not self.live else min(now, window[1])

    def now_ms(self) -> int:
        """Return what is now for those who ask, in ms since 1970."""
        window = None if self.live else self.window()
        return round(self._clock() * 1000) if window is None else window[1]

    def _look(self) -> tuple[str, tuple[int, int] | None, str]:
        version = self.version()
        if version != self._known[0] or not version:
            self._known = (version, *self._read(version))
        return self._known

    def _read(self, version: str) -> tuple[tuple[int, int] | None, str]:
        if not version:
            return None, f"there is no store at {self.path} yet"
        try:
            window = Store.open(self.path).window()
        except UllageError as error:
            return None, error.problem
        return window, "" if window else "the store holds no sample yet"
