"""A scenario as TALP would write it: JSON of DLB 3.5 to 3.8, with raw times exact to the ns.

The sums are the scenario's answers; they differ from TALP's own only where TALP is approximate: maxima here are over devices,
`numGpus` counts devices, and `minMpiNormdProc` may be 0 (see `ullage.traces.talp_region`). The efficiencies are computed by
TALP's formulas (github.com/bsc-pm/dlb, src/talp/perf_metrics.c, hybrid model 2) and rounded to two decimals, as TALP prints them.
DLB 3.5 knows no GPUs: there, time in a GPU's interface is useful.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ullage.simulate.traces.answers import Answer, answer
from ullage.simulate.traces.scenario import Scenario

VERSIONS = ("3.5", "3.6", "3.7", "3.8")


def write(scenario: Scenario, path: Path, *, version: str = "3.7", processes: bool = False, share: int | None = None) -> Path:
    """Write a scenario's results and return the path.

    `processes` adds each process' own times (`--talp-summary=all`); `share` writes one process' part of the run alone
    (`--talp-partial-output`). Raises ValueError for a version that is not in `VERSIONS`.
    """
    if version not in VERSIONS:
        raise ValueError(f"no DLB version {version}; there are {', '.join(VERSIONS)}")
    if share is not None:
        scenario = _alone(scenario, share)
    application = {name: _region(found, version) for name, found in _answers(scenario)}
    whole = application["Global"]
    record: dict[str, Any] = {
        "dlbVersion": f"{version}.0",
        "timestamp": datetime.fromtimestamp(scenario.epoch // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S"),
        "resources": {key: whole[key] for key in ("numCpus", "numNodes", "numMpiRanks", "numGpus") if key in whole},
    }
    if share is not None:
        record["processInfo"] = {"hostname": scenario.host, "pid": share}
    record["Application"] = application
    if processes:
        record |= _processes(scenario, version)
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path


def _alone(scenario: Scenario, process: int) -> Scenario:
    return replace(scenario, events=scenario.of(process), ranks={process: scenario.ranks.get(process, 0)})


def _answers(scenario: Scenario) -> Iterator[tuple[str, Answer]]:
    """Yield the whole run and each region with its answer; a region in which no process that counts ever is, is left out."""
    yield "Global", answer(scenario)
    for name in dict.fromkeys(e.name for e in scenario.events if e.kind == "region"):
        try:
            yield name, answer(scenario, name)
        except ValueError:
            continue


def _region(found: Answer, version: str) -> dict[str, Any]:
    host, old = found.host, version == "3.5"
    useful, offload = (host.useful_time + host.offload_time, 0) if old else (host.useful_time, host.offload_time)
    longest = host.max_busy_time or 0
    mpi = host.processes * host.elapsed - useful - offload
    serial = "ompOutsideParallelTime" if version == "3.8" else "ompSerializationTime"
    region: dict[str, Any] = {"numCpus": host.processes, "numMpiRanks": host.processes, "numNodes": 1, "avgCpus": float(host.processes)}
    if not old:
        region["numGpus"] = found.device.devices if found.device else 0
    region |= {"cycles": 0, "instructions": 0, "numMeasurements": host.processes}
    if not old and host.calls is not None:
        region["numGpuRuntimeCalls"] = host.calls
    region |= {"elapsedTime": host.elapsed, "usefulTime": useful, "mpiTime": mpi}
    if version >= "3.7":
        region["mpiWorkerIdleTime"] = 0
    region |= {"ompLoadImbalanceTime": 0, "ompSchedulingTime": 0, serial: 0}
    node = round(mpi / host.processes)
    if old:
        region |= {"usefulNormdApp": round(useful / host.processes), "mpiNormdApp": node, "maxUsefulNormdProc": longest}
        region |= {"maxUsefulNormdNode": round(useful / host.processes), "mpiNormdOfMaxUseful": host.elapsed - longest}
    else:
        region |= {"gpuRuntimeTime": offload, "minMpiNormdProc": host.elapsed - longest, "minMpiNormdNode": node} | _device(found)
    return region | _efficiencies(region, longest, version)


def _device(found: Answer) -> dict[str, int]:
    keys = ("gpuUsefulTime", "gpuCommunicationTime", "maxGpuUsefulTime", "maxGpuActiveTime")
    device = found.device.counting_collectives() if found.device else None
    if device is None:
        return dict.fromkeys(keys, 0)
    return dict(zip(keys, (device.kernel_time, device.memory_time, device.max_kernel_time, device.max_active_time), strict=True))


def _efficiencies(region: dict[str, Any], longest: int, version: str) -> dict[str, float]:
    """Return the efficiencies as TALP computes and prints them."""
    cpus, elapsed, useful, mpi = (region[key] for key in ("numCpus", "elapsedTime", "usefulTime", "mpiTime"))
    offload, gpus = region.get("gpuRuntimeTime", 0), region.get("numGpus", 0)
    outside = elapsed - mpi / cpus
    kernel, active = region.get("maxGpuUsefulTime", 0), region.get("maxGpuActiveTime", 0)
    values = {
        "parallelEfficiency": _ratio(useful, useful + mpi + offload),
        "mpiParallelEfficiency": _ratio(outside, elapsed),
        "mpiCommunicationEfficiency": _ratio(longest, elapsed),
        "mpiLoadBalance": _ratio(outside, longest),
        "mpiLoadBalanceIn": _ratio(outside, longest),
        "mpiLoadBalanceOut": 1.0,
        "ompParallelEfficiency": 1.0,
        "ompLoadBalance": 1.0,
        "ompSchedulingEfficiency": 1.0,
        "ompCoverageEfficiency" if version == "3.8" else "ompSerializationEfficiency": 1.0,
    }
    if version != "3.5":
        values |= {
            "deviceOffloadEfficiency": _ratio(useful, useful + offload),
            "gpuParallelEfficiency": _ratio(region["gpuUsefulTime"], gpus * elapsed),
            "gpuLoadBalance": _ratio(region["gpuUsefulTime"], gpus * kernel),
            "gpuCommunicationEfficiency": _ratio(kernel, active),
            "gpuOrchestrationEfficiency": _ratio(active, elapsed) if gpus else 0.0,
        }
    return {key: round(value, 2) for key, value in values.items()}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0  # TALP prints 0.00 for what it can't compute


def _processes(scenario: Scenario, version: str) -> dict[str, Any]:
    working = {e.process for e in scenario.events if e.kind in ("api", "mpi")} or {e.process for e in scenario.events}
    regions: dict[str, list[dict[str, Any]]] = {}
    for process in sorted(working):
        for name, found in _answers(_alone(scenario, process)):
            row = {"rank": scenario.ranks.get(process, 0), "pid": process, "hostname": scenario.host, "cpuset": f"{process}"}
            regions.setdefault(name, []).append(row | _process(found, version))
    if version == "3.5":
        return {"region": [{"name": name, "process": rows} for name, rows in regions.items()]}
    return {"Process": regions}


def _process(found: Answer, version: str) -> dict[str, Any]:
    host = found.host
    if version == "3.5":
        busy = host.useful_time + host.offload_time
        omp = {f"notUsefulOMP{what}": 0 for what in ("LoadBalance", "Scheduling", "Serialization")}
        return {"elapsedTime": host.elapsed, "useful": busy, "notUsefulMPI": host.elapsed - busy} | omp
    serial = "ompOutsideParallelTime" if version == "3.8" else "ompSerializationTime"
    device = _device(found)
    return {
        "numCpus": 1,
        "elapsedTime": host.elapsed,
        "usefulTime": host.useful_time,
        "mpiTime": host.elapsed - host.useful_time - host.offload_time,
        "ompLoadImbalanceTime": 0,
        "ompSchedulingTime": 0,
        serial: 0,
        "gpuRuntimeTime": host.offload_time,
        "gpuUsefulTime": device["gpuUsefulTime"],
        "gpuCommunicationTime": device["gpuCommunicationTime"],
    }
