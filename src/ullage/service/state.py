"""What the service knows of its source while it runs: when it was last read, what went wrong since, who writes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ullage.render.store import words_of_newest_ahead
from ullage.service.pages import PageState
from ullage.service.watched import WatchedStore
from ullage.store.upkeep import is_ahead
from ullage.views.declared import iso

MINUTE_MS = 60_000
LATE_S = 300.0  # s; a source that was not read for so long is said to be late


@dataclass(frozen=True)
class FollowedSource:
    """How a source is followed: what it is, the interval (s), and what came of it. Times are s since 1970; None: never.

    `problem` is why it could not be read the last time, `failing_since` since when; `writes` is whether this process fills the store,
    `preparing` what is being made before there is anything to show, `read_until` up to when all of it was read (ms; None: who knows).
    """

    source: str
    every: float = 0.0
    last_read: float | None = None
    failing_since: float | None = None
    problem: str = ""
    pulls: int = 0
    failures: int = 0
    rows: int = 0
    writes: bool = True
    preparing: str = ""
    read_until: int | None = None

    def failed(self, problem: str, now: float) -> FollowedSource:
        """Return the state after the source could not be read."""
        since = now if self.failing_since is None else self.failing_since
        return replace(self, failures=self.failures + 1, problem=problem, failing_since=since, preparing="")

    def read(self, rows: int, now: float) -> FollowedSource:
        """Return the state after the source was read."""
        pulls, whole = self.pulls + 1, self.rows + rows
        return replace(self, pulls=pulls, rows=whole, last_read=now, failing_since=None, problem="", preparing="", writes=True)


@dataclass
class ServiceState:
    """The store, how its source is followed (None: others fill it), and the words on both. `note` says what else a reader must know."""

    store: WatchedStore
    following: FollowedSource | None = None
    note: str = ""
    keeps: tempfile.TemporaryDirectory[str] | None = None  # what lasts as long as the service: a temporary folder
    clock: Callable[[], float] = time.time
    alerts: bool = False  # whether the service raises alerts
    uploads: bool = False  # and takes profiles

    def follow(self, following: FollowedSource) -> None:
        """Take note of how the source is followed."""
        self.following = following

    def unready(self) -> str:
        """Return why nothing can be answered yet; "" where something can."""
        following = self.following
        if self.store.window() is not None:
            return ""
        if following is not None and following.failing_since is not None:
            return f"{following.source} has not been read for {self._ago(following.failing_since)}: {following.problem}"
        if following is not None and following.preparing:
            return following.preparing
        return self.store.problem()

    def window_read(self) -> tuple[int, int] | None:
        """Return the first and the last sample's time (ms) of what was read whole: what comes after it may still be missing in part."""
        window = self.store.window()
        until = None if self.following is None else self.following.read_until
        return window if window is None or until is None else (window[0], min(window[1], until))

    def page_state(self) -> PageState:
        """Return what every page says of its source."""
        window = self.store.window()
        first = "" if window is None else iso(window[0] // MINUTE_MS * MINUTE_MS - MINUTE_MS)
        return PageState(self.words(), self._doubts(), first, self.alerts, self.uploads)

    def words(self) -> list[str]:
        """Return what is served, and of what time."""
        window, following = self.store.window(), self.following
        words = [self.note] if self.note else []
        words.append(f"Source: {following.source if following else self.store.path}.")
        if window is not None:
            words.append(f"Samples from {_minute(window[0])} to {_minute(window[1])} UTC.")
        if following is not None and not following.writes:
            words.append("Another instance fills this store; this one reads it.")
        return words

    def _doubts(self) -> list[str]:
        window = self.store.window()
        if not self.store.live or window is None or not is_ahead(window[1], round(self.clock() * 1000)):
            return self._doubts_of_source()
        words = words_of_newest_ahead(window[1])
        return [*self._doubts_of_source(), f"{words[:1].upper()}{words[1:]}."]

    def _doubts_of_source(self) -> list[str]:
        following = self.following
        if following is None:
            problem = self.store.problem()
            return [f"{problem[:1].upper()}{problem[1:]}."] if problem else []
        if following.failing_since is not None:
            until = "" if following.last_read is None else f" What is shown was read {self._ago(following.last_read)} ago."
            return [f"{following.source} has not been read for {self._ago(following.failing_since)}: {following.problem}.{until}"]
        late = following.last_read is not None and self.clock() - following.last_read > max(LATE_S, 3 * following.every)
        if following.writes and late and following.last_read is not None:
            return [f"{following.source} was last read {self._ago(following.last_read)} ago."]
        return [f"{following.preparing[:1].upper()}{following.preparing[1:]}."] if following.preparing else []

    def _ago(self, then: float) -> str:
        seconds = max(0.0, self.clock() - then)
        for size, noun in ((86_400, "d"), (3600, "h"), (60, "min")):
            if seconds >= 2 * size:
                return f"{seconds / size:.0f} {noun}"
        return f"{seconds:.0f} s"


def _minute(ms: int) -> str:
    return iso(ms)[:16].replace("T", " ")
