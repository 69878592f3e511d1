"""The trees of one part of a run: the whole, a region, a step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ullage.metrics.host import host_tree
from ullage.metrics.tree import DEVICE_AI, DEVICE_TALP, Node, evaluate
from ullage.recording import Mode
from ullage.sums.lanes.run import DevicePart, HostPart
from ullage.totals import DeviceTotals, Factors, HostTotals


@dataclass(frozen=True)
class RunPart:
    """The host's and the device's tree over `elapsed` ns, the totals they come from (in the report's mode), and each lane's times.

    A tree is None without hosts or devices. The parts are empty where the source states sums only. `factors` are those that the
    host's tree has.
    """

    name: str
    elapsed: int
    host: Node | None
    device: Node | None
    host_totals: HostTotals | None
    device_totals: DeviceTotals | None
    host_parts: tuple[HostPart, ...] = ()
    device_parts: tuple[DevicePart, ...] = ()
    factors: Factors = field(default_factory=Factors)


def view(
    name: str,
    elapsed: int,
    host_totals: HostTotals | None,
    device_totals: DeviceTotals | None,
    mode: Mode,
    host_parts: tuple[HostPart, ...] = (),
    device_parts: tuple[DevicePart, ...] = (),
    factors: Factors | None = None,
) -> RunPart:
    """Return a part of a run with its trees; `device_totals` have collectives apart, as in `ai` mode.

    In `talp` mode collectives are counted as useful work, and the view's totals say so too. `factors` are those of the whole run (None:
    what the totals show, of a program with MPI).

    Two processes over 100 ns, useful for 30 and 50:

    >>> view("all", 100, HostTotals(2, 100, useful_time=80, offload_time=0, max_busy_time=50), None, "talp").host.value
    0.4
    """
    device = device_totals
    if device is not None and mode == "talp":
        device = device.counting_collectives()
    seen = None if host_totals is None else _factors(host_totals, device is not None, factors)
    return RunPart(
        name=name,
        elapsed=elapsed,
        host=None if host_totals is None or seen is None else evaluate(host_tree(seen), _sums(host_totals)),
        device=None if device is None else evaluate(DEVICE_TALP if mode == "talp" else DEVICE_AI, device.sums()),
        host_totals=host_totals,
        device_totals=device,
        host_parts=host_parts,
        device_parts=device_parts,
        factors=seen or Factors(),
    )


def same_mode(views: Iterable[RunPart]) -> bool:
    """Return whether all views count collectives alike: apart (`ai` mode) or as useful work (`talp` mode)."""
    split = [v.device for v in views if v.device is not None and v.device.children]
    return len({tree.find("copy_efficiency") is not None for tree in split}) < 2


def _factors(host: HostTotals, devices: bool, of_the_run: Factors | None) -> Factors:
    """Return the factors of a part of a run: the whole run's, and any by which the part does lose, so that its tree multiplies."""
    busy = host.useful_time + host.offload_time + host.parallel_time
    found = of_the_run or Factors(mpi=True, processes=True, openmp=host.parallel_time > 0, devices=devices)
    return replace(
        found,
        processes=found.processes or busy != host.processes * host.elapsed,
        openmp=found.openmp or host.parallel_time > 0,
        devices=found.devices or host.offload_time > 0,
    )


def _sums(host: HostTotals) -> dict[str, float]:
    """Return the totals with what threads lost, nothing where none of it is told and none was lost."""
    nothing = {} if host.parallel_time else {f"openmp_{why}_time": 0 for why in ("imbalance", "scheduling", "serialisation")}
    return nothing | host.sums()
