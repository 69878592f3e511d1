"""The additive and the maximal times from which the efficiency trees are computed: sums first, ratios last.

A trace gives them through `sums/lanes`, a TALP file states them. All times are integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeVar

Resource = Literal["process", "thread", "CPU"]
RESOURCES: dict[Resource, str] = {"process": "processes", "thread": "threads", "CPU": "CPUs"}  # of one, and of many


@dataclass(frozen=True)
class Factors:
    """Which factors the hosts' tree of a program can have, by what was seen of it in the whole run.

    `mpi`: it calls MPI. `processes`: several processes, or one that waits for others (by MPI, gloo, …), so that the load may be
    uneven and communication may cost. `openmp`: its threads wait for one another. `devices`: it uses devices. `off`: it was recorded when
    processes were on no processor.
    """

    mpi: bool = False
    processes: bool = False
    openmp: bool = False
    devices: bool = False
    off: bool = False


@dataclass(frozen=True)
class HostTotals:
    """Of `processes` host resources over `elapsed`; `resource` says what they are: processes, their threads where these are
    recorded, or CPUs where the source counts CPU time.

    `useful_time` ΣU, `offload_time` ΣW, `off_time` what processes were on no processor beside all else (0 where that is not recorded:
    then it is part of U), `max_busy_time` max over processes of U + W and such time (None where a source of sums doesn't give
    it). The rest of `processes × elapsed` is communication. What OpenMP-like threads lose is `parallel_time` (0 without them; it
    is not part of U). Where a source counts CPU time and says what threads lose it to, the three `openmp_*_time` add up to
    `parallel_time`, and `max_busy_time` is the longest U + W + parallel time of a process, per CPU. Counters are sums over the
    run, None where the source has none.
    """

    processes: int
    elapsed: int
    useful_time: int
    offload_time: int
    max_busy_time: int | None
    parallel_time: int = 0
    instructions: int | None = None
    cycles: int | None = None
    calls: int | None = None
    openmp_imbalance_time: int | None = None
    openmp_scheduling_time: int | None = None
    openmp_serialisation_time: int | None = None
    resource: Resource = "process"
    off_time: int = 0

    def sums(self) -> dict[str, float]:
        """Return the times by the names of the metrics' parameters."""
        return {name: value for name, value in asdict(self).items() if value is not None and name != "resource"}


@dataclass(frozen=True)
class DeviceTotals:
    """Of `devices` over `elapsed`: times in which a device ran kernels, only collectives, only memory operations.

    `kernel_time` ΣK of compute kernels, `collective_time` ΣC, `memory_time` ΣM; `max_kernel_time` max K,
    `max_kernel_collective_time` max (K + C), `max_active_time` max (K + C + M), each over devices. `max_kernel_transfer_time`
    is max (K + the part of C in which data moves), None unless the same collectives of all ranks were matched.
    `launches` counts kernels, `bytes` what was copied.
    """

    devices: int
    elapsed: int
    kernel_time: int
    collective_time: int
    memory_time: int
    max_kernel_time: int
    max_kernel_collective_time: int
    max_active_time: int
    max_kernel_transfer_time: int | None = None
    launches: int | None = None
    bytes: int | None = None

    def sums(self) -> dict[str, float]:
        """Return the times by the names of the metrics' parameters, in `ai` mode."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def counting_collectives(self) -> DeviceTotals:
        """Return the same in `talp` mode: a collective counts as useful work, so K is K + C and nothing is C.

        >>> DeviceTotals(1, 10, 4, 3, 1, 4, 7, 8).counting_collectives().kernel_time
        7
        """
        return DeviceTotals(
            devices=self.devices,
            elapsed=self.elapsed,
            kernel_time=self.kernel_time + self.collective_time,
            collective_time=0,
            memory_time=self.memory_time,
            max_kernel_time=self.max_kernel_collective_time,
            max_kernel_collective_time=self.max_kernel_collective_time,
            max_active_time=self.max_active_time,
            launches=self.launches,
            bytes=self.bytes,
        )


T = TypeVar("T", HostTotals, DeviceTotals)


@dataclass(frozen=True)
class Region:
    """A region's totals as a source states them, by name; `stated` holds efficiencies that the source printed (TALP JSON).

    `given` holds the raw numbers behind the totals under the source's own names. `share` names the process whose part of the
    run this is, where a run is spread over one file a process; it is empty for a whole run: see `united`.
    """

    name: str
    host: HostTotals | None
    device: DeviceTotals | None
    stated: dict[str, float]
    given: dict[str, float] = field(default_factory=dict)
    share: str = ""


def united(shares: Iterable[Region]) -> Region:
    """Return a region of a run from its processes' shares of it: times add up, elapsed and maximal times are the longest.

    What one share doesn't know, the whole doesn't. A GPU that several processes used counts once for each of them.

    >>> one, two = (Region("Global", HostTotals(1, 100, busy, 0, busy), None, {}, share=str(busy)) for busy in (60, 80))
    >>> united([one, two]).host.useful_time, united([one, two]).host.max_busy_time
    (140, 80)
    """
    parts = list(shares)
    hosts = [r.host for r in parts if r.host is not None]
    devices = [r.device for r in parts if r.device is not None]
    return Region(parts[0].name, _summed(hosts), _summed(devices), {})


_LONGEST = ("elapsed", "max_")


def _summed(parts: list[T]) -> T | None:
    if not parts:
        return None
    sums: dict[str, Any] = {}
    for name in asdict(parts[0]).keys() - {"resource"}:
        values = [getattr(part, name) for part in parts]
        sums[name] = None if None in values else max(values) if name.startswith(_LONGEST) else sum(values)
    return replace(parts[0], **sums)
