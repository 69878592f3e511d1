"""Which call of the host put which work on a device: found by process and correlation number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.gather import CALL, NOT_KNOWN, Codes, LaneRows
from ullage.sums.lanes.spans import Times

Mask = npt.NDArray[np.bool_]

_PUTS = np.zeros(len(CALL) + 1, bool)  # the last is that of NOT_KNOWN
_PUTS[[CALL[word] for word in ("launch", "graph", "copy")]] = True


class Launches(NamedTuple):
    """For each of some device rows, the call that put it there: whether one is `known`, its start and end (ns), its thread.

    Where several calls have one correlation (a runtime call and the driver's call inside it), they count as one, from the
    first start to the last end. Where none is known, start, end and thread are `NOT_KNOWN`. `early` says which of these were
    launched before the recording began: the runtime numbers its calls in their order, and theirs are below all that are recorded.
    """

    known: Mask
    early: Mask
    start: Times
    end: Times
    thread: Times


def launches(calls: LaneRows, rows: LaneRows) -> Launches:
    """Return the call behind each of the device's `rows`: that of the same process and correlation."""
    found = Launches(*(np.zeros(len(rows), bool) for _ in range(2)), *(np.full(len(rows), NOT_KNOWN, np.int64) for _ in range(3)))
    for process in distinct(rows.process):
        mine = np.flatnonzero((rows.process == process) & (rows.correlation != NOT_KNOWN))
        wanted = (calls.process == process) & (calls.correlation != NOT_KNOWN)
        if len(mine) and wanted.any():
            _match(only(calls, wanted, "correlation", "thread"), rows.correlation[mine], mine, found)
    return found


def _match(calls: LaneRows, correlation: Times, places: npt.NDArray[np.intp], found: Launches) -> None:
    """Fill in what is found of the rows at `places`."""
    order = np.argsort(calls.correlation, kind="stable")
    ordered = calls.correlation[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    numbers = ordered[first]
    at = np.minimum(np.searchsorted(numbers, correlation), len(numbers) - 1)
    known = numbers[at] == correlation
    found.early[places] = correlation < numbers[0]
    places, at = places[known], at[known]
    found.known[places] = True
    found.start[places] = np.minimum.reduceat(calls.start[order], first)[at]
    found.end[places] = np.maximum.reduceat(calls.end[order], first)[at]
    found.thread[places] = np.minimum.reduceat(calls.thread[order], first)[at]


def puts(calls: LaneRows) -> Mask:
    """Return which calls put work on a device: launches of kernels and graphs, copies."""
    return _PUTS[calls.call]


def only(rows: LaneRows, mask: Mask, *columns: str) -> LaneRows:
    """Return some columns of the rows where `mask`; they share memory with `rows` where that is all of them."""
    chosen = slice(None) if mask.all() else mask
    return LaneRows(rows.start[chosen], rows.end[chosen], **{name: getattr(rows, name)[chosen] for name in columns})


def distinct(values: Times | Codes) -> list[int]:
    """Return the different values of an array, sorted; quick where there is only one."""
    if not len(values):
        return []
    return [int(values[0])] if (values == values[0]).all() else np.unique(values).tolist()
