"""A region's times as TALP writes them (JSON of DLB 3.5 to 3.8): for simulated runs, and for our own results in TALP's form.

The raw times are exact to the ns; the efficiencies are computed by TALP's formulas (github.com/bsc-pm/dlb, src/talp/perf_metrics.c,
hybrid model 2) and rounded to two decimals, as TALP prints them. They differ from TALP's own only where TALP is approximate: maxima
here are over devices, `numGpus` counts devices, and `minMpiNormdProc` may be 0 (see `ullage.traces.talp.region`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ullage.totals import DeviceTotals, HostTotals


def values(host: HostTotals, device: DeviceTotals | None, version: str = "3.7") -> dict[str, Any]:
    """Return a region as TALP writes it: raw times in ns, which are exact, and the efficiencies that it prints with two decimals.

    `device` has collectives apart; TALP counts them as useful. `version` is "3.5" to "3.8".

    >>> found = values(HostTotals(2, 100, useful_time=120, offload_time=40, max_busy_time=90), None)
    >>> found["mpiTime"], found["parallelEfficiency"]
    (40, 0.6)
    """
    old = version == "3.5"
    host = replace(host, useful_time=host.useful_time + host.off_time)  # TALP doesn't tell time off the CPU from it
    useful, offload = (host.useful_time + host.offload_time, 0) if old else (host.useful_time, host.offload_time)
    longest = host.max_busy_time or 0
    mpi = host.processes * host.elapsed - useful - offload - host.parallel_time
    serial = "ompOutsideParallelTime" if version == "3.8" else "ompSerializationTime"
    region: dict[str, Any] = {"numCpus": host.processes, "numMpiRanks": host.processes, "numNodes": 1, "avgCpus": float(host.processes)}
    if not old:
        region["numGpus"] = device.devices if device else 0
    region |= {"cycles": host.cycles or 0, "instructions": host.instructions or 0, "numMeasurements": host.processes}
    if not old and host.calls is not None:
        region["numGpuRuntimeCalls"] = host.calls
    region |= {"elapsedTime": host.elapsed, "usefulTime": useful, "mpiTime": mpi}
    if version >= "3.7":
        region["mpiWorkerIdleTime"] = 0
    region |= {"ompLoadImbalanceTime": host.openmp_imbalance_time or 0, "ompSchedulingTime": host.openmp_scheduling_time or 0}
    region[serial] = host.openmp_serialisation_time or 0
    node = round(mpi / host.processes)
    if old:
        region |= {"usefulNormdApp": round(useful / host.processes), "mpiNormdApp": node, "maxUsefulNormdProc": longest}
        region |= {"maxUsefulNormdNode": round(useful / host.processes), "mpiNormdOfMaxUseful": host.elapsed - longest}
    else:
        region |= {"gpuRuntimeTime": offload, "minMpiNormdProc": host.elapsed - longest, "minMpiNormdNode": node} | device_values(device)
    return region | _efficiencies(region, longest, version, serial)


def device_values(device: DeviceTotals | None) -> dict[str, int]:
    """Return the four sums of a GPU's states in ns, 0 without a GPU."""
    keys = ("gpuUsefulTime", "gpuCommunicationTime", "maxGpuUsefulTime", "maxGpuActiveTime")
    if device is None:
        return dict.fromkeys(keys, 0)
    device = device.counting_collectives()
    return dict(zip(keys, (device.kernel_time, device.memory_time, device.max_kernel_time, device.max_active_time), strict=True))


def _efficiencies(region: dict[str, Any], longest: int, version: str, serial: str) -> dict[str, float]:
    """Return the efficiencies as TALP computes and prints them."""
    cpus, elapsed, useful, mpi = (region[key] for key in ("numCpus", "elapsedTime", "usefulTime", "mpiTime"))
    offload, gpus = region.get("gpuRuntimeTime", 0), region.get("numGpus", 0)
    outside = elapsed - mpi / cpus
    imbalance, scheduling, serialised = (region[key] for key in ("ompLoadImbalanceTime", "ompSchedulingTime", serial))
    lost, seen = imbalance + scheduling + serialised, useful + mpi + offload
    kernel, active = region.get("maxGpuUsefulTime", 0), region.get("maxGpuActiveTime", 0)
    values = {
        "parallelEfficiency": _ratio(useful, seen + lost),
        "mpiParallelEfficiency": _ratio(outside, elapsed),
        "mpiCommunicationEfficiency": _ratio(longest, elapsed),
        "mpiLoadBalance": _ratio(outside, longest),
        "mpiLoadBalanceIn": _ratio(outside, longest),
        "mpiLoadBalanceOut": 1.0,
        "ompParallelEfficiency": _ratio(seen, seen + lost),
        "ompLoadBalance": _ratio(seen + serialised, seen + serialised + imbalance),
        "ompSchedulingEfficiency": _ratio(seen + lost - scheduling, seen + lost),
        "ompCoverageEfficiency" if version == "3.8" else "ompSerializationEfficiency": _ratio(seen, seen + serialised),
    }
    if version != "3.5":
        values |= {
            "deviceOffloadEfficiency": _ratio(useful + lost, useful + lost + offload),
            "gpuParallelEfficiency": _ratio(region["gpuUsefulTime"], gpus * elapsed),
            "gpuLoadBalance": _ratio(region["gpuUsefulTime"], gpus * kernel),
            "gpuCommunicationEfficiency": _ratio(kernel, active),
            "gpuOrchestrationEfficiency": _ratio(active, elapsed) if gpus else 0.0,
        }
    return {key: round(value, 2) for key, value in values.items()}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0  # TALP prints 0.00 for what it can't compute
