"""The trees of a process while it runs, or of any recording: host and device efficiencies from sums of time.

`ullage.read_trace` gives the same trees and much beside them; what is here needs NumPy and pyarrow alone.
"""

from __future__ import annotations

from ullage.live.process_tree import Tree as Tree
from ullage.live.times import DeviceTimes, Times
from ullage.metrics.bounds import Bounds, device_bounds, host_bounds
from ullage.metrics.host import host_tree
from ullage.metrics.tree import DEVICE_AI, DEVICE_TALP, Node, bounded, evaluate
from ullage.recording import Mode
from ullage.sums.lanes.bounds import device_ranges
from ullage.sums.lanes.run import DevicePart, device_totals
from ullage.sums.lanes.spans import NONE
from ullage.sums.lanes.states import DeviceState
from ullage.totals import DeviceTotals, Factors, HostTotals


def tree(
    name: str, times: Times, *, lane: int | None, devices: int, mode: Mode, notes: tuple[str, ...] = (), factors: Factors | None = None
) -> Tree:
    """Return the trees of some times: `lane` is the thread whose calls are the process' host lane, `devices` how many the process uses.

    `factors` are those of the whole run (None: what the times show, communication being by MPI).

    One device computes for 5 of 10 ns; the host launches for 1 and waits for 4:

    >>> found = tree("run", Times(10, 0, {1: 5}, {0: DeviceTimes(kernel=5)}), lane=1, devices=1, mode="talp")
    >>> found["device_parallel_efficiency"], found["host_parallel_efficiency"]
    (0.5, 0.5)
    """
    if not times.elapsed:
        return Tree(name, mode=mode, notes=notes)
    offload = times.offload.get(lane, 0) if lane is not None else 0
    busy = times.elapsed - times.communication - times.recorder
    host = HostTotals(1, times.elapsed, busy - offload, offload, busy)
    parts = [_part(times.elapsed, one) for one in times.devices.values()]
    parts += [_part(times.elapsed, DeviceTimes())] * (devices - len(parts))
    device = device_totals(parts, times.elapsed)
    if device is not None and mode == "talp":
        device = device.counting_collectives()
    factors = factors or Factors(mpi=times.communication > 0, devices=device is not None or offload > 0)
    return Tree(
        name=name,
        elapsed=times.elapsed,
        mode=mode,
        host=bounded(evaluate(host_tree(factors), host.sums()), _host(host, times.open.get(lane, 0) if lane is not None else 0)),
        device=None if device is None else _device(device, parts, mode),
        host_totals=host,
        device_totals=device,
        notes=notes,
    )


def _host(totals: HostTotals, still: int) -> Bounds:
    """Return between what the host's efficiencies lie: for so long it may be in a call that is not over yet."""
    useful, busy, elapsed = totals.useful_time, totals.useful_time + totals.offload_time, totals.elapsed
    return host_bounds([(max(useful - still, 0), useful)], [(busy, busy)], (elapsed, elapsed))


def _part(elapsed: int, times: DeviceTimes) -> DevicePart:
    return DevicePart(
        device=DeviceState("", "", (), NONE, NONE, NONE),
        kernel=times.kernel,
        collective=times.collective,
        memory=times.memory,
        idle=elapsed - times.kernel - times.collective - times.memory,
        unknown=times.unknown,
        transfer=None,
        pieces=(0, 0, 0),
        whole=False,
        graph=times.graph,
    )


def _device(totals: DeviceTotals, parts: list[DevicePart], mode: Mode) -> Node:
    """Return the device's tree with bounds: what may have run though it was not recorded."""
    ranges = device_ranges(parts)
    found = device_bounds(**vars(ranges if mode == "ai" else ranges.counting_collectives()), elapsed=(totals.elapsed, totals.elapsed))
    return bounded(evaluate(DEVICE_AI if mode == "ai" else DEVICE_TALP, totals.sums()), found)
