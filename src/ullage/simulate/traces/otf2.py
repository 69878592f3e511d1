"""Scenarios as OTF2 archives, as Score-P writes them: one archive a run, a location group a process and one for each of its devices.

Needs the library `otf2`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ullage.errors import missing_extra
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent

BEGIN = 1_000_000  # ticks before the scenario begins
_PARADIGMS = {"api": "CUDA", "mpi": "MPI", "region": "USER", "host": "COMPILER", "kernel": "CUDA", "collective": "CUDA", "memset": "CUDA"}


def write(scenario: Scenario, folder: Path, *, resolution: int = 10**9) -> list[Path]:
    """Write an archive into a folder that is not there yet, and return its anchor file.

    `resolution` is ticks a second. Whole graphs, steps, and what Score-P does not know (correlation, launch geometry) are not recorded.
    """
    try:
        import otf2
    except ImportError as error:
        raise missing_extra("otf2", "otf2", "writing OTF2 archives") from error
    with otf2.writer.open(str(folder), timer_resolution=resolution) as archive:
        made = _Definitions(archive, scenario)
        for (process, place), events in sorted(_by_place(scenario).items()):
            writer = archive.event_writer_from_location(made.location(process, place))
            for time, what in _written(events, made, writer):
                what(BEGIN + time * resolution // 10**9)
    return [folder / "traces.otf2"]


def _by_place(scenario: Scenario) -> dict[tuple[int, tuple[int, int]], list[ScenarioEvent]]:
    """Return the events by process and place: (-1, thread), or (device, stream)."""
    found: dict[tuple[int, tuple[int, int]], list[ScenarioEvent]] = {}
    for event in scenario.events:
        if event.kind in (*_PARADIGMS, "memcpy"):
            host = event.process if event.thread is None else event.thread
            place = (-1, host) if event.device is None else (event.device, event.stream or 0)
            found.setdefault((event.process, place), []).append(event)
    return found


def _written(events: list[ScenarioEvent], made: _Definitions, writer: Any) -> Iterator[tuple[int, Callable[[int], None]]]:
    """Yield the moments and what is written at each, in order."""
    ends: list[tuple[int, int, Callable[[int], None]]] = []
    for number, event in enumerate(sorted(events, key=lambda e: (e.start, -e.end))):
        while ends and ends[0][0] <= event.start:
            time, _, leave = heapq.heappop(ends)
            yield time, leave
        enter, leave = _edges(event, number, made, writer)
        yield event.start, enter
        heapq.heappush(ends, (event.end, -number, leave))
    while ends:
        time, _, leave = heapq.heappop(ends)
        yield time, leave


def _edges(event: ScenarioEvent, number: int, made: _Definitions, writer: Any) -> tuple[Callable[[int], None], Callable[[int], None]]:
    if event.kind == "memcpy":
        window, size = made.window, event.bytes or 0
        return (
            lambda time: writer.rma_put(time, window, 0, size, number),
            lambda time: writer.rma_op_complete_blocking(time, window, number),
        )
    region = made.region(event)
    return lambda time: writer.enter(time, region), lambda time: writer.leave(time, region)


class _Definitions:
    """Who is who in the archive, defined when first needed."""

    def __init__(self, archive: Any, scenario: Scenario) -> None:
        import otf2.enums as words

        self.words, self.to = words, archive.definitions
        self.node = self.to.system_tree_node(scenario.host, class_name="node")
        self.groups: dict[tuple[int, int], Any] = {}
        self.locations: dict[tuple[int, tuple[int, int]], Any] = {}
        self.regions: dict[tuple[str, str], Any] = {}
        for process, rank in scenario.ranks.items():
            kind = words.LocationGroupType.PROCESS
            self.groups[process, -1] = self.to.location_group(f"MPI Rank {rank}", system_tree_parent=self.node, location_group_type=kind)
        for process, place in sorted(_by_place(scenario)):
            self.locations[process, place] = self._location(process, *place)
        streams = [location for (_, (device, _)), location in self.locations.items() if device >= 0]
        members = self.to.group("CUDA", words.GroupType.COMM_LOCATIONS, words.Paradigm.CUDA, words.GroupFlag.NONE, members=streams)
        self.window = self.to.rma_win("CUDA", self.to.comm("CUDA", group=members))

    def location(self, process: int, place: tuple[int, int]) -> Any:
        return self.locations[process, place]

    def _location(self, process: int, device: int, number: int) -> Any:
        words = self.words
        if (process, device) not in self.groups:
            owner = {"creating_location_group": self.groups[process, -1], "location_group_type": words.LocationGroupType.ACCELERATOR}
            self.groups[process, device] = self.to.location_group(f"CUDA Context {device}", system_tree_parent=self.node, **owner)
        kind = words.LocationType.CPU_THREAD if device < 0 else words.LocationType.ACCELERATOR_STREAM
        name = f"thread {number}" if device < 0 else f"CUDA[{device}:{number}]"
        return self.to.location(name, type=kind, group=self.groups[process, device])

    def region(self, event: ScenarioEvent) -> Any:
        paradigm = _PARADIGMS[event.kind]
        name = event.name
        if (name, paradigm) not in self.regions:
            self.regions[name, paradigm] = self.to.region(name, paradigm=getattr(self.words.Paradigm, paradigm))
        return self.regions[name, paradigm]
