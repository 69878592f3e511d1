"""A session on a GPU: which checks run, in which order, until when; what is written and what is said."""

from __future__ import annotations

import argparse
import importlib
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.check import Check, Findings, NotMeasured, checks
from gpu.evidence import age, evidence, problems_of, read, slug, write
from gpu.machine import Machine, described, machine, torch_or_none, versions
from ullage.errors import UllageError

RESULTS = Path(__file__).resolve().parents[1] / "results"


@dataclass(frozen=True)
class Session:
    """One run of the script: where evidence goes, how long it may take (s), how old evidence may be (hours)."""

    machine: Machine
    results: Path
    seconds: float
    max_age: float
    again: bool
    now: Callable[[], float]
    say: Callable[[str], None]

    @property
    def folder(self) -> Path:
        """Where the evidence of this GPU lies."""
        return self.results / slug(self.machine.name)


def main(arguments: Sequence[str], *, nvml: Any = None, opened: Machine | None = None, now: Callable[[], float] = time.time) -> int:
    """Run the checks that the arguments name and return the exit code: 0 passed, 1 a check failed, 3 no GPU.

    `nvml` is the module pynvml (or its double), `opened` a machine that is already at hand.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = set(options.checks) - {c.name for c in checks()}
    if unknown:
        parser.error(f"no check is called '{min(unknown)}'; --list names them")
    chosen = [c for c in checks() if not options.checks or c.name in options.checks]
    if options.list:
        print("\n".join(f"{c.name:<20} {c.seconds:>4.0f} s  {c.question}" for c in chosen))
        return 0
    try:
        one = opened or _opened(nvml)
    except UllageError as error:
        print(f"no GPU: {error.problem}")
        return 3
    session = Session(one, options.out, options.minutes * 60, options.max_age, options.again, now, lambda line: print(line, flush=True))
    return run(session, chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpu/run.py", description="Run every check that needs a GPU; evidence goes to results/<gpu>/.")
    names = [c.name for c in checks()]
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"only these: {', '.join(names)}")
    parser.add_argument("--minutes", type=float, default=9.0, help="start no check that would end later (default 9)")
    parser.add_argument("--max-age", type=float, default=24.0, metavar="HOURS", help="skip what passed on this GPU since then (default 24)")
    parser.add_argument("--again", action="store_true", help="skip nothing")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the evidence goes (default: results/)")
    parser.add_argument("--list", action="store_true", help="list the checks and end")
    return parser


def _opened(nvml: Any) -> Machine:
    return machine(importlib.import_module("pynvml") if nvml is None else nvml, torch_or_none())


def run(session: Session, chosen: Sequence[Check]) -> int:
    """Run checks within the session's time, write their evidence, say what came of each; returns the exit code."""
    begin, verdicts, about, libraries = session.now(), [], described(session.machine), versions()
    session.say(f"{session.machine.name}, driver {about['driver']}; evidence goes to {session.folder}")
    for check in chosen:
        if _is_fresh(session, check, about):
            session.say(f"{check.name}: passed already; --again repeats it")
        elif session.now() - begin + check.seconds > session.seconds:
            session.say(f"{check.name}: not run, its {check.seconds:.0f} s do not fit into the time; start again to go on")
        else:
            verdicts.append(_one(session, check, about, libraries))
    return 1 if "failed" in verdicts else 0


def _is_fresh(session: Session, check: Check, about: Mapping[str, Any]) -> bool:
    """Whether this check passed on this very GPU under this driver, not long ago."""
    found = None if session.again else read(session.folder, check.name)
    if found is None or problems_of(found, check) or found["verdict"] != "passed":
        return False
    same = all(found["machine"].get(key) == about[key] for key in ("uuid_hash", "driver"))
    return same and age(found, session.now()) <= session.max_age


def _one(session: Session, check: Check, about: Mapping[str, Any], libraries: Mapping[str, Any]) -> str:
    """Run one check, write and say what came of it; returns its verdict."""
    begin = session.now()
    verdict, reason, findings = _tried(check, session.machine)
    seconds = session.now() - begin
    found = evidence(check, findings, verdict=verdict, reason=reason, now=begin, seconds=seconds, machine=about, versions=libraries)
    malformed = problems_of(found, check)
    if malformed:  # a mistake in the check: it has no evidence to offer
        found = {**found, "verdict": "failed", "reason": f"malformed evidence: {'; '.join(malformed)}", "answers": {}, "rows": []}
    if found["verdict"] != "not measured" or _nothing_better(session, check):
        write(session.folder, found, findings.recordings)
    session.say(f"{check.name}: {found['verdict']}{': ' if found['reason'] else ''}{found['reason']} ({seconds:.0f} s)")
    for name, value in found["answers"].items():
        session.say(f"    {name} = {value}")
    for note in found["notes"]:
        session.say(f"    note: {note}")
    return str(found["verdict"])


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
