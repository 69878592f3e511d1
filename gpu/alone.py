"""One check in a process of its own: what the runner starts, listens to, and ends when it takes too long.

Lines that begin with `SHOWN` are for the person who waits; all else that is printed is kept by the runner for the case of a failure.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gpu.check import Check, Findings, NotMeasured, find_check
from gpu.code_mark import code_mark
from gpu.evidence import BROKEN, CONFIRMED, CUT_OFF, NOT_MEASURED, REFUTED, evidence, outweighs, problems_of, read, slug, write
from gpu.machine import Machine, Room, described, machine, versions
from gpu.processes import SHOWN
from gpu.timetable import TABLE
from ullage.errors import UllageError

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux' prctl


@dataclass(frozen=True)
class Attempt:
    """One attempt at a check: where its evidence goes, when it began and until when it may take (s since 1970), the clock, the words."""

    results: Path
    begin: float
    until: float
    now: Callable[[], float] = time.time
    say: Callable[[str], None] = lambda line: print(f"{SHOWN}{line}", flush=True)


def main(arguments: Sequence[str], opened: Machine | None = None) -> int:
    """Run what the arguments name: `--identify`, `--probe`, or a check; returns the exit code: 0, or 1 for what is broken.

    `opened` is a machine that is already at hand.
    """
    parser = argparse.ArgumentParser(prog="gpu.alone", description="Run one check in this process.")
    parser.add_argument("check", nargs="?")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--begin", type=float, default=None)
    parser.add_argument("--until", type=float, default=None)
    parser.add_argument("--identify", action="store_true")
    parser.add_argument("--probe", action="store_true")
    options = parser.parse_args(arguments)
    faulthandler.enable()
    end_with_parent()
    if options.identify:
        print(json.dumps(identity(opened)))
        return 0
    if options.probe:
        return probe()
    begin = time.time() if options.begin is None else options.begin
    until = begin + 600 if options.until is None else options.until
    found = measure(options.check, opened or machine(), Attempt(options.results, begin, until))
    return 1 if found["verdict"] == BROKEN else 0


def end_with_parent() -> None:
    """Let the kernel end this process when its parent ends, however that ends: nothing may stay behind on a GPU."""
    parent = os.getppid()
    try:
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    except (AttributeError, OSError):  # not Linux
        return
    if os.getppid() != parent:
        os._exit(1)


def identity(opened: Machine | None = None) -> dict[str, Any]:
    """Return what identifies the GPU, with versions of the libraries; `problem` says why there is none."""
    try:
        one = opened or machine()
    except UllageError as error:
        return {"problem": error.problem, "hint": error.hint}
    return {**described(one), "versions": versions()}


def probe() -> int:
    """Return 0 when the driver opens the GPU and fills some of its memory, 1 when it refuses; does not return when the GPU hangs."""
    from gpu.cupti_device import Device

    try:
        device = Device()
        device.wait()
    except UllageError as error:
        print(error.problem)
        return 1
    return 0


def measure(name: str, one: Machine, attempt: Attempt) -> dict[str, Any]:
    """Run a check and write its evidence, on the way and at the end; returns the evidence.

    Raises OSError where it can't be written, after saying what was found.
    """
    check = find_check(name)
    folder, now = attempt.results / slug(one.name), attempt.now
    package = next((entry.package for entry in TABLE if entry.name == name), "")
    mark = code_mark(f"gpu.check_{name}", package)
    as_evidence = partial(evidence, check, now=attempt.begin, code=mark, machine=described(one), versions=versions())

    def keep(findings: Findings) -> None:
        """Write what was found so far, so that it stands whatever becomes of this process."""
        part = as_evidence(findings, verdict=BROKEN, reason="it did not come to its end", seconds=now() - attempt.begin)
        part["unfinished"] = part["unfinished"] or CUT_OFF
        if not problems_of(part, check) and _replaces(folder, part):
            write(folder, part, dict(findings.recordings))

    room = Room(folder, attempt.until, now, attempt.say, keep)
    verdict, reason, findings = _verdict(check, replace(one, room=room))
    found = as_evidence(findings, verdict=verdict, reason=reason, seconds=now() - attempt.begin)
    malformed = problems_of(found, check)
    if malformed:  # a mistake in the check: it has no evidence to offer
        found |= {"verdict": BROKEN, "reason": f"malformed evidence: {'; '.join(malformed)}", "answers": {}, "rows": []}
    try:
        if _replaces(folder, found):
            write(folder, found, findings.recordings)
    except OSError as error:
        attempt.say(f"{name}: its evidence could not be written ({error.strerror}); it follows, without recordings")
        attempt.say(json.dumps(found, ensure_ascii=False))
        raise
    _say_result(attempt.say, check, found)
    return found


def _replaces(folder: Path, new: Mapping[str, Any]) -> bool:
    """Whether evidence may be written: it outweighs what lies there, or goes on where this very attempt left off."""
    earlier = read(folder, new["check"])
    return outweighs(new, earlier) or (earlier is not None and earlier["date"] == new["date"])


def _verdict(check: Check, one: Machine) -> tuple[str, str, Findings]:
    """Return verdict, reason and findings of a check; whatever it raises breaks it, and no other."""
    if check.loaded and one.load is None:
        return NOT_MEASURED, "no load: no CUDA driver answers", Findings()
    try:
        findings = check.function(one)
    except NotMeasured as reason:
        return NOT_MEASURED, str(reason), Findings()
    except UllageError as error:
        return BROKEN, error.problem, Findings()
    except Exception as error:
        traceback.print_exc()
        return BROKEN, f"{type(error).__name__}: {error}", Findings()
    return (REFUTED if findings.wrong else CONFIRMED), "; ".join(findings.wrong), findings


def _say_result(say: Callable[[str], None], check: Check, found: Mapping[str, Any]) -> None:
    """Say in one line what came of a check, and below it what a person should know at once."""
    words = "; ".join(text for text in (found["reason"], found["result"]) if text)
    say(f"{check.name:<18} {found['verdict']:<12} {words}".rstrip())
    for note in found["notes"]:
        say(f"    note: {note}")
    if found["unfinished"]:
        say(f"    not finished: {found['unfinished']}")
