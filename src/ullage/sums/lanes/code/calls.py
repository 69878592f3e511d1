"""Calls of the GPU's interface and of MPI by name: how often, how long, and how long devices waited for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ullage.recording import Summed, SummedCalls
from ullage.sums.lanes.code.idle import Charge
from ullage.sums.lanes.code.levels import by_thread
from ullage.sums.lanes.events_before_sums import events, median_with_histogram
from ullage.sums.lanes.gather import CALL, NOT_KNOWN, Capture, LaneRows
from ullage.sums.lanes.launches import distinct
from ullage.sums.lanes.observed import TableTime, time_inside
from ullage.sums.lanes.queues import quantile
from ullage.sums.lanes.spans import Times, within
from ullage.tables import CALLS

MOST = 1000  # names kept of a capture
_BLOCK = 1 << 15  # calls that are looked at in one go
_NOBODYS = np.zeros(0, np.intp)
MPI = "mpi"  # the sort of a call that is none of the GPU's interface


@dataclass(frozen=True)
class CallRow:
    """Calls of one name, times in ns: how many, how long in all, the `longest`, the `median`; `sort` is one of `tables.CALLS`, or `MPI`.

    `waited` is the idle time of devices while such a call was in progress on the thread that launched next, summed over devices: a call
    within another counts in both.
    """

    name: str
    sort: str
    count: int
    time: int
    longest: int
    median: int
    waited: int


class ApiCalls:
    """The calls of a capture, and how long devices waited for each. A call within another of the same name on its thread is that call
    written twice, as old Nsight exports do."""

    def __init__(self, capture: Capture) -> None:
        calls, talks = capture.calls, capture.host.of("mpi")
        rows = calls
        if len(talks):
            both = {name: np.concatenate([getattr(calls, name), getattr(talks, name)]) for name in ("process", "thread", "name")}
            sort = np.concatenate([calls.call, np.full(len(talks), len(CALL), np.int8)])
            rows = LaneRows(np.concatenate([calls.start, talks.start]), np.concatenate([calls.end, talks.end]), call=sort, **both)
        twice = _twice(rows)
        self._summed = capture.recording.summed
        self._words, self._rows = capture.words, rows.where(~twice) if twice.any() else rows
        self._threads = dict(by_thread(self._rows.process, self._rows.thread))
        self._waited = np.zeros(len(self._rows), np.int64)

    def wait(self, charges: Iterable[Charge]) -> None:
        """Add the idle time of a device to the calls that were in progress on the threads which answer for it."""
        for charge in charges:
            places = self._threads.get((charge.process, charge.thread), _NOBODYS)
            for first in range(0, len(places), _BLOCK):
                some = places[first : first + _BLOCK]
                self._waited[some] += within(charge.spans, self._rows.start[some], self._rows.end[some])

    def rows(self, looked: TableTime, most: int = MOST) -> tuple[CallRow, ...]:
        """Return the calls while their process is looked at by name, the most time first; of one across an edge the time inside counts.

        Of calls that are only counted nobody knows in which region they are: there those count whose events were recorded."""
        rows = self._rows
        time = np.full(len(rows), -1, np.int64)
        for process, when in looked.processes.items():
            places = np.flatnonzero(rows.process == process)
            for first in range(0, len(places), _BLOCK):
                some = places[first : first + _BLOCK]
                time[some] = time_inside(when, rows.start[some], rows.end[some])
        if looked.region is not None:
            time[~events(rows, self._summed)] = -1
        inside = np.flatnonzero(time >= 0)
        key = rows.name.astype(np.int64) * (len(CALL) + 1) + rows.call
        inside = inside[np.argsort(key[inside], kind="stable")]
        edges = np.flatnonzero(np.diff(key[inside], prepend=-(2**62), append=-(2**62))).tolist()
        del key
        counted = None if looked.region is not None else self._summed
        found = [self._row(inside[a:b], time[inside[a:b]], counted) for a, b in pairwise(edges)]
        return tuple(sorted(found, key=lambda row: (-row.time, row.name)))[:most]

    def _row(self, places: npt.NDArray[np.intp], time: Times, counted: Summed | None) -> CallRow:
        name, sort = int(self._rows.name[places[0]]), int(self._rows.call[places[0]])
        if sort == len(CALL) and counted is not None:
            return self._summed_row(counted, places, time)
        return CallRow(
            name=self._words[name] if name != NOT_KNOWN else "",
            sort=CALLS[sort] if sort < len(CALLS) else MPI,
            count=len(places),
            time=int(time.sum()),
            longest=int(time.max()),
            median=quantile(time, 0.5) or 0,
            waited=int(self._waited[places].sum()),
        )

    def _summed_row(self, summed: Summed, places: npt.NDArray[np.intp], time: Times) -> CallRow:
        """Return calls of MPI some of which are only counted."""
        code = int(self._rows.name[places[0]])
        name = self._words[code] if code != NOT_KNOWN else ""
        known = time[events(self._rows.where(places), summed)]
        more = summed.calls.get(name, SummedCalls(0, 0, ()))
        return CallRow(
            name=name,
            sort=MPI,
            count=len(known) + more.count,
            time=int(time.sum()),
            longest=max(int(known.max(initial=0)), more.longest),
            median=median_with_histogram(known, more.histogram, more.longest),
            waited=int(self._waited[places].sum()),
        )


def _twice(rows: LaneRows) -> npt.NDArray[np.bool_]:
    """Return which calls lie within another of their name on their thread."""
    twice = np.zeros(len(rows), bool)
    for _, places in by_thread(rows.process, rows.thread):
        within_any = _within_earlier(rows, places)
        for name in distinct(rows.name[within_any]):
            twice[_within_earlier(rows, places[rows.name[places] == name])] = True
    return twice


def _within_earlier(rows: LaneRows, places: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return which of some calls lie within another of them."""
    order = places[np.lexsort((-rows.end[places], rows.start[places]))]
    end = rows.end[order]
    return order[1:][end[1:] <= np.maximum.accumulate(end)[:-1]]


def merge_calls(parts: Iterable[Iterable[CallRow]]) -> tuple[CallRow, ...]:
    """Return the calls of several captures; the median is then the middle one of the captures' medians, each as often as it has calls.

    >>> one, other = CallRow("a", "sync", 1, 5, 5, 5, 2), CallRow("a", "sync", 2, 4, 3, 1, 0)
    >>> merge_calls([[one], [other]])
    (CallRow(name='a', sort='sync', count=3, time=9, longest=5, median=1, waited=2),)
    """
    found: dict[tuple[str, str], list[CallRow]] = {}
    for row in (row for part in parts for row in part):
        found.setdefault((row.name, row.sort), []).append(row)
    merged = [
        CallRow(
            name=name,
            sort=sort,
            count=sum(row.count for row in rows),
            time=sum(row.time for row in rows),
            longest=max(row.longest for row in rows),
            median=quantile(np.repeat([row.median for row in rows], [row.count for row in rows]), 0.5) or 0,
            waited=sum(row.waited for row in rows),
        )
        for (name, sort), rows in found.items()
    ]
    return tuple(sorted(merged, key=lambda row: (-row.time, row.name)))
