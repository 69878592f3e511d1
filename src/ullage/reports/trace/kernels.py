"""What a run's devices spent their time on: kernels by family and by name, copies, and what of it computing hid."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ullage.errors import harmless
from ullage.kernels.family import family
from ullage.metrics.metric import ratio
from ullage.sums.lanes.kernels import OTHERS, Row, merge_kernels
from ullage.sums.lanes.run import Run, Windows, device_parts
from ullage.sums.lanes.spans import Spans, intersect
from ullage.sums.lanes.states import DeviceState

_MEMORY = ("memcpy", "memset")
LONGEST_NAME = 1 << 20  # characters; names of templates have some thousands, and tell kernels apart by their last
WORTH_SAYING = 1.001  # times the united time; less is not to be seen in the numbers


@dataclass(frozen=True)
class FamilyRow:
    """Kernels of one family: how often, how long in ns summed over streams, and their `share` of the summed kernel time."""

    family: str
    names: int
    count: int
    time: int
    share: float | None


@dataclass(frozen=True)
class KernelRow:
    """Kernels (or copies) of one name; times in ns. `share` is of the summed kernel time (of copies: of theirs)."""

    name: str
    family: str
    kind: str
    count: int
    time: int
    longest: int
    bytes: int
    share: float | None

    @property
    def mean(self) -> float:
        """The mean duration in ns."""
        return self.time / self.count


@dataclass(frozen=True)
class Overlap:
    """How much of a device's communication ran while it computed; unions over streams in ns.

    `collective` is when any collective ran, `collective_exposed` the part without a compute kernel; `memory` when any copy or
    memset ran, `memory_exposed` the part without any kernel.
    """

    device: str
    collective: int
    collective_exposed: int
    memory: int
    memory_exposed: int

    @property
    def collective_hidden(self) -> float | None:
        """The share of collective time that computing hid, None without collectives."""
        return ratio(self.collective - self.collective_exposed, self.collective) if self.collective else None

    @property
    def memory_hidden(self) -> float | None:
        """The share of copies' time that kernels hid, None without copies."""
        return ratio(self.memory - self.memory_exposed, self.memory) if self.memory else None


@dataclass(frozen=True)
class KernelSummary:
    """Where device time went. `families` and `kernels` are kernels and collectives, `copies` memory operations, all of them, most time
    first.

    `kernel_time` and `copy_time` are sums over streams and devices in ns: what ran side by side counts each time, so they can
    exceed the times in the trees, which are unions. `overlap` is of each device, `overlap_all` the sums over devices.
    """

    families: tuple[FamilyRow, ...]
    kernels: tuple[KernelRow, ...]
    copies: tuple[KernelRow, ...]
    kernel_time: int
    copy_time: int
    overlap: tuple[Overlap, ...]
    overlap_all: Overlap
    notes: tuple[str, ...]


def kernel_summary(run: Run, windows: Windows | None = None) -> KernelSummary:
    """Return what a run's devices did, by name and by family; `windows` are when the tables look at its processes, as the trees unless
    said otherwise."""
    looked = run.whole() if windows is None else windows
    sums = merge_kernels([capture.kernels for capture in run.captures])
    work = [row for row in sums.rows if row[1] not in _MEMORY]
    moves = [row for row in sums.rows if row[1] in _MEMORY]
    kernel_time, copy_time = sum(row[3] for row in work), sum(row[3] for row in moves)
    overlap = tuple(_overlap(run, device, looked, f"GPU {number}") for number, device in enumerate(run.devices))
    return KernelSummary(
        families=_families(work, kernel_time),
        kernels=tuple(_row(row, kernel_time) for row in work),
        copies=tuple(_row(row, copy_time) for row in moves),
        kernel_time=kernel_time,
        copy_time=copy_time,
        overlap=overlap,
        overlap_all=_sum(overlap),
        notes=_notes(run, looked, sums.folded, kernel_time),
    )


def family_of(name: str, kind: str) -> str:
    """Return the family of something that ran on a device: by its kind where that says it, else by its name."""
    if kind == "collective":
        return "collective"
    if kind == "graph":
        return "graph"
    if kind in _MEMORY:
        return "copy" if kind == "memcpy" else "memset"
    return "other" if name == OTHERS else family(name)


def _families(rows: list[Row], whole: int) -> tuple[FamilyRow, ...]:
    names, counts, times = Counter[str](), Counter[str](), Counter[str]()
    for name, kind, count, time, _, _ in rows:
        found = family_of(name, kind)
        names[found] += 1
        counts[found] += count
        times[found] += time
    ranked = sorted(times, key=lambda found: (-times[found], found))
    return tuple(FamilyRow(f, names[f], counts[f], times[f], ratio(times[f], whole) if whole else None) for f in ranked)


def _row(row: Row, whole: int) -> KernelRow:
    name, kind, count, time, longest, size = row
    shown = harmless(name, LONGEST_NAME) if name else "(unnamed)"
    return KernelRow(shown, family_of(name, kind), kind, count, time, longest, size, ratio(time, whole) if whole else None)


def _overlap(run: Run, device: DeviceState, windows: Windows, name: str) -> Overlap:
    """Return a device's overlap while it is looked at: all of it where no process is known to use any."""
    seen = run.seen(device, windows) if run.processes else None

    def time(what: Spans) -> int:
        return (what if seen is None else intersect(what, seen)).total

    return Overlap(
        device=name,
        collective=time(device.collective_all),
        collective_exposed=time(device.collective),
        memory=time(device.memory_all),
        memory_exposed=time(device.memory),
    )


def _sum(parts: tuple[Overlap, ...]) -> Overlap:
    return Overlap(
        device="all",
        collective=sum(p.collective for p in parts),
        collective_exposed=sum(p.collective_exposed for p in parts),
        memory=sum(p.memory for p in parts),
        memory_exposed=sum(p.memory_exposed for p in parts),
    )


def _notes(run: Run, windows: Windows, folded: int, kernel_time: int) -> tuple[str, ...]:
    notes = []
    united = sum(part.kernel + part.collective for part in device_parts(run, windows))
    if kernel_time > WORTH_SAYING * united:
        notes.append(f"kernels' times are summed over streams: {kernel_time / 1e9:.4g} s, of which {united / 1e9:.4g} s one after another")
    if folded:
        notes.append(f"{folded:,} kernel names that took little time are in one row '{OTHERS}', of family other")
    return tuple(notes)
