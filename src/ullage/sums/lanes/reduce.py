"""One capture into states: what is kept of it when its events are let go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ullage.recording import Recording
from ullage.sums.lanes.collectives import Collectives, collectives
from ullage.sums.lanes.doubt import doubted
from ullage.sums.lanes.gather import KIND, NOT_KNOWN, Capture, Rows
from ullage.sums.lanes.idle import Idle, idle
from ullage.sums.lanes.kernels import Kernels, kernels
from ullage.sums.lanes.launches import only
from ullage.sums.lanes.products import Row as Product
from ullage.sums.lanes.products import products
from ullage.sums.lanes.spans import NONE, Spans, clip, intersect, spans, subtract, union
from ullage.sums.lanes.states import DeviceState, Host, ProcessState, Step, flatten, host_spans, host_threads, workers
from ullage.sums.lanes.window import FRAMES, HOSTED, Window, lifetime

MOST_REGIONS = 20_000  # names of regions of a process; of more, those are kept that ran longest
MOST_OCCURRENCES = 100_000  # of one region; beyond, only their union is kept


@dataclass(frozen=True)
class Reduced:
    """What is kept of one capture: states, why its devices idled (by their keys), its kernels, its collectives.

    `products` are the kernels by what they were asked for of matrix products, and by layer.
    """

    recording: Recording
    window: tuple[int, int]
    processes: tuple[ProcessState, ...]
    devices: tuple[DeviceState, ...]
    idle: dict[str, Idle]
    kernels: Kernels
    collectives: Collectives
    products: tuple[Product, ...] = ()


def reduce(capture: Capture, window: Window | None = None, host: Host = "busiest") -> Reduced:
    """Return what is kept of a capture; `host` says which threads are a process' host lane.

    Raises UllageError for a capture or a window that holds nothing."""
    chosen = (window or Window()).of(capture)
    _find_owners(capture)
    frames = FRAMES if window is not None and window.kind == "steps" else ()  # a step may begin with a wait that no operator shows
    lives = {number: lifetime(capture, number, frames) for number in _hosts(capture)}
    processes = tuple(p for number in lives if (p := _process(capture, number, chosen, host, lives[number])) is not None)
    devices = tuple(_device(capture, int(number), processes, chosen) for number in np.unique(capture.device.device) if number != NOT_KNOWN)
    devices = doubted(capture, devices, [_seen(d, processes, chosen) for d in devices])
    return Reduced(
        recording=capture.recording,
        window=chosen,
        processes=processes,
        devices=devices,
        idle={d.key: idle(capture, d, processes, _seen(d, processes, chosen)) for d in devices},
        kernels=kernels(capture, chosen),
        collectives=collectives(capture, chosen),
        products=products(capture, chosen),
    )


def _find_owners(capture: Capture) -> None:
    """Fill in whose a device row is, where the source doesn't say: the only process', or whose call has its correlation."""
    rows, calls = capture.device, capture.calls
    unowned = rows.process == NOT_KNOWN
    callers = np.unique(calls.process) if len(calls) else np.array(_hosts(capture), np.int64)
    if len(callers) == 1:
        rows.process[unowned] = callers[0]
    elif len(calls) and unowned.any():
        order = np.argsort(calls.correlation, kind="stable")
        at = np.minimum(np.searchsorted(calls.correlation[order], rows.correlation), len(order) - 1)
        known = unowned & (calls.correlation[order][at] == rows.correlation) & (rows.correlation != NOT_KNOWN)
        rows.process[known] = calls.process[order][at][known]


def _hosts(capture: Capture) -> list[int]:
    """Return the processes that count: those that use the GPU or MPI; failing these, all that did anything."""
    host = capture.host
    working = {int(p) for p in np.unique(capture.calls.process)} | {int(p) for p in np.unique(host.process[host.kind == KIND["mpi"]])}
    named = {int(p) for p in np.unique(host.process[np.isin(host.kind, HOSTED)])} | set(capture.recording.extent)
    return sorted((working or named) - {NOT_KNOWN})


def _process(capture: Capture, number: int, chosen: tuple[int, int], lane: Host, life: tuple[int, int] | None) -> ProcessState | None:
    recording, host = capture.recording, capture.host.where(capture.host.process == number)
    extent = life or (0, 0)
    low, high = max(extent[0], chosen[0]), min(extent[1], chosen[1])
    if low >= high:
        return None
    known = recording.processes.get(number)
    rank = known.rank if known is not None and known.rank is not None else recording.rank
    threads = host_threads(capture, number, lane)
    communication, offload, sync = (clip(s, low, high) for s in host_spans(capture, number, threads))
    off, waits, steps = host.of("off"), host.of("parallel"), host.of("step")
    regions, occurrences = _regions(host.of("region"), capture.words, (low, high))
    return ProcessState(
        key=(recording.place, number),
        label=f"rank {rank}" if rank is not None else f"process {number}",
        rank=rank,
        host=(known.host if known else "") or recording.host,
        window=(low, high),
        offload=offload,
        communication=communication,
        sync=sync,
        off=clip(union(off.start, off.end), low, high),
        regions=regions,
        occurrences=occurrences,
        steps=_steps(steps, capture.words, (low, high)) if len(steps) else None,
        workers=workers(waits, capture.words, spans((low, high))),
        threads=threads,
        callers=len(np.unique(capture.calls.thread[capture.calls.process == number])),
        calls=int(((capture.calls.process == number) & (capture.calls.start >= low) & (capture.calls.start <= high)).sum()),
        counters=recording.counters.get(number, {}) if (low, high) == extent else {},
    )


def _regions(named: Rows, words: list[str], window: tuple[int, int]) -> tuple[dict[str, Spans], dict[str, Step]]:
    """Return each region's union and its occurrences; one sort for all, for there may be ten thousand names."""
    named = only(named, (named.end > window[0]) & (named.start < window[1]), "name")
    named = named.where(_longest(named))
    named = named.where(np.lexsort((named.start, named.name)))
    edges = np.flatnonzero(np.diff(named.name, prepend=-2, append=-2)).tolist()
    regions, occurrences = {}, {}
    for low, high in pairwise(edges):
        code = int(named.name[low])
        word, start = words[code] if code >= 0 else "(unnamed)", np.maximum(named.start[low:high], window[0])
        end = np.minimum(named.end[low:high], window[1])
        regions[word] = union(start, end)
        if high - low <= MOST_OCCURRENCES:
            occurrences[word] = Step((word,) * (high - low), start, end)
    return regions, occurrences


def _longest(named: Rows) -> npt.NDArray[np.bool_]:
    """Return which rows are of the `MOST_REGIONS` names that ran longest, their times summed."""
    names, place = np.unique(named.name, return_inverse=True)
    if len(names) <= MOST_REGIONS:
        return np.ones(len(named), bool)
    lasted = np.bincount(place, weights=(named.end - named.start).astype(np.float64))
    kept = np.zeros(len(names), bool)
    kept[np.argsort(-lasted, kind="stable")[:MOST_REGIONS]] = True
    return kept[place]


def _steps(rows: Rows, words: list[str], window: tuple[int, int]) -> Step:
    rows = rows.where((rows.end > window[0]) & (rows.start < window[1]))
    rows = rows.where(np.argsort(rows.start, kind="stable"))
    names = tuple(words[code] if code >= 0 else "" for code in rows.name)
    return Step(names, np.maximum(rows.start, window[0]), np.minimum(rows.end, window[1]))


def _device(capture: Capture, number: int, processes: tuple[ProcessState, ...], chosen: tuple[int, int]) -> DeviceState:
    recording, rows = capture.recording, capture.device.where(capture.device.device == number)
    known = recording.devices.get(number)
    keys = {p.key[1]: p.key for p in processes}
    begun = (rows.start >= chosen[0]) & (rows.start <= chosen[1])
    state = DeviceState(
        key=(known.key if known and known.key else f"{recording.place}#{number}"),
        name=known.name if known else "",
        sms=known.sms if known else None,
        owners=tuple(keys[int(p)] for p in np.unique(rows.process) if int(p) in keys),
        kernel=NONE,
        collective=NONE,
        memory=NONE,
        launches=int((begun & np.isin(rows.kind, [KIND[k] for k in ("kernel", "collective")])).sum()),
        bytes=int(rows.bytes[begun & np.isin(rows.kind, [KIND["memcpy"], KIND["memset"]]) & (rows.bytes > 0)].sum()),
        resolution=recording.resolution,
        number=number,
    )
    seen = _seen(state, processes, chosen)
    kernel, collective, memory = (intersect(s, seen) for s in flatten(rows))
    single = rows.kind == KIND["kernel"]
    graph = subtract(kernel, union(rows.start[single], rows.end[single])) if (rows.kind == KIND["graph"]).any() else NONE
    together, moves = rows.kind == KIND["collective"], np.isin(rows.kind, [KIND["memcpy"], KIND["memset"]])
    return replace(
        state,
        kernel=kernel,
        collective=collective,
        memory=memory,
        graph=graph,
        collective_all=intersect(union(rows.start[together], rows.end[together]), seen),
        memory_all=intersect(union(rows.start[moves], rows.end[moves]), seen),
    )


def _seen(device: DeviceState, processes: tuple[ProcessState, ...], chosen: tuple[int, int]) -> Spans:
    """Return when a device is looked at: while one of its owners is; while any process is when its owners aren't known."""
    windows = [p.window for p in processes if p.key in device.owners or not device.owners]
    return spans(*windows) if windows else spans(chosen)
