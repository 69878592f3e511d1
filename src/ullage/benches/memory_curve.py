"""Latency over footprint: the curve that shows the levels of memory, their sizes, and what lies between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.benches.bench import Case, TableLayout, Target, bench
from ullage.benches.chase import LINE, chase
from ullage.benches.plateaus import plateaus
from ullage.benches.result import CaseRow

SMALLEST = 8 * 1024
WARMED = 2**20  # footprints up to this go round once before the clock starts; larger ones are swept


def levels(rows: Sequence[CaseRow]) -> tuple[str, ...]:
    """Return what a measured curve says in words: a sentence for each plateau, nothing without one."""
    points = [(float(str(row.labels["footprint"])), row.values["latency"].value) for row in rows if "latency" in row.values]
    found = plateaus([footprint for footprint, _ in points], [latency for _, latency in points])
    return tuple(f"{one.level:,.0f} cycles from {_size(one.first)} to {_size(one.last)}" for one in found)


def _size(footprint: float) -> str:
    return f"{footprint / 2**20:,.3g} MiB" if footprint >= 2**20 else f"{footprint / 1024:,.3g} KiB"


@bench(
    "memory-curve",
    title="Latency over footprint",
    source="the method of table IV of the Hopper paper, section III-A, over all footprints",
    layout=TableLayout(rows=("footprint",), plot=("footprint", "latency", ())),
    findings=levels,
    seconds=15,
)
def memory_curve(target: Target, quick: bool) -> Iterator[Case]:
    """SM cycles of a load over the bytes that are visited: flat where one level holds them, rising where two share them.

    A pointer chase of one thread, `ld.global.ca`, in random order over lines of 128 B, from 8 KiB to eight times the L2. The first
    plateau is the L1 cache, the next the L2 (two where the L2 has a near and a far partition), the last global memory. Beyond the
    L2 the curve rises slowly, because a part of the lines, L2 over footprint, is still found there; and it rises above the figure of
    `memory-latency`, because a random order over many pages misses the TLB. Where a plateau ends is the size that one thread can use.

    The GPU makes the ring of a point itself, and the host knows by arithmetic where the chase must arrive: a point costs the host some
    kilobytes, the GPU its footprint, and both about half a second, whatever the footprint.
    """
    for footprint in footprints(target, steps=1 if quick else 2):
        yield chase({"footprint": footprint}, "ca", footprint, rounds=1 if footprint <= WARMED else 0)


def footprints(target: Target, steps: int) -> list[int]:
    """Return footprints in bytes, `steps` an octave, in whole cache lines, to eight times the L2 or a quarter of the memory.

    >>> [size // 1024 for size in footprints(Target("sm_90a", l2=8 * 1024), steps=1)]
    [8, 16, 32, 64]
    """
    most = min(8 * target.l2, target.memory // 4)
    sizes = (round(SMALLEST * 2 ** (n / steps) / LINE) * LINE for n in range(32 * steps))
    return [size for size in sizes if size <= most]
