"""Between which bounds the times of devices and hosts lie: what is in doubt, and the step of the clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ullage.sums.lanes.run import DevicePart, HostPart
from ullage.sums.lanes.spans import Spans

Interval = tuple[int, int]


@dataclass(frozen=True)
class DeviceRanges:
    """Of each device the bounds of K, K + C, K + C + M (`active`), and the least and the most C and M, in ns.

    `kernel_transfer` is K + the part of C in which data moves, None unless known of all. The names are those of the parameters of
    `ullage.metrics.bounds.device_bounds`.
    """

    kernel: tuple[Interval, ...]
    kernel_collective: tuple[Interval, ...]
    active: tuple[Interval, ...]
    least_collective: tuple[int, ...]
    least_memory: tuple[int, ...]
    kernel_transfer: tuple[Interval, ...] | None = None
    most_collective: tuple[int, ...] | None = None
    most_memory: tuple[int, ...] | None = None

    def counting_collectives(self) -> DeviceRanges:
        """Return the same in `talp` mode: a collective counts as useful work, so K is K + C and nothing is C."""
        nothing = tuple(0 for _ in self.least_collective)
        return replace(self, kernel=self.kernel_collective, least_collective=nothing, kernel_transfer=None, most_collective=nothing)


@dataclass(frozen=True)
class HostRanges:
    """Of each process the bounds of U, and of U + W and time off the CPU, and the latter, in ns; the names are those of
    `ullage.metrics.bounds.host_bounds`."""

    useful: tuple[Interval, ...]
    busy: tuple[Interval, ...]
    off: tuple[int, ...]


def device_ranges(parts: Iterable[DevicePart]) -> DeviceRanges:
    """Return the bounds of devices' times, in `ai` mode.

    Unknown time may be a kernel's, a collective's, a memory operation's, or idle; so may time in which only a graph's run as a whole
    was recorded. Where nothing is in doubt and the clock counts nanoseconds, the bounds are the times themselves.
    """
    parts = tuple(parts)
    matched = all(p.transfer is not None for p in parts)
    return DeviceRanges(
        kernel=tuple(_between(p, p.kernel, p.pieces[0]) for p in parts),
        kernel_collective=tuple(_between(p, p.kernel + p.collective, sum(p.pieces[:2])) for p in parts),
        active=tuple(_between(p, p.kernel + p.collective + p.memory, sum(p.pieces)) for p in parts),
        least_collective=tuple(max(p.collective - 2 * _step(p.device.resolution) * p.pieces[1], 0) for p in parts),
        least_memory=tuple(max(p.memory - 2 * _step(p.device.resolution) * p.pieces[2], 0) for p in parts),
        kernel_transfer=tuple(_between(p, p.kernel + (p.transfer or 0), sum(p.pieces[:2])) for p in parts) if matched else None,
        most_collective=tuple(_most(p, p.collective, p.device.collective_all) for p in parts),
        most_memory=tuple(_most(p, p.memory, p.device.memory_all) for p in parts),
    )


def host_ranges(parts: Iterable[HostPart], resolution: int, unknown: Iterable[int] | None = None) -> HostRanges:
    """Return the bounds of processes' times on a clock with steps of `resolution` ns; `unknown` is how long each was not recorded."""
    step, parts = _step(resolution), tuple(parts)
    useful, busy = [], []
    for part, more in zip(parts, (0,) * len(parts) if unknown is None else unknown, strict=True):
        calls, talks = part.pieces
        useful.append(_more(_lost(part.useful, part.elapsed, step * (talks + calls)), more))
        busy.append(_more(_lost(part.busy, part.elapsed, step * talks), more))
    return HostRanges(tuple(useful), tuple(busy), tuple(part.off for part in parts))


def _more(time: Interval, unknown: int) -> Interval:
    return time[0], time[1] + unknown


def _between(part: DevicePart, time: int, pieces: int) -> Interval:
    """Return the bounds of a time that consists of some pieces, between 0 and the elapsed time.

    A source that counts in whole steps cuts down starts and durations, each alone: a piece may begin up to a step later than it
    says and end up to two steps later.
    """
    step, elapsed = _step(part.device.resolution), part.kernel + part.collective + part.memory + part.idle
    return max(time - part.graph - step * pieces, 0), min(time + part.unknown + 2 * step * pieces, elapsed)


def _most(part: DevicePart, time: int, all_of_it: Spans) -> int:
    """Return the most that a state may last which shows only where nothing better runs; `all_of_it` is when it was recorded at all."""
    doubt = part.unknown + part.graph
    return time + doubt + (2 * _step(part.device.resolution) * sum(part.pieces) if all_of_it.pieces else 0)


def _lost(time: int, elapsed: int, slack: int) -> Interval:
    """Return the bounds of what remains when pieces that are up to a step shorter or two steps longer are taken away."""
    return max(time - 2 * slack, 0), min(time + slack, elapsed)


def _step(resolution: int) -> int:
    """Return by how much a moment may be off: nothing on a clock that counts nanoseconds."""
    return resolution if resolution > 1 else 0
