"""Clocks of different machines brought together by the collectives that all left at the same moment.

No rank can leave an all-reduce before the last has come, so its ends on all ranks coincide within the network's latency,
some microseconds. The difference of the recorded ends is then the difference of the clocks: its median over many
collectives the offset, its slope the drift, what is left the uncertainty.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.spans import Times

FEWEST = 3  # collectives that an offset needs
_FOR_DRIFT = 9  # and a drift: three in each third


@dataclass(frozen=True)
class ClockLine:
    """A clock's difference from another: `offset` ns at the moment `origin`, and `drift` ns per ns from there on.

    `residual` is the median distance of the differences from this line, `worst` the largest, both in ns.
    """

    origin: int
    offset: int
    drift: float
    residual: float
    worst: float

    def at(self, time: Times) -> Times:
        """Return the difference in ns at moments of the clock that `origin` is a moment of."""
        found: Times = self.offset + np.rint(self.drift * (time - self.origin)).astype(np.int64)
        return found


@dataclass(frozen=True)
class AlignedClock:
    """A capture's clock against the reference's: `line` by its own time, from `matches` collectives; None if too few.

    The reference has an offset of 0 and is its own match.
    """

    capture: int
    matches: int
    line: ClockLine | None
    reference: bool = False


def line(time: Times, difference: Times) -> ClockLine:
    """Return the line through differences in ns that a few outliers don't move (Tukey's resistant line, 1977, by thirds).

    The drift is 0 unless it explains more than the scatter does.

    >>> line(np.arange(9) * 1000, np.arange(9) + 5_000_000_000)
    ClockLine(origin=4000, offset=5000000004, drift=0.001, residual=0.0, worst=0.0)
    """
    order = np.argsort(time, kind="stable")
    time, difference = time[order], difference[order]
    origin, offset = int(np.median(time - time[0])) + int(time[0]), _median(difference)
    level = ClockLine(origin, offset, 0.0, *_scatter(difference - offset))
    third = len(time) // 3
    if len(time) < _FOR_DRIFT:
        return level
    run = float(np.median(time[-third:] - time[0]) - np.median(time[:third] - time[0]))
    if run <= 0:
        return level
    rise = float(np.median(difference[-third:] - offset) - np.median(difference[:third] - offset))
    sloped = ClockLine(origin, offset, rise / run, 0.0, 0.0)
    rest = difference - sloped.at(time)
    sloped = ClockLine(origin, offset + _median(rest), rise / run, *_scatter(rest - _median(rest)))
    return sloped if abs(rise) > 4 * sloped.residual and sloped.residual < level.residual else level


def _median(values: Times) -> int:
    """Return the median of large integers without losing their last digits."""
    first = int(values[0])
    return first + round(float(np.median(values - first)))


def _scatter(rest: Times) -> tuple[float, float]:
    away = np.abs(rest)
    return float(np.median(away)), float(away.max())


def clocks(capture: npt.NDArray[np.int64], key: npt.NDArray[np.int64], end: Times, captures: int) -> tuple[AlignedClock, ...]:
    """Return each capture's clock, from rows of collectives that all ranks leave together.

    `capture` is whose row it is, `key` which collective (0, 1, …), `end` when it ended there by its own clock, in ns. The
    capture with the most rows is the reference. Those that share no collective with it are reached through others.
    """
    capture, key, end = _last(capture, key, end)
    edges = np.searchsorted(capture, np.arange(captures + 1))
    rows = [slice(int(low), int(high)) for low, high in itertools.pairwise(edges)]
    counts = np.diff(edges)
    reference = int(counts.argmax()) if captures else 0
    found = {reference: AlignedClock(reference, int(counts[reference]), ClockLine(0, 0, 0.0, 0.0, 0.0), reference=True)} if captures else {}
    anchor = np.zeros(int(key.max(initial=-1)) + 1, np.int64)  # when each collective ended by the reference's clock
    anchored = np.zeros(len(anchor), np.bool_)
    fresh = list(found)
    while fresh:
        for number in fresh:
            _anchor(found[number], key[rows[number]], end[rows[number]], anchor, anchored)
        reached = (_clock(n, key[rows[n]], end[rows[n]], anchor, anchored) for n in range(captures) if n not in found)
        new = {clock.capture: clock for clock in reached if clock.line is not None}
        found, fresh = found | new, list(new)
    lone = {n: _clock(n, key[rows[n]], end[rows[n]], anchor, anchored) for n in range(captures) if n not in found}
    return tuple((found | lone)[number] for number in range(captures))


def _clock(number: int, key: npt.NDArray[np.int64], end: Times, anchor: Times, anchored: npt.NDArray[np.bool_]) -> AlignedClock:
    shared = anchored[key]
    matches = int(shared.sum())
    return AlignedClock(number, matches, line(end[shared], end[shared] - anchor[key[shared]]) if matches >= FEWEST else None)


def _anchor(clock: AlignedClock, key: npt.NDArray[np.int64], end: Times, anchor: Times, anchored: npt.NDArray[np.bool_]) -> None:
    """Note when the collectives of an aligned capture ended by the reference's clock, unless another has said so."""
    assert clock.line is not None
    new = ~anchored[key]
    anchor[key[new]] = end[new] - clock.line.at(end[new])
    anchored[key[new]] = True


def _last(capture: npt.NDArray[np.int64], key: npt.NDArray[np.int64], end: Times) -> tuple[npt.NDArray[np.int64], ...]:
    """Return one row for each collective of each capture: a capture of several devices leaves it when the last does."""
    order = np.lexsort((end, key, capture))
    capture, key, end = capture[order], key[order], end[order]
    last = np.ones(len(key), np.bool_)
    last[:-1] = (capture[1:] != capture[:-1]) | (key[1:] != key[:-1])
    return capture[last], key[last], end[last]
