"""When a job pauses: checkpoints, restarts and evaluations say nothing about how its devices do, and are left out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

RESTS = 0.5  # of the most engine activity that a job has shown: one of which most devices rest for longer than they work pauses
WORKS = 0.1  # of the most tensor activity that a job has shown: it works again
QUIET = 0.2  # of engine activity over half a minute: who comes late four times as long as others work still does more


def job_pauses(engine: Array, tensor: Array, width: int, young: int = 0) -> Flags:
    """Return where a device is in a pause (window, device): from when most rest until most others, and it, do tensor work again.

    `engine` and `tensor` are activities (window, device), NaN where nothing was read. Where windows are short (`width` of them are averaged
    later) the edges of a pause are in those beside it; where they are long, a device that rests in nearly all of one pauses too. In its
    first windows, in which it is `young`, a job may not have shown yet how busy engines are when it works: it is taken for all of the time.
    """
    most = np.fmax.accumulate(np.nan_to_num(middle(engine)))[:, None]
    most[:young] = 1.0
    rests = ((engine < np.maximum(QUIET, RESTS * most)).sum(axis=1) > 0.5 * (~np.isnan(engine)).sum(axis=1))[:, None]
    usual = middle(tensor)[:, None]
    least = WORKS * np.fmax.accumulate(np.nan_to_num(usual), axis=0)
    last_rest = _last_window(rests)
    pauses = np.asarray((last_rest > _last_window(~rests & (usual > least))) | (last_rest > _last_window(~rests & (tensor > least))))
    if width == 1:
        return np.asarray(pauses | (engine < QUIET))
    beside = np.zeros_like(pauses)
    beside[1:] |= pauses[:-1]
    beside[:-1] |= pauses[1:]
    return np.asarray(pauses | beside)


def _last_window(flags: Flags) -> npt.NDArray[np.int64]:
    """Return the number of the last window up to each in which a flag was set; -1 where none was."""
    return np.maximum.accumulate(np.where(flags, np.arange(len(flags))[:, None], -1), axis=0)


def middle(values: Array) -> Array:
    """Return the median over devices without those that are missing; NaN where all are."""
    known = np.sort(values, axis=1)  # NaN last
    counts = (~np.isnan(known)).sum(axis=1)
    rows = np.arange(len(known))
    low, high = np.maximum((counts - 1) // 2, 0), np.maximum(counts // 2, 0)
    return np.asarray(np.where(counts > 0, (known[rows, low] + known[rows, np.minimum(high, known.shape[1] - 1)]) / 2, np.nan))


def averaged(values: Array, width: int) -> Array:
    """Return the mean of the last `width` windows at each, without those that are missing."""
    if width == 1:
        return values
    known = ~np.isnan(values)
    sums = np.cumsum(np.where(known, values, 0), axis=0)
    counts = np.cumsum(known, axis=0).astype(float)
    sums[width:], counts[width:] = sums[width:] - sums[:-width], counts[width:] - counts[:-width]
    return np.where(counts >= 0.6 * width, sums / np.maximum(counts, 1), np.nan)
