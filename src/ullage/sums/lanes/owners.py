"""Whose the work on devices is, where the source doesn't say.

A call and the work that it put on a device bear one number, its correlation. Each process counts its own from 1, so in a file of several
processes one number may be several calls, or a call and one that was made before its process' recording began. Then the call must be
of the right sort (a launch, a copy) and must not begin after the work; what was launched before the recording runs before what was
launched within it; and a device on which one process alone can have put all that ran there is that process'. What this doesn't tell
apart is left to nobody, and said.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ullage.arrays import one_view
from ullage.sums.lanes.gather import CALL, KIND, NOT_KNOWN, Capture, LaneRows
from ullage.sums.lanes.launches import distinct
from ullage.sums.lanes.observed import hosts
from ullage.sums.lanes.spans import Times

Table = npt.NDArray[np.bool_]  # a row a process, a column a device row

_COPIES = tuple(KIND[k] for k in ("memcpy", "memset"))
_LAUNCHING = 1 << CALL["launch"] | 1 << CALL["graph"] | 1 << CALL["other"]
_COPYING = 1 << CALL["copy"] | 1 << CALL["graph"] | 1 << CALL["other"]


def find_owners(capture: Capture) -> tuple[str, ...]:
    """Fill in whose the device rows are, as far as that can be told, and return what a reader must know of it."""
    rows, calls, events = capture.device, capture.calls, capture.events
    unowned = rows.process == NOT_KNOWN
    callers = np.unique(calls.process) if len(calls) else np.array(hosts(capture), np.int64)
    if len(callers) == 1:
        events.process = np.where(events.process == NOT_KNOWN, callers[0], events.process)
    if not unowned.any():
        return ()
    if len(callers) == 1:
        rows.process = one_view(np.where(unowned, callers[0], rows.process))
        return ()
    rows.process = rows.process.copy()  # a view of one value may not be written to
    notes = _by_number(capture, callers, np.flatnonzero(unowned & (rows.correlation != NOT_KNOWN))) if len(calls) else ()
    _by_device(rows)
    return notes


def _by_number(capture: Capture, callers: npt.NDArray[np.int64], at: npt.NDArray[np.intp]) -> tuple[str, ...]:
    """Give rows to the process whose call bears their number, if one alone fits."""
    rows = capture.device.where(at)
    bears, fits, below = (np.zeros((len(callers), len(at)), bool) for _ in range(3))
    begun = np.zeros(len(callers), np.int64)
    slack = 2 * capture.recording.resolution if capture.recording.resolution > 1 else 0  # such a clock cuts times down to whole steps
    for place, process in enumerate(callers):
        mine = (capture.calls.process == process) & (capture.calls.correlation != NOT_KNOWN)
        numbered = capture.calls.where(mine)
        bears[place], fits[place] = _candidate(numbered, rows, slack)
        below[place] = rows.correlation < (int(numbered.correlation.min()) if len(numbered) else NOT_KNOWN)
        begun[place] = numbered.start.min() if len(numbered) else np.iinfo(np.int64).max
    can = fits | (below & _before_first(rows, bears, fits, begun))
    none = ~can.any(axis=0) & (bears.sum(axis=0) == 1)
    can[:, none] = bears[:, none]  # a clock that is wrong, a call of a name that isn't known
    owner = np.where(can.sum(axis=0) == 1, callers[can.argmax(axis=0)], NOT_KNOWN)
    for device in distinct(rows.device):
        here = (rows.device == device) & can.any(axis=0)
        for able in (fits[:, here].all(axis=1), can[:, here].all(axis=1)) if here.any() else ():
            if able.sum() == 1:
                owner[here] = callers[able.argmax()]
                break
    capture.device.process[at] = owner
    several, left = (bears | can).sum(axis=0) > 1, can.any(axis=0) & (owner == NOT_KNOWN)
    if left.any():
        return (
            f"processes number their calls alike: whose {int(left.sum()):,} of {int(several.sum()):,} device events are can't be told, "
            "they count for their device alone. Give a file for each process",
        )
    if several.any():
        return (f"processes number their calls alike: whose {int(several.sum()):,} device events are was told by sort and time of calls",)
    return ()


def _before_first(rows: LaneRows, bears: Table, fits: Table, begun: Times) -> Table:
    """Return which rows begin before the first work on their device that is surely of a process' recorded calls; before the first of
    these calls where there is no such work."""
    sure = fits & (bears.sum(axis=0) == 1)
    before = np.zeros_like(fits)
    for device in distinct(rows.device):
        here = rows.device == device
        for place in range(len(fits)):
            mine = rows.start[here & sure[place]]
            before[place, here] = rows.start[here] <= (mine.min() if len(mine) else begun[place])
    return before


def _candidate(calls: LaneRows, rows: LaneRows, slack: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return of which rows a call of a process bears the number, and of which it can have put them on the device."""
    if not len(calls):
        return np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    order = np.lexsort((calls.start, calls.correlation))
    first = np.flatnonzero(np.diff(calls.correlation[order], prepend=NOT_KNOWN))
    numbers, start = calls.correlation[order][first], calls.start[order][first]
    code = calls.call[order].astype(np.int64)
    does = np.bitwise_or.reduceat(1 << np.where(code < 0, CALL["other"], code), first)
    at = np.minimum(np.searchsorted(numbers, rows.correlation), len(numbers) - 1)
    bears = numbers[at] == rows.correlation
    wanted = np.where(np.isin(rows.kind, _COPIES), _COPYING, _LAUNCHING)
    sort = (does[at] & wanted > 0) | (rows.kind == KIND["lost"])
    return bears, bears & sort & (start[at] <= rows.start + slack)


def _by_device(rows: LaneRows) -> None:
    """Give what is still nobody's to the one process that is known to use its device, if it bears no number that says otherwise."""
    for device in distinct(rows.device[rows.process == NOT_KNOWN]):
        here = rows.device == device
        users = set(distinct(rows.process[here])) - {NOT_KNOWN}
        if len(users) == 1 and device != NOT_KNOWN:
            rows.process[here & (rows.process == NOT_KNOWN)] = users.pop()
