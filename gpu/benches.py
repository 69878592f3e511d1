"""The microbenchmarks, recorded one after the other: which come first, what is recorded already, what there was no time for."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from gpu.check import NotMeasured
from gpu.evidence import put
from gpu.machine import Machine, Room, installed
from ullage.benches.bench import BENCHES
from ullage.benches.result import Result, record, restored
from ullage.errors import UllageError

# What matters most comes first; what is not named here comes last.
ORDER = (
    "memory-latency", "wgmma", "memory-bandwidth", "mma", "tcgen05", "best-gemm", "sustained-ceilings", "power-curve", "memory-throughput",
    "cluster-latency", "launch", "copies", "dmma", "async-copy", "dpx-blocks", "cluster-ring", "cluster-histogram", "mma-power",
    "wgmma-sizes", "wgmma-sparse", "bulk-copy", "dpx", "memory-curve", "linear", "fp8-cast", "transformer-layer", "generation",
)  # fmt: skip
WHOLE = ("memory-latency", "wgmma", "memory-bandwidth", "mma", "tcgen05")  # at once, however long they take
SHORT = 10.0  # seconds: so do those that take no longer; of the others the few most important cases come first
FORM = ("ullage.benches.bench", "ullage.benches.result")  # how cases and results are written down, not what is measured
SILENCE = 40.0  # seconds without a word until a case counts as one that hangs
LATE = "not run: the time was up"  # the problem of a case that had no time
Suite = Callable[..., Iterator[Result]]


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


def suite(machine: Machine) -> Suite:
    """Return what runs benches on this machine: a process of their own, unless the machine brings its own.

    Raises NotMeasured without cuda-bindings.
    """
    own: Suite | None = getattr(machine, "suite", None)
    if own is not None:
        return own
    if not installed("cuda.bindings"):
        raise NotMeasured("no cuda-bindings")
    from ullage.benches.running.apart import suite_apart

    return suite_apart


@dataclass(frozen=True)
class Shelf:
    """The recordings of one GPU under one driver, a file a bench, in the room of a check."""

    room: Room
    gpu: str  # its pseudonym
    driver: str

    def path(self, name: str) -> Path:
        """Where a bench's recording lies."""
        return self.room.folder / "benches" / f"{name}.json"

    def get(self, name: str) -> Result | None:
        """Return a bench's recording, None where there is none of this GPU and driver, of this code, not long ago."""
        try:
            found = restored(json.loads(self.path(name).read_text(encoding="utf-8")))
            made = datetime.strptime(found.date, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
        except (OSError, ValueError, UllageError):
            return None
        same = (found.machine.get("uuid_hash"), found.machine.get("driver")) == (self.gpu, self.driver)
        return found if same and found.extra.get("code") == code_of(name) and made >= self.room.since - 1 else None

    def has(self, one: Pass) -> bool:
        """Whether a pass need not be made: it was, to its end, or a fuller one."""
        found = self.get(one.name)
        return found is not None and _ended(found) and (one.quick or not found.quick)

    def keep(self, result: Result) -> None:
        """Write a bench's recording, unless there was no time for all of it and the one that lies there says as much."""
        before = self.get(result.bench)
        if _ended(result) or _measured(result) > (0 if before is None else _measured(before)):
            named = replace(result, extra={**result.extra, "code": code_of(result.bench)})
            put(self.path(result.bench), (json.dumps(record(named), indent=1, allow_nan=False) + "\n").encode())

    def all(self) -> list[Result]:
        """Return what is recorded, in the order of the plan."""
        return [found for found in map(self.get, dict.fromkeys(one.name for one in plan())) if found is not None]

    @property
    def missed(self) -> str:
        """What was not reached, in words; "" when all was."""
        lacking = [one.name for one in plan() if not one.quick and not self.has(one)]
        few = [name for name in lacking if self.get(name) is not None]
        none = [name for name in lacking if name not in few]
        words = [f"not reached: {', '.join(none)}" if none else "", f"a few cases only: {', '.join(few)}" if few else ""]
        return "; ".join(word for word in words if word)


def _ended(result: Result) -> bool:
    return all(row.problem != LATE for row in result.rows)


def _measured(result: Result) -> int:
    return sum(1 for row in result.rows if row.values)


def fill(shelf: Shelf, run: Suite, index: int = 0) -> None:
    """Run what is not recorded yet, while there is time, and record each bench as soon as it has ended."""
    room = shelf.room
    for quick, group in groupby(plan(), key=lambda one: one.quick):
        names = [one.name for one in group if not shelf.has(one)]
        if not names or not room.left:
            continue
        for result in run(names, index=index, quick=quick, budget=room.left, silence=SILENCE):
            shelf.keep(result)
            if _ended(result) or _measured(result):
                room.say(f"    {_told(result)}")
            if not room.left:
                break


def _told(result: Result) -> str:
    without = [row.problem for row in result.rows if row.problem]
    said = f"{result.bench}{', few cases' if result.quick else ''}: {_measured(result)} of {len(result.rows)} measured"
    return f"{said} in {result.seconds:.0f} s{f' ({without[0]})' if without else ''}"


@lru_cache(maxsize=64)
def code_of(name: str) -> str:
    """Return a mark of the code that makes a bench's cases: it changes with the bench's module and what that imports of its package."""
    wanted, seen = [BENCHES[name].cases.__module__], set[str]()
    while wanted:
        module = wanted.pop()
        if module not in seen:
            seen.add(module)
            wanted += _imported(_source(module))
    return hashlib.sha256(b"\0".join(_source(module) for module in sorted(seen))).hexdigest()[:16]


def _source(module: str) -> bytes:
    found = importlib.util.find_spec(module)
    return Path(found.origin).read_bytes() if found is not None and found.origin else b""


def _imported(source: bytes) -> list[str]:
    """Return the modules of `ullage.benches` that a source imports, but for `FORM`."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ullage.benches"):
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name for name in (node.module, *below) if _is_module(name)]
    return found


def _is_module(name: str) -> bool:
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # the name of a function, not of a module
        return False
    return name not in FORM and found is not None and found.origin is not None and not found.origin.endswith("__init__.py")
