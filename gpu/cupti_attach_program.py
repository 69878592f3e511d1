"""The program that a recorder comes into and leaves at run time, that forks, and that meets another profiler."""

from __future__ import annotations

import ctypes
import importlib
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from gpu.apart import tell
from gpu.cupti_device import Device
from gpu.cupti_load_program import kernels
from gpu.cupti_overhead_program import replayed_pass
from gpu.cupti_tools import refusal
from gpu.cupti_training_program import Step
from ullage.cupti import permissions
from ullage.cupti.counters.ranges import Ranges
from ullage.cupti.kinds import ActivityKind
from ullage.cupti.layouts import layouts
from ullage.cupti.library import find
from ullage.errors import UllageError
from ullage.live import session

EACH = 500  # µs of a kernel
BEFORE, FIRST, PAUSED, RESUMED, BETWEEN, SECOND, FRESH = 3, 5, 2, 4, 6, 7, 8  # kernels of the parts of "attach"
FEW = 5  # kernels of the other stages
REPLAYS = 1000  # of each graph in a part of "graphs"
PAUSED_GRAPHS = ("launched", "made", "paused", "forced")  # when a graph came up that is replayed after a pause
NOBODY = 65534  # a user without privileges
CYCLES = "sm__cycles_active.sum"
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)  # CUpti_CallbackFunc


def main(stage: str, folder: str) -> None:
    """Run a stage: "attach", "subscribers", "fork", "profiler", "graphs", "counters", "plain", "graphs_launched"…"""
    try:
        STAGES[stage](Path(folder))
    except UllageError as error:
        tell(**refusal(error))


def spins(device: Device, count: int) -> int:
    """Run kernels to their end, and return how many."""
    for _ in range(count):
        device.spin(EACH)
    device.wait()
    return count


def attach(folder: Path) -> None:
    """Work without the recorder, with it, while it pauses, with it, without it, with it again, and once more in a context that was made
    after that: what CUPTI left when it was detached may come back with a new context alone."""
    device = Device()
    spins(device, BEFORE)
    session.start(folder / "first")
    spins(device, FIRST)
    session.stop()
    spins(device, PAUSED)
    session.start()
    spins(device, RESUMED)
    session.detach()
    tell(first=True)
    spins(device, BETWEEN)
    session.start(folder / "second")
    spins(device, SECOND)
    session.detach()
    spins(device, BETWEEN)
    tell(second=True)
    session.start(folder / "fresh")
    device.enter_new_context()
    spins(device, FRESH)
    session.detach()
    tell(fresh=True)


def subscribers(folder: Path) -> None:
    """Ask for CUPTI's place for a subscriber while the recorder has it."""
    device = Device()
    spins(device, 1)
    session.start(folder)
    library, other, nothing = find(), ctypes.c_void_p(), _CALLBACK(lambda *_: None)
    code = library.ask("cuptiSubscribe", ctypes.byref(other), nothing, None)
    tell(second_subscriber=f"refused with {code}" if code else "accepted")
    if not code:
        library.ask("cuptiUnsubscribe", other)
    spins(device, FEW)
    session.detach()
    tell(holders=permissions.holders())


def fork(folder: Path) -> None:
    """Fork while the recorder records: a child that does nothing with CUDA and ends as workers do, and one that ends at once."""
    device = Device()
    session.start(folder)
    spins(device, FEW)
    for end in (lambda: os._exit(0), _ended):
        child = os.fork()
        if not child:
            end()
        _, status = os.waitpid(child, 0)
        tell(child=os.waitstatus_to_exitcode(status))
        spins(device, FEW)
    session.detach()


def _ended() -> None:
    import sys

    sys.exit(0)


def profiler(folder: Path) -> None:
    """Let PyTorch's profiler and the recorder be on at the same time, and tell what the former saw."""
    import torch

    device = Device()
    torch.zeros(1, device="cuda")
    session.start(folder)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        spins(device, FEW)
    tell(**kernels(profile))
    spins(device, FEW)
    tell(holders=permissions.holders())
    session.detach()


def graphs(folder: Path) -> None:
    """Replay graphs of PyTorch, one that was there before the recorder came and one that was made under it: before it, while it records
    and while it is stopped, and after it has left, which some releases of CUPTI don't let a program survive."""
    import torch

    replays = [replayed_pass(torch)]
    replayed(torch, replays, "before")
    session.start(folder, graphs="whole")
    replays.append(replayed_pass(torch))
    replayed(torch, replays, "recorded")
    session.stop()
    replayed(torch, replays, "stopped")
    session.detach()
    replayed(torch, replays, "after")


def paused_graphs(folder: Path, *, first: str) -> None:
    """Replay a graph of PyTorch that is recorded as a whole, before, in and after a pause: one that was launched before it ("launched"),
    one made before it ("made"), or one made in it ("paused"), for which the recorder does without whole graphs from then on. "forced" asks
    CUPTI for them nonetheless, which kills the program under some releases."""
    import torch

    session.start(folder, graphs="whole")
    replays = [replayed_pass(torch)]
    replayed(torch, replays, "recorded")
    if first == "made":
        replays.append(replayed_pass(torch))
    session.stop()
    if first in ("paused", "forced"):
        replays.append(replayed_pass(torch))
    replayed(torch, replays, "stopped")
    session.start()
    if first == "forced":
        find().ask("cuptiActivityEnable", int(ActivityKind.GRAPH_TRACE))
    replayed(torch, replays, "resumed")
    session.detach()
    replayed(torch, replays, "after")


def replayed(torch: Any, replays: list[Step], part: str) -> None:
    """Replay each graph many times, and tell that the program is still there."""
    for _ in range(REPLAYS):
        for replay in replays:
            replay()
    torch.cuda.synchronize()
    tell(**{part: True})


def counters(folder: Path) -> None:  # noqa: ARG001 - every stage is told where it may write
    """Tell what permissions say beforehand, and what counting then does."""
    device = Device()
    spins(device, 1)
    tell(report=permissions.report())
    with Ranges([CYCLES], device.context.value, most=FEW) as counted:
        spins(device, 1)
    tell(counted=counted.values().row(0).get(CYCLES))


def plain(folder: Path) -> None:
    """Trace, then count, as a user without privileges; what lies in folders that only root reads is read before."""
    for module in ("recorder", "native.build", "counters.ranges"):
        importlib.import_module(f"ullage.cupti.{module}")
    importlib.import_module("ullage.live.recording")
    layouts(find().release)
    os.environ["HOME"] = tempfile.gettempdir()
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    tell(user=os.getuid())
    device = Device()
    session.start(folder)
    spins(device, FEW)
    session.detach()
    tell(traced=True)
    counters(folder)


STAGES: dict[str, Callable[[Path], Any]] = {
    "attach": attach, "subscribers": subscribers, "fork": fork, "profiler": profiler, "graphs": graphs,
    "counters": counters, "plain": plain, **{f"graphs_{first}": partial(paused_graphs, first=first) for first in PAUSED_GRAPHS},
}  # fmt: skip
