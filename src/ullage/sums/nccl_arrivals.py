"""Who arrives last at collectives, by what NCCL itself told: matched across ranks by communicator, function and number, which is exact.

Two arrivals are told apart. The *program* arrives when its thread enqueues the collective: compared on the monotonic clock, among processes
of one machine. The *GPU* arrives when its kernel begins. GPUs' clocks are not compared: of a collective that no rank can leave before all
have come, the one that took the shortest arrived last, and each other one waited for it by as much as it took longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.cupti.chunks import NCCL
from ullage.recording import NcclCollectives
from ullage.sums.lanes.collectives.matched import codes

TOGETHER = ("AllReduce", "AllGather", "ReduceScatter", "AlltoAll")  # no rank leaves before all have come; NCCL's own words
Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class NcclProcess:
    """A process whose collectives NCCL told: how it is called, its rank in the job, and the `machine` whose clock it went by (""
    for an unknown one)."""

    label: str
    rank: int | None
    machine: str
    collectives: NcclCollectives


@dataclass(frozen=True)
class NcclArrival:
    """How a process arrived; times in ns.

    Of `compared` collectives its program was the `last` one so many times, and came `behind` the first one by so much (the lower median,
    and the `worst`). Of `gpu_compared` its GPU was the last one `gpu_last` times, and the last but one waited for it alone for
    `gpu_lost` in all.
    `gpu_waited` is how long it waited itself. Where nothing can be compared, times are None.
    """

    label: str
    rank: int | None
    collectives: int
    compared: int
    last: int
    behind: int | None
    worst: int | None
    gpu_compared: int
    gpu_last: int
    gpu_lost: int | None
    gpu_waited: int | None


@dataclass(frozen=True)
class NcclArrivals:
    """Of `collectives` matched on all ranks of their communicators: who arrived when (`processes`, those who cost the others most first).

    Left out: `incomplete` ones, of which not all ranks are recorded; `repeated` ones, whose number stands for several (launches of a CUDA
    graph); `counted` records of which only the number is known; `lost` ones.
    """

    collectives: int
    communicators: int
    processes: tuple[NcclArrival, ...]
    incomplete: int
    repeated: int
    counted: int
    lost: int

    @property
    def programs_compared(self) -> bool:
        """Whether any programs' arrivals could be compared."""
        return any(one.compared for one in self.processes)

    @property
    def gpus_compared(self) -> bool:
        """Whether any GPUs' arrivals could be compared."""
        return any(one.gpu_compared for one in self.processes)


@dataclass(frozen=True)
class _Rows:
    """A row for each rank of each collective, in the order of `key`; times in ns. `member` is its rank in the communicator, which has
    `members`; `took` its time on the GPU (0: not known); `together` says whether all leave it at one moment."""

    key: Codes
    communicator: Codes
    member: Codes
    members: Codes
    process: Codes
    start: Codes
    took: Codes
    together: Mask

    def where(self, chosen: Mask | Codes) -> _Rows:
        """Return the rows where `chosen`."""
        return _Rows(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})


def nccl_arrivals(processes: Sequence[NcclProcess]) -> NcclArrivals | None:
    """Return who arrives when, None where NCCL told of no collective of several ranks."""
    rows = _rows(processes)
    counted, lost = (sum(getattr(process.collectives, name) for process in processes) for name in ("counted", "lost"))
    if not len(rows.key) and not counted:
        return None
    at, size = _groups(rows.key)
    twice = np.append(np.zeros(min(len(rows.key), 1), np.bool_), (np.diff(rows.key) == 0) & (np.diff(rows.member) == 0))
    repeated = np.add.reduceat(twice, at, dtype=np.int64) > 0 if len(at) else np.zeros(0, np.bool_)
    whole = ~repeated & (size == rows.members[at])
    rows, incomplete = rows.where(np.repeat(whole, size)), int((~repeated & ~whole).sum())
    parts = [_host(rows, _machines(processes)), _gpu(rows)]
    found = [
        _arrival(process, int((rows.process == number).sum()), *(part[part["process"] == number] for part in parts))
        for number, process in enumerate(processes)
    ]
    ranked = sorted(found, key=lambda one: (-(one.gpu_lost or 0), -one.gpu_last, -one.last, -(one.behind or 0), one.label))
    communicators = len(np.unique(rows.communicator))
    return NcclArrivals(int(whole.sum()), communicators, tuple(ranked), incomplete, int(repeated.sum()), counted, lost)


def _machines(processes: Sequence[NcclProcess]) -> Codes:
    """Return a number for each process' machine; -1 for one that is not known."""
    numbers = {machine: number for number, machine in enumerate(dict.fromkeys(process.machine for process in processes))}
    return np.array([numbers[process.machine] if process.machine else -1 for process in processes], np.int64)


def _rows(processes: Sequence[NcclProcess]) -> _Rows:
    """Return a row for each rank of each collective of several ranks, sorted by key and rank."""
    words = {"": 0}
    functions: list[Codes] = [np.zeros(0, np.int64)]
    for process in processes:
        numbers, places = np.unique(process.collectives.rows["function"], return_inverse=True)
        names = [process.collectives.names.get(number, "") for number in numbers.tolist()]
        functions.append(np.array([words.setdefault(name, len(words)) for name in names], np.int64)[places])
    told = np.concatenate([np.zeros(0, NCCL), *(process.collectives.rows for process in processes)])
    function, whose = np.concatenate(functions), np.repeat(np.arange(len(processes)), [len(one.collectives.rows) for one in processes])
    several = told["ranks"] > 1
    told, function, whose = told[several], function[several], whose[several]
    known = (told["gpu_start"] > 0) & (told["gpu_end"] > told["gpu_start"]) & (told["ended"] == told["started"])
    communicator, sequence, began, ended, start, member, members = (
        told[name].astype(np.int64) for name in ("communicator", "sequence", "gpu_start", "gpu_end", "start", "rank", "ranks")
    )
    found = _Rows(
        key=codes(communicator, members, function, sequence),
        communicator=communicator,
        member=member,
        members=members,
        process=whose,
        start=start,
        took=np.where(known, ended - began, 0),
        together=np.isin(function, [words[word] for word in TOGETHER if word in words]),
    )
    return found.where(np.lexsort((found.process, found.member, found.key)))


def _groups(key: Codes) -> tuple[Codes, Codes]:
    """Return where each key's rows begin, and how many it has."""
    at = np.flatnonzero(np.diff(key, prepend=-1))
    return at, np.diff(np.append(at, len(key)))


_PART = np.dtype([("process", "<i8"), ("behind", "<i8"), ("waited", "<i8"), ("lost", "<i8")])


def _part(rows: _Rows, arrival: Codes) -> npt.NDArray[np.void]:
    """Return how long each came behind the first and waited for the last, and of each collective's last one how long it was waited for."""
    found = np.zeros(len(arrival), _PART)
    at, size = _groups(rows.key)
    if not len(at):
        return found
    ends, order = at + size - 1, np.lexsort((arrival, rows.key))
    first, last, before = order[at], order[ends], order[ends - 1]
    found["process"] = rows.process
    found["behind"], found["waited"] = arrival - np.repeat(arrival[first], size), np.repeat(arrival[last], size) - arrival
    found["lost"][last] = arrival[last] - arrival[before]
    return found


def _host(rows: _Rows, machines: Codes) -> npt.NDArray[np.void]:
    """Return how the programs arrived at the collectives all of whose processes are of one machine."""
    at, size = _groups(rows.key)
    machine = machines[rows.process]
    if len(at):
        least, most = np.minimum.reduceat(machine, at), np.maximum.reduceat(machine, at)
        rows = rows.where(np.repeat((least == most) & (least >= 0), size))
    return _part(rows, rows.start)


def _gpu(rows: _Rows) -> npt.NDArray[np.void]:
    """Return how the GPUs arrived at the collectives that all leave at one moment, where all their times are known."""
    at, size = _groups(rows.key)
    if len(at):
        rows = rows.where(np.repeat(np.minimum.reduceat(rows.took, at) > 0, size) & rows.together)
    return _part(rows, -rows.took)


def _arrival(process: NcclProcess, collectives: int, host: npt.NDArray[np.void], gpu: npt.NDArray[np.void]) -> NcclArrival:
    return NcclArrival(
        process.label,
        process.rank,
        collectives,
        compared=len(host),
        last=int((host["lost"] > 0).sum()),
        behind=int(np.sort(host["behind"])[(len(host) - 1) // 2]) if len(host) else None,
        worst=int(host["behind"].max()) if len(host) else None,
        gpu_compared=len(gpu),
        gpu_last=int((gpu["lost"] > 0).sum()),
        gpu_lost=int(gpu["lost"].sum()) if len(gpu) else None,
        gpu_waited=int(gpu["waited"].sum()) if len(gpu) else None,
    )
