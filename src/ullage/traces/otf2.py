"""OTF2 archives (Score-P, and other tools that write them): the anchor file `traces.otf2`, with the definitions and events beside it.

A location group of sort PROCESS is a process, its CPU threads are host threads. A stream of an accelerator belongs to the process that made
its context; `CUDA[0:7]` is stream 7 of device 0. On a host, regions of MPI are communication, those of CUDA and HIP the GPU's interface,
those of the user are told by name; all else is computing. On a stream, regions are kernels or copies, and operations on remote memory (RMA)
are copies with their bytes. OpenMP's waiting is not told apart.

Read by the library `otf2` of the format's makers (`pip install 'ullage[otf2]'`). Source: OTF2 3.1 documentation, event record types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ullage.errors import UllageError, harmless, missing_extra
from ullage.problems import Problems
from ullage.recording import Device, Process, Recording
from ullage.traces.calls import call, is_collective, operation
from ullage.traces.row_batches import Row, batches
from ullage.traces.trace import File, TraceOptions, trace

MAGIC = b"\x03BOTF2"
_RANK = re.compile(r"\brank\s*(\d+)", re.IGNORECASE)
_STREAM = re.compile(r"\[(\d+):(\d+)\]")
_INIT, _FINALIZE = ("MPI_Init", "MPI_Init_thread"), ("MPI_Finalize",)
_INTERFACES = ("CUDA", "HIP", "OPENCL", "OPENACC", "OPENMP_TARGET")
_IDLE = re.compile(r"\bIDLE\b")


@dataclass
class _Lane:
    """A location: its process, and its device and stream where it is one of an accelerator; what is open on it."""

    process: int
    thread: int
    device: int | None = None
    stream: int = 0
    open: list[tuple[Any, int]] = field(default_factory=list)
    copies: dict[Any, tuple[int, int]] = field(default_factory=dict)


@dataclass
class _Archive:
    """Who is who in an archive, its clock, and what could not be used."""

    lanes: dict[Any, _Lane]
    recording: Recording
    resolution: int
    offset: int
    loose: int = 0

    def moment(self, ticks: int) -> int:
        """Return ns since the archive's first event."""
        return (ticks - self.offset) * 10**9 // self.resolution


@trace(
    "otf2",
    recognise=lambda file: 2 if file.head.startswith(MAGIC) else 0,
    reads="OTF2 archives (traces.otf2 of Score-P)",
    beside=(".def", ".evt"),
)
def read(file: File, recording: Recording, options: TraceOptions, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield what ran on streams, calls of MPI and of the GPU's interface, and the user's regions; ns since the archive's first event.

    Raises UllageError without the library, and for an archive that can't be opened or read from its start.
    """
    try:
        import otf2
    except ImportError as error:
        raise missing_extra("otf2", "otf2", "reading OTF2 archives") from error
    try:
        opened = otf2.reader.open(str(file.path))
    except Exception as error:  # the library raises sorts of its own, one for each code
        raise UllageError(
            f"{file.name} can't be opened as an OTF2 archive: {harmless(str(error))}",
            "the files beside it belong to it: keep traces.def and the folder traces/ where they are",
        ) from error
    with opened as whole:
        archive = _described(whole, recording)
        yield from batches(_rows(file, whole, archive, options), recording, problems)
    problems.drop("ends of regions that never began", archive.loose, file.name)
    unended = sum(len(lane.open) for lane in archive.lanes.values())
    problems.repair("regions without an end, taken to last until the archive's last event", unended, file.name)


def _described(whole: Any, recording: Recording) -> _Archive:
    """Say who is who."""
    from otf2.enums import LocationGroupType, LocationType

    recording.source, recording.covers = "OTF2", "run"
    groups = {group: number for number, group in enumerate(whole.definitions.location_groups)}
    hosts = [group for group in groups if group.location_group_type != LocationGroupType.ACCELERATOR]
    for group in hosts:
        told = _RANK.search(group.name)
        node = group.system_tree_parent.name if group.system_tree_parent is not None else ""
        rank = int(told[1]) if told is not None else None if len(hosts) == 1 else hosts.index(group)
        recording.processes[groups[group]] = Process(rank, harmless(group.name, 200), harmless(node, 200))
    recording.ranks = len(hosts)
    lanes: dict[Any, _Lane] = {}
    devices: dict[tuple[int, Any], int] = {}
    for thread, location in enumerate(whole.definitions.locations):
        owner = location.group
        if location.type == LocationType.CPU_THREAD:
            lanes[location] = _Lane(groups[owner], thread)
        elif location.type == LocationType.ACCELERATOR_STREAM:
            process = groups[getattr(owner, "creating_location_group", None) or owner]
            name = _STREAM.search(location.name)
            number = devices.setdefault((process, int(name[1]) if name is not None else owner), len(devices))
            lanes[location] = _Lane(process, thread, number, int(name[2]) if name is not None else thread)
            recording.devices[number] = Device(
                harmless(owner.name if owner.location_group_type == LocationGroupType.ACCELERATOR else "", 200)
            )
    clock = whole.definitions.clock_properties
    recording.resolution = max(10**9 // max(clock.timer_resolution, 1), 1)
    return _Archive(lanes, recording, max(clock.timer_resolution, 1), clock.global_offset)


def _rows(file: File, whole: Any, archive: _Archive, options: TraceOptions) -> Iterator[Row]:
    did: dict[int, tuple[int, int]] = {}
    framed: dict[int, tuple[int, int]] = {}
    last = 0
    for location, event in _events(file, whole, archive, options):
        lane = archive.lanes.get(location)
        if lane is None:
            continue
        now = last = archive.moment(event.time)
        if lane.device is None:
            seen = framed if _is_user(event) else did  # the user's regions only frame what a process did
            seen[lane.process] = seen.get(lane.process, (now, now))[0], now
        if (row := _row(lane, event, now, archive)) is not None:
            yield row
    for lane in archive.lanes.values():
        yield from filter(None, (_ended(lane, region, start, last, archive) for region, start in lane.open))
    for process, (first, end) in (framed | did).items():
        archive.recording.saw(process, first, end)


def _events(file: File, whole: Any, archive: _Archive, options: TraceOptions) -> Iterator[tuple[Any, Any]]:
    """Yield locations and events in the order of time; of a damaged archive what comes before the damage."""
    count, coming = 0, iter(whole.events)
    while True:
        try:
            found = next(coming, None)
        except Exception as error:  # the library raises sorts of its own, one for each code
            archive.recording.cut = f"{file.name} ends early: {harmless(str(error))}"
            if options.strict or not count:
                raise UllageError(archive.recording.cut, "copy the archive again; without --strict what comes before is used") from error
            return
        if found is None:
            return
        yield found
        count += 1
        if count % 500_000 == 0:
            options.progress(f"{count:,} events")


def _row(lane: _Lane, event: Any, now: int, archive: _Archive) -> Row | None:
    """Return the row that an event ends, None where it ends none."""
    match type(event).__name__:
        case "Enter":
            lane.open.append((event.region, now))
        case "Leave":
            for at in range(len(lane.open) - 1, -1, -1):
                if lane.open[at][0] == event.region:
                    region, start = lane.open.pop(at)
                    return _ended(lane, region, start, now, archive)
            archive.loose += 1
        case "RmaPut" | "RmaGet":
            lane.copies[event.matching_id] = now, event.bytes
        case "RmaOpCompleteBlocking" | "RmaOpCompleteNonBlocking" if event.matching_id in lane.copies:
            start, size = lane.copies.pop(event.matching_id)
            if lane.device is not None:
                return _place(lane, start, now) | {"kind": "memcpy", "name": "Memcpy", "bytes": size}
    return None


def _place(lane: _Lane, start: int, end: int) -> Row:
    if lane.device is None:
        return {"start": start, "end": end, "process": lane.process, "thread": lane.thread}
    return {"start": start, "end": end, "process": lane.process, "device": lane.device, "stream": lane.stream}


def _ended(lane: _Lane, region: Any, start: int, end: int, archive: _Archive) -> Row | None:
    """Return the row of a region that ended, None for one that says nothing."""
    name, row = region.name, _place(lane, start, end)
    if lane.device is not None:
        if _IDLE.search(name):
            return None
        if _word(region.region_role) == "DATA_TRANSFER" or name.lower().startswith("memcpy"):
            return row | {"kind": "memcpy", "name": name}
        if name.lower().startswith("memset"):
            return row | {"kind": "memset", "name": name}
        collective: Row = {"kind": "collective", "operation": operation(name)} if is_collective(name) else {"kind": "kernel"}
        return row | collective | {"name": name}
    paradigm = _word(region.paradigm)
    if paradigm == "MPI":
        return _communicated(name, row, archive)
    if paradigm in _INTERFACES:
        return row | {"kind": "api", "name": name, "call": call(name)}
    return row | {"kind": "region", "name": name} if paradigm == "USER" else None


def _is_user(event: Any) -> bool:
    return _word(getattr(getattr(event, "region", None), "paradigm", "")) == "USER"


def _word(value: Any) -> str:
    """Return the bare name of one of the library's enumerated values."""
    return str(value).rpartition(".")[2]


def _communicated(name: str, row: Row, archive: _Archive) -> Row | None:
    """Return the row of a call of MPI; MPI_Init and MPI_Finalize are the edges of the run."""
    if name in _INIT or name in _FINALIZE:
        archive.recording.clocked(row["process"], row["end"] if name in _INIT else None, row["start"] if name in _FINALIZE else None)
        return None
    return row | {"kind": "mpi", "name": name}
