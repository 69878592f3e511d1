"""Scenarios as Nsight Systems databases, in each generation of their schema, with what is peculiar to each.

- 2020: no table of versions, no session start; each runtime call is there twice, once nested in the other.
- 2022: EXPORT_META_DATA; MPI is an NVTX domain; a copy has a second, nested call with a version in its name.
- 2024: META_DATA_EXPORT; tables of MPI calls, in which a wait has one row for each request.
- 2026: a process numbers the devices that it sees, from 0, and TARGET_INFO_CUDA_DEVICE says which they are; TARGET_INFO_GPU is empty.
- newest: as 2026, with TARGET_INFO_GPU, versions in tables' names, ranges named by number, and NCCL's own ranges.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ullage.simulate.traces.nsys_schema import GENERATIONS, VERSIONS, columns, create
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent

_MACHINE = 1 << 48
_NOTHING = 2**32 - 1  # CUPTI's number for no stream and no event
_SUFFIXES = {"NVTX_EVENTS": "_V3", "CUPTI_ACTIVITY_KIND_RUNTIME": "_V2"}  # in the newest generation
_COPIES = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "PtoP": 10}


def write(scenario: Scenario, path: Path, *, generation: str = "2026", graphs: Literal["node", "graph"] = "node") -> Path:
    """Write a scenario as one database, and return where it is; an existing file is replaced.

    `graphs` says how CUDA graphs were traced: "node" leaves the kernels of a graph as kernels, "graph" writes one row for all
    that one launch put on one stream, and no kernels. A profiler's steps become ranges; `parallel` events have no table,
    Python functions and modules are not seen.
    """
    if generation not in GENERATIONS:
        raise ValueError(f"no generation is called '{generation}'; there are {', '.join(GENERATIONS)}")
    path.unlink(missing_ok=True)
    writer = _Writer(scenario, generation)
    for event in _traced(scenario.events, graphs):
        if event.kind not in _UNSEEN:
            getattr(writer, f"add_{_SORTS[event.kind]}")(event)
    writer.add_machine()
    writer.save(path)
    return path


_SORTS = {kind: kind for kind in ("memcpy", "memset", "graph", "lost", "api", "mpi", "off", "overhead", "host", "parallel", "event")}
_UNSEEN = ("function", "module")
_SORTS |= {"kernel": "kernel", "collective": "kernel", "region": "range", "step": "range"}


def _traced(events: tuple[ScenarioEvent, ...], graphs: str) -> list[ScenarioEvent]:
    """Return the events as they are traced: what a graph's launch put on a stream as one when graphs are traced whole."""
    launches = {(e.process, e.correlation) for e in events if e.call == "graph"}
    if graphs == "node":
        return list(events)
    whole: dict[tuple[Any, ...], list[ScenarioEvent]] = defaultdict(list)
    rest = []
    for event in events:
        inside = event.kind in ("kernel", "collective", "memcpy", "memset") and (event.process, event.correlation) in launches
        if inside:
            whole[event.process, event.correlation, event.device, event.stream].append(event)
        else:
            rest.append(event)
    return rest + [
        replace(some[0], kind="graph", name="graph 1", start=min(e.start for e in some), end=max(e.end for e in some))
        for some in whole.values()
    ]


class _Writer:
    """Rows by table, gathered one event at a time."""

    def __init__(self, scenario: Scenario, generation: str) -> None:
        self.scenario, self.generation = scenario, generation
        self.columns = columns(generation)
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._strings: dict[str, int] = {}
        self._seen: dict[int, list[int]] = defaultdict(list)  # the devices that each process sees, in its own order
        for process, number in sorted({(e.process, e.device) for e in scenario.events if e.device is not None}):
            self._seen[process].append(number)
        self._waits = {(e.process, e.correlation) for e in scenario.events if e.kind == "event"}
        self._recorded: set[tuple[int, int]] = set()  # processes and calls that recorded an event which is written
        self._launches = {(e.process, e.correlation): e for e in scenario.events if e.kind == "api"}

    @property
    def new(self) -> bool:
        """Whether processes number the devices that they see."""
        return self.generation in ("2026", "newest")

    def string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings) + 1)

    def who(self, event: ScenarioEvent) -> int:
        return _MACHINE | event.process << 24 | (event.process if event.thread is None else event.thread)

    def add(self, table: str, **values: Any) -> None:
        self.rows[table].append(values)

    def device(self, event: ScenarioEvent) -> dict[str, Any]:
        seen = self._seen[event.process]
        number = next(iter(seen), 0) if event.device is None else event.device
        node = 1 if (call := self._launches.get((event.process, event.correlation))) and call.call == "graph" else None
        return {
            "start": event.start,
            "end": event.end,
            "deviceId": seen.index(number) if self.new and seen else number,
            "contextId": 1,
            "streamId": event.stream,
            "correlationId": event.correlation,
            "globalPid": _MACHINE | event.process << 24,
            "graphNodeId": node,
        }

    def add_kernel(self, event: ScenarioEvent) -> None:
        name = self.string(event.name)
        shape = {"gridX": event.blocks, "gridY": 1, "gridZ": 1, "blockX": event.threads, "blockY": 1, "blockZ": 1}
        shape |= {"registersPerThread": event.registers, "staticSharedMemory": event.shared, "dynamicSharedMemory": 0}
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", **self.device(event), demangledName=name, shortName=name, mangledName=name, **shape)
        call = self._launches.get((event.process, event.correlation))
        if event.kind == "collective" and self.generation == "newest" and call is not None:
            self._range(replace(call, name="ncclAllReduce"), domain=7)

    def add_lost(self, event: ScenarioEvent) -> None:
        self.add_kernel(replace(event, end=event.start - 1, kind="kernel"))

    def add_memcpy(self, event: ScenarioEvent) -> None:
        kind = next((number for word, number in _COPIES.items() if word in event.name), 0)
        self.add("CUPTI_ACTIVITY_KIND_MEMCPY", **self.device(event), bytes=event.bytes or 0, copyKind=kind)

    def add_memset(self, event: ScenarioEvent) -> None:
        self.add("CUPTI_ACTIVITY_KIND_MEMSET", **self.device(event), bytes=event.bytes or 0, value=0)

    def add_graph(self, event: ScenarioEvent) -> None:
        self.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **self.device(event), graphId=1, graphExecId=1)

    def add_api(self, event: ScenarioEvent) -> None:
        row = {"globalTid": self.who(event), "correlationId": event.correlation, "returnValue": 0}
        driver = event.name.startswith("cu") and not event.name.startswith("cuda")
        self._call(event, event.name, int(driver), row)
        inner = replace(event, start=event.start + (event.end - event.start) // 4, end=event.end - (event.end - event.start) // 4)
        if self.generation == "2020":
            self._call(inner, event.name, 67, row)
        elif self.generation == "2022" and event.call == "copy":
            self._call(inner, f"{event.name}_v3020", 67, row)
        if event.call == "sync" and (event.process, event.correlation) not in self._waits:
            self.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **self.device(event))

    def add_event(self, event: ScenarioEvent) -> None:
        """Write a wait for an event, whose number is that of the call that recorded it, and that; or one for a stream."""
        row = self.device(event)
        if event.awaited is None:
            self.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **row | {"streamId": event.awaited_stream}, eventId=_NOTHING)
            return
        which = {"eventId": event.awaited, "eventSyncId": event.awaited}
        self.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **row | {"streamId": _NOTHING if event.stream is None else event.stream}, **which)
        if (event.process, event.awaited) not in self._recorded:
            self._recorded.add((event.process, event.awaited))
            mark = {"streamId": event.awaited_stream, "correlationId": event.awaited}
            self.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **row | mark, **which)

    def _call(self, event: ScenarioEvent, name: str, kind: int, row: dict[str, Any]) -> None:
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=event.start, end=event.end, eventClass=kind, nameId=self.string(name), **row)

    def add_mpi(self, event: ScenarioEvent) -> None:
        if self.generation in ("2020", "2022"):
            self._range(event, domain=1)
            return
        row = {"start": event.start, "end": event.end, "globalTid": self.who(event), "textId": self.string(event.name)}
        name = event.name.lower()
        if any(word in name for word in ("wait", "test", "start")):
            for request in (1, 2):
                self.add("MPI_START_WAIT_EVENTS", **row, requestHandle=request)
        elif any(word in name for word in ("send", "recv", "probe")):
            self.add("MPI_P2P_EVENTS", **row, size=event.bytes, tag=0, remoteRank=0)
        elif any(word in name for word in ("init", "final", "comm_")):
            self.add("MPI_OTHER_EVENTS", **row)
        else:
            self.add("MPI_COLLECTIVES_EVENTS", **row, size=event.bytes, recvSize=event.bytes)

    def add_range(self, event: ScenarioEvent) -> None:
        self._range(event, domain=0)

    def _range(self, event: ScenarioEvent, domain: int) -> None:
        by_number = self.generation == "newest"
        named = {"textId": self.string(event.name)} if by_number else {"text": event.name}
        self.add("NVTX_EVENTS", start=event.start, end=event.end, eventType=59, globalTid=self.who(event), domainId=domain, **named)

    def add_off(self, event: ScenarioEvent) -> None:
        for moment, on in ((event.start, 0), (event.end, 1)):
            self.add("SCHED_EVENTS", start=moment, cpu=0, isSchedIn=on, globalTid=self.who(event))

    def add_overhead(self, event: ScenarioEvent) -> None:
        table = "CUPTI_ACTIVITY_KIND_OVERHEAD" if self.new else "PROFILER_OVERHEAD"
        self.add(table, start=event.start, end=event.end, globalTid=self.who(event), nameId=self.string(event.name), eventClass=0)

    def add_host(self, event: ScenarioEvent) -> None:
        """Write work on a CPU as PyTorch's emit_nvtx marks an operator."""
        self._range(replace(event, name=f"aten::{event.name}, seq = 0, op_id = 1"), domain=0)

    def add_parallel(self, event: ScenarioEvent) -> None:
        """Nsight Systems has no table for it that Ullage reads."""

    def add_machine(self) -> None:
        """Add what an export says beside the events."""
        scenario, last = self.scenario, max((e.end for e in self.scenario.events), default=0)
        version, product = VERSIONS.get(self.generation, ("", ""))
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            self.add(table, name="EXPORT_PRODUCT_VERSION", value=product)
            self.add(table, name="EXPORT_SCHEMA_VERSION", value=version)
        self.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=scenario.epoch)
        self.add(
            "TARGET_INFO_SYSTEM_ENV", globalVid=_MACHINE, devStateName="Local (CLI)", name="Hostname", nameEnum=619, value=scenario.host
        )
        self.add("ANALYSIS_DETAILS", globalVid=_MACHINE, duration=last, startTime=0, stopTime=last)
        for process, rank in scenario.ranks.items():
            tid = next((self.who(e) for e in scenario.events if e.process == process), _MACHINE | process << 24 | process)
            self.add("PROCESSES", globalPid=_MACHINE | process << 24, pid=process, name=f"/usr/bin/{scenario.name}")
            self.add("MPI_RANKS", globalTid=tid, rank=rank)
            self._name_rank(tid, rank)
        self._gpus()

    def _name_rank(self, tid: int, rank: int) -> None:
        if self.generation == "2020":
            self.add("ThreadNames", nameId=self.string(f"MPI Rank {rank}"), priority=0, globalTid=tid)
        if self.generation == "2022":
            self.add("NVTX_EVENTS", start=0, eventType=39, text=f"MPI Rank {rank}", globalTid=tid, domainId=1)
        if self.generation in ("2020", "2022"):
            self.add("NVTX_EVENTS", start=0, eventType=75, text="MPI", globalTid=tid, domainId=1)

    def _gpus(self) -> None:
        for number, (name, uuid) in self.scenario.devices.items():
            bus = f"0000:{number + 1:02x}:00.0"
            if self.generation != "2026":
                self.add(
                    "TARGET_INFO_GPU",
                    vmId=_MACHINE,
                    id=number,
                    deviceId=number,
                    name=name,
                    busLocation=bus,
                    isDiscrete=1,
                    smCount=132,
                    uuid=uuid,
                )
            self.add("TARGET_INFO_CUDA_GPU", vmId=_MACHINE, name=name, numMultiprocessors=132)
        for process, seen in self._seen.items():
            for ordinal, number in enumerate(seen):
                uuid = self.scenario.devices.get(number, ("", ""))[1]
                self.add("TARGET_INFO_CUDA_DEVICE", gpuId=number, cudaId=ordinal, pid=process, uuid=uuid, numMultiprocessors=132)
                self.add(
                    "TARGET_INFO_CUDA_CONTEXT_INFO",
                    nullStreamId=7,
                    processId=process,
                    deviceId=ordinal if self.new else number,
                    contextId=1,
                )

    def save(self, path: Path) -> None:
        """Write the file; a table without rows is not made, but TARGET_INFO_GPU and the payloads' are."""
        always = ("TARGET_INFO_GPU", *(t for t in self.columns if t.startswith("NVTX_PAYLOAD") and self.generation == "newest"))
        self.rows["StringIds"] = [{"id": number, "value": text} for text, number in self._strings.items()]
        connection = sqlite3.connect(path)
        try:
            for table, names in self.columns.items():
                if self.rows[table] or table in always:
                    self._fill(
                        connection, table + (_SUFFIXES.get(table, "") if self.generation == "newest" else ""), names, self.rows[table]
                    )
            connection.commit()
        finally:
            connection.close()

    def _fill(self, connection: sqlite3.Connection, table: str, names: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
        connection.execute(create(table, names))
        marks = ", ".join("?" * len(names))
        connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', ([row.get(name) for name in names] for row in rows))  # noqa: S608
