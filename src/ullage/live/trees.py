"""The trees of a process while it runs, or of any recording: host and device efficiencies from sums of time.

`ullage.read_trace` gives the same trees and much beside them; what is here needs NumPy and pyarrow alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ullage.live.process_tree import ProcessTree as ProcessTree
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
) -> ProcessTree:
    """Return the trees of some times: `lane` is the thread whose calls are the process' host lane, `devices` how many the process uses.

    `factors` are those of the whole run (None: what the times show, communication being by MPI).

    One device computes for 5 of 10 ns; the host launches for 1 and waits for 4:

    >>> found = tree("run", Times(10, 0, {1: 5}, {0: DeviceTimes(kernel=5)}), lane=1, devices=1, mode="talp")
    >>> found["device_parallel_efficiency"], found["host_parallel_efficiency"]
    (0.5, 0.5)
    """
    factors = factors or Factors(mpi=times.communication > 0, devices=devices > 0 or any(times.offload.values()))
    return together(name, [ProcessShare(times, lane, dict.fromkeys(range(devices), ""), factors)], mode=mode, notes=notes)


@dataclass(frozen=True)
class ProcessShare:
    """What one process has in a run: its times, the thread that is its host lane, and the devices that it uses, by number, with what
    tells each apart from others' ("": not known). `own` is its own thread, which counts where none calls CUDA. `factors` are those that it
    shows in all of its run, `prefers` the mode that suits it (None: either)."""

    times: Times
    lane: int | None = None
    devices: Mapping[int, str] = field(default_factory=dict)
    factors: Factors = field(default_factory=Factors)
    prefers: Mode | None = None
    own: int | None = None

    @property
    def busy(self) -> int:
        """Return for how long it was useful, in CUDA's interface or off the CPU, in ns."""
        return self.times.elapsed - self.times.communication - self.times.recorder

    @property
    def offload(self) -> int:
        """Return for how long it was in CUDA's interface, in ns."""
        return self.times.offload.get(self.lane, 0) if self.lane is not None else 0

    @property
    def useful(self) -> int:
        """Return for how long it was useful, in ns."""
        return self.busy - self.offload - self.off

    @property
    def off(self) -> int:
        """Return for how long it was on no processor and did none of the rest, in ns."""
        thread = self.own if self.lane is None else self.lane
        return self.times.off.get(thread, 0) if thread is not None else 0

    @property
    def kernels(self) -> float | None:
        """Return for how long each of its devices ran kernels, in ns: their mean, collectives left out; None without a device."""
        numbers = self.devices.keys() | self.times.devices.keys()
        return sum(device.kernel for device in self.times.devices.values()) / len(numbers) if numbers else None

    @property
    def still(self) -> int:
        """Return for how long it may have been in a call that is not over yet, in ns."""
        return self.times.open.get(self.lane, 0) if self.lane is not None else 0


def together(name: str, shares: Sequence[ProcessShare], *, mode: Mode, notes: tuple[str, ...] = ()) -> ProcessTree:
    """Return the trees of a run's processes over the same time; those that are not looked at in it are left out.

    Two ranks of 10 ns, one communicates for 5: 15 of 20 are useful, and the busier one is so all the time.

    >>> found = together("run", [ProcessShare(Times(10)), ProcessShare(Times(10, communication=5))], mode="talp")
    >>> found["host_parallel_efficiency"], found["host_load_balance"], found["host_communication_efficiency"]
    (0.75, 0.75, 1.0)
    """
    factors = Factors(
        mpi=any(share.factors.mpi for share in shares),
        processes=len(shares) > 1 or any(share.factors.processes for share in shares),
        devices=any(share.factors.devices for share in shares),
        off=any(share.factors.off for share in shares),
    )
    shares = [share for share in shares if share.times.elapsed]
    if not shares:
        return ProcessTree(name, mode=mode, notes=notes)
    elapsed = max(share.times.elapsed for share in shares)
    useful, offload = (sum(getattr(share, what) for share in shares) for what in ("useful", "offload"))
    host = HostTotals(
        len(shares), elapsed, useful, offload, max(share.busy for share in shares), off_time=sum(share.off for share in shares)
    )
    parts = [] if (several := used_by_several(shares)) else [part for share in shares for part in _parts(share, elapsed)]
    device = device_totals(parts, elapsed)
    if device is not None and mode == "talp":
        device = device.counting_collectives()
    return ProcessTree(
        name=name,
        elapsed=elapsed,
        mode=mode,
        host=bounded(evaluate(host_tree(factors), host.sums()), _host(shares, elapsed)),
        device=None if device is None else _device(device, parts, mode),
        host_totals=host,
        device_totals=device,
        notes=(*notes, *([_SEVERAL.format(several)] if several else [])),
    )


_SEVERAL = (
    "{} of the devices are used by several processes, whose times on them can't be united while they run: there is no device tree yet"
)


def used_by_several(shares: Sequence[ProcessShare]) -> int:
    """Return how many devices several processes use."""
    users = Counter(key for share in shares for key in set(share.devices.values()) if key)
    return sum(count > 1 for count in users.values())


def _host(shares: Sequence[ProcessShare], elapsed: int) -> Bounds:
    """Return between what the host's efficiencies lie: a process may be in a call that is not over yet."""
    useful = [(max(share.useful - share.still, 0), share.useful) for share in shares]
    return host_bounds(useful, [(share.busy, share.busy) for share in shares], (elapsed, elapsed), [share.off for share in shares])


def _parts(share: ProcessShare, elapsed: int) -> list[DevicePart]:
    times = [share.times.devices.get(number, DeviceTimes()) for number in sorted(share.devices.keys() | share.times.devices.keys())]
    return [_part(elapsed, one) for one in times]


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
