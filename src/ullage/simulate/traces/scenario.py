"""A run with known events: what a recorder would have seen, before any tool wrote it down in its own form.

A scenario is written as Kineto JSON, as Nsight Systems SQLite and as TALP JSON by the modules beside this one; the answer
(`answers.py`) is computed from the same events by brute force, never by the code under test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ullage.recording import Device, Mode, Process, Recording
from ullage.tables import INTERVALS, intervals

EPOCH = 1_767_225_600_000_000_000  # 2026-01-01 UTC, in ns: when scenarios begin
BATCH = 1 << 16  # events to a record batch


@dataclass(frozen=True, slots=True)
class ScenarioEvent:
    """One thing that happened, from `start` to `end` in ns since the scenario's begin; the fields are those of `tables.INTERVALS`.

    Of kind `host` is work on a CPU that no reader passes on: it only shows that the process lived then (a PyTorch operator in
    Kineto, an OS call in Nsight Systems).
    """

    start: int
    end: int
    kind: str
    name: str
    process: int
    thread: int | None = None
    device: int | None = None
    stream: int | None = None
    correlation: int | None = None
    call: str | None = None
    bytes: int | None = None
    operation: str | None = None
    group: str | None = None
    sequence: int | None = None
    members: int | None = None
    product: str | None = None
    blocks: int | None = None
    threads: int | None = None
    registers: int | None = None
    shared: int | None = None
    tokens: int | None = None
    off: int | None = None
    awaited_stream: int | None = None
    awaited: int | None = None


@dataclass(frozen=True)
class Scenario:
    """A run: events, `ranks` by process, and devices by their number in the run (name, UUID). One machine, called `host`.

    A file of one rank (Kineto writes one file a rank) holds that process' events and those of the devices it put there.
    """

    name: str
    events: tuple[ScenarioEvent, ...]
    ranks: dict[int, int]
    devices: dict[int, tuple[str, str]] = field(default_factory=dict)
    host: str = "node-1"
    epoch: int = EPOCH
    prefers: Mode = "talp"

    def of(self, process: int) -> tuple[ScenarioEvent, ...]:
        """Return one process' events, those on devices included."""
        return tuple(e for e in self.events if e.process == process)

    def recording(self) -> Recording:
        """Return what a perfect recorder would say beside the events."""
        found = Recording(self.name, source="scenario", host=self.host, clock="utc", prefers=self.prefers, ranks=len(self.ranks))
        found.processes = {p: Process(rank=rank, host=self.host) for p, rank in self.ranks.items()}
        found.devices = {number: Device(name, key) for number, (name, key) in self.devices.items()}
        for event in self.events:
            if event.kind == "host":
                found.saw(event.process, self.epoch + event.start, self.epoch + event.end)
        return found

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the events as a perfect reader would, on the clock since 1970."""
        rows = [e for e in self.events if e.kind != "host"]
        for first in range(0, len(rows), BATCH):
            some = rows[first : first + BATCH]
            columns = {name: [getattr(row, name) for row in some] for name in INTERVALS.names}
            for edge in ("start", "end"):
                columns[edge] = [self.epoch + moment for moment in columns[edge]]
            yield intervals(columns)


class ProcessScenario:
    """Writes down what one process does: host calls and what they put on its device, tied by a number as CUPTI does."""

    def __init__(self, process: int, device: int) -> None:
        self.process, self.device = process, device
        self.events: list[ScenarioEvent] = []
        self._last = 0

    def host(self, start: int, end: int, kind: str, name: str, thread: int, **known: Any) -> None:
        """Write down something on a host thread."""
        self.events.append(ScenarioEvent(start, end, kind, name, self.process, thread=thread, **known))

    def call(self, start: int, end: int, name: str, does: str, thread: int) -> int:
        """Write down a call of the GPU's interface and return its correlation number."""
        self._last += 1
        self.host(start, end, "api", name, thread, call=does, correlation=self._last)
        return self._last

    def work(self, start: int, end: int, kind: str, name: str, stream: int, correlation: int, **known: Any) -> None:
        """Write down something on the device, put there by the call with that correlation number."""
        self.events.append(
            ScenarioEvent(start, end, kind, name, self.process, device=self.device, stream=stream, correlation=correlation, **known)
        )
