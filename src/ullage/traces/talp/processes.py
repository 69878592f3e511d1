"""What TALP says of each process: the sections `Process` (3.6 on) and `region` (3.5 alpha)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ullage.problems import Problems

# TALP's keys for a process, by version: 3.6 on, 3.8, and 3.5 alpha.
_KEYS = {
    "elapsed": ("elapsedTime",),
    "useful": ("usefulTime", "useful"),
    "mpi": ("mpiTime", "notUsefulMPI"),
    "imbalance": ("ompLoadImbalanceTime", "notUsefulOMPLoadBalance"),
    "scheduling": ("ompSchedulingTime", "notUsefulOMPScheduling"),
    "serialisation": ("ompSerializationTime", "ompOutsideParallelTime", "notUsefulOMPSerialization"),
    "offload": ("gpuRuntimeTime",),
    "kernel": ("gpuUsefulTime",),
    "memory": ("gpuCommunicationTime",),
}


@dataclass(frozen=True)
class ProcessTimes:
    """One process' times in a region, in ns of CPU time over all its `cpus`; `kernel` and `memory` are None where not told."""

    rank: int | None
    host: str
    cpus: int
    elapsed: int
    useful: int
    mpi: int
    imbalance: int
    scheduling: int
    serialisation: int
    offload: int
    kernel: int | None
    memory: int | None

    @property
    def parallel(self) -> int:
        """What OpenMP's threads lost."""
        return self.imbalance + self.scheduling + self.serialisation

    @property
    def busy(self) -> int:
        """CPU time outside communication: useful, in the GPU's interface, or lost by threads."""
        return self.useful + self.offload + self.parallel


def number(value: Any) -> int | float | None:
    """Return a number that TALP can have written, which counts in 64 bits; None for anything else.

    >>> number(2.5), number(True), number(10**400), number(float("inf"))
    (2.5, None, None, None)
    """
    fits = isinstance(value, int | float) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return value if fits else None


def whole_number(value: Any) -> int | None:
    """Return a number of TALP's as an integer, None for what is none.

    >>> whole_number(3.0), whole_number(2.5), whole_number("7"), whole_number(float("nan"))
    (3, 2, None, None)
    """
    found = number(value)
    return None if found is None else round(found)


def by_region(section: Any, problems: Problems) -> dict[str, list[ProcessTimes]]:
    """Return the processes of each region, from either form of the section; nothing when there is none.

    Processes without times are left out and counted, and then so is all that is known of the region's processes: a maximum over
    some of them would be none.
    """
    if isinstance(section, Mapping):
        named = list(section.items())
    elif isinstance(section, list):
        named = [(r.get("name"), r.get("process")) for r in section if isinstance(r, Mapping)]
    else:
        return {}
    found = {}
    for name, rows in named:
        processes = [_process(row) for row in rows] if isinstance(rows, list) else []
        kept = [p for p in processes if p is not None]
        problems.drop("processes without times in TALP's results", len(processes) - len(kept), where=str(name))
        if kept and len(kept) == len(processes):
            found[str(name)] = kept
    return found


def _process(row: Any) -> ProcessTimes | None:
    if not isinstance(row, Mapping):
        return None
    times = {name: next((n for key in keys if (n := whole_number(row.get(key))) is not None), None) for name, keys in _KEYS.items()}
    if times["elapsed"] is None or times["useful"] is None or any(time is not None and time < 0 for time in times.values()):
        return None
    known = {f.name: times[f.name] if f.name in ("kernel", "memory") else times[f.name] or 0 for f in fields(ProcessTimes)[3:]}
    cpus = whole_number(row.get("numCpus")) or cpus_of(str(row.get("cpuset", "")))
    return ProcessTimes(whole_number(row.get("rank")), str(row.get("hostname", "")), max(1, cpus), **known)  # type: ignore[arg-type]


def cpus_of(cpuset: str) -> int:
    """Return how many CPUs a set holds, as TALP writes it.

    >>> cpus_of("0-55"), cpus_of("0,2,4-7"), cpus_of("[0-1]"), cpus_of("")
    (56, 6, 2, 0)
    """
    ranges = re.findall(r"(\d{1,9})(?:-(\d{1,9}))?", cpuset)
    return sum(max(0, int(last or first) - int(first) + 1) for first, last in ranges)


def summed(processes: Iterable[ProcessTimes]) -> dict[str, Any]:
    """Return TALP's sums of a region from its processes, under the names of `Application`, for a file that holds processes alone."""
    of = list(processes)
    sums = {
        "numCpus": sum(p.cpus for p in of),
        "numMpiRanks": len(of),
        "elapsedTime": max(p.elapsed for p in of),
        "usefulTime": sum(p.useful for p in of),
        "mpiTime": sum(p.mpi for p in of),
        "ompLoadImbalanceTime": sum(p.imbalance for p in of),
        "ompSchedulingTime": sum(p.scheduling for p in of),
        "ompSerializationTime": sum(p.serialisation for p in of),
        "gpuRuntimeTime": sum(p.offload for p in of),
    }
    used = [(p.kernel or 0, p.memory or 0) for p in of if (p.kernel or 0) + (p.memory or 0)]
    if used:
        sums |= {
            "numGpus": len(used),
            "gpuUsefulTime": sum(k for k, _ in used),
            "gpuCommunicationTime": sum(m for _, m in used),
            "maxGpuUsefulTime": max(k for k, _ in used),
            "maxGpuActiveTime": max(k + m for k, m in used),
        }
    return sums
