"""Up to when each source was read, kept beside the store, so that a restart goes on there.

What a source held at a time is known by our own clock: the newest sample says nothing of it, since one host's clock may be ahead of the
others'. A source that has nothing at all may have lost sight of what it holds (a server without its disk, a gateway without its stores):
when something comes again, all is asked for since it fell silent. A sample may come to the source later than its time, for a clock that
is behind or a writer with a backlog: what is up to `OVERLAP_MS` late is read with the next samples, what is up to `LATEST_MS` late within
`SWEEP_MS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from ullage.store.durable import write_whole
from ullage.units import HOUR_MS

NAME = "followed.json"
OVERLAP_MS = 600_000  # ms that are asked for again each time
SWEEP_MS = HOUR_MS  # ms after which more is asked for again
LATEST_MS = HOUR_MS  # ms by which a sample may be late and still be found


class SourceWatermark(msgspec.Struct, frozen=True):
    """Up to when a source was read whole, and when all that is late was last asked for again, both by our clock (ms).

    `silent_since` is up to when it had been read when it began to have nothing new; None: it has.
    """

    read_until: int
    swept: int
    silent_since: int | None = None

    def since(self, now: int) -> int:
        """Return from when on the source is asked (ms)."""
        since = min(self.read_until, now) - OVERLAP_MS  # the earlier one: our own clock may have been set back
        return min(since, self.swept - LATEST_MS) if self._sweeps(now) else since

    def missed_since(self, now: int) -> int | None:
        """Return from when on a source must be asked again that has come back (ms); None where nothing can have been missed."""
        if self.silent_since is None or self.since(now) <= self.silent_since - OVERLAP_MS:
            return None
        return self.silent_since - OVERLAP_MS

    def read(self, now: int, until: int, rows: int = 1) -> SourceWatermark:
        """Return the watermark after the source was asked at a time, and read up to another one; `rows` that were new came."""
        began = self.read_until if self.silent_since is None else min(self.silent_since, self.read_until)
        return SourceWatermark(until, now if self._sweeps(now) else self.swept, None if rows else began)

    def _sweeps(self, now: int) -> bool:
        return not 0 <= now - self.swept < SWEEP_MS


def read_watermarks(folder: Path) -> dict[str, SourceWatermark]:
    """Return how far each source was read into a store; nothing is known where the file is absent or damaged."""
    try:
        return msgspec.json.decode((folder / NAME).read_bytes(), type=dict[str, SourceWatermark])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


def keep_watermarks(folder: Path, marks: Mapping[str, SourceWatermark]) -> None:
    """Keep how far each source was read. Raises UllageError when the disk refuses."""

    def write(into: IO[bytes]) -> None:
        into.write(msgspec.json.encode(marks))

    write_whole(folder, NAME, write)
