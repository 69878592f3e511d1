"""How well an estimate agrees with what the application reports (OFU paper, sections V-A and V-B)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ullage.metrics.metric import Value, metric

Array = npt.NDArray[np.float64]


@metric(unit="1", source="OFU paper, eq. 9")
def absolute_error(estimate: Value, reported: Value) -> Value:
    """How far an estimate is from what was reported, as a ratio (0.02 is 2 percentage points).

    >>> absolute_error(estimate=0.25, reported=0.5)
    0.25
    """
    return abs(estimate - reported)


@metric(unit="1", source="OFU paper, section V-C: (MFU - OFU) / OFU")
def relative_error(reported: Value, ofu: Value) -> Value:
    """How far a reported MFU lies above (or below) OFU, relative to OFU.

    >>> relative_error(reported=0.5, ofu=0.25)
    1.0
    """
    return (reported - ofu) / ofu


def pearson(x: Array, y: Array) -> float | None:
    """Return Pearson's correlation of two equally long series, or None for fewer than 3 points or a constant one.

    >>> pearson(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    1.0
    """
    if len(x) < 3 or not np.ptp(x) or not np.ptp(y):
        return None
    return float(np.corrcoef(x, y)[0, 1])
