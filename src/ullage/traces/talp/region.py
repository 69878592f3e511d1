"""One region of TALP's results into the sums of the trees: what each of TALP's numbers means, and what it can't give.

CPU time. TALP measures on every CPU that a process uses, so n is `numCpus`, and the raw times are sums over CPUs:
U = `usefulTime`, W = `gpuRuntimeTime`, O = the three OpenMP times (`ompLoadImbalanceTime`, `ompSchedulingTime`, and
`ompSerializationTime`, called `ompOutsideParallelTime` from 3.8 on). E = `elapsedTime`, the longest process'.
What n E has beyond U + W + O is communication: `mpiTime`, `mpiWorkerIdleTime` (3.7), and processes that are not in the region.

The busiest process, max (U + W + O) per CPU, in this order:

1. from the processes' own times, where the file has them: exact;
2. of a single process: (U + W + O) / n;
3. from 3.6 on: E − `minMpiNormdProc` (the least MPI time per CPU of a process, `perf_metrics.c`), which holds while every
   process is in the region all the time: used when at most 1 % of n E is unaccounted for, and no less than the mean;
4. in 3.5: `maxUsefulNormdProc`, which is max U per CPU, where no OpenMP time was lost;
5. else it is not known, and neither are load balance and communication efficiency.

TALP takes the least of the MPI times that are not zero, so rule 3 misses a process that never communicates while others do.

Devices. m = `numGpus`; ΣK = `gpuUsefulTime`, ΣM = `gpuCommunicationTime`, max K = `maxGpuUsefulTime`, max (K + M) =
`maxGpuActiveTime`. TALP counts one GPU for each process that used any, and its maxima are over processes, not devices: a
process' GPUs are added up. So trees of runs with several GPUs a process are those of processes, and a note says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ullage.errors import harmless
from ullage.problems import Problems
from ullage.totals import DeviceTotals, HostTotals, Region
from ullage.traces.talp.processes import ProcessTimes, number, whole_number

UNSEEN = 0.01  # of CPUs × elapsed: with more unaccounted for, a process was not in the region all the time
_OPENMP = ("ompLoadImbalanceTime", "ompSchedulingTime", "ompSerializationTime")
_RENAMED = {"ompOutsideParallelTime": "ompSerializationTime", "numGpuCalls": "numGpuRuntimeCalls"}


def read_region(
    name: str, values: dict[str, Any], processes: list[ProcessTimes], resources: Mapping[str, Any], share: str, problems: Problems
) -> Region | None:
    """Return a region, None (and counted) for one that was never entered or whose times are impossible."""
    known = {key: float(v) for key, value in values.items() if (v := number(value)) is not None}
    stated = {key: v for key, v in known.items() if is_efficiency(key)}
    given = {_RENAMED.get(key, key): v for key, v in known.items() if not is_efficiency(key)}
    for key in ("numCpus", "numMpiRanks", "numGpus"):
        if key not in given and (count := number(resources.get(key))) is not None:
            given[key] = float(count)
    if not given.get("elapsedTime") or "usefulTime" not in given:
        problems.drop("regions that were never entered", where=name)
        return None
    if any(given.get(key, 0) < 0 for key in ("elapsedTime", "usefulTime", "mpiTime", "gpuRuntimeTime", *_OPENMP)):
        problems.drop("regions with negative times", where=name)
        return None
    host = _host(name, given, processes, problems)
    return Region(name, host, _device(name, given, problems), stated, given, share)


def is_efficiency(key: str) -> bool:
    """Return whether a key of TALP's names an efficiency that it printed, not something that it measured.

    >>> is_efficiency("gpuLoadBalance"), is_efficiency("ompLoadImbalanceTime")
    (True, False)
    """
    return key.endswith("Efficiency") or "LoadBalance" in key


def _host(name: str, given: Mapping[str, float], processes: list[ProcessTimes], problems: Problems) -> HostTotals:
    cpus, elapsed = max(1, int(given.get("numCpus", 1))), round(given["elapsedTime"])
    useful, offload = round(given["usefulTime"]), round(given.get("gpuRuntimeTime", 0))
    lost = _openmp(name, given, processes, problems)
    parallel = sum(lost)
    threaded = parallel > 0 or given.get("numOmpParallels", 0) > 0
    if useful + offload + parallel > cpus * elapsed * (1 + UNSEEN):
        problems.note(
            f"{harmless(name)}: its times add up to more than its CPUs × elapsed time, so efficiencies pass 1; was the file edited?"
        )
    instructions, cycles = _counter(name, given, "instructions", problems), _counter(name, given, "cycles", problems)
    return HostTotals(
        processes=cpus,
        elapsed=elapsed,
        useful_time=useful,
        offload_time=offload,
        max_busy_time=_busiest(cpus, elapsed, useful + offload + parallel, given, processes),
        parallel_time=parallel,
        instructions=instructions if cycles else None,
        cycles=cycles if instructions else None,
        calls=whole_number(given.get("numGpuRuntimeCalls")),
        openmp_imbalance_time=lost[0] if threaded else None,
        openmp_scheduling_time=lost[1] if threaded else None,
        openmp_serialisation_time=lost[2] if threaded else None,
        resource="CPU",
    )


def _openmp(name: str, given: Mapping[str, float], processes: list[ProcessTimes], problems: Problems) -> tuple[int, int, int]:
    """Return the time lost by threads to imbalance, scheduling and serialisation; the processes' sums where the region's differ.

    TALP 3.5 alpha repeats the scheduling time in place of the serialisation time in its sums over processes.
    """
    stated = tuple(round(given.get(key, 0)) for key in _OPENMP)
    own = (sum(p.imbalance for p in processes), sum(p.scheduling for p in processes), sum(p.serialisation for p in processes))
    if processes and own != stated:
        problems.repair("regions whose OpenMP times TALP added up wrongly, taken from its processes", where=name)
        return own
    if stated[1] and stated[1] == stated[2]:
        problems.note(f"{harmless(name)}: TALP gives one time for OpenMP's scheduling and serialisation, as 3.5 alpha does by mistake")
    return stated[0], stated[1], stated[2]


def _counter(name: str, given: Mapping[str, float], key: str, problems: Problems) -> int | None:
    """Return a hardware counter's sum; None when it was not counted (0), or has overflowed."""
    value = whole_number(given.get(key))
    problems.drop("hardware counters below zero", int(value is not None and value < 0), where=f"{name} {key}")
    return value if value is not None and value > 0 else None


def _busiest(cpus: int, elapsed: int, busy: int, given: Mapping[str, float], processes: list[ProcessTimes]) -> int | None:
    """Return the longest time outside communication of a process, per CPU: see the module's rules."""
    mean = -(-busy // cpus)
    if processes:
        return max(max(-(-p.busy // p.cpus) for p in processes), mean)
    if given.get("numMpiRanks", 0) <= 1:
        return mean
    seen = busy + given.get("mpiTime", 0) + given.get("mpiWorkerIdleTime", 0)
    longest = given.get("maxUsefulNormdProc")
    if "minMpiNormdProc" in given and abs(cpus * elapsed - seen) <= UNSEEN * cpus * elapsed:
        longest = elapsed - given["minMpiNormdProc"]
    elif busy != round(given["usefulTime"]):
        longest = None
    return round(longest) if longest is not None and mean - 1 <= longest <= elapsed else None


def _device(name: str, given: Mapping[str, float], problems: Problems) -> DeviceTotals | None:
    times = [whole_number(given.get(k)) for k in ("gpuUsefulTime", "gpuCommunicationTime", "maxGpuUsefulTime", "maxGpuActiveTime")]
    kernel, memory, longest, active = times
    if kernel is None or memory is None or longest is None or active is None or min(kernel, memory, longest, active) < 0:
        return None
    devices, elapsed = int(given.get("numGpus", 0)), round(given["elapsedTime"])
    if not devices:
        if kernel + memory:
            problems.drop("regions' GPU times without a number of GPUs", where=name)
        return None
    _warn(name, devices, elapsed, kernel + memory, active, given, problems)
    return DeviceTotals(
        devices=devices,
        elapsed=elapsed,
        kernel_time=kernel,
        collective_time=0,
        memory_time=memory,
        max_kernel_time=longest,
        max_kernel_collective_time=longest,
        max_active_time=active,
    )


def _warn(name: str, devices: int, elapsed: int, used: int, active: int, given: Mapping[str, float], problems: Problems) -> None:
    if used > devices * elapsed or active > elapsed:
        problems.note(
            f"{harmless(name)}: its {devices:,} GPUs were busier than time allows: TALP counts one GPU a process, however many it drives"
        )
    elif devices > max(1, int(given.get("numMpiRanks", 0))):
        problems.note(
            f"{harmless(name)}: more GPUs ({devices:,}) than processes: TALP's longest GPU times are a process' GPUs added up, "
            "so load balance comes out too low and orchestration efficiency too high"
        )
