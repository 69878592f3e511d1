"""Scenarios as recordings: a file a process, as the recorder inside it writes them with any known release of CUPTI.

What is peculiar to them: a process numbers the devices that it sees from 0, and a device record says which GPU each is; a call of the
runtime has the driver's call inside it, under one number; names are addresses, told before the buffer that needs them; the clocks of
CUPTI and of the host count from different moments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ullage.cupti.chunks import HOST, ChunkType, ChunkWriter, HostKind, names
from ullage.cupti.kinds import ActivityKind, call_name
from ullage.cupti.layouts import layouts
from ullage.cupti.releases import release
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent

AHEAD = 777_000_000_000  # ns by which CUPTI's clock is ahead of the scenario's, …
UPTIME = 5_000_000_000_000  # … and the monotonic one
BOOT = "6d616368-696e-4520-8f6f-6e6520626f6f"  # of the scenario's machine
ADDRESS = 0x7F00_0000_0000  # of the first name
PER_BUFFER = 500  # events
_COPIES = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "PtoP": 10}
_PEER = 10
_CALLS = 3000  # more than the runtime or the driver has
_SHOWS_NO_LIFE = ("region", "step", "function", "module", "overhead", "off", "lost")


def write(
    scenario: Scenario,
    folder: Path,
    *,
    version: int = 130001,
    regions: Literal["host", "nvtx"] = "host",
    ends: bool = True,
    per_buffer: int = PER_BUFFER,
) -> list[Path]:
    """Write a scenario as recordings in a folder, and return where they are; existing files are replaced.

    `version` is what cuptiGetVersion says. Regions are those of `ullage.region`, or NVTX ranges. Without `ends` the programs were
    killed after the last event. `parallel` and `off` events can't be told.
    """
    paths = []
    for process in scenario.ranks:
        path = folder / f"{scenario.host}-{process}-1.ullage"
        path.unlink(missing_ok=True)
        writer = ChunkWriter(path)
        try:
            _Process(scenario, process, version, regions).write(writer, ends, per_buffer)
        finally:
            writer.close()
        paths.append(path)
    return paths


class _Process:
    """What one process writes."""

    def __init__(self, scenario: Scenario, process: int, version: int, regions: str) -> None:
        self.scenario, self.process, self.version, self.regions = scenario, process, version, regions
        self.layouts = layouts(release(version))
        self.events = scenario.of(process)
        self.streams_awaited = {(e.process, e.correlation) for e in self.events if e.kind == "event"}
        self.seen = sorted({e.device for e in self.events if e.device is not None})
        self.addresses: dict[str, int] = {}
        self.host_names: dict[str, int] = {}
        self.marks = 0

    def write(self, writer: ChunkWriter, ends: bool, per_buffer: int) -> None:
        first, last = self.lived()
        writer.add(ChunkType.INFO, self.info())
        writer.add(ChunkType.CLOCKS, self.clocks(first))
        self.buffer(writer, [self.device(ordinal) for ordinal in range(len(self.seen))])
        for at in range(0, len(self.events), per_buffer):
            some = self.events[at : at + per_buffer]
            self.host(writer, [row for event in some for row in self.host_rows(event)])
            self.buffer(writer, [record for event in some for record in self.records(event)])
        writer.add(ChunkType.CLOCKS, self.clocks(last))
        if ends:
            writer.add(ChunkType.END, {"ended": self.scenario.epoch + last})

    def lived(self) -> tuple[int, int]:
        """From when to when the recorder was there: as long as the process did anything but mark regions."""
        did = [e for e in self.events if e.kind not in _SHOWS_NO_LIFE] or [e for e in self.events if e.kind in ("region", "step")]
        moments = [moment for e in did for moment in (e.start, e.end)]
        return (min(moments), max(moments)) if moments else (0, 0)

    def info(self) -> dict[str, Any]:
        kinds = dict.fromkeys(("1", "2", "4", "5", "8", "10", "12", "17", "38", "51"), 0)
        told = {
            "host": self.scenario.host,
            "boot": BOOT,
            "pid": self.process,
            "rank": self.scenario.ranks[self.process],
            "cupti": self.version,
        }
        return told | {"ranks": len(self.scenario.ranks), "program": [f"/usr/bin/{self.scenario.name}"], "kinds": kinds}

    def clocks(self, moment: int) -> bytes:
        return struct.pack("<QQQ", moment + AHEAD, self.scenario.epoch + moment, moment + UPTIME)

    def buffer(self, writer: ChunkWriter, records: list[bytes]) -> None:
        new = {address: text for text, address in self.addresses.items()}
        if new:
            writer.add(ChunkType.NAMES, names(new))
        if records:
            writer.add(ChunkType.BUFFER, struct.pack("<QQ", 1, 0) + b"".join(records))

    def host(self, writer: ChunkWriter, rows: list[tuple[int, ...]]) -> None:
        if rows:
            writer.add(ChunkType.NAMES, names({number: text for text, number in self.host_names.items()}), flags=1)
            writer.add(ChunkType.HOST, np.array(rows, HOST).tobytes())

    def record(self, kind: ActivityKind, **values: Any) -> bytes:
        """Return one record; what this release doesn't have of it is left out."""
        layout = self.layouts.of(kind)
        assert layout is not None
        made = np.zeros((), layout.dtype)
        for name, value in {"kind": int(kind), **values}.items():
            if name in (layout.dtype.names or ()):
                made[name] = value
        return made.tobytes()

    def address(self, text: str) -> int:
        return self.addresses.setdefault(text, ADDRESS + 64 * len(self.addresses))

    def device(self, ordinal: int) -> bytes:
        name, uuid = self.scenario.devices.get(self.seen[ordinal], ("", ""))
        digits = bytes.fromhex(uuid.removeprefix("GPU-").replace("-", "")) or bytes(16)
        told = {"id": ordinal, "name": self.address(name), "uuid.bytes": np.frombuffer(digits, "i1"), "numMultiprocessors": 132}
        return self.record(ActivityKind.DEVICE, **told)

    def times(self, event: ScenarioEvent) -> dict[str, int]:
        return {"start": event.start + AHEAD, "end": event.end + AHEAD}

    def on_device(self, event: ScenarioEvent) -> dict[str, Any]:
        number = self.seen.index(event.device) if event.device is not None else 0
        tie = {"correlationId": event.correlation or 0, "streamId": event.stream or 0, "contextId": 1}
        return {**self.times(event), **tie, "deviceId": number, "bytes": event.bytes or 0}

    def records(self, event: ScenarioEvent) -> Iterator[bytes]:
        """Yield what CUPTI writes of an event."""
        make = getattr(self, f"_{event.kind}", None)
        if make is not None:
            yield from make(event)

    def _kernel(self, event: ScenarioEvent) -> Iterator[bytes]:
        grid = {"gridX": -1 if event.blocks is None else event.blocks, "gridY": 1, "gridZ": 1}
        block = {"blockX": -1 if event.threads is None else event.threads, "blockY": 1, "blockZ": 1}
        room = {} if event.registers is None else {"registersPerThread": event.registers, "staticSharedMemory": event.shared}
        yield self.record(ActivityKind.CONCURRENT_KERNEL, **self.on_device(event), **grid, **block, **room, name=self.address(event.name))

    _collective = _kernel

    def _lost(self, event: ScenarioEvent) -> Iterator[bytes]:
        told = self.on_device(event) | {"end": event.start + AHEAD - 1}
        yield self.record(ActivityKind.CONCURRENT_KERNEL, **told, name=self.address(event.name))

    def _memcpy(self, event: ScenarioEvent) -> Iterator[bytes]:
        copy = next((number for word, number in _COPIES.items() if word in event.name), 0)
        told = self.on_device(event)
        peers = {"srcDeviceId": told["deviceId"], "dstDeviceId": told["deviceId"] + 1} if copy == _PEER else {}
        yield self.record(ActivityKind.MEMCPY2 if copy == _PEER else ActivityKind.MEMCPY, **told, **peers, copyKind=copy)

    def _memset(self, event: ScenarioEvent) -> Iterator[bytes]:
        yield self.record(ActivityKind.MEMSET, **self.on_device(event))

    def _graph(self, event: ScenarioEvent) -> Iterator[bytes]:
        yield self.record(ActivityKind.GRAPH_TRACE, **self.on_device(event), graphId=1)

    def _api(self, event: ScenarioEvent) -> Iterator[bytes]:
        driver = event.name.startswith("cu") and not event.name.startswith("cuda")
        who = {"processId": self.process, "threadId": event.thread or self.process, "correlationId": event.correlation or 0}
        if event.call == "launch" and not driver:
            quarter = (event.end - event.start) // 4
            inner = {"start": event.start + quarter + AHEAD, "end": event.end - quarter + AHEAD}
            yield self.record(ActivityKind.DRIVER, **inner, **who, cbid=number("cuLaunchKernel", driver=True))
        yield self.record(
            ActivityKind.DRIVER if driver else ActivityKind.RUNTIME, **self.times(event), **who, cbid=number(event.name, driver=driver)
        )
        if event.call == "sync" and (event.process, event.correlation) not in self.streams_awaited:
            yield self.record(ActivityKind.SYNCHRONIZATION, **self.times(event), correlationId=event.correlation or 0, type=4)

    def _event(self, event: ScenarioEvent) -> Iterator[bytes]:
        if event.awaited is None and event.stream is None:
            tie = {"correlationId": event.correlation or 0, "streamId": event.awaited_stream}
            yield self.record(ActivityKind.SYNCHRONIZATION, **self.times(event), **tie, type=3)

    def _overhead(self, event: ScenarioEvent) -> Iterator[bytes]:
        thread = {"objectKind": 2, "objectId.pt.threadId": event.thread or self.process}
        yield self.record(ActivityKind.OVERHEAD, **self.times(event), **thread, overheadKind=1 << 16)

    def _region(self, event: ScenarioEvent) -> Iterator[bytes]:
        if self.regions != "nvtx":
            return
        self.marks += 1
        told = {"id": self.marks, "objectKind": 2, "objectId.pt.threadId": event.thread or self.process}
        yield self.record(ActivityKind.MARKER, **told, flags=4, timestamp=event.end + AHEAD)  # CUPTI promises no order
        yield self.record(ActivityKind.MARKER, **told, flags=2, timestamp=event.start + AHEAD, name=self.address(event.name))

    _step = _region

    def host_rows(self, event: ScenarioEvent) -> Iterator[tuple[int, ...]]:
        """Yield what the recorder itself writes of an event."""
        kind = {"mpi": HostKind.MPI, "region": HostKind.REGION, "step": HostKind.REGION}.get(event.kind)
        if kind is None or (kind == HostKind.REGION and self.regions == "nvtx"):
            return
        self.marks += kind == HostKind.REGION
        name = self.host_names.setdefault(event.name, len(self.host_names) + 1)
        start, end = event.start + UPTIME, event.end + UPTIME
        yield start, end, event.thread or self.process, name, kind, 0, self.marks, event.bytes or 0


@lru_cache(maxsize=1000)
def number(name: str, *, driver: bool) -> int:
    """Return the number of a call, by its name with or without the version; 0 for one that there isn't.

    >>> number("cuLaunchKernel", driver=True) > 0, number("cudaFly", driver=False)
    (True, 0)
    """
    for cbid in range(1, _CALLS):
        called = call_name(driver, cbid)
        if called == name or called.startswith(f"{name}_v"):
            return cbid
    return 0
