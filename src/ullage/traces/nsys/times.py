"""Times of an Nsight Systems capture: on the clock since 1970 where it is known, and only those that can be believed."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.recording import Recording
from ullage.traces.nsys.file import Database
from ullage.traces.nsys.pages import Numbers

SLACK = 60_000_000_000  # what an event may lie outside the session: clocks of host and device are matched afterwards
LONGEST = 100 * 86_400 * 1_000_000_000  # of a session of unknown length: 100 days


@dataclass(frozen=True)
class SessionClock:
    """`offset` is what makes a session's times into those since 1970; `low` and `high` bound what a time can be, in session's ns."""

    offset: int
    low: int
    high: int

    def believed(self, start: Numbers, end: Numbers) -> npt.NDArray[np.bool_]:
        """Return which intervals can be: not backwards, within the session, and not both zero, as CUPTI writes what it didn't time."""
        return np.asarray((end >= start) & (start >= self.low) & (end <= self.high) & ((start != 0) | (end != 0)))

    def moment(self, start: Numbers) -> npt.NDArray[np.bool_]:
        """Return which starts can be, whatever the ends."""
        return np.asarray((start >= self.low) & (start <= self.high) & (start != 0))


def clock(database: Database, recording: Recording) -> SessionClock:
    """Return a capture's clock, and say in the recording which it is.

    `nsys export --ts-normalize true` writes times since 1970 at once, `--ts-shift` moves all of them; META_DATA_EXPORT says so.
    """
    said = {str(name): str(value) for name, value in database.rows("META_DATA_EXPORT", "name", "value")}
    epochs = [e for (e,) in database.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs") if isinstance(e, int) and 0 < e < 2**62]
    normal = said.get("EXPORT_PARAM_TIME_NORMALIZE") == "true"
    shift = said.get("EXPORT_PARAM_TIME_SHIFT", "")
    begin = (epochs[0] if epochs and normal else 0) + (int(shift) if re.fullmatch(r"-?\d{1,18}", shift) else 0)
    if epochs or normal:
        recording.clock = "utc"
    if normal and not epochs:
        return SessionClock(0, 0, 2**62)
    lasts = [d for (d,) in database.rows("ANALYSIS_DETAILS", "duration") if isinstance(d, int) and 0 < d <= LONGEST]
    low, high = (-SLACK, max(lasts) + SLACK) if lasts else (-LONGEST, LONGEST)
    return SessionClock(0 if normal or not epochs else epochs[0], begin + low, begin + high)
