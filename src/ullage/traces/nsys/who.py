"""Whose the rows are: processes with their ranks, threads, and the physical devices behind a process' device numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ullage.problems import Problems
from ullage.recording import Device, Process, Recording
from ullage.traces.nsys.file import Database
from ullage.traces.nsys.names import distinct
from ullage.traces.nsys.pages import Numbers
from ullage.traces.nsys.records import MISSING

_MASK = (1 << 24) - 1
_MOST_SMS = 10_000  # multiprocessors of a device; the largest have some hundred
_RANK = re.compile(r"^MPI Rank (\d+)\b")
# Where a launcher tells a process its rank and how many there are; Slurm last, which counts processes of any kind.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMIX_RANK", ""),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def processes(numbers: Numbers) -> Numbers:
    """Return the process of each `globalTid` or `globalPid`: its bits 24 to 47 (NVIDIA's exporter documentation)."""
    return np.where(numbers == MISSING, MISSING, numbers >> 24 & _MASK)


def threads(numbers: Numbers) -> Numbers:
    """Return the thread of each `globalTid`: its lowest 24 bits. It is unique within its process."""
    return np.where(numbers == MISSING, MISSING, numbers & _MASK)


def each(numbers: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Yield each different number that is not missing, and where it stands."""
    table, codes = distinct(numbers)
    for code, number in enumerate(table.tolist()):
        if number != MISSING:
            yield number, np.flatnonzero(codes == code) if len(table) > 1 else np.arange(len(numbers))


@dataclass(frozen=True)
class _Gpu:
    name: str
    key: str
    sms: int | None
    capability: str = ""


class CaptureDevices:
    """The devices of a capture: numbers them, and fills `recording.devices` as they come up.

    A kernel's `deviceId` counts what its process may see (CUDA_VISIBLE_DEVICES), so device 0 of two processes may be two GPUs.
    TARGET_INFO_CUDA_DEVICE says which GPU a process saw under a number. Captures without it (before 2025, as far as seen) leave
    that open: then one number is taken for one GPU, and no UUID is claimed unless the machine has only one.
    """

    def __init__(self, database: Database, recording: Recording, problems: Problems) -> None:
        self._recording, self._problems = recording, problems
        self._gpus = dict(_gpus(database, recording.host))
        rows = database.rows("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId", "uuid", "numMultiprocessors")
        self._seen_as = {(pid, number): (gpu, _uuid(uuid), _multiprocessors(sms)) for pid, number, gpu, uuid, sms in rows}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._users: dict[int, set[int]] = {}

    def numbers(self, process: Numbers, ordinal: Numbers) -> Numbers:
        """Return the capture's number of the device of each row, from its process and the number that the process knew it by."""
        result = np.full(len(ordinal), MISSING, np.int64)
        for number, rows in each(ordinal):
            mine = process[rows]
            if (unowned := rows[mine == MISSING]).size:
                result[unowned] = self._number(None, number)
            for owner, places in each(mine):
                result[rows[places]] = self._number(owner, number)
        return result

    def _number(self, process: int | None, ordinal: int) -> int:
        gpu, uuid, sms = self._seen_as.get((process, ordinal), (None, "", None))
        if gpu is None and not uuid:
            return self._guessed(process, ordinal)
        known = self._gpus.get(gpu, _Gpu("", "", None))
        key = uuid or known.key
        return self._add((key or gpu,), gpu, Device(known.name, key, sms or known.sms, known.capability))

    def _guessed(self, process: int | None, ordinal: int) -> int:
        users = self._users.setdefault(ordinal, set())
        if process is not None:
            users.add(process)
        if len(users) > 1:
            self._problems.note(
                f"several processes used a device {ordinal}, and the capture does not say which GPU each knew by it: counted as one"
            )
        real = [g for g in self._gpus.values() if g.key] or list(self._gpus.values())
        only = real[0] if len(real) == 1 else _shared(real)
        return self._add(("number", ordinal), ordinal, Device(only.name, only.key, only.sms, only.capability))

    def _add(self, identity: tuple[object, ...], wanted: object, device: Device) -> int:
        if identity not in self._numbers:
            taken = set(self._numbers.values())
            free = isinstance(wanted, int) and 0 <= wanted < 2**31 and wanted not in taken
            number = wanted if free else max(taken, default=-1) + 1
            assert isinstance(number, int)
            self._numbers[identity] = number
            self._recording.devices[number] = device
        return self._numbers[identity]


def _shared(gpus: list[_Gpu]) -> _Gpu:
    """Return what several GPUs have in common."""
    name, sms, able = ({getattr(gpu, said) for gpu in gpus} for said in ("name", "sms", "capability"))
    return _Gpu(name.pop() if len(name) == 1 else "", "", sms.pop() if len(sms) == 1 else None, able.pop() if len(able) == 1 else "")


def _gpus(database: Database, host: str) -> Iterator[tuple[object, _Gpu]]:
    """Yield the machine's GPUs by their number there; what is no NVIDIA GPU has neither a UUID nor multiprocessors."""
    counts = {_multiprocessors(n) for (n,) in database.rows("TARGET_INFO_CUDA_GPU", "numMultiprocessors")} - {None}  # until 2021
    only = counts.pop() if len(counts) == 1 else None
    columns = ("id", "deviceId", "name", "busLocation", "smCount", "uuid", "computeMajor", "computeMinor")
    for number, old, name, bus, sms, uuid, major, minor in database.rows("TARGET_INFO_GPU", *columns):
        place = f"{host}/{bus.lower()}" if host and isinstance(bus, str) and bus else ""
        count = only if sms is None else _multiprocessors(sms)
        yield number if number is not None else old, _Gpu(str(name or ""), _uuid(uuid) or place, count, capability(major, minor))


def _multiprocessors(told: object) -> int | None:
    """Return a count that a GPU can have, None for anything else that a damaged database holds there."""
    return told if isinstance(told, int) and 0 < told <= _MOST_SMS else None


def capability(major: object, minor: object) -> str:
    """Return CUDA's capability of a device from its two numbers, "" where they are none.

    >>> capability(9, 0), capability(None, 0)
    ('9.0', '')
    """
    return f"{major}.{minor}" if isinstance(major, int) and isinstance(minor, int) else ""


def _uuid(text: object) -> str:
    """Return a UUID as NVML writes it, nothing for one that is all zeros."""
    if not isinstance(text, str) or not text.strip("0- "):
        return ""
    return text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text.lower()}"


@dataclass
class People:
    """The processes that were seen at work, and what is known of them."""

    database: Database
    recording: Recording
    working: set[int] = field(default_factory=set)
    lives: dict[int, tuple[int, int]] = field(default_factory=dict)

    def work(self, process: Numbers, start: Numbers, end: Numbers, *, at_work: bool = True) -> None:
        """Note the processes of some rows as alive then, and as at work (on a GPU, in MPI)."""
        for number, rows in each(process):
            self.lived(number, int(start[rows].min()), int(end[rows].max()))
            if at_work:
                self.working.add(number)

    def lived(self, process: int, first: int, last: int) -> None:
        """Note that a process lived from `first` to `last`, in session's ns."""
        old = self.lives.get(process, (first, last))
        self.lives[process] = min(old[0], first), max(old[1], last)

    def life(self, process: Numbers) -> tuple[Numbers, Numbers]:
        """Return from when to when each row's process is known to have lived; of others the same moment twice."""
        low, high = np.zeros(len(process), np.int64), np.zeros(len(process), np.int64)
        for number, rows in each(process):
            low[rows], high[rows] = self.lives.get(number, (0, 0))
        return low, high

    def finish(self, ranks: dict[int, int]) -> None:
        """Fill in the recording's processes; `ranks` are those that the rows told."""
        names = {int(g) >> 24 & _MASK: n for g, n in self.database.rows("PROCESSES", "globalPid", "name") if isinstance(g, int)}
        told = {**ranks, **self._thread_names(), **self._mpi_ranks()}
        for process in sorted(self.working):
            name = re.split(r"[/\\]", str(names.get(process) or ""))[-1]
            self.recording.processes[process] = Process(told.get(process), name, self.recording.host)
        if len(self.working) == 1 and not told:
            self._environment()

    def _mpi_ranks(self) -> dict[int, int]:
        rows = self.database.rows("MPI_RANKS", "globalTid", "rank")
        return {int(g) >> 24 & _MASK: int(rank) for g, rank in rows if isinstance(g, int) and isinstance(rank, int)}

    def _thread_names(self) -> dict[int, int]:
        names, strings = self.database.table("ThreadNames"), self.database.table("StringIds")
        if names is None or strings is None:
            return {}
        named = f'"{names.name}" t JOIN "{strings.name}" s ON s.id = t.nameId'
        rows = self.database.query(names.name, f"SELECT t.globalTid, s.value FROM {named} WHERE s.value LIKE 'MPI Rank %'")  # noqa: S608
        return {int(g) >> 24 & _MASK: rank for g, name in rows if isinstance(g, int) and (rank := rank_of(str(name))) is not None}

    def _environment(self) -> None:
        """Take the rank of the capture's one process from the environment in which the profiler was launched."""
        told: dict[str, int] = {}
        for name, value in self.database.rows("META_DATA_CAPTURE", "name", "value"):
            if str(name).endswith("ENVIRONMENT_VARIABLE") and (found := re.match(r'^(\w+)="(\d{1,7})"$', str(value))):
                told.setdefault(found[1], int(found[2]))
        for rank, size in _LAUNCHERS:
            if rank in told:
                self.recording.rank = told[rank]
                self.recording.ranks = told.get(size)
                return


def rank_of(name: str) -> int | None:
    """Return the rank that a thread's name tells.

    >>> rank_of("MPI Rank 3"), rank_of("python")
    (3, None)
    """
    found = _RANK.match(name)
    return int(found[1]) if found else None
