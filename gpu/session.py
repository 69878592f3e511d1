"""A session on a GPU: which checks run, in which order, until when; what is said, and what is left when it ends, however it ends.

Each check runs in a process of its own (`alone.py`). This one touches no GPU and needs nothing but Python: it plans by the table, ends
what hangs, goes on after what crashes, and keeps the summary and the archive up to date.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpu import processes
from gpu.code_mark import code_mark
from gpu.evidence import (
    BROKEN,
    CUT_OFF,
    NOT_MEASURED,
    answered,
    attempts,
    bare_evidence,
    is_of_attempt,
    note_attempt,
    outweighs,
    read,
    slug,
    write,
)
from gpu.pack import pack_parts
from gpu.summary import write_summary
from gpu.timetable import STAGES, Entry, next_entry, time_limit

IDENTIFYING, PROBING = 60.0, 30.0  # seconds that waking a GPU may take
WRAPPING_UP = 4.0  # seconds kept for the summary and the archive at the end
FINISHED, PROBLEM, PARTIAL = 0, 1, 3  # exit codes


@dataclass
class Session:
    """One start of the runner.

    `command` starts `alone.py`; `results` is where evidence goes, `archive` a folder for packed evidence (None: nothing is packed);
    the session began at `begin` (s since 1970) and has so many `seconds`. `again` repeats what is evidenced; `this_board` takes only
    the evidence of this very GPU, not of another one of its model.
    """

    command: Sequence[str]
    results: Path
    begin: float
    seconds: float
    archive: Path | None = None
    again: bool = False
    this_board: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    now: Callable[[], float] = time.time
    print_line: Callable[[str], None] = lambda line: print(line, flush=True)
    has_module: Callable[[str], bool] = lambda name: _importable(name)
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where the evidence of this model of GPU lies."""
        return self.results / slug(str(self.machine["gpu"]))

    @property
    def left(self) -> float:
        """Seconds that are left for checks."""
        return self.begin + self.seconds - WRAPPING_UP - self.now()

    def say(self, line: str) -> None:
        """Print a line with the seconds since the beginning."""
        self.print_line(f"{self.now() - self.begin:5.0f} s  {line}")


def run(session: Session, chosen: Sequence[Entry]) -> int:
    """Run checks within the session's time and return the exit code.

    0: every check has an answer, and none contradicts us; 3: something is left over, broken or refuted; 1: there is no GPU.
    """
    processes.adopt_orphans()
    problem = _identify(session)
    if problem:
        session.print_line(f"no GPU: {problem}")
        return PROBLEM
    due = _due(session, chosen)
    driver = f"driver {session.machine.get('driver')}, CUDA {session.machine.get('cuda')}"
    session.say(f"{session.machine['gpu']}, {driver}; {len(due)} of {len(chosen)} checks to run, {session.left:.0f} s")
    lost = ""
    try:
        lost = _run_due(session, due)
    finally:
        ended = _wrap_up(session, chosen, lost)
    return ended


def _identify(session: Session) -> str:
    """Ask a process of its own which GPU this is; return why there is none, "" where there is one."""
    lines: list[str] = []
    ended = processes.run([*session.command, "--identify"], IDENTIFYING, lambda line: _kept(lines, line), session.environment)
    facts: dict[str, Any] = {}
    for line in lines:
        with suppress(ValueError):
            facts = json.loads(line)
    if ended.problem or not facts:
        return f"the process that asks the driver failed: {ended.problem or 'it said nothing'}"
    if "problem" in facts:
        return "; ".join(text for text in (facts["problem"], facts.get("hint", "")) if text)
    session.versions = facts.pop("versions", {})
    session.machine = facts
    return ""


def _kept(lines: list[str], line: str) -> bool:
    if line.startswith("{"):
        lines.append(line)
    return line.startswith("{")


def _due(session: Session, chosen: Sequence[Entry]) -> list[Entry]:
    """Return the checks that are to run, in the table's order; those that got stuck before at this code go last."""
    tried = {(one["check"], one["code"]) for one in attempts(session.folder) if one.get("verdict") in (BROKEN, NOT_MEASURED)}
    fresh: list[Entry] = []
    stuck: list[Entry] = []
    for entry in chosen:
        if not is_answered(session, entry) or entry.always or session.again:
            (stuck if (entry.name, mark_of(entry)) in tried and not entry.always else fresh).append(entry)
    return fresh + stuck


def is_answered(session: Session, entry: Entry) -> bool:
    """Whether evidence settles a check's question for this GPU at this code."""
    board = str(session.machine.get("uuid_hash")) if session.this_board else None
    return answered(read(session.folder, entry.name), driver=session.machine.get("driver"), code=mark_of(entry), board=board)


def mark_of(entry: Entry) -> str:
    """Return the mark of the code of a check."""
    return code_mark(f"gpu.check_{entry.name}", entry.package)


def _run_due(session: Session, due: list[Entry]) -> str:
    """Run what is due while it fits into the time; return why the GPU is lost, "" where it is not."""
    stage, begun, waiting = 0, set[str](), list(due)
    while (following := next_entry(waiting, session.left)) is not None:
        entry, seconds = following
        waiting.remove(entry)
        if entry.stage != stage:
            stage = entry.stage
            session.say(f"— {STAGES[stage]}")
        found = _attempt(session, entry, seconds)
        _save(session)
        if found["verdict"] == BROKEN and (lost := _lost(session)):
            return lost
        if found["unfinished"] and entry.name not in begun and entry.least is not None:
            begun.add(entry.name)
            waiting.append(entry)  # once more, with the time that others did not need
    return ""


def _attempt(session: Session, entry: Entry, seconds: float) -> dict[str, Any]:
    """Run one check in a process of its own; return its evidence, written by it, or by us where it came to no end."""
    begin = session.now()
    lacking = [name for name in entry.needs if not session.has_module(name)]
    if lacking:
        return _without_process(session, entry, begin, NOT_MEASURED, f"no {', no '.join(lacking)} on this machine")
    limit = time_limit(entry, seconds, session.left)
    times = ["--begin", repr(begin), "--until", repr(begin + seconds)]
    command = [*session.command, entry.name, "--results", str(session.results), *times]
    ended = processes.run(command, limit, lambda line: _show(session, line), session.environment)
    found = read(session.folder, entry.name)
    mine = is_of_attempt(found, begin)
    if mine and found is not None and not (ended.problem and found["unfinished"] == CUT_OFF):
        note = f" (then {ended.problem})" if ended.problem and ended.code != 1 else ""
        found = {**found, "reason": found["reason"] + note}
        _try_writing(session, lambda: note_attempt(session.folder, found))
        return found
    if mine and found is not None:  # it was written on the way
        return _conclude(session, entry, {**found, "reason": ended.problem, "seconds": session.now() - begin}, {})
    reason = ended.problem or "it ended without evidence"
    return _without_process(session, entry, begin, BROKEN, reason)


def _show(session: Session, line: str) -> bool:
    shown = line.startswith(processes.SHOWN)
    if shown:
        session.say(line.removeprefix(processes.SHOWN))
    return shown


def _without_process(session: Session, entry: Entry, begin: float, verdict: str, reason: str) -> dict[str, Any]:
    """Return evidence of a check that came to no end of its own, after writing it where it outweighs what lies there."""
    found = bare_evidence(
        entry.name, verdict=verdict, reason=reason, now=begin, seconds=session.now() - begin, code=mark_of(entry), machine=session.machine
    )
    return _conclude(session, entry, found, {"versions": session.versions})


def _conclude(session: Session, entry: Entry, found: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    whole = {**found, **more}
    session.say(f"{entry.name:<18} {whole['verdict']:<12} {whole['reason']}")
    earlier = read(session.folder, entry.name)
    if outweighs(whole, earlier):
        _try_writing(session, lambda: write(session.folder, whole, {}))
    _try_writing(session, lambda: note_attempt(session.folder, whole))
    return whole


def _try_writing(session: Session, act: Callable[[], object]) -> None:
    """Write something; a full disk is said, and the next check goes on."""
    try:
        act()
    except OSError as error:
        session.say(f"could not write into {session.results}: {error.strerror or error}; free some space there")


def _lost(session: Session) -> str:
    """Return why the GPU answers no more after a check was ended or crashed, "" where it does."""
    ended = processes.run([*session.command, "--probe"], min(PROBING, max(5.0, session.left)), _unheard, session.environment)
    return f"the GPU answers no more: {ended.problem}" if ended.problem else ""


def _unheard(line: str) -> bool:  # noqa: ARG001
    """Leave a line to the words that are told when a process fails."""
    return False


def _save(session: Session) -> None:
    """Bring the summary and the archive up to date."""
    _try_writing(session, lambda: write_summary(session.folder))
    if session.archive is not None:
        archive = session.archive
        _try_writing(session, lambda: pack_parts(session.results, archive))


def _wrap_up(session: Session, chosen: Sequence[Entry], lost: str) -> int:
    """Write the summary and the archive, say what is left, and return the exit code."""
    _save(session)
    if lost:
        session.say(lost)
    found = {entry.name: read(session.folder, entry.name) for entry in chosen}
    open_ = [entry for entry in chosen if not is_answered(session, entry)]
    refuted = [name for name, one in found.items() if one is not None and one["verdict"] == "refuted"]
    for words, names in (("refuted", refuted), ("open", [entry.name for entry in open_])):
        if names:
            session.say(f"{words}: {', '.join(names)}")
    packed = "" if session.archive is None else f", packed in {session.archive}"
    session.say(f"evidence: {session.folder}/README.md{packed}{'; start again to go on' if open_ else ''}")
    return PARTIAL if open_ or refuted or lost else FINISHED


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
