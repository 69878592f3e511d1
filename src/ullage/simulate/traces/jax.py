"""Scenarios as JAX profiles: the trace viewer's JSON, a file a process, as `jax.profiler` writes it on a machine with GPUs.

What is peculiar to it: planes are processes and lines threads, told before the events; correlation numbers and sizes are text; lines made
afterwards (`XLA Ops`, `XLA Modules`, `Steps`) repeat what the streams hold.
"""

from __future__ import annotations

import gzip as packed
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ullage.simulate.traces.scenario import Scenario, ScenarioEvent

_COPIES = {"HtoD": "MemcpyH2D", "DtoH": "MemcpyD2H", "DtoD": "MemcpyD2D", "PtoP": "MemcpyP2P"}
_DERIVED = ("XLA Modules", "XLA Ops", "Steps", "Source code")
_ON_DEVICE = ("kernel", "collective", "memcpy", "memset")


def write(scenario: Scenario, folder: Path, *, gzip: bool = True) -> list[Path]:
    """Write one file a process into a folder, in the order of the ranks, and return where they are.

    Times have 3 decimals behind the microsecond. Whole graphs, MPI, and device events whose time was lost are not recorded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for process, rank in sorted(scenario.ranks.items(), key=lambda item: item[1]):
        path = folder / f"{scenario.host}-{rank}.trace.json{'.gz' if gzip else ''}"
        whole = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*_events(scenario, process), {}]}
        text = json.dumps(whole, separators=(",", ":")).encode()
        path.write_bytes(packed.compress(text, compresslevel=1, mtime=0) if gzip else text)
        paths.append(path)
    return paths


def _events(scenario: Scenario, process: int) -> Iterator[dict[str, Any]]:
    found = scenario.of(process)
    yield _named("process_name", process, None, "/host:CPU")
    for thread in sorted({_thread(event) for event in found if event.device is None}):
        yield _named("thread_name", process, thread, "python" if thread == process else f"worker/{thread}")
    for number in sorted({event.device for event in found if event.device is not None}):
        yield _named("process_name", number + 1, None, f"/device:GPU:{number} {scenario.devices.get(number, ('', ''))[0]}".rstrip())
        for stream in sorted({event.stream or 0 for event in found if event.device == number}):
            yield _named("thread_name", number + 1, stream, f"Stream #{stream}(Compute)")
        for at, line in enumerate(_DERIVED):
            yield _named("thread_name", number + 1, 1_000_000 + at, line)
    for event in found:
        yield from _written(event)


def planes(scenario: Scenario, process: int) -> Iterator[tuple[str, dict[str, list[dict[str, Any]]]]]:
    """Yield each plane of a process' profile: its name, and the events of its lines by their names."""
    events = list(_events(scenario, process))
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    lines = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    for number, name in names.items():
        found: dict[str, list[dict[str, Any]]] = {line: [] for (plane, _), line in lines.items() if plane == number}
        for event in events:
            if event["ph"] == "X" and event["pid"] == number:
                found[lines[number, event["tid"]]].append(event)
        yield name, found


def _named(what: str, process: int, thread: int | None, name: str) -> dict[str, Any]:
    where = {"pid": process} | ({} if thread is None else {"tid": thread})
    return {"ph": "M", **where, "name": what, "args": {"name": name}}


def _thread(event: ScenarioEvent) -> int:
    return event.process if event.thread is None else event.thread


def _written(event: ScenarioEvent) -> Iterator[dict[str, Any]]:
    times = {"ts": event.start / 1000, "dur": (event.end - event.start) / 1000}
    if event.kind in _ON_DEVICE and event.device is not None:
        place = {"ph": "X", "pid": event.device + 1}
        yield {**place, "tid": event.stream or 0, **times, "name": _name(event), "args": _args(event)}
        if event.kind in ("kernel", "collective"):
            yield {**place, "tid": 1_000_001, **times, "name": "fusion.1", "args": {"hlo_op": "fusion.1", "hlo_module": "jit_step"}}
    elif event.kind in ("api", "step", "host"):
        name = {"host": "PjitFunction(step)", "step": "train"}.get(event.kind, event.name)
        args = {"step_num": event.name.rpartition("#")[2]} if event.kind == "step" else {}
        if event.correlation is not None:
            args["correlation_id"] = str(event.correlation)
        yield {"ph": "X", "pid": event.process, "tid": _thread(event), **times, "name": name} | ({"args": args} if args else {})


def _name(event: ScenarioEvent) -> str:
    if event.kind == "memcpy":
        return next((name for word, name in _COPIES.items() if word in event.name), "MemcpyOther")
    return "Memset" if event.kind == "memset" else event.name


def _args(event: ScenarioEvent) -> dict[str, str]:
    known = {} if event.correlation is None else {"correlation_id": str(event.correlation)}
    if event.kind == "memcpy":
        return known | {"memcpy_details": f"kind_src:pageable kind_dst:device size:{event.bytes or 0} dest:0 async:1"}
    if event.kind == "memset":
        return known | {"memset_details": f"kind:device size:{event.bytes or 0} async:0"}
    if event.blocks is None or event.threads is None:
        return known
    shape = f"grid:{event.blocks},1,1 block:{event.threads},1,1"
    return known | {"kernel_details": f"regs:32 static_shared:0 dynamic_shared:0 {shape} occ_pct:100"}
