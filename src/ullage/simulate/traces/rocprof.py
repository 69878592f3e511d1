"""Scenarios as rocprofv3 records them on AMD GPUs: its database (rocpd, in both layouts) and its JSON, a file a process.

What is peculiar to them: calls are HIP's; grids count threads; agents, kernels and words are told by number; every table ends in the
writer's own number.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, Literal

from ullage.simulate.traces.scenario import Scenario, ScenarioEvent

Layout = Literal["times", "tracks"]
ENDING = "_00000123_4567_89ab_cdef_000000000001"
UPTIME = 5_000_000_000_000  # ns since the boot when the scenario begins
_CPU = 1000  # the CPU's agent, as a handle
_SIZES = ("grid_size_x", "grid_size_y", "grid_size_z", "workgroup_size_x", "workgroup_size_y", "workgroup_size_z")


def hip(name: str) -> str:
    """Return HIP's name of a call of CUDA.

    >>> hip("cudaMemcpyAsync"), hip("cuLaunchKernel")
    ('hipMemcpyAsync', 'hipModuleLaunchKernel')
    """
    if name.startswith("cuda"):
        return f"hip{name[4:]}"
    return "hipModuleLaunchKernel" if name == "cuLaunchKernel" else name


def write_json(scenario: Scenario, folder: Path) -> list[Path]:
    """Write one file a process, in the order of the ranks, and return where they are. MPI and whole graphs are not recorded."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for process in _in_order(scenario):
        path = folder / f"{process}_results.json"
        path.write_text(json.dumps({"rocprofiler-sdk-tool": [_process(scenario, process)]}))
        paths.append(path)
    return paths


def _in_order(scenario: Scenario) -> list[int]:
    return sorted(scenario.ranks, key=scenario.ranks.__getitem__)


def _process(scenario: Scenario, process: int) -> dict[str, Any]:
    events = scenario.of(process)
    kernels = sorted({e.name for e in events if e.kind in ("kernel", "collective")})
    calls = sorted({hip(e.name) for e in events if e.kind == "api"})
    agents = [{"id": {"handle": _CPU}, "type": 1, "logical_node_type_id": 0, "name": "EPYC"}]
    agents += [
        {"id": {"handle": _CPU + 1 + n}, "type": 2, "logical_node_type_id": n, "name": "gfx942", "product_name": name}
        for n, (name, _) in scenario.devices.items()
    ]
    kinds = [{"kind": "NONE", "operations": []}, {"kind": "HIP_RUNTIME_API", "operations": calls}]
    kinds += [{"kind": "KERNEL_DISPATCH", "operations": []}, {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY"]}]
    regions = [e for e in events if e.kind == "region"]
    return {
        "metadata": {"pid": process, "node": {"hostname": scenario.host}},
        "agents": agents,
        "kernel_symbols": [{"kernel_id": i, "formatted_kernel_name": name} for i, name in enumerate(kernels)],
        "strings": {"buffer_records": kinds, "marker_api": [{"key": 10**9 + i, "value": e.name} for i, e in enumerate(regions)]},
        "buffer_records": {
            "hip_api": [_record(e, 1, calls.index(hip(e.name))) for e in events if e.kind == "api"],
            "marker_api": [_record(e, 0, 0) | {"correlation_id": {"internal": 10**9 + i}} for i, e in enumerate(regions)],
            "kernel_dispatch": [_record(e, 2, 0) | _dispatch(e, kernels) for e in events if e.kind in ("kernel", "collective")],
            "memory_copy": [_record(e, 3, 0) | _copy(e) for e in events if e.kind in ("memcpy", "memset")],
        },
    }


def _record(event: ScenarioEvent, kind: int, operation: int) -> dict[str, Any]:
    return {
        "kind": kind,
        "operation": operation,
        "thread_id": event.process if event.thread is None else event.thread,
        "correlation_id": {"internal": event.correlation or 0, "external": 0},
        "start_timestamp": UPTIME + event.start,
        "end_timestamp": UPTIME + event.end,
    }


def _dispatch(event: ScenarioEvent, kernels: list[str]) -> dict[str, Any]:
    grid, block = _shape(event)
    sizes = {"grid_size": {"x": grid, "y": 1, "z": 1}, "workgroup_size": {"x": block, "y": 1, "z": 1}}
    agent = {"agent_id": {"handle": _CPU + 1 + (event.device or 0)}, "queue_id": {"handle": 1}}
    return {"dispatch_info": {"kernel_id": kernels.index(event.name), **agent, **sizes}, "stream_id": {"handle": event.stream or 0}}


def _shape(event: ScenarioEvent) -> tuple[int, int]:
    threads = event.threads or 1
    return (event.blocks or 1) * threads, threads


def _copy(event: ScenarioEvent) -> dict[str, Any]:
    here, host = {"handle": _CPU + 1 + (event.device or 0)}, {"handle": _CPU}
    back = "DtoH" in event.name
    return {"src_agent_id": here if back else host, "dst_agent_id": host if back else here, "bytes": event.bytes or 0}


def write_rocpd(scenario: Scenario, folder: Path, *, layout: Layout = "times") -> list[Path]:
    """Write one database a process; times stand in the rows, or (`tracks`) in a table of their own beside one of places."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for process in _in_order(scenario):
        path = folder / f"{process}_results.db"
        path.unlink(missing_ok=True)
        connection = sqlite3.connect(path)
        try:
            _Database(connection, layout).write(scenario, process)
            connection.commit()
        finally:
            connection.close()
        paths.append(path)
    return paths


class _Database:
    """The tables of one writer."""

    def __init__(self, connection: sqlite3.Connection, layout: Layout) -> None:
        self.connection, self.layout = connection, layout
        self.words: dict[str, int] = {}
        self.tables: dict[str, list[dict[str, Any]]] = {}

    def add(self, table: str, **values: Any) -> int:
        """Add a row and return its number."""
        rows = self.tables.setdefault(table, [])
        rows.append({"id": len(rows) + 1, **values})
        return len(rows)

    def word(self, text: str) -> int:
        if text not in self.words:
            self.words[text] = self.add("string", string=text)
        return self.words[text]

    def write(self, scenario: Scenario, process: int) -> None:
        node = self.add("info_node", hostname=scenario.host)
        self.own = self.add("info_process", nid=node, pid=process, command=scenario.name)
        self.cpu = self.add("info_agent", type="CPU", type_index=0, name="EPYC", uuid=0)
        self.agents = {
            number: self.add(
                "info_agent",
                type="GPU",
                type_index=number,
                name="gfx942",
                product_name=name,
                uuid=int(key.removeprefix("GPU-").replace("-", "") or "0", 16) % 2**40,
            )
            for number, (name, key) in scenario.devices.items()
        }
        self.threads: dict[int, int] = {}
        self.symbols: dict[str, int] = {}
        for event in scenario.of(process):
            self.event(event)
        for table, rows in self.tables.items():
            self.store(table, rows)

    def store(self, table: str, rows: list[dict[str, Any]]) -> None:
        columns = list(dict.fromkeys(column for row in rows for column in row))
        listed = ", ".join(f'"{c}"' for c in columns)
        typed = ", ".join('"id" INTEGER PRIMARY KEY' if c == "id" else f'"{c}"' for c in columns)
        self.connection.execute(f'CREATE TABLE "rocpd_{table}{ENDING}" ({typed})')
        marks = ", ".join("?" * len(columns))
        values = [tuple(row.get(c) for c in columns) for row in rows]
        self.connection.executemany(f'INSERT INTO "rocpd_{table}{ENDING}" ({listed}) VALUES ({marks})', values)  # noqa: S608 - our own words

    def event(self, event: ScenarioEvent) -> None:
        if event.kind == "api":
            self.timed("region", event, "HIP_RUNTIME_API", tid=self.thread(event), name_id=self.word(hip(event.name)))
        elif event.kind == "region":
            extra = json.dumps({"message": event.name})
            self.timed("region", event, "MARKER_CORE_API", extra=extra, tid=self.thread(event), name_id=self.word("roctxRangePushA"))
        elif event.kind in ("kernel", "collective"):
            grid, block = _shape(event)
            sizes = dict(zip(_SIZES, (grid, 1, 1, block, 1, 1), strict=True))
            if event.name not in self.symbols:
                self.symbols[event.name] = self.add("info_kernel_symbol", display_name=event.name, kernel_name=f"{event.name}.kd")
            self.timed("kernel_dispatch", event, "KERNEL_DISPATCH", **self.queue(event), kernel_id=self.symbols[event.name], **sizes)
        elif event.kind in ("memcpy", "memset"):
            here, back = self.agents[event.device or 0], "DtoH" in event.name
            ends = {"dst_agent_id": self.cpu if back else here, "src_agent_id": here if back else self.cpu, "size": event.bytes or 0}
            self.timed("memory_copy", event, "MEMORY_COPY", stream_id=event.stream, name_id=self.word("MEMORY_COPY"), **ends)

    def queue(self, event: ScenarioEvent) -> dict[str, Any]:
        return {"agent_id": self.agents[event.device or 0], "queue_id": 1, "stream_id": event.stream}

    def thread(self, event: ScenarioEvent) -> int:
        number = event.process if event.thread is None else event.thread
        if number not in self.threads:
            self.threads[number] = self.add("info_thread", pid=self.own, tid=number)
        return self.threads[number]

    def timed(self, table: str, event: ScenarioEvent, category: str, **values: Any) -> None:
        """Add a row with its times and place, where the layout has them."""
        number = self.add("event", category_id=self.word(category), stack_id=event.correlation, extdata=values.pop("extra", "{}"))
        start, end = UPTIME + event.start, UPTIME + event.end
        if self.layout == "times":
            self.add(table, pid=self.own, **values, start=start, end=end, event_id=number)
            return
        place = {c: values.pop(c) for c in ("tid", "agent_id", "queue_id", "stream_id") if c in values}
        track = self.add("track", **({"tid": None, "agent_id": None, "queue_id": None, "stream_id": None, "pid": self.own} | place))
        stamps = {"start_id": self.add("timestamp", value=start), "end_id": self.add("timestamp", value=end)}
        self.add(table, track_id=track, **values, **stamps, event_id=number)
