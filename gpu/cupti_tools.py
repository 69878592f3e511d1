"""What the checks of CUPTI have in common: the library and the recorder on this machine, and programs run under it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu.apart import Told
from gpu.check import Findings, NotMeasured
from gpu.machine import Machine
from ullage.cupti.driver import cuda_version
from ullage.cupti.library import Library, find
from ullage.cupti.native.build import recorder
from ullage.cupti.permissions import report
from ullage.cupti.results import CuptiError
from ullage.errors import UllageError
from ullage.live.launch import environment
from ullage.live.recording import Wanted, prepared


def library(machine: Machine) -> Library:
    """Return this machine's CUPTI, or what it brings in its place. Raises NotMeasured without one that is known, and without a driver."""
    own: Library | None = getattr(machine, "cupti", None)
    if own is not None:
        return own
    if cuda_version() is None:
        raise NotMeasured("no NVIDIA driver answers")
    try:
        found = find()
        found.release  # noqa: B018 - asked for its errors
    except UllageError as error:
        raise NotMeasured(error.problem) from None
    return found


def simulated(machine: Machine) -> bool:
    """Return whether the machine runs programs in its own way, so that they need neither compiler nor library."""
    return getattr(machine, "programs", None) is not None


def has_pytorch(machine: Machine) -> bool:
    """Return whether programs can use PyTorch on the GPU; a load alone doesn't say so, as it may be made without."""
    return machine.load is not None if simulated(machine) else machine.torch is not None


def needs_pytorch(machine: Machine) -> None:
    """Raise NotMeasured where programs can't use PyTorch."""
    if not has_pytorch(machine):
        raise NotMeasured("no PyTorch that sees the GPU")


def needs_recorder(machine: Machine) -> None:
    """Raise NotMeasured where the recorder can't be built."""
    try:
        _ = simulated(machine) or recorder()
    except UllageError as error:
        raise NotMeasured(error.problem) from None


def settings(found: Library) -> dict[str, str | float | int | bool | None]:
    """Return what identifies the library in evidence; its path names the user perhaps."""
    return {"cupti": found.release.name, "version": found.version, "library": found.path.name}


def refusal(error: UllageError) -> dict[str, Any]:
    """Return what a program tells of something that was refused: which call of CUPTI answered what, whether another profiler has the
    counters, and what is known of this machine."""
    known = report()
    by_cupti = error if isinstance(error, CuptiError) else None
    return {
        "refused": error.problem,
        "hint": error.hint,
        "call": by_cupti and by_cupti.function,
        "code": by_cupti and by_cupti.code,
        "taken": by_cupti is not None and by_cupti.counters_taken,
        "counters": known["counters"],
        "findings": [one["what"] for one in known["findings"]],
    }


def refusal_words(facts: Mapping[str, Any]) -> str:
    """Return a program's refusal as a sentence: what was refused by which call, why, and what to do.

    >>> refusal_words({"refused": "counting failed", "call": "cuptiRangeProfilerStart", "code": 35, "hint": "run as root"})
    'counting failed: cuptiRangeProfilerStart answered 35 (run as root); nothing is known to stand in the way'
    """
    call = f": {facts['call']} answered {facts['code']}" if facts.get("call") else ""
    if facts.get("taken"):
        return f"another profiler has the GPU's counters{call} ({facts.get('hint')})"
    told = f"; counters: {facts['counters']}" if facts.get("counters") else ""
    known = "; ".join(facts.get("findings") or ()) or "nothing is known to stand in the way"
    return f"{facts['refused']}{call} ({facts.get('hint')}){told}; {known}"


def understood(name: str, told: Told, findings: Findings) -> dict[str, Any]:
    """Return what a program told; a refusal becomes a note with its explanation, an end before its time is wrong."""
    if told.facts.get("refused"):
        findings.notes.append(f"{name} was refused: {refusal_words(told.facts)}")
    elif told.problem:
        findings.wrong.append(f"{name} did not end well: {told.problem}")
    return told.facts


def injected(machine: Machine, folder: Path, notes: list[str], **more: str) -> dict[str, str]:
    """Return the variables with which a program is recorded by injection. Raises UllageError where the recorder can't be had."""
    if simulated(machine):
        return {"ULLAGE_RECORD": str(folder), **more}
    made = prepared(folder, Wanted(mpi=False, python=False, flush=200), notes)
    return added(environment(made, os.environ, mpi=False, python=False)) | more


def added(given: Mapping[str, str]) -> dict[str, str]:
    """Return what an environment has beyond this process' own."""
    return {name: value for name, value in given.items() if os.environ.get(name) != value}


def recordings(folder: Path) -> list[Path]:
    """Return the recordings of a folder."""
    return sorted(folder.glob("*.ullage"))
