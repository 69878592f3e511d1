"""Which intervals of a host are events, where a recording's later ones stand for sums: see `ullage.recording.Summed`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ullage.recording import Summed
from ullage.sums.lanes.gather import LaneRows

FIRST_BIN = 5  # of a histogram: what took less than 2 to the power of it, in ns


def events(rows: LaneRows, summed: Summed | None, *, whole: bool = False) -> npt.NDArray[np.bool_]:
    """Return which rows of a host are events; with `whole` those alone that ended before sums began."""
    found = np.ones(len(rows), np.bool_)
    for thread, since in summed.since.items() if summed is not None else ():
        found &= (rows.thread != thread) | ((rows.end if whole else rows.start) < since)
    return found


def median_with_histogram(times: npt.NDArray[np.int64], histogram: tuple[int, ...], longest: int) -> int:
    """Return the median of calls of which some times (ns) are known, and of the others how many took less than twice of what:
    such a one counts as three quarters of that, but not more than the longest.

    >>> median_with_histogram(np.array([10, 20, 30]), (0, 0, 5), 100)
    96
    """
    bins = np.array([min(3 << (FIRST_BIN + n - 2), longest) for n in range(len(histogram))], np.int64)
    values = np.concatenate([times, bins])
    weights = np.concatenate([np.ones(len(times), np.int64), np.array(histogram, np.int64)])
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weights[order])
    return int(values[order][np.searchsorted(upto, (upto[-1] + 1) // 2)]) if len(upto) and upto[-1] else 0
