"""What rocprofv3 records, whichever form it writes: dispatches, copies, calls of HIP and HSA, ROCTx ranges. Times are ns since the boot.

Calls of HIP are the GPU's interface; those of HSA lie beneath them and count only where a program calls no HIP (OpenMP offloading).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.recording import Device, Process, Recording
from ullage.traces.calls import call, is_collective, operation
from ullage.traces.row_batches import Row

GPU = 2  # an agent's type
_SUFFIX = ".kd"  # a kernel's descriptor, by which old releases name it


@dataclass(frozen=True)
class Agent:
    """A CPU or GPU: its number among those of its sort."""

    gpu: bool
    number: int
    name: str = ""
    uuid: int | str | None = None


@dataclass
class RocprofFacts:
    """What is counted while rows are made: when each process lived, its calls of HSA (kept until it is known whether they count)."""

    place: str
    recording: Recording
    problems: Problems
    beneath: list[Row] = field(default_factory=list)
    hip: bool = False

    def describe(self, agents: Iterable[Agent], host: str) -> None:
        """Name the devices."""
        self.recording.source, self.recording.prefers, self.recording.covers = "rocprofv3", "ai", "process"
        self.recording.host = harmless(host, 200)
        for agent in agents:
            if agent.gpu:
                key = f"{self.recording.host}/{agent.uuid}" if agent.uuid and host else ""
                self.recording.devices[agent.number] = Device(harmless(agent.name, 200), harmless(key, 300))

    def process(self, number: int, name: str = "") -> None:
        """Name a process."""
        self.recording.processes[number] = Process(None, harmless(name, 200), self.recording.host)

    def work(self, row: Row, agent: Agent | None) -> Row | None:
        """Return a row of a device, with its agent; None for one that no device did. A row whose end can't be is lost, not idle time."""
        if agent is None or not agent.gpu:
            self.problems.drop("dispatches and copies of devices that nothing names", 1, self.place)
            self.recording.untimed += 1
            return None
        row["device"] = agent.number
        if not 0 < row["start"] <= row["end"]:
            self.problems.drop("device events that end at an impossible time", 1, self.place)
            return row | {"kind": "lost", "end": row["start"]}
        return row

    def called(self, row: Row, category: str, name: str) -> Row | None:
        """Return the row of a call or range on the host by its category; None for what says nothing, and for HSA's, which are kept."""
        if not row["start"] <= row["end"]:
            self.problems.drop("events on hosts at an impossible time", 1, self.place)
            return None
        if category.startswith("MARKER"):
            return row | {"kind": "region", "name": name}
        if not category.startswith(("HIP", "HSA")):
            return None
        self.recording.saw(row["process"], row["start"], row["end"])
        row |= {"kind": "api", "name": name, "call": call(name)}
        if category.startswith("HSA"):
            if not self.hip:
                self.beneath.append(row)
            return None
        self.hip = True
        self.beneath.clear()
        return row

    def rest(self) -> Iterator[Row]:
        """Yield the calls of HSA where they count."""
        yield from () if self.hip else self.beneath

    def check(self) -> None:
        """Raise UllageError where there is no GPU."""
        if not self.recording.devices:
            raise UllageError(
                f"{self.place} tells of no GPU", "record with rocprofv3 --sys-trace, or --kernel-trace --hip-trace --memory-copy-trace"
            )


def kernel(name: str, grid: tuple[int, int, int], block: tuple[int, int, int]) -> Row:
    """Return what a dispatch is by its name and sizes; `grid` counts threads, as HSA does.

    >>> kernel("copy.kd", (1024, 1, 1), (256, 1, 1))["blocks"]
    4
    """
    plain = name.removesuffix(_SUFFIX)
    blocks = threads = 1
    for whole, part in zip(grid, block, strict=True):
        blocks, threads = blocks * -(-max(whole, 1) // max(part, 1)), threads * max(part, 1)
    row: Row = {"kind": "kernel", "name": plain, "blocks": min(blocks, 2**62), "threads": min(threads, 2**31 - 1)}
    return row | {"kind": "collective", "operation": operation(plain)} if is_collective(plain) else row


def where_copied(source: Agent | None, target: Agent | None) -> Agent | None:
    """Return the GPU on which a copy counts: the one that is written, else the one that is read."""
    return next((agent for agent in (target, source) if agent is not None and agent.gpu), None)
