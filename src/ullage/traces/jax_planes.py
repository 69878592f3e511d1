"""What XLA's profiler records: planes (a host, a device), lines on them (a thread, a stream), events on these.

The same layout stands in the trace viewer's JSON (planes are processes, lines threads) and in xplane files. On a GPU what ran are the
lines `Stream #N(…)`; the others (`XLA Modules`, `XLA Ops`, `Steps`, …) are made from them afterwards and would count it twice. On a TPU
what ran is the line `XLA Ops`. The host's plane has calls of the GPU's interface by their names, steps by `step_num`, and Python's
functions behind a `$`.

Source: github.com/openxla/xla, xla/tsl/profiler/utils/xplane_schema.cc and xla/backends/profiler/gpu/cupti_collector.cc.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ullage.errors import UllageError, harmless
from ullage.recording import Device, Process, Recording
from ullage.traces.calls import call, is_collective, operation
from ullage.traces.row_batches import Row, whole

HOST = "/host:CPU"
_DEVICE = re.compile(r"/device:(GPU|TPU):(\d+)\b\s*(.*)")
_STREAM = re.compile(r"Stream #(\d+)")
_CALL = re.compile(r"(cu|cuda|hip)[A-Z]\w*$")
_HLO_COLLECTIVE = re.compile(r"(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|collective-broadcast)\b")
_SIZE = re.compile(r"\bsize:(\d+)")
_SHAPE = re.compile(r"\bgrid:(\d+),(\d+),(\d+) block:(\d+),(\d+),(\d+)")
_ALLOCATION = ("MemoryAlloc", "MemoryFree", "memalloc", "memfree")


@dataclass(frozen=True)
class TracePlane:
    """A plane: a `process` on a host, or device `device` of one; `chip` is GPU, TPU, or empty on a host."""

    process: int | None = None
    device: int | None = None
    chip: str = ""
    name: str = ""


def plane(name: str, number: int) -> TracePlane | None:
    """Return what a plane is by its name; `number` is the process number of a host's. None for planes that hold nothing that ran.

    >>> plane("/device:GPU:3", 1).device, plane("/host:CPU", 701).process, plane("Task Environment", 5)
    (3, 701, None)
    """
    if HOST in name:
        return TracePlane(process=number)
    found = _DEVICE.search(name)
    return None if found is None else TracePlane(device=int(found[2]), chip=found[1], name=found[3])


def stream(of: TracePlane, line: str) -> int | None:
    """Return the stream that a device's line is, None for lines that repeat what ran."""
    if of.chip == "TPU":
        return 0 if line == "XLA Ops" else None
    found = _STREAM.match(line)
    return None if found is None else int(found[1])


def on_device(of: TracePlane, line: int, name: str, start: int, end: int, args: Mapping[str, Any]) -> Row | None:
    """Return the row of an event that ran on a device, None for an allocation: it occupies nobody."""
    if name.startswith(_ALLOCATION):
        return None
    row: Row = {"start": start, "end": end, "name": name, "device": of.device, "stream": line}
    if (correlation := whole(args.get("correlation_id"))) is not None:
        row["correlation"] = correlation
    if (copy := args.get("memcpy_details")) is not None or name.startswith("Memcpy"):
        return row | {"kind": "memcpy", "bytes": _number(_SIZE, copy)}
    if name.lower().startswith("memset"):
        return row | {"kind": "memset", "bytes": _number(_SIZE, args.get("memset_details") or args.get("Memset_details"))}
    if (of.chip == "TPU" and _HLO_COLLECTIVE.match(name)) or is_collective(name):
        return row | {"kind": "collective", "operation": operation(name.replace("-", ""))}
    shape = _SHAPE.search(str(args.get("kernel_details", "")))
    sizes = [int(size) for size in shape.groups()] if shape else []
    known = {"blocks": sizes[0] * sizes[1] * sizes[2], "threads": sizes[3] * sizes[4] * sizes[5]} if sizes else {}
    return row | {"kind": "kernel"} | {word: size for word, size in known.items() if size < 2**31}


def on_host(process: int, thread: int, name: str, start: int, end: int, args: Mapping[str, Any]) -> Row | None:
    """Return the row of an event on a host's thread: a call of the GPU's interface or a step; None for all else."""
    row: Row = {"start": start, "end": end, "process": process, "thread": thread}
    if _CALL.match(name):
        return row | {"kind": "api", "name": name, "call": call(name), "correlation": whole(args.get("correlation_id"))}
    if (step := args.get("step_num")) is not None:
        return row | {"kind": "step", "name": f"{name} {step}"}
    return None


class HostLives:
    """When hosts were seen to live: by what they did; where that is nothing, by their Python functions. Steps only frame it."""

    def __init__(self) -> None:
        self._did: dict[int, tuple[int, int]] = {}
        self._traced: dict[int, tuple[int, int]] = {}
        self.calling: set[int] = set()

    def saw(self, process: int, name: str, start: int, end: int, row: Row | None) -> None:
        """Note an event of a host, and the row that was made of it."""
        if row is not None and row["kind"] == "step":
            return
        if row is not None and row["kind"] == "api":
            self.calling.add(process)
        seen = self._traced if name.startswith("$") else self._did
        first, last = seen.get(process, (start, end))
        seen[process] = min(first, start), max(last, end)

    def of(self, process: int) -> tuple[int, int] | None:
        """Return from when to when a process lived."""
        return self._did.get(process, self._traced.get(process))


def describe(recording: Recording, planes: list[TracePlane], lives: HostLives, place: str) -> None:
    """Say who is who. Only a host that calls the GPU's interface is a process: of another nobody knows when it waited."""
    for found in planes:
        if found.device is not None:
            recording.devices[found.device] = Device(harmless(found.name or found.chip, 200))
    if not recording.devices:
        raise UllageError(
            f"{place} is a JAX profile without a GPU or TPU: nothing in it ran on a device",
            "a program on the CPU backend has none; with a GPU check that jax.devices() lists it",
        )
    for process in lives.calling:
        recording.processes[process] = Process(None, HOST, recording.host)
        if (life := lives.of(process)) is not None:
            recording.saw(process, *life)


def _number(pattern: re.Pattern[str], text: Any) -> int | None:
    found = pattern.search(str(text))
    return whole(found[1]) if found else None
