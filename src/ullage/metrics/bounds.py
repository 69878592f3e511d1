"""Between which values an efficiency surely lies, when the times it rests on are known only between bounds.

Every time is an interval `(low, high)` in one unit, whichever. Of each device are known K (kernels), K + C (with collectives)
and K + C + M (with anything running), each between bounds, and that the differences C and M are at least so much. A value
computed from times within their bounds lies within the value's bounds; the load balance's are the best possible.
"""

from __future__ import annotations

from collections.abc import Sequence

from ullage.metrics.metric import ratio
from ullage.metrics.trees import device_load_balance, device_parallel_efficiency

Interval = tuple[int, int]
Bounds = dict[str, tuple[float, float]]


def device_bounds(
    kernel: Sequence[Interval],
    kernel_collective: Sequence[Interval],
    active: Sequence[Interval],
    elapsed: Interval,
    least_collective: Sequence[int] | None = None,
    least_memory: Sequence[int] | None = None,
    kernel_transfer: Sequence[Interval] | None = None,
    most_collective: Sequence[int] | None = None,
    most_memory: Sequence[int] | None = None,
) -> Bounds:
    """Return the bounds of each device efficiency by metric; those that can't have a value are left out.

    The sequences are over devices: K, K + C, K + C + M, the least C and M (0 when left out), K + the part of C in which data
    moves where that is known, and the most C and M (no limit when left out).

    One device computes for 40 to 60 of 100 s; nothing else runs.

    >>> device_bounds([(40, 60)], [(40, 60)], [(40, 60)], (100, 100))["orchestration_efficiency"]
    (0.4, 0.6)
    """
    collective = least_collective or [0] * len(kernel)
    memory = least_memory or [0] * len(kernel)
    both = [c + m for c, m in zip(collective, memory, strict=True)]
    found = {
        "device_parallel_efficiency": _parallel(kernel, elapsed),
        "device_load_balance": load_balance(kernel),
        "device_communication_efficiency": of_maxima(kernel, active, both, _sums(most_collective, most_memory)),
        "collective_efficiency": of_maxima(kernel, kernel_collective, collective, most_collective),
        "copy_efficiency": of_maxima(kernel_collective, active, memory, most_memory),
        "orchestration_efficiency": of_maxima(active, [elapsed] * len(active)),
    }
    if kernel_transfer is not None:
        found["transfer_efficiency"] = of_maxima(kernel, kernel_transfer)
        found["arrival_efficiency"] = of_maxima(kernel_transfer, kernel_collective)
    return {metric: bounds for metric, bounds in found.items() if bounds is not None}


def host_bounds(useful: Sequence[Interval], busy: Sequence[Interval], elapsed: Interval, off: Sequence[int] | None = None) -> Bounds:
    """Return the bounds of each host efficiency by metric; those that can't have a value are left out.

    The sequences are over processes: U, U + W and time off the CPU (useful time and time in the GPU's interface), and the latter alone.

    >>> host_bounds([(30, 40)], [(80, 80)], (100, 100))["device_offload_efficiency"]
    (0.375, 0.5)
    """
    low, high = _sum(busy)
    on_cpu = low - sum(off or ()), high - sum(off or ())
    found = {
        "host_parallel_efficiency": _parallel(useful, elapsed),
        "mpi_parallel_efficiency": _parallel(busy, elapsed),
        "host_load_balance": load_balance(busy),
        "host_communication_efficiency": of_maxima(busy, [elapsed] * len(busy)),
        "device_offload_efficiency": of_maxima([_sum(useful)], [on_cpu]),
        "on_cpu_efficiency": of_maxima([on_cpu], [_sum(busy)], [sum(off or ())], [sum(off or ())]),
    }
    return {metric: bounds for metric, bounds in found.items() if bounds is not None}


def load_balance(times: Sequence[Interval]) -> tuple[float, float] | None:
    """Return the least and the greatest mean over maximum of some times, each anywhere within its interval; None if all are 0.

    Least: one time as long as it can be, the others as short. Greatest: the maximum as low as it can be, the greatest of the
    lower ends, and every time as long as that allows; for a higher maximum the sum grows more slowly than the maximum.

    Two devices, of 10 and of 0 to 20: at worst 10 and 0, at best 10 and 10.

    >>> load_balance([(10, 10), (0, 20)])
    (0.5, 1.0)
    """
    devices, most, least_sum = len(times), max((low for low, _ in times), default=0), sum(low for low, _ in times)
    if not any(high for _, high in times):
        return None
    lows = [
        device_load_balance(kernel_time=least_sum - low + high, devices=devices, max_kernel_time=max(high, most))
        for low, high in times
        if high
    ]
    if most:
        return min(lows), device_load_balance(kernel_time=sum(min(high, most) for _, high in times), devices=devices, max_kernel_time=most)
    return min(lows), sum(1 for _, high in times if high) / devices  # all of them as short as one another


def of_maxima(
    parts: Sequence[Interval], wholes: Sequence[Interval], rest: Sequence[int] | None = None, most_rest: Sequence[int] | None = None
) -> tuple[float, float] | None:
    """Return the least and the greatest of max(parts) / max(wholes); None if all wholes are 0.

    Each part lies within its whole, of which at least `rest` (0 when left out) and at most `most_rest` is left over: then the
    greatest part is at most the greatest `most_rest` short of the greatest whole.

    Two devices with K of 0 to 50, both active 50 of which 10 are no kernel: at most 40 / 50.

    >>> of_maxima([(0, 50), (0, 50)], [(50, 50), (50, 50)], [10, 10])
    (0.0, 0.8)

    One device active for 90 to 100, of which at most 9 are no kernel:

    >>> of_maxima([(80, 100)], [(90, 100)], [0], [9])
    (0.9, 1.0)
    """
    least, most = max((low for low, _ in wholes), default=0), max((high for _, high in wholes), default=0)
    if not most:
        return None
    rest = rest or [0] * len(parts)
    highs = [min(part[1], whole[1] - over) for part, whole, over in zip(parts, wholes, rest, strict=True)]
    low = max((low for low, _ in parts), default=0)
    greatest = max((ratio(high, max(least, high + over)) or 0.0 for high, over in zip(highs, rest, strict=True)), default=0.0)
    short = 1 - max(most_rest) / least if most_rest and least else 0.0
    return min(max(min(low, most) / most, short), greatest), greatest


def _sums(one: Sequence[int] | None, other: Sequence[int] | None) -> list[int] | None:
    return None if one is None or other is None else [a + b for a, b in zip(one, other, strict=True)]


def _parallel(times: Sequence[Interval], elapsed: Interval) -> tuple[float, float] | None:
    if not times or not elapsed[0]:
        return None
    low, high = _sum(times)
    worst = device_parallel_efficiency(kernel_time=low, devices=len(times), elapsed=elapsed[1])
    best = device_parallel_efficiency(kernel_time=min(high, len(times) * elapsed[0]), devices=len(times), elapsed=elapsed[0])
    return worst, best


def _sum(times: Sequence[Interval]) -> Interval:
    return sum(low for low, _ in times), sum(high for _, high in times)
