"""The answers of a scenario, by brute force: a walk over every moment at which anything changes, one at a time.

Written without the project's interval algebra, so that each can be held against the other. The rules are those of the Ullage
equations, section 5; where a run has more processes than work, or a device more than one process, as `sums/lanes` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.totals import DeviceTotals, HostTotals

Pieces = list[tuple[int, int]]  # from, to; they may overlap

COMPUTES = ("kernel", "graph")
MOVES = ("memcpy", "memset")
ON_DEVICE = (*COMPUTES, "collective", *MOVES, "lost")
SUBMITS = ("launch", "graph", "copy")


@dataclass(frozen=True)
class TreeAnswer:
    """What the trees of a scenario, or of one region of it, must be computed from. `device` is None where no device takes part."""

    host: HostTotals
    device: DeviceTotals | None


def answer(scenario: Scenario, region: str | None = None, *, apart: bool = False) -> TreeAnswer:
    """Return a scenario's true totals in ns, of the whole run or of a region (each process' union of its occurrences).

    `apart` is for files of one process each, by profilers that start and stop with it: then what counts is what all of them saw.
    What can only be counted of the whole run (calls, launches, bytes) is None of a region. Raises ValueError for a scenario
    without a process that counts, and for a region in which none ever is.
    """
    looked = {p: _looked_at(scenario, p, region) for p in _counted(scenario)}
    if apart:
        lives = [_life(scenario, p) for p in _counted(scenario)]
        low, high = max(life[0][0] for life in lives), min(life[0][1] for life in lives)
        looked = {p: [(max(a, low), min(b, high)) for a, b in pieces if a < high and b > low] for p, pieces in looked.items()}
    looked = {p: pieces for p, pieces in looked.items() if _length(pieces)}
    if not looked:
        raise ValueError(f"no process of {scenario.name} is ever in {region or 'the run'}")
    seen = {number: _seen(scenario, number, looked) for number in _used(scenario)}
    seen = {number: pieces for number, pieces in seen.items() if _length(pieces)}
    elapsed = max(_length(pieces) for pieces in (*looked.values(), *seen.values()))
    device = _device_totals(scenario, seen, elapsed, region) if seen else None
    return TreeAnswer(_host_totals(scenario, looked, elapsed, region), device)


def host_times(scenario: Scenario, process: int, pieces: Pieces) -> Counter[str]:
    """Return how long a process is `useful`, in `offload` and in `communication` while it is looked at (`pieces`), in ns."""
    mine = [e for e in scenario.events if e.process == process]
    calls = [e for e in mine if e.kind == "api"]
    lane = _lane(calls)
    changes = [(start, end, "looked at") for start, end in pieces]
    changes += [(e.start, e.end, "offload") for e in calls if e.thread == lane]
    changes += [(e.start, e.end, "communication") for e in mine if e.kind == "mpi"]
    times: Counter[str] = Counter(useful=0, offload=0, communication=0)
    for length, state in _walk(changes):
        if state["looked at"]:
            times["communication" if state["communication"] else "offload" if state["offload"] else "useful"] += length
    return times


def _lane(calls: list[ScenarioEvent]) -> int | None:
    """Return the thread that is longest in calls, of those that submit work if any does; of equals the lowest."""
    candidates = {e.thread for e in calls if e.call in SUBMITS} or {e.thread for e in calls}
    times = {t: _length([(e.start, e.end) for e in calls if e.thread == t]) for t in candidates}
    return max(sorted(times, key=lambda t: t or 0), key=lambda t: times[t], default=None)


def device_times(scenario: Scenario, number: int, pieces: Pieces) -> Counter[str]:
    """Return how long a device is in `kernel`, `collective`, `memory` and `idle` while it is looked at (`pieces`), in ns."""
    changes = [(start, end, "looked at") for start, end in pieces]
    for event in scenario.events:
        if event.device == number and event.kind in ON_DEVICE and event.kind != "lost":
            state = "kernel" if event.kind in COMPUTES else "memory" if event.kind in MOVES else "collective"
            changes.append((event.start, event.end, state))
    times: Counter[str] = Counter(kernel=0, collective=0, memory=0, idle=0)
    for length, active in _walk(changes):
        if active["looked at"]:
            times[next((s for s in ("kernel", "collective", "memory") if active[s]), "idle")] += length
    return times


def _walk(changes: Iterable[tuple[int, int, str]]) -> Iterator[tuple[int, Counter[str]]]:
    """Yield each elementary piece's length, and how many intervals of each sort run in it."""
    edges = [(start, name, 1) for start, _, name in changes] + [(end, name, -1) for _, end, name in changes]
    active: Counter[str] = Counter()
    before = 0
    for moment, name, change in sorted(edges, key=lambda edge: edge[0]):
        if moment > before:
            yield moment - before, active
        active[name] += change
        before = moment


def _length(pieces: Pieces) -> int:
    return sum(length for length, active in _walk([(a, b, "") for a, b in pieces]) if active[""])


def _counted(scenario: Scenario) -> list[int]:
    """Return the processes that count: those that call the GPU's interface or MPI; if none does, those that show any host work."""
    working = {e.process for e in scenario.events if e.kind in ("api", "mpi")}
    named = {e.process for e in scenario.events if e.kind in ("region", "step", "parallel", "host")}
    return sorted(p for p in working or named if _length(_extent(scenario.of(p))))


def _life(scenario: Scenario, process: int) -> Pieces:
    """Return from when to when a process that counts lived, as far as work reaches that may be its own.

    That is work on a device that no process is known to use that counts, where it lies outside all lives of those that count.
    """
    counted = _counted(scenario)
    lives = {p: _extent(scenario.of(p)) for p in counted}
    low, high = lives[process][0]
    for number in _used(scenario):
        rows = [e for e in scenario.events if e.device == number and e.kind in ON_DEVICE]
        users = {e.process for e in rows} & set(counted) or set(counted)
        edges = [edge for p in users for piece in lives[p] for edge in piece]
        for e in rows:
            if e.process not in counted and process in users and e.kind != "lost":
                low = min(low, e.start) if e.start < min(edges) else low
                high = max(high, e.end) if e.end > max(edges) else high
    return [(low, high)]


_FRAMES = ("region", "step", "function", "module")


def _extent(events: Iterable[ScenarioEvent]) -> Pieces:
    """Return from when to when a process lived, by what it did: regions, steps, functions and overhead only frame that."""
    told = list(events)
    did = [e for e in told if e.kind not in (*_FRAMES, "overhead", "off", "lost")] or [e for e in told if e.kind in ("region", "step")]
    edges = [moment for e in did for moment in (e.start, e.end)]
    return [(min(edges), max(edges))] if edges else []


def _looked_at(scenario: Scenario, process: int, region: str | None) -> Pieces:
    [(low, high)] = _life(scenario, process)
    if region is None:
        return [(low, high)]
    named = [e for e in scenario.of(process) if e.kind == "region" and e.name == region]
    return [(max(e.start, low), min(e.end, high)) for e in named if e.start < high and e.end > low]


def _used(scenario: Scenario) -> list[int]:
    return sorted({e.device for e in scenario.events if e.kind in ON_DEVICE and e.device is not None})


def _seen(scenario: Scenario, number: int, looked: dict[int, Pieces]) -> Pieces:
    """Return when a device is looked at: while a process is that uses it; a device of nobody that counts: while any process is."""
    users = {e.process for e in scenario.events if e.device == number and e.kind in ON_DEVICE}
    counted = users & set(_counted(scenario)) or looked.keys()
    return [piece for user in counted for piece in looked.get(user, [])]


def _host_totals(scenario: Scenario, looked: dict[int, Pieces], elapsed: int, region: str | None) -> HostTotals:
    times = [host_times(scenario, process, pieces) for process, pieces in looked.items()]
    return HostTotals(
        processes=len(times),
        elapsed=elapsed,
        useful_time=sum(t["useful"] for t in times),
        offload_time=sum(t["offload"] for t in times),
        max_busy_time=max(t["useful"] + t["offload"] for t in times),
        calls=None if region else sum(e.kind == "api" and e.process in looked for e in scenario.events),
    )


def _device_totals(scenario: Scenario, seen: dict[int, Pieces], elapsed: int, region: str | None) -> DeviceTotals:
    times = [device_times(scenario, number, pieces) for number, pieces in seen.items()]
    mine = [e for e in scenario.events if e.device in seen]
    return DeviceTotals(
        devices=len(times),
        elapsed=elapsed,
        kernel_time=sum(t["kernel"] for t in times),
        collective_time=sum(t["collective"] for t in times),
        memory_time=sum(t["memory"] for t in times),
        max_kernel_time=max(t["kernel"] for t in times),
        max_kernel_collective_time=max(t["kernel"] + t["collective"] for t in times),
        max_active_time=max(t["kernel"] + t["collective"] + t["memory"] for t in times),
        launches=None if region else sum(e.kind in ("kernel", "collective") for e in mine),
        bytes=None if region else sum(max(e.bytes or 0, 0) for e in mine if e.kind in MOVES),
    )
