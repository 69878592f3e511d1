"""One capture into states: what is kept of it when its events are let go."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ullage.memory import give_back
from ullage.recording import Recording, Summed
from ullage.sums.lanes.code.account import CodeAccount, account
from ullage.sums.lanes.collectives.collectives import Collectives, collectives
from ullage.sums.lanes.collectives.tokens import Fed, fed
from ullage.sums.lanes.doubt import doubted
from ullage.sums.lanes.events_before_sums import events
from ullage.sums.lanes.gather import KIND, NOT_KNOWN, Capture, LaneRows
from ullage.sums.lanes.idle import Idle, idle
from ullage.sums.lanes.kernels import Kernels, kernels
from ullage.sums.lanes.launches import distinct, only
from ullage.sums.lanes.observed import Observed, Pair, TableTime, observe
from ullage.sums.lanes.owners import find_owners
from ullage.sums.lanes.products import KernelProduct as Product
from ullage.sums.lanes.products import products
from ullage.sums.lanes.replaying.work import CapturedWork, captured_work
from ullage.sums.lanes.residency import residency, resident_rows
from ullage.sums.lanes.spans import NONE, Spans, clip, ends, join, spans, subtract, union
from ullage.sums.lanes.states import (
    MAIN,
    DeviceState,
    Host,
    ProcessState,
    RegionOccurrences,
    flatten,
    host_spans,
    host_threads,
    off_spans,
    recorder_spans,
    workers,
)
from ullage.sums.lanes.window import TraceWindow

_MPI = re.compile(r"(?i)p?mpi[ _:]")
TABLES = ("idle", "kernels", "products", "code", "tables")  # sums of events, which no state tells of another window
MOST_REGIONS = 20_000  # names of regions of a process; of more, those are kept that ran longest
MOST_OCCURRENCES = 100_000  # of one region; beyond, only their union is kept


@dataclass(frozen=True)
class Reduced:
    """What is kept of one capture: states, why its devices idled (by their keys), its kernels, its collectives.

    `products` are the kernels by what they were asked for of matrix products, and by layer; `fed` is what processes were fed step by
    step, where that is known; `code` is idle time, kernels and calls by what the hosts ran; `left_out` is as `Observed` says it, `notes`
    what must be said of it; `mpi` whether MPI was called, `rule` by which rule the window was chosen; `tables` is when
    the tables (`TABLES`) look at it, which may be less than the window. `work` is there where the run is to be replayed.
    """

    recording: Recording
    window: tuple[int, int]
    processes: tuple[ProcessState, ...]
    devices: tuple[DeviceState, ...]
    idle: dict[str, Idle]
    kernels: Kernels
    collectives: Collectives
    products: tuple[Product, ...] = ()
    fed: tuple[Fed, ...] = ()
    code: CodeAccount = field(default_factory=CodeAccount)
    left_out: int = 0
    notes: tuple[str, ...] = ()
    mpi: bool = False
    rule: str = "first-last"
    tables: TableTime = field(default_factory=lambda: TableTime((0, 0), {}, {}))
    work: CapturedWork | None = None

    def with_tables(self, of: Reduced) -> Reduced:
        """Return the same with the tables of another reduction of the capture: kernels, products, idle time and code, and in a region what
        processes were fed there."""
        names = TABLES if of.tables.region is None else (*TABLES, "fed")
        return replace(self, **{name: getattr(of, name) for name in names})


def reduce(
    capture: Capture,
    window: TraceWindow | None = None,
    host: Host = "busiest",
    limit: Pair | None = None,
    *,
    replay: bool = False,
    tables: TableTime | str | None = None,
) -> Reduced:
    """Return what is kept of a capture, of nothing outside of `limit`; `host` says which threads are a process' host lane, `replay`
    whether its calls and operations are kept too, `tables` of which time the tables are: of a region by its name, or any.

    Raises UllageError for a capture or a window that holds nothing."""
    notes = find_owners(capture)
    seen = observe(capture, window, limit)
    processes = tuple(_process(capture, number, seen, host) for number in seen.lives)
    devices = tuple(_device(capture, number, seen) for number in distinct(capture.device.device) if number != NOT_KNOWN)
    devices = doubted(capture, devices, [seen.of_device(key[1] for key in d.owners) for d in devices])
    looked = tables if isinstance(tables, TableTime) else _table_time(seen, processes, devices, tables)
    give_back()
    idles = [idle(capture, d, processes, looked.devices[d.number]) for d in devices]
    give_back()
    code, named = account(capture, looked, idles)
    del idles
    give_back()
    together = collectives(capture, seen.window)
    give_back()
    ran = kernels(capture, looked.devices)
    give_back()
    worked = products(capture, looked.devices)
    give_back()
    return Reduced(
        recording=capture.recording,
        window=seen.window,
        processes=processes,
        devices=devices,
        idle={d.key: found for d, found in zip(devices, named, strict=True)},
        kernels=ran,
        collectives=together,
        products=worked,
        fed=fed(capture, processes, looked.region),
        code=code,
        left_out=seen.left_out,
        notes=notes,
        mpi=_calls_mpi(capture),
        rule=seen.rule,
        tables=looked,
        work=captured_work(capture, seen, processes) if replay else None,
    )


def _table_time(seen: Observed, processes: tuple[ProcessState, ...], devices: tuple[DeviceState, ...], region: str | None) -> TableTime:
    """Return when tables look at the processes and devices of a capture, as far as it alone tells: while they are observed, or while a
    process, and a device while one of its users, is in a region; a device that nobody is known to use while any is."""
    if region is None:
        watched = {d.number: seen.of_device(key[1] for key in d.owners) for d in devices}
        lives = {p: spans(life) for p, life in seen.lives.items()}
        return TableTime(seen.window, lives, watched | {NOT_KNOWN: spans(seen.window)})
    inside = {p.key[1]: p.regions.get(region, NONE) for p in processes}
    anywhere = join(*inside.values())
    watched = {d.number: join(*(inside[key[1]] for key in d.owners)) if d.owners else anywhere for d in devices}
    return TableTime(ends(anywhere), inside, watched | {NOT_KNOWN: anywhere}, region)


def _calls_mpi(capture: Capture) -> bool:
    """Return whether a program called MPI; other collectives of hosts (gloo), and what keeps a thread from computing, have other names."""
    names = np.unique(capture.host.of("mpi").name)
    return bool(capture.recording.mpi_clock) or any(_MPI.match(capture.words[code]) for code in names if code >= 0)


def _process(capture: Capture, number: int, seen: Observed, lane: Host) -> ProcessState:
    recording, host = capture.recording, capture.host.where(capture.host.process == number)
    low, high = seen.lives[number]
    known = recording.processes.get(number)
    only = recording.rank if len(seen.lives) == 1 else None  # a file's rank names one process, not several
    rank = known.rank if known is not None and known.rank is not None else only
    threads = host_threads(capture, number, spans((low, high)), lane)
    communication, offload, sync = (clip(s, low, high) for s in host_spans(capture, number, threads))
    recorder = clip(recorder_spans(capture, number, communication), low, high)
    waits, steps = host.of("parallel"), host.of("step")
    made = workers(waits, capture.words, spans((low, high)))
    waiting = [worker.waiting for worker in made if worker.thread == MAIN]
    off = off_spans(capture, number, threads, join(communication, offload, recorder, *waiting))
    regions, occurrences = _regions(host.of("region"), capture.words, (low, high), recording.summed)
    return ProcessState(
        key=(recording.place, number),
        label=f"rank {rank}" if rank is not None else f"process {number}",
        rank=rank,
        host=(known.host if known else "") or recording.host,
        window=(low, high),
        known=seen.known[number],
        offload=offload,
        communication=communication,
        sync=sync,
        recorder=recorder,
        off=NONE if off is None else clip(off, low, high),
        off_known=off is not None,
        regions=regions,
        occurrences=occurrences,
        steps=_steps(steps, capture.words, (low, high)) if len(steps) else None,
        workers=made,
        threads=threads,
        callers=len(distinct(capture.calls.thread[capture.calls.process == number])),
        calls=int(((capture.calls.process == number) & (capture.calls.start >= low) & (capture.calls.start <= high)).sum()),
        counters=recording.counters.get(number, {}) if seen.entire else {},
    )


def _regions(
    named: LaneRows, words: list[str], window: tuple[int, int], summed: Summed | None = None
) -> tuple[dict[str, Spans], dict[str, RegionOccurrences]]:
    """Return each region's union and its occurrences, as far as these are known; one sort for all, for there may be ten thousand names."""
    named = only(named, (named.end > window[0]) & (named.start < window[1]), "name", "thread")
    named = named.where(_longest(named))
    named = named.where(np.lexsort((named.start, named.name)))
    edges = np.flatnonzero(np.diff(named.name, prepend=-2, append=-2)).tolist()
    known, regions, occurrences = events(named, summed, whole=True), {}, {}
    for low, high in pairwise(edges):
        code = int(named.name[low])
        word, start = words[code] if code >= 0 else "(unnamed)", np.maximum(named.start[low:high], window[0])
        end = np.minimum(named.end[low:high], window[1])
        regions[word] = union(start, end)
        seen = known[low:high]
        if 0 < len(start[seen]) <= MOST_OCCURRENCES:
            occurrences[word] = RegionOccurrences((word,) * len(start[seen]), start[seen], end[seen])
    return regions, occurrences


def _longest(named: LaneRows) -> npt.NDArray[np.bool_]:
    """Return which rows are of the `MOST_REGIONS` names that ran longest, their times summed."""
    names, place = np.unique(named.name, return_inverse=True)
    if len(names) <= MOST_REGIONS:
        return np.ones(len(named), bool)
    lasted = np.bincount(place, weights=(named.end - named.start).astype(np.float64))
    kept = np.zeros(len(names), bool)
    kept[np.argsort(-lasted, kind="stable")[:MOST_REGIONS]] = True
    return kept[place]


def _steps(rows: LaneRows, words: list[str], window: tuple[int, int]) -> RegionOccurrences:
    rows = rows.where((rows.end > window[0]) & (rows.start < window[1]))
    rows = rows.where(np.argsort(rows.start, kind="stable"))
    names = tuple(words[code] if code >= 0 else "" for code in rows.name)
    return RegionOccurrences(names, np.maximum(rows.start, window[0]), np.minimum(rows.end, window[1]))


def _device(capture: Capture, number: int, seen: Observed) -> DeviceState:
    recording, rows = capture.recording, capture.device.where(capture.device.device == number)
    known = recording.devices.get(number)
    users = [process for process in distinct(rows.process) if process in seen.lives]
    begun = (rows.start >= seen.window[0]) & (rows.start <= seen.window[1])
    state = DeviceState(
        key=(known.key if known and known.key else f"{recording.place}#{number}"),
        name=known.name if known else "",
        sms=known.sms if known else None,
        owners=tuple((recording.place, p) for p in users),
        place=recording.place,
        kernel=NONE,
        collective=NONE,
        memory=NONE,
        launches=int((begun & np.isin(rows.kind, [KIND[k] for k in ("kernel", "collective")])).sum()),
        bytes=int(rows.bytes[begun & np.isin(rows.kind, [KIND["memcpy"], KIND["memset"]]) & (rows.bytes > 0)].sum()),
        resolution=recording.resolution,
        number=number,
    )
    kernel, collective, memory = (seen.cut(s) for s in flatten(rows))
    single = rows.kind == KIND["kernel"]
    graph = subtract(kernel, union(rows.start[single], rows.end[single])) if (rows.kind == KIND["graph"]).any() else NONE
    together, moves = rows.kind == KIND["collective"], np.isin(rows.kind, [KIND["memcpy"], KIND["memset"]])
    return replace(
        state,
        resident=residency(resident_rows(rows, None if seen.entire else seen.window), state.sms, known.capability if known else ""),
        kernel=kernel,
        collective=collective,
        memory=memory,
        graph=graph,
        collective_all=seen.cut(union(rows.start[together], rows.end[together])),
        memory_all=seen.cut(union(rows.start[moves], rows.end[moves])),
    )
