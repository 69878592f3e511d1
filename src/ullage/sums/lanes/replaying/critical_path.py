"""The critical path over ranks: which chain of work and waits made a run as long as it was."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ullage.sums.lanes.gather import CALL, KIND
from ullage.sums.lanes.launches import Mask
from ullage.sums.lanes.replaying.cases import _ends, spans
from ullage.sums.lanes.replaying.spans_of_work import SORTS
from ullage.sums.lanes.replaying.waits import RunWaits
from ullage.sums.wait_graph import Numbers, Parts, moments, wait_path

PATH_KINDS = ("kernel", "collective", "copy", "launch", "wait", "call", "host", "talk", "latency", "unexplained")
_OF_OPERATION = {"kernel": "kernel", "graph": "kernel", "collective": "collective", "memcpy": "copy", "memset": "copy"}
_OF_CALL = {"launch": "launch", "graph": "launch", "copy": "launch", "sync": "wait", "other": "call"}


@dataclass(frozen=True)
class PathRow:
    """Time on the critical path of one kind (`PATH_KINDS`) and name, ns, in so many pieces."""

    kind: str
    name: str
    count: int
    time: int


@dataclass(frozen=True)
class PathRank:
    """Time on the critical path on one rank, ns; how often the path came to it because it was the last to come to a collective, and for how
    long (ns) the rank on which the path goes on had waited for it then."""

    label: str
    time: int
    awaited: int
    waited: int


@dataclass(frozen=True)
class CriticalPath:
    """The chain that led to the end of a run: `time` (ns) is the sum of its rows, of its kinds and of its ranks."""

    time: int
    rows: tuple[PathRow, ...]
    ranks: tuple[PathRank, ...]

    @property
    def kinds(self) -> dict[str, int]:
        """The time of each kind that has any, ns."""
        found = {kind: sum(row.time for row in self.rows if row.kind == kind) for kind in PATH_KINDS}
        return {kind: time for kind, time in found.items() if time}


def critical_path(waits: RunWaits) -> CriticalPath:
    """Return the critical path of a run as it was recorded."""
    ns = spans(waits, "likely")
    came = moments(waits.graph, ns)
    ends = _ends(waits, ns, came)
    last = int(ends.argmax())
    path = wait_path(waits.graph, ns, came, int(waits.graph.place[waits.leaves[last]]))
    used = np.concatenate(([waits.lasts[last]], path.lags.ravel()))
    sort, number = waits.spans.sorts(used)
    time = ns[used]
    real = (time != 0) & (sort >= 4)
    kind, name, rank = _named(waits, sort[real], number[real])
    return CriticalPath(
        int(time.sum()), _rows(waits, kind, name, time[real]), _ranks(waits, path.moments, path.lags, last, came, rank, time[real])
    )


def _named(waits: RunWaits, sort: Numbers, number: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return of which kind (its place in `PATH_KINDS`), of which name and on which rank some spans are."""
    calls, ops = waits.work.calls, waits.work.operations
    kind, name, rank = (np.full(len(sort), -1, np.int64) for _ in range(3))

    def of(*words: str) -> Numbers:
        return np.flatnonzero(np.isin(sort, [SORTS.index(word) for word in words]))

    code = np.array([PATH_KINDS.index(_OF_OPERATION.get(word, "kernel")) for word in KIND])
    at = of("operation")
    kind[at], name[at], rank[at] = code[ops.kind[number[at]]], ops.name[number[at]], ops.process[number[at]]
    code = np.array([PATH_KINDS.index(_OF_CALL[word]) for word in CALL])
    at = of("call")
    waiting = waits.waits[number[at]]
    kind[at] = np.where(waiting, PATH_KINDS.index("wait"), code[calls.sort[number[at]]])
    name[at], rank[at] = calls.name[number[at]], calls.process[number[at]]
    for word in ("gap", "talk", "handover"):
        at = of(word)
        call = waits.handover_call[number[at]] if word == "handover" else number[at]
        kind[at] = PATH_KINDS.index("talk" if word == "talk" else "host")
        name[at], rank[at] = calls.before[call], calls.process[call]
    at = of("slack", "delay", "release")
    kind[at], rank[at] = PATH_KINDS.index("unexplained"), ops.process[number[at]]
    at = of("latency")
    kind[at], rank[at] = PATH_KINDS.index("latency"), number[at]
    return kind, name, rank


def _rows(waits: RunWaits, kind: Numbers, name: Numbers, time: Numbers) -> tuple[PathRow, ...]:
    words = waits.work.words
    pairs, place = np.unique(np.column_stack((kind, name)), axis=0, return_inverse=True)
    counts = np.bincount(place.ravel(), minlength=len(pairs))
    times = np.zeros(len(pairs), np.int64)
    np.add.at(times, place.ravel(), time)
    rows = [
        PathRow(PATH_KINDS[k], words[n] if n >= 0 else "", count, total)
        for (k, n), count, total in zip(pairs.tolist(), counts.tolist(), times.tolist(), strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: (-row.time, row.kind, row.name)))


def _ranks(waits: RunWaits, came_by: Numbers, lags: Parts, last: int, came: Numbers, rank: Numbers, time: Numbers) -> tuple[PathRank, ...]:
    """Return the path's time by rank. A collective's own time counts for the rank that goes on; what led to it, for the last to come."""
    labels, ops, many = waits.work.labels, waits.work.operations, len(waits.work.calls)
    times = np.zeros(len(labels), np.int64)
    np.add.at(times, rank, time)
    first, count = waits.spans.first["operation"], len(ops)
    leaving = np.concatenate(([waits.lasts[last] if last >= many else 0], lags.max(axis=1, initial=0, where=_within(lags, first, count))))
    begun = np.concatenate((came_by, [0])) - waits.operation_moment[0]
    begins = np.flatnonzero((begun >= 0) & (begun < count))
    went_on = np.flatnonzero(leaving > 0)
    went_on = went_on[waits.work.group[leaving[went_on] - first] >= 0]
    following = np.searchsorted(begins, went_on)
    real = following < len(begins)
    one, other = leaving[went_on[real]] - first, begun[begins[following[real]]]
    crossed = ops.process[one] != ops.process[other]
    one, other = one[crossed], other[crossed]
    place = waits.graph.place
    waited = came[place[waits.operation_moment[other]]] - came[place[waits.operation_moment[one]]]
    awaited, lost = np.bincount(ops.process[other], minlength=len(labels)), np.zeros(len(labels), np.int64)
    np.add.at(lost, ops.process[other], waited)
    found = zip(labels, times.tolist(), awaited.tolist(), lost.tolist(), strict=True)
    return tuple(PathRank(*row) for row in found if row[1] or row[2])


def _within(lags: Parts, first: int, count: int) -> Mask:
    return np.asarray((lags >= first) & (lags < first + count))
