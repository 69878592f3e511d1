"""The report on a run as plain data for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from ullage.metrics.instructions import host_instructions
from ullage.metrics.tree import Node
from ullage.recording import Mode
from ullage.render.gemms import record as gemms
from ullage.render.trace_what_if import record as what_if
from ullage.reports.trace.code import CodeReport
from ullage.reports.trace.idleness import Idleness
from ullage.reports.trace.kernels import KernelSummary, Overlap
from ullage.reports.trace.lane_shares import device_shares, device_times, host_shares
from ullage.reports.trace.part import RunPart
from ullage.reports.trace.restated import Restatement
from ullage.reports.trace.sequences import verdict
from ullage.reports.trace.trace import TraceReport
from ullage.sums.lanes.code.times import CodeTimes
from ullage.sums.lanes.idle import Gap, Rhythm
from ullage.sums.lanes.run import DevicePart, HostPart
from ullage.totals import Factors, HostTotals

# Efficiencies by their short names within a tree.
_NAMES = {
    "host_parallel_efficiency": "parallel_efficiency",
    "mpi_parallel_efficiency": "mpi_parallel_efficiency",
    "hybrid_mpi_parallel_efficiency": "mpi_parallel_efficiency",
    "host_load_balance": "load_balance",
    "hybrid_load_balance": "load_balance",
    "host_communication_efficiency": "communication_efficiency",
    "device_offload_efficiency": "device_offload_efficiency",
    "device_parallel_efficiency": "parallel_efficiency",
    "device_load_balance": "load_balance",
    "device_communication_efficiency": "communication_efficiency",
}
_HOST = ("parallel_efficiency", "mpi_parallel_efficiency", "load_balance", "communication_efficiency", "device_offload_efficiency")
_DEVICE = ("parallel_efficiency", "load_balance", "communication_efficiency", "orchestration_efficiency")


def record(report: TraceReport) -> dict[str, Any]:
    """Return the report as plain data: times in s (`_s`) or integer ns (`_ns`), ratios in [0, 1]; what does not exist is null.

    `window` is on the captures' clock. In `talp` mode a collective counts as a kernel, in the trees and in `devices` alike.
    """
    data: dict[str, Any] = {
        "files": list(report.places),
        "source": report.source,
        "status": "partial" if report.partial else "whole",
        "mode": report.mode,
        "window": _window(report),
        "region": report.region,
        **view(report.whole, report.mode),
        "bill": None if report.bill is None else asdict(report.bill),
        "host_bill": None if report.host_bill is None else asdict(report.host_bill),
    }
    for name, views in (("regions", report.regions), ("ranks", report.ranks), ("by_device", report.devices), ("steps", report.steps)):
        data[name] = [{"name": v.name, **view(v, report.mode)} for v in views]
    return data | explained(report) | {"problems": list(report.notes)}


def _window(report: TraceReport) -> dict[str, Any]:
    captures = report.run.captures if report.run is not None else ()
    shared = report.run.shared if report.run is not None else None
    return {
        "start_ns": min((c.window[0] for c in captures), default=None) if shared is None else shared[0],
        "end_ns": max((c.window[1] for c in captures), default=None) if shared is None else shared[1],
        "recorded_ns": report.recorded,
        "rule": report.window if captures else None,
    }


def view(found: RunPart, mode: Mode) -> dict[str, Any]:
    """Return a part of a run: its efficiencies, their bounds, the totals they come from, and the times of each process and device."""
    return {
        "elapsed_s": found.elapsed / 1e9,
        "elapsed_ns": found.elapsed,
        "host": None if found.host is None else _efficiencies(found.host, _HOST) | _whole_level(found.host, found.factors),
        "device": None if found.device is None else _efficiencies(found.device, _DEVICE),
        "bounds": {
            name: None if tree is None else {_NAMES.get(n.metric, n.metric): [n.low, n.high] for _, n in tree.walk()}
            for name, tree in (("host", found.host), ("device", found.device))
        },
        "cannot_tell": [n.metric for tree in (found.host, found.device) if tree for _, n in tree.walk() if not n.certain],
        "host_totals": None if found.host_totals is None else _host_totals(found.host_totals, len(found.host_parts)),
        "device_totals": None if found.device_totals is None else asdict(found.device_totals),
        "processes": [_process(part, found.elapsed) for part in found.host_parts],
        "devices": [_device(part, found.elapsed, mode) for part in found.device_parts],
    }


def _efficiencies(tree: Node, names: tuple[str, ...]) -> dict[str, float | None]:
    """Return a tree flat: the names that programs rely on (null where the program can't have such a factor), then all others it has."""
    values = {_NAMES.get(node.metric, node.metric): node.value for _, node in tree.walk()}
    return {name: values.get(name) for name in names} | values


def _whole_level(tree: Node, factors: Factors) -> dict[str, float | None]:
    """Return the level that a tree has no node for because it is the whole: that of MPI, or of OpenMP, of a program with nothing else."""
    seen = {_NAMES.get(node.metric, node.metric) for _, node in tree.walk()}
    levels = {"mpi_parallel_efficiency": factors.mpi, "openmp_parallel_efficiency": factors.openmp}
    return {name: tree.value for name, has in levels.items() if has and name not in seen}


def _host_totals(totals: HostTotals, processes: int) -> dict[str, Any]:
    """Return the sums over `resources`, each of which is a `resource`: a process, a thread or a CPU (of `processes`, null: not known)."""
    found = host_instructions(totals)
    counted = {"instructions_per_cycle": found and found.per_cycle, "useful_clock_hz": found and found.clock}
    sums = asdict(totals) | counted
    if not totals.off_time:  # nothing of it was recorded
        del sums["off_time"]
    return {"resource": sums.pop("resource"), "resources": sums.pop("processes"), "processes": processes or None, **sums}


def _process(part: HostPart, elapsed: int) -> dict[str, Any]:
    return {
        "rank": part.process.rank,
        "process": part.process.key[1],
        "host": part.process.host,
        "elapsed_s": part.elapsed / 1e9,
        "useful_s": part.useful / 1e9,
        "offload_s": part.offload / 1e9,
        "communication_s": part.communication / 1e9,
        "threads": part.threads,
        "parallel_s": part.parallel / 1e9,
        "recorder_s": part.recorder / 1e9,
        **({"off_s": part.off / 1e9} if part.process.off_known else {}),
        "shares": host_shares(part, elapsed),
    }


def _device(part: DevicePart, elapsed: int, mode: Mode) -> dict[str, Any]:
    return {
        "device": part.device.key,
        "name": part.device.name,
        **{f"{name}_s": ns / 1e9 for name, ns in device_times(part, mode).items()},
        "unknown_s": part.unknown / 1e9,
        "launches": part.device.launches,
        "shares": device_shares(part, elapsed, mode),
    }


def explained(report: TraceReport) -> dict[str, Any]:
    """Return what explains the trees: idle time by cause, kernels, collectives across ranks, and TALP's own figures held against them."""
    idle, kernels, late, restated = report.idle, report.kernels, report.late, report.restated
    return {
        "idle": None if idle is None else _idle(idle),
        "kernels": None if kernels is None else _kernels(kernels),
        "code": None if report.code is None else _code(report.code),
        "sequences": None if report.sequences is None else asdict(report.sequences) | {"verdict": verdict(report.sequences)},
        "gemms": None if report.gemms is None else gemms(report.gemms),
        "collectives": None if late is None else asdict(late),
        **({} if report.nccl is None else {"nccl": asdict(report.nccl)}),
        "bandwidths": [asdict(row) | {"mean": row.mean} for row in report.bandwidths],
        "what_if": None if report.what_if is None else what_if(report.what_if),
        "restated": None if restated is None else _restated(restated),
        "tables_of": report.tables_of or None,
    }


def _idle(found: Idleness) -> dict[str, Any]:
    """Return idle time by cause, in ns and as shares, and the longest gaps, which begin `at_ns` after the run's first moment."""
    gaps = [_gap(gap) | {"at_ns": gap.start - found.origin, "idle_ns": gap.end - gap.start} for gap in found.gaps]
    return {
        "total_ns": found.total,
        "causes_ns": found.causes,
        "shares": {cause: ns / found.total for cause, ns in found.causes.items()} if found.total else {},
        "gaps": gaps,
        "rhythm": None if found.rhythm is None else asdict(found.rhythm),
        "rhythms": _plain(found.rhythms),
    }


def _kernels(found: KernelSummary) -> dict[str, Any]:
    rows = {name: [asdict(row) | {"mean": row.mean} for row in getattr(found, name)] for name in ("kernels", "copies")}
    return asdict(found) | rows | {"overlap_all": _overlap(found.overlap_all)}


def _restated(found: Restatement) -> dict[str, Any]:
    counts = {"compared": found.compared, "agree": found.agree, "explained": found.explained, "contradict": len(found.contradictions)}
    return counts | {"rows": [asdict(row) for row in found.rows], "notes": list(found.notes)}


def _gap(gap: Gap) -> dict[str, Any]:
    length = gap.end - gap.start
    code = {level: {"name": n.name, "time_ns": n.time, "share": n.time / length if length else None} for level, n in gap.code.items()}
    return asdict(replace(gap, code={})) | {"code": code}


def _code(found: CodeReport) -> dict[str, Any]:
    """Return times in ns; at each level rows, `outside` and what is common to all levels add up to all, and so do their shares."""
    queues = {key: [asdict(queue) | {"mean": queue.mean} for queue in of] for key, of in found.queues.items()}
    device = found.device
    kernels = {level: _code_times(times, device.all, (*_GAPS, "backward")) for level, times in device.levels.items()}
    return asdict(found) | {
        "queues": queues,
        "idle": {level: _code_times(times, found.idle_time) for level, times in found.idle.items()},
        "idle_shares": {name: _part(getattr(found, name), found.idle_time) for name in ("launched", "unknown")},
        "device": asdict(device) | {"levels": kernels, "unlaunched_share": _part(device.unlaunched, device.all)},
    }


_GAPS = ("name", "count", "time", "longest")


def _code_times(times: CodeTimes, whole: int, of: tuple[str, ...] = _GAPS) -> dict[str, Any]:
    rows = [{key: value for key, value in asdict(row).items() if key in of} | {"share": _part(row.time, whole)} for row in times.rows]
    return {"rows": rows, "outside": times.outside, "outside_share": _part(times.outside, whole)}


def _part(time: int, whole: int) -> float | None:
    return time / whole if whole else None


def _plain(rhythms: Mapping[str, Rhythm]) -> dict[str, Any]:
    return {key: asdict(rhythm) for key, rhythm in rhythms.items()}


def _overlap(found: Overlap) -> dict[str, Any]:
    return asdict(found) | {"collective_hidden": found.collective_hidden, "memory_hidden": found.memory_hidden}
