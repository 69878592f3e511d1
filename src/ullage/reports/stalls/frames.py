"""A stall report as a tree of frames, each as wide as its samples: kernel, line of source or instruction, stall reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ullage.reports.stalls.shares import KernelStalls, Spot, StallReport


@dataclass(frozen=True)
class Frame:
    """A box of a flame graph: what it stands for, its samples, and what stands on it, most samples first.

    `group` is that of a stall reason (`ullage.cupti.stalls.GROUPS`), "" for the rest.
    """

    name: str
    samples: int
    children: tuple[Frame, ...] = ()
    group: str = ""


def frames(report: StallReport) -> Frame:
    """Return the root: all samples, with the kernels on it."""
    kernels = [_frame(one.name, [_line(name, spots) for name, spots in _lines(one)]) for one in report.kernels]
    return _frame("all samples", kernels)


def paths(frame: Frame, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the names from below the root to each frame that carries nothing, with its samples.

    >>> list(paths(Frame("all", 3, (Frame("a", 3, (Frame("b", 2), Frame("c", 1))),))))
    [(('a', 'b'), 2), (('a', 'c'), 1)]
    """
    for child in frame.children:
        names = (*above, child.name)
        if child.children:
            yield from paths(child, names)
        else:
            yield names, child.samples


def place(spot: Spot) -> str:
    """Return what an instruction is counted under: its line of source, else itself."""
    if spot.place is not None:
        return spot.place.short
    return f"0x{spot.pc:04x} {spot.instruction}" if spot.instruction is not None else f"0x{spot.pc:04x}"


def _lines(kernel: KernelStalls) -> list[tuple[str, list[Spot]]]:
    found: dict[str, list[Spot]] = defaultdict(list)
    for spot in kernel.spots:
        found[place(spot)].append(spot)
    return list(found.items())


def _line(name: str, spots: list[Spot]) -> Frame:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for share in (one for spot in spots for one in spot.shares):
        counts[share.reason.name, share.reason.group] += share.samples
    return _frame(name, [Frame(reason, count, (), group) for (reason, group), count in counts.items()])


def _frame(name: str, children: list[Frame]) -> Frame:
    ordered = tuple(sorted(children, key=lambda one: (-one.samples, one.name)))
    return Frame(name, sum(one.samples for one in ordered), ordered)
