"""Runs to draw: the fourth use case of the TALP paper, and runs of any length made of spans."""

from __future__ import annotations

import numpy as np

from ullage.recording import Recording
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.sums.lanes.collectives.collectives import Collectives
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.kernels import Kernels
from ullage.sums.lanes.reduce import Reduced, reduce
from ullage.sums.lanes.run import Run, merge
from ullage.sums.lanes.spans import NONE, Spans, Times, intersect, spans, subtract, union
from ullage.sums.lanes.states import DeviceState, ProcessState, RegionOccurrences

MS = 1_000_000


def run_of(*events: ScenarioEvent, ranks: dict[int, int] | None = None) -> Run:
    """A run from a scenario's events on two devices."""
    scenario = Scenario("run", events, ranks or {0: 0}, {0: ("G", "gpu-0"), 1: ("G", "gpu-1")})
    return merge([reduce(gather(scenario.batches(), scenario.recording()))])


def use_case_4() -> Run:
    """Rank 0 offloads for 330 ms and computes for 670 ms; rank 1 is done after 100 ms and waits in MPI."""

    def rank(number: int, offload: int, useful: int, kernel: int) -> list[ScenarioEvent]:
        busy = offload + useful
        waits = [ScenarioEvent(busy * MS, 1000 * MS, "mpi", "MPI_Barrier", number, thread=number)] if busy < 1000 else []
        return [
            ScenarioEvent(0, MS, "api", "cudaLaunchKernel", number, thread=number, call="launch", correlation=1 + number),
            ScenarioEvent(MS, offload * MS, "api", "cudaDeviceSynchronize", number, thread=number, call="sync", correlation=10 + number),
            ScenarioEvent(0, kernel * MS, "kernel", "burn", number, device=number, stream=7, correlation=1 + number),
            ScenarioEvent(offload * MS, busy * MS, "host", "work", number, thread=number),
            *waits,
        ]

    return run_of(*rank(0, 330, 670, 330), *rank(1, 55, 45, 33), ranks={0: 0, 1: 1})


def made(
    ranks: int,
    kernel: Spans,
    length: int,
    *,
    steps: tuple[tuple[str, int, int], ...] = (),
    offload: Spans = NONE,
    collective: Spans = NONE,
    begins: tuple[int, ...] = (),
    clock: str = "utc",
) -> Run:
    """A run in which every rank does the same on a device of its own; capture n begins at `begins[n]`."""
    captures = []
    for rank in range(ranks):
        begin = begins[rank] if begins else 0
        place = f"rank{rank}.json"
        step = RegionOccurrences(
            tuple(s[0] for s in steps), np.array([s[1] + begin for s in steps]), np.array([s[2] + begin for s in steps])
        )
        window = (begin, begin + length)
        process = ProcessState((place, 1), f"rank {rank}", rank, "node", window, _at(offload, begin), NONE, steps=step if steps else None)
        device = DeviceState(f"gpu-{rank}", "H100", (process.key,), _at(kernel, begin), _at(subtract(collective, kernel), begin), NONE)
        recording = Recording(place, clock="own" if clock == "own" else "utc", rank=rank)
        captures.append(Reduced(recording, window, (process,), (device,), {}, Kernels(), Collectives()))
    return merge(captures)


def many(pieces: int, length: int, *, seed: int = 0) -> Spans:
    """Spans that cover about half of a time."""
    random = np.random.default_rng(seed)
    start: Times = np.sort(random.integers(0, length, pieces))
    return intersect(union(start, start + random.integers(1, max(2, length // pieces), pieces)), spans((0, length)))


def _at(s: Spans, begin: int) -> Spans:
    return Spans(s.start + begin, s.end + begin)
