"""The clocks of a recording: CUPTI's times and those of the host's threads, both on the clock since 1970.

The recorder now and then reads CUPTI's clock, CLOCK_REALTIME and CLOCK_MONOTONIC at one moment. CUPTI's times go to the monotonic
clock by lines between these readings, and from there to 1970 by one number for the whole recording: somebody may set the machine's
clock while a program runs, and that makes no kernel longer. Where CUPTI's own clock is set, the readings before and after are
joined by no line; a time belongs to the nearer of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Reading = tuple[int, int, int]  # CUPTI's time (0: not known), CLOCK_REALTIME, CLOCK_MONOTONIC, in ns

LATEST = 2**62  # ns: what is later is not a time
SET = 1_000_000  # ns by which two clocks part before one of them was set rather than inexact, …
DRIFT = 1000  # … if they part by more than a part in so many of the time in between
SLACK = 60_000_000_000  # ns by which an event may lie outside what the readings bound
LONGEST = 100 * 86_400 * 1_000_000_000  # ns of a recording whose end is not known: 100 days
MOST_SETTINGS = 1000  # of CUPTI's clock; of more, it is no clock


@dataclass(frozen=True)
class ClockSegment:
    """Readings of CUPTI's clock between which nobody set it: its times, and what is to be added to get those of the monotonic clock."""

    at: Times
    add: Times

    def monotonic(self, times: Times) -> Times:
        """Return CUPTI's times on the monotonic clock: by the lines between the readings, beyond them as at the nearest."""
        first = self.add[0]
        if len(self.at) == 1:
            return times + int(first)
        drift = np.interp(times - self.at[0], self.at - self.at[0], self.add - first)
        moved: Times = times + (first + np.rint(drift).astype(np.int64))
        return moved

    def away(self, times: Times) -> Times:
        """Return how far times lie outside the readings, in ns."""
        outside: Times = np.maximum(np.maximum(self.at[0] - times, times - self.at[-1]), 0)
        return outside


@dataclass(frozen=True)
class RecordingClock:
    """A recording's clock: `lines` for CUPTI's times, `since_1970` for those of the monotonic clock (None: no clock is known).

    `first` and `last` bound when the recorder was there, on the recording's clock; `changed` is by how much the machine's clock was
    set meanwhile, in ns. `ended`: the last reading was made at the recording's end.
    """

    lines: tuple[ClockSegment, ...] = ()
    since_1970: int | None = None
    first: int = 0
    last: int = 0
    changed: int = 0
    ended: bool = field(default=False)

    def host(self, times: npt.NDArray[np.unsignedinteger]) -> Times:
        """Return times of the monotonic clock on the recording's."""
        return _whole(times) + (self.since_1970 or 0)

    def cupti(self, times: npt.NDArray[np.unsignedinteger]) -> Times:
        """Return CUPTI's times on the recording's clock; without any reading of CUPTI's clock they stay as they are."""
        whole = _whole(times)
        if not self.lines:
            return whole
        moved = self.lines[0].monotonic(whole)
        if len(self.lines) > 1:
            nearest = np.argmin(np.stack([line.away(whole) for line in self.lines]), axis=0)
            for number, line in enumerate(self.lines[1:], 1):
                mine = nearest == number
                moved[mine] = line.monotonic(whole[mine])
        return moved + (self.since_1970 or 0)

    def believed(self, start: Times, end: Times) -> Mask:
        """Return which intervals can be, on the recording's clock: not backwards, and while the recorder was there."""
        return np.asarray((end >= start) & self.moment(start) & self.moment(end))

    def moment(self, times: Times) -> Mask:
        """Return which times can be."""
        if self.since_1970 is None:
            return np.asarray((times > 0) & (times < LATEST))
        return np.asarray((times >= self.first - SLACK) & (times <= (self.last + SLACK if self.ended else self.first + LONGEST)))


def clock(readings: Sequence[Reading], *, ended: bool = False, since_1970: int | None = None) -> RecordingClock:
    """Return the clock of some readings, in the order in which they were made; those that can't be are left out.

    `since_1970` is what is to be added to the monotonic clock, if that was settled before.

    CUPTI's clock is 5 ahead at first and 7 ahead 2,000 ns later: in the middle 6.

    >>> found = clock([(1005, 5000, 1000), (3007, 7000, 3000)])
    >>> found.cupti(np.array([2006], np.uint64)) - found.since_1970
    array([2000])
    """
    good = [reading for reading in readings if all(0 <= time < LATEST for time in reading) and reading[1] and reading[2]]
    good = [reading for n, reading in enumerate(good) if n == 0 or reading[2] >= good[n - 1][2]]
    if not good:
        return RecordingClock()
    realtime, monotonic = _whole([r[1] for r in good]), _whole([r[2] for r in good])
    apart = realtime - monotonic
    if since_1970 is None:
        since_1970 = int(np.sort(apart)[len(apart) // 2])
    changed = int(apart.max() - apart.min())
    return RecordingClock(
        lines=_lines([r for r in good if r[0]]),
        since_1970=since_1970,
        first=int(monotonic[0]) + since_1970,
        last=int(monotonic[-1]) + since_1970,
        changed=changed if changed > SET + (monotonic[-1] - monotonic[0]) // DRIFT else 0,
        ended=ended,
    )


def _lines(readings: Sequence[Reading]) -> tuple[ClockSegment, ...]:
    """Return the readings of CUPTI's clock, parted where it was set."""
    if not readings:
        return ()
    at, monotonic = _whole([r[0] for r in readings]), _whole([r[2] for r in readings])
    add = monotonic - at
    breaks = 1 + np.flatnonzero((np.abs(np.diff(add)) > SET + np.diff(monotonic) // DRIFT) | (np.diff(at) < 0))
    if len(breaks) > MOST_SETTINGS:
        middle = np.sort(add)[len(add) // 2]
        return (ClockSegment(at[:1], middle[None]),)
    return tuple(ClockSegment(a, b) for a, b in zip(np.split(at, breaks), np.split(add, breaks), strict=True))


def _whole(values: npt.ArrayLike) -> Times:
    """Return times as signed numbers; what no time can be becomes `LATEST`.

    >>> _whole(np.array([7, 2**64 - 1], np.uint64)).tolist() == [7, LATEST]
    True
    """
    array = np.asarray(values)
    return np.minimum(array, array.dtype.type(LATEST)).astype(np.int64) if len(array) else array.astype(np.int64)
