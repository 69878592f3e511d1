"""A session on a GPU: which checks run, in which order, until when; what is written and what is said."""

from __future__ import annotations

import argparse
import importlib
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gpu.check import Check, Findings, NotMeasured, checks
from gpu.evidence import age, evidence, problems_of, read, slug, write
from gpu.machine import Machine, Room, described, machine, torch_or_none, versions
from gpu.pack import pack, unpack
from gpu.timetable import share
from ullage.errors import UllageError

RESULTS = Path(__file__).resolve().parents[1] / "results"
GRACE = 45.0  # seconds beyond its time until a check counts as one that never ends


@dataclass(frozen=True)
class Session:
    """One run of the script: where evidence goes, when it began (s since 1970) and for how long, how old evidence may be (hours).

    `end` ends the process, whatever its threads do; it is called for a check that overruns its time by `grace` seconds.
    """

    machine: Machine
    results: Path
    begin: float
    seconds: float
    max_age: float
    again: bool
    now: Callable[[], float]
    say: Callable[[str], None]
    end: Callable[[int], None] = os._exit
    grace: float = GRACE

    @property
    def folder(self) -> Path:
        """Where the evidence of this GPU lies."""
        return self.results / slug(self.machine.name)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.begin + self.seconds - self.now()


def main(arguments: Sequence[str], *, nvml: Any = None, opened: Machine | None = None, now: Callable[[], float] = time.time) -> int:
    """Run the checks that the arguments name and return the exit code: 0 passed, 1 a check failed, 3 no GPU.

    `nvml` is the module pynvml (or its double), `opened` a machine that is already at hand.
    """
    begin, parser = now(), _parser()
    options = parser.parse_args(arguments)
    unknown = set(options.checks) - {c.name for c in checks()}
    if unknown:
        parser.error(f"no check is called '{min(unknown)}'; --list names them")
    chosen = [c for c in checks() if not options.checks or c.name in options.checks]
    if options.list or options.pack or options.unpack:
        print(_listed(chosen, options.minutes) if options.list else _carried(options))
        return 0
    try:
        one = opened or _opened(nvml)
    except UllageError as error:
        print(f"no GPU: {error.problem}")
        return 3
    seconds, say = options.minutes * 60, partial(print, flush=True)
    return run(Session(one, options.out, begin, seconds, options.max_age, options.again, now, say), chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpu/run.py", description="Run every check that needs a GPU; evidence goes to results/<gpu>/.")
    names = [c.name for c in checks()]
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"only these: {', '.join(names)}")
    parser.add_argument("--minutes", type=float, default=9.0, help="start no check that would end later (default 9)")
    parser.add_argument("--max-age", type=float, default=24.0, metavar="HOURS", help="skip what passed on this GPU since then (default 24)")
    parser.add_argument("--again", action="store_true", help="skip nothing")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the evidence goes (default: results/)")
    parser.add_argument("--list", action="store_true", help="list the checks in their order and end")
    parser.add_argument("--pack", type=Path, metavar="FILE", help="pack all evidence into FILE (.tar.gz) and end")
    parser.add_argument("--unpack", type=Path, metavar="FILE", help="put the evidence that FILE packs in its place and end")
    return parser


def _listed(chosen: Sequence[Check], minutes: float) -> str:
    """Return the checks, a line each: the seconds that one takes, from the least that it makes use of."""
    lines = [f"{c.name:<18} {seconds(c):>10} s  {c.question}" for c in chosen]
    least, all_ = (round(sum(getattr(c, name) for c in chosen)) for name in ("least", "seconds"))
    lines.append(f"{'together':<18} {f'{least} to {all_}':>10} s  of {minutes * 60:.0f}; what does not fit goes on with the next start")
    return "\n".join(lines)


def seconds(check: Check) -> str:
    """Return how many seconds a check takes, as words: from the least that it makes use of."""
    return f"{check.seconds:.0f}" if check.least == check.seconds else f"{check.least:.0f} to {check.seconds:.0f}"


def _carried(options: argparse.Namespace) -> str:
    if options.unpack:
        return f"{unpack(options.unpack, options.out)} files from {options.unpack} are in {options.out}"
    return f"{pack(options.out, options.pack)} files of {options.out} are in {options.pack}"


def _opened(nvml: Any) -> Machine:
    return machine(importlib.import_module("pynvml") if nvml is None else nvml, torch_or_none())


def run(session: Session, chosen: Sequence[Check]) -> int:
    """Run checks within the session's time, write their evidence, say what came of each; returns the exit code."""
    about, libraries, verdicts = described(session.machine), versions(), {}
    session.say(f"{session.machine.name}, driver {about['driver']}; evidence goes to {session.folder}")
    due = _due(session, chosen, about)
    one = partial(_one, session, about, libraries)
    unfinished = []
    while due:
        check, *due = due
        seconds = share(check, due, session.left)
        if seconds is None:
            session.say(f"{check.name}: not run, its {check.least:.0f} s do not fit into the time; start again to go on")
            continue
        verdicts[check.name], whole = one(check, seconds)
        unfinished += [] if whole else [check]
    for check in unfinished:  # with the time that others did not need
        if session.left >= check.least / 2:
            verdicts[check.name], _ = one(check, min(session.left, check.seconds))
    return 1 if "failed" in verdicts.values() else 0


def _due(session: Session, chosen: Sequence[Check], about: Mapping[str, Any]) -> list[Check]:
    """Return the checks that are to run; those that failed last time go last, so that they don't keep the others from their turn."""
    due, failed = [], []
    for check in chosen:
        found = _evidence(session, check, about)
        if found is None:
            due.append(check)
        elif found["verdict"] == "failed":
            failed.append(check)
        elif found["verdict"] == "passed" and not found["unfinished"]:
            session.say(f"{check.name}: passed already; --again repeats it")
        else:
            due.append(check)
    return due + failed


def _evidence(session: Session, check: Check, about: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what this check found on this very GPU under this driver, not long ago."""
    found = None if session.again else read(session.folder, check.name)
    if found is None or problems_of(found, check):
        return None
    same = all(found["machine"].get(key) == about[key] for key in ("uuid_hash", "driver"))
    return found if same and age(found, session.now()) <= session.max_age else None


def _one(session: Session, about: Mapping[str, Any], libraries: Mapping[str, Any], check: Check, seconds: float) -> tuple[str, bool]:
    """Run one check for so many seconds, write and say what came of it; returns its verdict, and whether it is finished."""
    begin = session.now()
    as_evidence = partial(evidence, check, now=begin, machine=about, versions=libraries)
    since = session.begin if session.again else begin - 3600 * session.max_age
    room = Room(session.folder, begin + seconds, since, session.now, session.say)
    with _watched(session, check, seconds, as_evidence):
        verdict, reason, findings = _tried(check, replace(session.machine, room=room))
    took = session.now() - begin
    found = as_evidence(findings, verdict=verdict, reason=reason, seconds=took)
    malformed = problems_of(found, check)
    if malformed:  # a mistake in the check: it has no evidence to offer
        found = {**found, "verdict": "failed", "reason": f"malformed evidence: {'; '.join(malformed)}", "answers": {}, "rows": []}
    if found["verdict"] != "not measured" or _nothing_better(session, check):
        write(session.folder, found, findings.recordings)
    _tell(session, found, took)
    return str(found["verdict"]), not found["unfinished"]


def _tell(session: Session, found: Mapping[str, Any], took: float) -> None:
    session.say(f"{found['check']}: {found['verdict']}{': ' if found['reason'] else ''}{found['reason']} ({took:.0f} s)")
    for name, value in found["answers"].items():
        session.say(f"    {name} = {value}")
    for note in found["notes"]:
        session.say(f"    note: {note}")
    if found["unfinished"]:
        session.say(f"    not finished: {found['unfinished']}")


@contextmanager
def _watched(session: Session, check: Check, seconds: float, as_evidence: Callable[..., dict[str, Any]]) -> Iterator[None]:
    """End the process, with evidence, should the check hang: no other can run beside it, and the next start goes on without it."""

    def abandon() -> None:
        reason = f"it did not end within {seconds + session.grace:.0f} s"
        found = as_evidence(Findings(), verdict="failed", reason=reason, seconds=seconds + session.grace)
        if _nothing_better(session, check):
            write(session.folder, found, {})
        session.say(f"{check.name}: failed: {reason}; start again to go on without it")
        session.end(1)

    timer = threading.Timer(max(0.0, min(seconds, session.left) + session.grace), abandon)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _nothing_better(session: Session, check: Check) -> bool:
    """Whether no earlier run measured what this one could not: evidence is not given up for a missing library."""
    earlier = read(session.folder, check.name)
    return earlier is None or earlier.get("verdict") == "not measured"


def _tried(check: Check, one: Machine) -> tuple[str, str, Findings]:
    """Return verdict, reason and findings of a check; whatever it raises is its failure, and the next check goes on."""
    if check.loaded and one.load is None:
        return "not measured", "no PyTorch that sees the GPU", Findings()
    try:
        findings = check.function(one)
    except NotMeasured as reason:
        return "not measured", str(reason), Findings()
    except UllageError as error:
        return "failed", error.problem, Findings()
    except Exception as error:
        traceback.print_exc()
        return "failed", f"{type(error).__name__}: {error}", Findings()
    return ("failed" if findings.wrong else "passed"), "; ".join(findings.wrong), findings
