"""Which call of the host put which work on a device: found by process and correlation number."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.arrays import chosen
from ullage.sums.lanes.gather import CALL, NOT_KNOWN, Codes, LaneRows
from ullage.sums.lanes.spans import BLOCK, Times

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]

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
            _match(calls, np.flatnonzero(wanted), rows.correlation, mine, found)
    return found


def _match(calls: LaneRows, own: Places, correlation: Times, places: Places, found: Launches) -> None:
    """Fill in what is found of the rows at `places` among the calls at `own`. There may be millions: no column is copied whole but
    what is sorted."""
    numbers = calls.correlation[own]
    order = own if is_sorted(numbers) else own[np.argsort(numbers, kind="stable")]
    numbers = calls.correlation[order]
    new = np.concatenate(([True], numbers[1:] != numbers[:-1]))
    first = None if new.all() else np.flatnonzero(new)
    numbers = numbers if first is None else numbers[first]
    for low in range(0, len(places), BLOCK):
        some = places[low : low + BLOCK]
        found.early[some] = correlation[some] < numbers[0]
        at = np.searchsorted(numbers, correlation[some])
        found.known[some] = numbers[np.minimum(at, len(numbers) - 1)] == correlation[some]
    places = places[found.known[places]]
    at = np.searchsorted(numbers, correlation[places])
    del numbers
    for column, values, of_several in (
        (found.start, calls.start, np.minimum),
        (found.end, calls.end, np.maximum),
        (found.thread, calls.thread, np.minimum),
    ):
        column[places] = values[order[at]] if first is None else of_several.reduceat(values[order], first)[at]


def is_sorted(values: npt.NDArray[np.signedinteger[Any]]) -> bool:
    """Return whether values are in order already: to sort millions of them takes memory."""
    return bool((values[1:] >= values[:-1]).all())


def puts(calls: LaneRows) -> Mask:
    """Return which calls put work on a device: launches of kernels and graphs, copies."""
    return _PUTS[calls.call]


def only(rows: LaneRows, mask: Mask, *columns: str) -> LaneRows:
    """Return some columns of the rows where `mask`; they share memory with `rows` where that is all of them."""
    return LaneRows(chosen(rows.start, mask), chosen(rows.end, mask), **{name: chosen(getattr(rows, name), mask) for name in columns})


def distinct(values: Times | Codes) -> list[int]:
    """Return the different values of an array, sorted; quick where there is only one."""
    if not len(values):
        return []
    return [int(values[0])] if (values == values[0]).all() else np.unique(values).tolist()
