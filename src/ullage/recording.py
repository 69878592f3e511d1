"""What a trace says beside its intervals: whose it is, by which clock, on which devices, and what it lost.

A reader (`traces/`) fills a `Recording` while it yields intervals, because metadata may stand before or after the
events; the sums (`sums/lanes/`) read it when the reader is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

Mode = Literal["talp", "ai"]
Covers = Literal["process", "session", "run"]


@dataclass
class Device:
    """A device of a capture. `key` is the same for the same physical device in other captures (a UUID, host and PCI bus),
    or empty when the source doesn't know one; then the device is this capture's own. `capability` is CUDA's of the device, as "9.0",
    empty where it is not known or the device has none."""

    name: str = ""
    key: str = ""
    sms: int | None = None
    capability: str = ""


@dataclass
class Process:
    """A process of a capture: its rank in the job where the source knows one, its name, its host."""

    rank: int | None = None
    name: str = ""
    host: str = ""


@dataclass(frozen=True)
class RecorderCost:
    """What recording cost a program, in ns: `held` its threads, of `lasted`; `beside` threads of the recorder's own. A call of MPI took
    `per_call` longer, which is in `held` for as many `calls` as there were. CUPTI's buffers took `memory` bytes, and on the device of each
    context `device_memory` at most (0: not told, or none)."""

    held: int
    beside: int
    lasted: int
    calls: int = 0
    per_call: int = 0
    memory: int = 0
    device_memory: int = 0


@dataclass(frozen=True)
class SummedCalls:
    """Calls of one name that were counted: how many, how long the longest took (ns), and how many took less than 32, 64, … ns."""

    count: int
    longest: int
    histogram: tuple[int, ...]


@dataclass(frozen=True)
class Summed:
    """`since` when (ns, on the clock of the intervals) of a program's threads no events were recorded, but how long they were in which
    state: exact over each stretch of time, of which the longest took `stretch` ns, while the intervals within it are not in their places.
    `calls` of MPI and the like are the process' own, by their names.
    """

    since: dict[int, int]
    stretch: int = 0
    calls: dict[str, SummedCalls] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """When the first thread's events end."""
        return min(self.since.values())


@dataclass(frozen=True)
class NcclCollectives:
    """The collectives of one process as NCCL told them to its profiler plugin: `rows` as `ullage.cupti.chunks.NCCL`, in their order.

    The `names` of their numbers; of how many more only the number is known, for they were `counted` or there was no room (`lost`).
    """

    rows: npt.NDArray[np.void]
    names: dict[int, str]
    counted: int = 0
    lost: int = 0


@dataclass
class Recording:
    """What one trace file says of itself. Times are integer nanoseconds on the clock of its intervals.

    `boot` is the machine's boot, by the id that Linux draws for each ("": not known): processes of one boot share a clock, whatever their
    hosts are called. `clock` is "utc" when the intervals' times count from 1970, so that captures can be laid beside one another, and "own"
    when their zero is arbitrary. `resolution` is the smallest step of the source's time stamps in ns (1000 for whole
    microseconds). `extent` has, for each process, the first and last moment of *anything* recorded of it, also of events
    that the reader did not pass on. `cut` says where a file ends early; then what is not there is not known to be idle.
    `untimed` counts device events that were dropped without any usable time. `prefers` is the mode that this kind of source
    calls for, None when either may be meant. `counters` has, for each process, what hardware counters summed up in useful time
    alone, by name: `instructions`, `cycles`, and the `useful_time` in ns of the bursts that they were read over; with `sampled` (1) these
    are a sample of all useful time. `by_process`: the source makes a file for each process,
    so that several may be of one rank. `mpi_clock` has, for each process, when MPI_Init
    returned and when MPI_Finalize was called (None: not recorded). `covers` says when what a process did is known: `process`, from
    its first event to its last, for each had a profiler of its own; `session`, while the capture lasts, for one profiler watched
    all of its processes; `run`, always, for it was recorded from the process' start to its end. `cost` is what recording cost, where the
    source says it. `summed` says which of the host's intervals stand for sums, None where all are events. `nccl` has what NCCL itself told
    of its collectives, None where it told nothing. `cpu_clocks` has, for each process, the threads of which it was recorded when they were
    on no processor (kind off); `own_thread` the one that is the process' where no thread calls the GPU's interface.
    """

    place: str
    source: str = ""
    rank: int | None = None
    ranks: int | None = None
    host: str = ""
    boot: str = ""
    clock: Literal["utc", "own"] = "own"
    resolution: int = 1
    devices: dict[int, Device] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)
    extent: dict[int, tuple[int, int]] = field(default_factory=dict)
    cut: str = ""
    untimed: int = 0
    prefers: Mode | None = None
    counters: dict[int, dict[str, int]] = field(default_factory=dict)
    by_process: bool = False
    mpi_clock: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)
    covers: Covers = "session"
    cost: RecorderCost | None = None
    summed: Summed | None = None
    nccl: NcclCollectives | None = None
    cpu_clocks: dict[int, frozenset[int]] = field(default_factory=dict)
    own_thread: dict[int, int] = field(default_factory=dict)

    def clocked(self, process: int, begin: int | None, end: int | None) -> None:
        """Note when MPI_Init returned (`begin`) and MPI_Finalize was called (`end`) in a process, in ns: the last and the first of several.

        >>> recording = Recording("a.prv")
        >>> recording.clocked(0, 30, None); recording.clocked(0, None, 90); recording.clocked(0, 40, 95); recording.mpi_clock[0]
        (40, 90)
        """
        first, last = self.mpi_clock.get(process, (None, None))
        begins, ends = [m for m in (first, begin) if m is not None], [m for m in (last, end) if m is not None]
        self.mpi_clock[process] = max(begins, default=None), min(ends, default=None)

    def saw(self, process: int, first: int, last: int) -> None:
        """Note that something of a process was recorded from `first` to `last`, in ns.

        >>> recording = Recording("a.json")
        >>> recording.saw(7, 10, 20); recording.saw(7, 5, 12); recording.extent[7]
        (5, 20)
        """
        old = self.extent.get(process)
        self.extent[process] = (first, last) if old is None else (min(old[0], first), max(old[1], last))
