"""Scenarios as PyTorch's profiler writes them: one JSON file a process, with what else stands in such files and counts for nothing.

Beside the events there are flows between calls and kernels, copies of steps on the device, device-side waits, names of processes and a
span over all with a word for its process. Times are microseconds since the start of a quarter, which stands at the file's end.
"""

from __future__ import annotations

import gzip as packed
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ullage.product import attention, moved_bytes, product
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent

_QUARTER = 7_889_238 * 10**9  # ns; Kineto counts from the last multiple of this
_CATEGORIES = {
    "kernel": "kernel",
    "collective": "kernel",
    "lost": "kernel",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
    "region": "user_annotation",
    "step": "user_annotation",
    "mpi": "user_annotation",
    "host": "cpu_op",
    "overhead": "overhead",
    "function": "python_function",
    "module": "python_function",
    "event": "cuda_sync",
}
_ON_DEVICE = ("kernel", "collective", "lost", "memcpy", "memset")
_VOCABULARY, _WIDTH = 32_000, 4096  # of the embedding table
_EXTERNAL = 1 << 20  # what numbers of operators begin at
_SM = {"computeMajor": 9, "computeMinor": 0, "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 228 << 10}
_TYPES = {
    "fp32": "float",
    "fp64": "double",
    "fp16": "c10::Half",
    "bf16": "c10::BFloat16",
    "fp8": "c10::Float8_e4m3fn",
    "int8": "signed char",
}


def write(scenario: Scenario, folder: Path, *, compact: bool = False, gzip: bool = False, decimals: int = 3) -> list[Path]:
    """Write one file a process into a folder, in the order of the ranks, and return where they are.

    `compact` files are one line, as Python dumps them, and have their metadata first; others look as Kineto's own. Times have
    `decimals` digits behind the microsecond; with 0 they are whole microseconds, as before 2024, which shortens or lengthens
    events (though never to nothing). A profiler does not see an execution of a graph as a whole, a descheduled thread or one that
    waits in a parallel region: these are left out. Communication by MPI is noted as "mpi:" and its name, an event of kind `lost`
    has a duration of 0.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for process, rank in sorted(scenario.ranks.items(), key=lambda item: item[1]):
        path = folder / f"{scenario.name}_rank{rank}.json{'.gz' if gzip else ''}"
        text = _compact(scenario, process, decimals) if compact else _native(scenario, process, decimals)
        path.write_bytes(packed.compress(text.encode(), compresslevel=1, mtime=0) if gzip else text.encode())
        paths.append(path)
    return paths


def _base(scenario: Scenario) -> int:
    return scenario.epoch // _QUARTER * _QUARTER


def _native(scenario: Scenario, process: int, decimals: int) -> str:
    head, tail = _metadata(scenario, process)
    listed = ",\n".join(_lines(event) for event in _events(scenario, process, _Clock(decimals)))
    opening = "".join(f'  "{key}": {json.dumps(value)},\n' for key, value in head.items())
    closing = "".join(f',\n  "{key}": {json.dumps(value)}' for key, value in tail.items())
    return f'{{\n{opening}  "traceEvents": [\n{listed}\n  ]{closing}\n}}\n'


def _lines(event: dict[str, Any]) -> str:
    """Return an event on several lines: times on their own, arguments indented."""
    whose = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in event.items() if key not in ("ts", "dur", "args"))
    times = ", ".join(f'"{key}": {event[key]}' for key in ("ts", "dur") if key in event)
    args = ""
    if event.get("args"):
        args = ',\n    "args": {\n      ' + ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in event["args"].items()) + "\n    }"
    return f"  {{\n    {whose},\n    {times}{args}\n  }}"


def _compact(scenario: Scenario, process: int, decimals: int) -> str:
    head, tail = _metadata(scenario, process)
    listed = ", ".join(
        "{" + ", ".join(f'"{k}": {v if k in ("ts", "dur") else json.dumps(v)}' for k, v in event.items()) + "}"
        for event in _events(scenario, process, _Clock(decimals))
    )
    opening = "".join(f'"{key}": {json.dumps(value)}, ' for key, value in (head | tail).items())
    return f'{{{opening}"traceEvents": [{listed}]}}'


def _metadata(scenario: Scenario, process: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what stands before and what stands after the events."""
    devices = [
        {"id": number, "name": name, "totalGlobalMem": 85_018_279_936, "numSms": 132} | _SM | ({"uuid": key} if key else {})
        for number, (name, key) in scenario.devices.items()
    ]
    run = {"backend": "nccl", "rank": scenario.ranks[process], "world_size": len(scenario.ranks)}
    head = {"schemaVersion": 1, "deviceProperties": devices, "distributedInfo": run, "host_name": scenario.host}
    return head, {"traceName": f"{scenario.name}.json", "displayTimeUnit": "ms", "baseTimeNanoseconds": _base(scenario)}


@dataclass(frozen=True)
class _Clock:
    """How times in ns are written, in microseconds with so many decimals: exactly with 3, rounded with fewer."""

    decimals: int

    @property
    def step(self) -> int:
        return int(10 ** (3 - self.decimals))

    def moment(self, time: int) -> str:
        whole, part = divmod((time + self.step // 2) // self.step * self.step, 1000)
        return f"{whole}.{part:03d}"[: self.decimals - 3 or None] if self.decimals else str(whole)

    def length(self, time: int) -> str:
        return self.moment(max(time, self.step) if time else 0)


def _events(scenario: Scenario, process: int, clock: _Clock) -> Iterator[dict[str, Any]]:
    offset = scenario.epoch - _base(scenario)
    found = [event for event in scenario.of(process) if event.kind in _CATEGORIES or event.kind == "api"]
    yield {"name": "process_name", "ph": "M", "ts": clock.moment(offset), "pid": process, "tid": 0, "args": {"name": "python3"}}
    devices = sorted({event.device for event in found if event.device is not None})
    for event in found:
        start, length = clock.moment(offset + event.start), clock.length(0 if event.kind == "lost" else event.end - event.start)
        yield {"ph": "X", "cat": _category(event), "name": _name(event)} | _place(event) | {"ts": start, "dur": length} | _args(event)
        yield from _beside(event, devices, start, length)
    yield from _operators(found, offset, clock)
    last = max((event.end for event in found), default=0)
    whole = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler"}
    yield whole | {"ts": clock.moment(offset), "dur": clock.length(last), "args": {"Op count": 0}}
    yield {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": clock.moment(offset + last)}


def _beside(event: ScenarioEvent, devices: list[int], start: str, length: str) -> Iterator[dict[str, Any]]:
    """Yield what Kineto draws beside an event: arrows, copies of steps, device-side waits."""
    if event.correlation is not None and event.kind != "lost":
        arrow = {"ph": "s" if event.kind == "api" else "f", "id": event.correlation} | _place(event) | {"ts": start}
        yield arrow | {"cat": "ac2g", "name": "ac2g"} | ({} if event.kind == "api" else {"bp": "e"})
    if devices and (event.kind == "step" or event.call == "sync"):
        category, name = ("gpu_user_annotation", event.name) if event.kind == "step" else ("cuda_sync", "Context Sync")
        place = {"pid": devices[0], "tid": 7, "ts": start, "dur": length}
        yield {"ph": "X", "cat": category, "name": name} | place | {"args": {"device": devices[0], "stream": 7}}


def _operators(found: list[ScenarioEvent], offset: int, clock: _Clock) -> Iterator[dict[str, Any]]:
    """Yield the operators whose work is known; each lasts as long as the call that launched its kernel."""
    asked = {event.correlation: event.product for event in found if event.product is not None}
    for call in (event for event in found if event.kind == "api" and event.correlation in asked):
        wanted = _operator(asked[call.correlation] or "")
        if wanted is not None:
            name, given = wanted
            times = {"ts": clock.moment(offset + call.start), "dur": clock.length(call.end - call.start)}
            number = {"External id": _EXTERNAL + (call.correlation or 0)}
            yield {"ph": "X", "cat": "cpu_op", "name": name} | _place(call) | times | {"args": number | given}


def _operator(word: str) -> tuple[str, dict[str, Any]] | None:
    """Return an operator that asks for what a word of `ullage.product` says, with its arguments; None for a word of no operator."""
    if (one := product(word)) is not None:
        name, batch = ("aten::bmm", [one.batch]) if one.batch > 1 else ("aten::mm", [])
        dims = [[*batch, one.m, one.k], [*batch, one.k, one.n]]
        return name, {"Input Dims": dims, "Input type": [_TYPES.get(one.precision, "")] * 2}
    if (seen := attention(word)) is not None:
        queries = [seen.batch, seen.queries, seen.heads, seen.dim]
        others = [[seen.batch, seen.keys, seen.kv_heads, size] for size in (seen.dim, seen.value_dim)]
        way, before, place = ("backward", [queries], 11) if seen.backward else ("forward", [], 8)
        dims = [*before, queries, *others]
        said = [""] * place + [str(seen.causal)]
        return f"aten::_flash_attention_{way}", {
            "Input Dims": dims + [[]] * (place + 1 - len(dims)),
            "Input type": [_TYPES.get(seen.precision, "")] * len(dims) + [""] * (place + 1 - len(dims)),
            "Concrete Inputs": said,
        }
    moved = moved_bytes(word)
    if moved is None:
        return None
    return "aten::gelu", {"Input Dims": [[moved // 4], []], "Input type": [_TYPES["bf16"], ""]}  # read and written, 2 B each


def _category(event: ScenarioEvent) -> str:
    if event.kind == "api":
        return "cuda_driver" if event.name.startswith("cu") and not event.name.startswith("cuda") else "cuda_runtime"
    return _CATEGORIES[event.kind]


def _name(event: ScenarioEvent) -> str:
    if event.kind == "module":
        return f"nn.Module: {event.name}"
    if event.kind == "event":
        return "Stream Wait Event" if event.stream is not None else "Stream Sync" if event.awaited is None else "Event Sync"
    return f"mpi:{event.name}" if event.kind == "mpi" and ":" not in event.name else event.name


def _place(event: ScenarioEvent) -> dict[str, Any]:
    if event.kind in (*_ON_DEVICE, "event"):
        return {"pid": event.device, "tid": event.stream}
    return {"pid": -1 if event.kind == "overhead" else event.process, "tid": event.process if event.thread is None else event.thread}


def _args(event: ScenarioEvent) -> dict[str, Any]:
    known: dict[str, Any] = {"device": event.device, "stream": event.stream, "correlation": event.correlation}
    if event.kind in ("memcpy", "memset"):
        known["bytes"] = event.bytes
    elif event.kind in _ON_DEVICE:
        known["grid"] = None if event.blocks is None else [event.blocks, 1, 1]
        known["block"] = None if event.threads is None else [event.threads, 1, 1]
        known |= {"registers per thread": event.registers, "shared memory": event.shared}
    if event.kind == "event":
        known["stream"] = event.awaited_stream if _name(event) == "Stream Sync" else known["stream"]
        told = {"wait_on_stream": event.awaited_stream, "wait_on_cuda_event_record_corr_id": event.awaited}
        known |= told if _name(event) != "Stream Sync" else {}
    if event.product is not None:
        known["External id"] = _EXTERNAL + (event.correlation or 0)
    if event.kind == "collective":
        known |= {"Collective name": event.operation, "In msg nelems": event.bytes, "Out msg nelems": event.bytes, "dtype": "Byte"}
        known |= {"Group size": event.members, "Process Group Name": event.group, "Seq": event.sequence}
    if event.tokens is not None:
        known |= {
            "Input Dims": [[_VOCABULARY, _WIDTH], [1, event.tokens], [], [], []],
            "Input type": ["c10::BFloat16", "long int", "", "", ""],
        }
    given = {key: value for key, value in known.items() if value is not None}
    return {"args": given} if given else {}
