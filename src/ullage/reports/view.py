"""The trees of one part of a run: the whole, a region, a step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ullage.metrics.openmp import HOST_OPENMP
from ullage.metrics.tree import DEVICE_AI, DEVICE_TALP, HOST, HOST_ALONE, Branch, Node, evaluate
from ullage.recording import Mode
from ullage.sums.lanes.run import DevicePart, HostPart
from ullage.totals import DeviceTotals, HostTotals


@dataclass(frozen=True)
class View:
    """The host's and the device's tree over `elapsed` ns, the totals they come from (in the report's mode), and each lane's times.

    A tree is None without hosts or devices. The parts are empty where the source states sums only.
    """

    name: str
    elapsed: int
    host: Node | None
    device: Node | None
    host_totals: HostTotals | None
    device_totals: DeviceTotals | None
    host_parts: tuple[HostPart, ...] = ()
    device_parts: tuple[DevicePart, ...] = ()


def view(
    name: str,
    elapsed: int,
    host_totals: HostTotals | None,
    device_totals: DeviceTotals | None,
    mode: Mode,
    host_parts: tuple[HostPart, ...] = (),
    device_parts: tuple[DevicePart, ...] = (),
) -> View:
    """Return a part of a run with its trees; `device_totals` have collectives apart, as in `ai` mode.

    In `talp` mode collectives are counted as useful work, and the view's totals say so too. Without devices and without time in
    a GPU's interface the host's tree is POP's plain one.

    Two processes over 100 ns, useful for 30 and 50:

    >>> view("all", 100, HostTotals(2, 100, useful_time=80, offload_time=0, max_busy_time=50), None, "talp").host.value
    0.4
    """
    device = device_totals
    if device is not None and mode == "talp":
        device = device.counting_collectives()
    return View(
        name=name,
        elapsed=elapsed,
        host=None if host_totals is None else evaluate(_branch(host_totals, device), host_totals.sums()),
        device=None if device is None else evaluate(DEVICE_TALP if mode == "talp" else DEVICE_AI, device.sums()),
        host_totals=host_totals,
        device_totals=device,
        host_parts=host_parts,
        device_parts=device_parts,
    )


def same_mode(views: Iterable[View]) -> bool:
    """Return whether all views count collectives alike: apart (`ai` mode) or as useful work (`talp` mode)."""
    split = [v.device for v in views if v.device is not None and v.device.children]
    return len({tree.find("copy_efficiency") is not None for tree in split}) < 2


def _branch(host: HostTotals, device: DeviceTotals | None) -> Branch:
    """Return the host's tree that suits a run: with a branch for what threads lose, for devices, or POP's plain one."""
    if host.openmp_imbalance_time is not None and host.parallel_time:
        return HOST_OPENMP
    return HOST if device is not None or host.offload_time > 0 else HOST_ALONE
