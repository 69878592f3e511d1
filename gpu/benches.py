"""The microbenchmarks, recorded one after the other: which come first, what is recorded already, what there was no time for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from gpu.check import NotMeasured
from gpu.code_mark import code_mark
from gpu.evidence import branch, put
from gpu.machine import Machine, Room
from ullage.benches.bench import BENCHES
from ullage.benches.result import BenchResult, record, restored
from ullage.errors import UllageError
from ullage.kernels.compiling import compiler_version

# What matters most comes first; what is not named here comes last.
ORDER = (
    "memory-latency", "wgmma", "memory-bandwidth", "mma", "tcgen05", "tcgen05-scaled", "tcgen05-pair", "best-gemm",
    "sustained-ceilings", "power-curve", "memory-throughput", "cluster-latency", "launch", "copies", "links", "arithmetic",
    "bank-conflicts", "l2-partitions", "dmma", "async-copy", "dpx-blocks", "cluster-ring", "cluster-histogram", "mma-power",
    "wgmma-sizes", "wgmma-sparse", "bulk-copy", "tensor-copy", "dpx", "memory-curve", "linear", "fp8-cast", "transformer-layer",
    "generation",
)  # fmt: skip
WHOLE = ("memory-latency", "wgmma", "memory-bandwidth", "mma", "tcgen05")  # at once, however long they take
# What every share of a ceiling rests on; of those in `FEW` a few cases are enough at first.
CEILINGS = ("memory-latency", "wgmma", "memory-bandwidth", "tcgen05", "sustained-ceilings", "power-curve", "best-gemm", "copies", "mma")
FEW = ("power-curve", "best-gemm", "copies", "mma")
SHORT = 10.0  # seconds: so do those that take no longer; of the others the few most important cases come first
SILENCE = 40.0  # seconds without a word until a case counts as one that hangs
LATE = "not run: the time was up"  # the problem of a case that had no time
Suite = Callable[..., Iterator[BenchResult]]


@dataclass(frozen=True)
class Pass:
    """One bench to run: all its cases, or only the few (`quick`)."""

    name: str
    quick: bool


def plan() -> list[Pass]:
    """Return what is to be run, in order: what matters most, then a few cases of each of the others, then all of those."""
    members = {name: BENCHES[name] for name in [*ORDER, *BENCHES] if name in BENCHES}
    at_once = [name for name, member in members.items() if name in WHOLE or member.seconds <= SHORT]
    later = [name for name in members if name not in at_once]
    return [*(Pass(name, quick=False) for name in at_once), *(Pass(name, quick=True) for name in later), *(Pass(n, False) for n in later)]


def ceilings_first() -> list[Pass]:
    """Return the passes that ceilings need, in order."""
    return [Pass(name, quick=name in FEW) for name in CEILINGS if name in BENCHES]


def suite(machine: Machine) -> Suite:
    """Return what runs benches on this machine: a process of their own, unless the machine brings its own.

    Raises NotMeasured without a compiler for their kernels.
    """
    own: Suite | None = getattr(machine, "suite", None)
    if own is not None:
        return own
    try:
        compiler_version()
    except UllageError as error:
        raise NotMeasured(error.problem) from error
    from ullage.benches.running.apart import suite_apart

    return suite_apart


@dataclass(frozen=True)
class Shelf:
    """The recordings of a model of GPU under a driver, a file a bench, in the room of a check. `gpu` is the driver's name of it."""

    room: Room
    gpu: str
    driver: str

    def path(self, name: str) -> Path:
        """Where a bench's recording lies."""
        return self.room.folder / "benches" / f"{name}.json"

    def get(self, name: str) -> BenchResult | None:
        """Return a bench's recording, None where there is none of this model of GPU and branch of the driver, at this code."""
        try:
            found = restored(json.loads(self.path(name).read_text(encoding="utf-8")))
        except (OSError, ValueError, UllageError):
            return None
        same = (found.gpu, branch(found.machine.get("driver"))) == (self.gpu, branch(self.driver))
        return found if same and found.extra.get("code") == code_of(name) else None

    def has(self, one: Pass) -> bool:
        """Whether a pass need not be made: it was, to its end, or a fuller one."""
        found = self.get(one.name)
        return found is not None and _ended(found) and (one.quick or not found.quick)

    def keep(self, result: BenchResult) -> None:
        """Write a bench's recording, unless there was no time for all of it and the one that lies there says as much."""
        before = self.get(result.bench)
        if _ended(result) or _measured(result) > (0 if before is None else _measured(before)):
            named = replace(result, extra={**result.extra, "code": code_of(result.bench)})
            put(self.path(result.bench), (json.dumps(record(named), indent=1, allow_nan=False) + "\n").encode())

    def all(self) -> list[BenchResult]:
        """Return what is recorded, in the order of the plan."""
        return [found for found in map(self.get, dict.fromkeys(one.name for one in plan())) if found is not None]

    def missed(self, passes: Sequence[Pass]) -> str:
        """Return which of some passes were not reached, in words; "" when all were."""
        lacking = list(dict.fromkeys(one.name for one in passes if not self.has(one)))
        few = [name for name in lacking if self.get(name) is not None]
        none = [name for name in lacking if name not in few]
        words = [f"not reached: {', '.join(none)}" if none else "", f"a few cases only: {', '.join(few)}" if few else ""]
        return "; ".join(word for word in words if word)


def _ended(result: BenchResult) -> bool:
    return all(row.problem != LATE for row in result.rows)


def _measured(result: BenchResult) -> int:
    return sum(1 for row in result.rows if row.values)


def fill(shelf: Shelf, run: Suite, passes: Sequence[Pass], index: int = 0) -> None:
    """Run those passes that are not recorded yet, while there is time, and record each bench as soon as it has ended."""
    room = shelf.room
    for quick, group in groupby(passes, key=lambda one: one.quick):
        names = [one.name for one in group if not shelf.has(one)]
        if not names or not room.left:
            continue
        for result in run(names, index=index, quick=quick, budget=room.left, silence=SILENCE):
            shelf.keep(result)
            if _ended(result) or _measured(result):
                room.say(f"    {_told(result)}")
            if not room.left:
                break


def _told(result: BenchResult) -> str:
    without = [row.problem for row in result.rows if row.problem]
    said = f"{result.bench}{', few cases' if result.quick else ''}: {_measured(result)} of {len(result.rows)} measured"
    return f"{said} in {result.seconds:.0f} s{f' ({without[0]})' if without else ''}"


def code_of(name: str) -> str:
    """Return a mark of the code that makes a bench's cases and runs them."""
    return code_mark(BENCHES[name].cases.__module__)
