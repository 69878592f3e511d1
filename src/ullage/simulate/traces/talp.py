"""A scenario as TALP would write it: JSON of DLB 3.5 to 3.8, with raw times exact to the ns.

The sums are the scenario's answers, written by `ullage.traces.talp.values`.
DLB 3.5 knows no GPUs: there, time in a GPU's interface is useful.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ullage.simulate.traces.answers import TreeAnswer, answer
from ullage.simulate.traces.scenario import Scenario
from ullage.traces.talp.values import device_values, values

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
    application = {name: values(found.host, found.device, version) for name, found in _answers(scenario)}
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


def _answers(scenario: Scenario) -> Iterator[tuple[str, TreeAnswer]]:
    """Yield the whole run and each region with its answer; a region in which no process that counts ever is, is left out."""
    yield "Global", answer(scenario)
    for name in dict.fromkeys(e.name for e in scenario.events if e.kind == "region"):
        try:
            yield name, answer(scenario, name)
        except ValueError:
            continue


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


def _process(found: TreeAnswer, version: str) -> dict[str, Any]:
    host = found.host
    if version == "3.5":
        busy = host.useful_time + host.offload_time
        omp = {f"notUsefulOMP{what}": 0 for what in ("LoadBalance", "Scheduling", "Serialization")}
        return {"elapsedTime": host.elapsed, "useful": busy, "notUsefulMPI": host.elapsed - busy} | omp
    serial = "ompOutsideParallelTime" if version == "3.8" else "ompSerializationTime"
    device = device_values(found.device)
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
