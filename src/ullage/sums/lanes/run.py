"""Captures of one run laid together, and the sums of any part of it: the whole, a rank, a region, a step.

Captures are reduced one by one and merged here, so the events of two ranks are never held at once. A device that several
processes used, in one capture or in several with a common clock, is one device: its times are united, not added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ullage.sums.lanes.reduce import Reduced
from ullage.sums.lanes.residency import NO_RESIDENCY, Residency
from ullage.sums.lanes.spans import NONE, Spans, intersect, join, spans, subtract
from ullage.sums.lanes.states import MAIN, DeviceState, Key, ProcessState
from ullage.totals import DeviceTotals, Factors, HostTotals

Windows = Mapping[Key, Spans]  # what is looked at of each process


@dataclass(frozen=True)
class HostPart:
    """One process' times in ns, within what is looked at, summed over its `threads` (1 unless OpenMP-like threads are recorded).

    `useful + offload + communication + parallel + recorder + off` is `threads × elapsed`; what threads lose (`parallel`) has three parts,
    in `recorder` what records the process held it up, `off` is what its own thread was on no processor beside all that. `pieces` says of
    how many spans the offload and the communication of the process' own thread consist.
    """

    process: ProcessState
    elapsed: int
    useful: int
    offload: int
    communication: int
    threads: int = 1
    serialisation: int = 0
    scheduling: int = 0
    imbalance: int = 0
    pieces: tuple[int, int] = (0, 0)
    recorder: int = 0
    off: int = 0

    @property
    def parallel(self) -> int:
        """What the threads lose."""
        return self.serialisation + self.scheduling + self.imbalance

    @property
    def whole(self) -> bool:
        """Whether all of the process' window is looked at; what is only counted can't be parted."""
        return self.elapsed == self.process.window[1] - self.process.window[0]

    @property
    def busy(self) -> int:
        """U + W, what threads lose and time off the CPU, by thread; rounded up, so that no balance exceeds 1."""
        return -(-(self.useful + self.offload + self.parallel + self.off) // self.threads)


@dataclass(frozen=True)
class DevicePart:
    """One device's times in ns, within what is looked at; `kernel + collective + memory + idle` is the run's elapsed time.

    `unknown` is the part of `idle` that may have been work; `pieces` how many spans `kernel`, `collective` and `memory` consist of;
    `whole` whether all of the device's time is looked at; `graph` is the part of `kernel` known only as graphs run as a whole.
    `resident` says of how many SMs use was made; of a part of the device's time it is in proportion.
    """

    device: DeviceState
    kernel: int
    collective: int
    memory: int
    idle: int
    unknown: int
    transfer: int | None
    pieces: tuple[int, int, int]
    whole: bool = True
    graph: int = 0
    resident: Residency = NO_RESIDENCY


@dataclass(frozen=True)
class Run:
    """One run of a program: its processes in the order of their ranks, its devices, and what it was reduced from.

    `common` is what is looked at of each process while all were recorded, from and to the moments `shared` on the first capture's clock,
    of the `recorded` in which any was; None where that was not sought, or is not a time: see `ullage.sums.lanes.common`. `limits` are the
    same moments on each capture's clock, by its place. `factors` are those that the hosts can lose by, in any part of the run.
    """

    processes: tuple[ProcessState, ...]
    devices: tuple[DeviceState, ...]
    captures: tuple[Reduced, ...]
    common: Windows | None = None
    shared: tuple[int, int] | None = None
    recorded: tuple[int, int] | None = None
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    factors: Factors = field(default_factory=Factors)

    def lives(self) -> Windows:
        """Return when each process was observed."""
        return {p.key: spans(p.window) for p in self.processes}

    def whole(self) -> Windows:
        """Return what is looked at of all processes: while all were recorded, if that is known."""
        if self.common is None:
            return self.lives()
        return {p.key: self.common[p.key] for p in self.processes}

    def region(self, name: str) -> Windows:
        """Return when each process is in a region; processes that never are, are left out."""
        whole = self.whole()
        found = {p.key: intersect(p.regions[name], whole[p.key]) for p in self.processes if name in p.regions}
        return {key: s for key, s in found.items() if s.pieces}

    def elapsed(self, windows: Windows | None = None) -> int:
        """Return E in ns: the longest of the processes' times (TALP paper, eq. 1), or of a shared device's if that is longer.

        Without a process it is the longest capture.
        """
        looked = self.whole() if windows is None else windows
        if not looked:
            return max((r.window[1] - r.window[0] for r in self.captures), default=0)
        shared = (self.seen(d, looked).total for d in self.devices if len(d.owners) != 1)
        return max((*(w.total for w in looked.values()), *shared))

    def seen(self, device: DeviceState, windows: Windows) -> Spans:
        """Return when a device is looked at: while one of its users is."""
        return join(*(windows[key] for key in self.users(device, windows)))

    def users(self, device: DeviceState, windows: Windows) -> tuple[Key, ...]:
        """Return the processes whose a device is: its owners; any of its capture where none is known, any at all where it has none."""
        found = device.owners or tuple(key for key in windows if key[0] == device.place) or tuple(windows)
        return tuple(key for key in found if key in windows)


def merge(captures: Iterable[Reduced]) -> Run:
    """Return one run from the captures of its ranks, in any order."""
    kept = sorted(captures, key=lambda r: (r.recording.rank is None, r.recording.rank or 0, r.recording.place))
    processes = sorted((p for r in kept for p in r.processes), key=lambda p: (p.rank is None, p.rank or 0))
    found: dict[str, DeviceState] = {}
    for capture in kept:
        for device in capture.devices:
            key = identity(capture, device)
            found[key] = _united(found[key], device) if key in found else device
    return Run(tuple(processes), tuple(found.values()), tuple(kept), factors=_factors(kept, processes))


def _factors(kept: list[Reduced], processes: list[ProcessState]) -> Factors:
    return Factors(
        mpi=any(r.mpi for r in kept),
        processes=len(processes) > 1 or any(p.communication.pieces for p in processes),
        openmp=any(p.workers for p in processes),
        devices=any(r.devices for r in kept) or any(p.offload.pieces for p in processes),
        off=any(p.off_known for p in processes),
    )


def identity(capture: Reduced, device: DeviceState) -> str:
    """Return what tells a capture's device apart from those of other captures; without a common clock none is the same as another."""
    return device.key if capture.recording.clock == "utc" else f"{capture.recording.place}\0{device.key}"


def _united(a: DeviceState, b: DeviceState) -> DeviceState:
    kernel = join(a.kernel, b.kernel)
    collective = subtract(join(a.collective, b.collective), kernel)
    memory = subtract(join(a.memory, b.memory), join(kernel, collective))
    state = replace(
        a,
        owners=tuple(dict.fromkeys(a.owners + b.owners)),
        kernel=kernel,
        collective=collective,
        memory=memory,
        collective_all=join(a.collective_all, b.collective_all),
        memory_all=join(a.memory_all, b.memory_all),
        launches=a.launches + b.launches,
        bytes=a.bytes + b.bytes,
        resolution=max(a.resolution, b.resolution),
        graph=subtract(kernel, join(subtract(a.kernel, a.graph), subtract(b.kernel, b.graph))),
        doubts=tuple(dict.fromkeys(a.doubts + b.doubts)),
        resident=a.resident + b.resident,
    )
    return replace(state, unknown=subtract(join(a.unknown, b.unknown), state.busy))


def host_parts(run: Run, windows: Windows | None = None) -> tuple[HostPart, ...]:
    """Return each process' useful, offload and communication time within its window."""
    windows = run.whole() if windows is None else windows
    return tuple(_host_part(process, windows[process.key]) for process in run.processes if process.key in windows)


def _host_part(process: ProcessState, seen: Spans) -> HostPart:
    """Return a process' times. A worker that waits while its process communicates communicates too, as TALP counts it; the main thread
    does one thing at a time."""
    called, talk, held = (intersect(spans, seen) for spans in (process.offload, process.communication, process.recorder))
    off = intersect(process.off, seen).total
    offload, communication, waiting = called.total, talk.total, 0
    lost = {"serialisation": 0, "scheduling": 0, "imbalance": 0}
    for worker in process.workers:
        main = worker.thread == MAIN
        looked, busy = (subtract(seen, join(called, talk, held)), NONE) if main else (seen, talk)
        idle = intersect(worker.waiting, looked)
        waiting += idle.total
        communication += intersect(idle, busy).total
        for reason in lost:
            lost[reason] += subtract(intersect(getattr(worker, reason), looked), busy).total
    threads = 1 + sum(worker.thread != MAIN for worker in process.workers)
    useful = threads * seen.total - offload - talk.total - waiting - held.total - off
    pieces = (called.pieces, talk.pieces)
    return HostPart(process, seen.total, useful, offload, communication, threads, pieces=pieces, recorder=held.total, off=off, **lost)


def device_parts(run: Run, windows: Windows | None = None, elapsed: int | None = None) -> tuple[DevicePart, ...]:
    """Return each device's times while one of its owners is in its window; kernels that cross an edge are cut there.

    `elapsed` is the run's by these windows unless said otherwise."""
    elapsed = run.elapsed(windows) if elapsed is None else elapsed
    looked = run.whole() if windows is None else windows
    all_of_it = run.lives()
    parts = []
    for device in run.devices:
        seen = run.seen(device, looked)
        if looked and not seen.pieces:
            continue  # nobody who uses it is in this region
        cut = _cutter(seen) if looked else _whole
        states = [cut(s) for s in (device.kernel, device.collective, device.memory)]
        kernel, collective, memory = (s.total for s in states)
        parts.append(
            DevicePart(
                device=device,
                kernel=kernel,
                collective=collective,
                memory=memory,
                idle=elapsed - kernel - collective - memory,
                unknown=cut(device.unknown).total,
                transfer=None if device.transfer is None else cut(device.transfer).total,
                pieces=(states[0].pieces, states[1].pieces, states[2].pieces),
                whole=seen.total == run.seen(device, all_of_it).total,
                graph=cut(device.graph).total,
                resident=device.resident.scaled(_share(kernel, device.kernel), _share(collective, device.collective)),
            )
        )
    return tuple(parts)


def _share(part: int, whole: Spans) -> float:
    return part / whole.total if part else 0.0


def _cutter(seen: Spans) -> Callable[[Spans], Spans]:
    return lambda s: intersect(s, seen)


def _whole(s: Spans) -> Spans:
    return s


def host_totals(parts: Iterable[HostPart], elapsed: int) -> HostTotals | None:
    """Return the sums over processes, None without any."""
    parts = tuple(parts)
    if not parts:
        return None
    return HostTotals(
        processes=sum(p.threads for p in parts),
        elapsed=elapsed,
        useful_time=sum(p.useful for p in parts),
        offload_time=sum(p.offload for p in parts),
        max_busy_time=max(p.busy for p in parts),
        parallel_time=sum(p.parallel for p in parts),
        off_time=sum(p.off for p in parts),
        calls=sum(p.process.calls for p in parts) if all(p.whole for p in parts) else None,
        instructions=_counted(parts, "instructions"),
        cycles=_counted(parts, "cycles"),
        resource="thread" if any(p.threads > 1 for p in parts) else "process",
        **_threads(parts),
    )


def _threads(parts: tuple[HostPart, ...]) -> dict[str, int]:
    """Return what threads lose by reason, nothing where no process has threads that wait for one another."""
    if not any(p.process.workers for p in parts):
        return {}
    return {f"openmp_{reason}_time": sum(getattr(p, reason) for p in parts) for reason in ("serialisation", "scheduling", "imbalance")}


def _counted(parts: tuple[HostPart, ...], name: str) -> int | None:
    """Return a hardware counter's sum, None unless every process has it over all that is looked at."""
    found = [_in_useful_time(p, p.process.counters.get(name)) if p.whole else None for p in parts]
    return None if None in found else sum(value for value in found if value is not None)


def _in_useful_time(part: HostPart, value: int | None) -> int | None:
    """Return a count over all of a process' useful time, where it was taken in a sample of it."""
    counters = part.process.counters
    if value is None or not counters.get("sampled"):
        return value
    return round(value * (part.useful + part.off) / counters["useful_time"]) if counters["useful_time"] else None


def counted_share(parts: Iterable[HostPart]) -> float | None:
    """Return in which share of useful time hardware counters were read, None where nothing was sampled."""
    sampled = [p for p in parts if p.process.counters.get("sampled")]
    useful = sum(p.useful + p.off for p in sampled)  # counters are read at the edges of calls, whatever the thread does between them
    return sum(p.process.counters["useful_time"] for p in sampled) / useful if useful else None


def device_totals(parts: Iterable[DevicePart], elapsed: int) -> DeviceTotals | None:
    """Return the sums and maxima over devices, None without any."""
    parts = tuple(parts)
    if not parts:
        return None
    matched = all(p.transfer is not None for p in parts)
    return DeviceTotals(
        devices=len(parts),
        elapsed=elapsed,
        kernel_time=sum(p.kernel for p in parts),
        collective_time=sum(p.collective for p in parts),
        memory_time=sum(p.memory for p in parts),
        max_kernel_time=max(p.kernel for p in parts),
        max_kernel_collective_time=max(p.kernel + p.collective for p in parts),
        max_active_time=max(p.kernel + p.collective + p.memory for p in parts),
        max_kernel_transfer_time=max(p.kernel + (p.transfer or 0) for p in parts) if matched else None,
        launches=sum(p.device.launches for p in parts) if all(p.whole for p in parts) else None,
        bytes=sum(p.device.bytes for p in parts) if all(p.whole for p in parts) else None,
    )
