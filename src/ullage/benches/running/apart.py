"""A suite in a process of its own: a kernel that hangs, or takes its process with it, costs its own row and no other.

A GPU can't be got away from a kernel that never ends but by ending the process that launched it, and some errors can't be cleared
otherwise. So another process computes and tells every step through a pipe; when it dies or falls silent, the row in hand says so,
and a new one goes on with the next case.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ullage.benches.bench import BENCHES
from ullage.benches.result import BenchResult, CaseRow
from ullage.benches.running.harness import BenchProgress, Progress, concluded, laid_out, silent, steps
from ullage.benches.running.session import Session, allowed, chosen, opened
from ullage.errors import UllageError

SILENCE = 120.0  # seconds without a word until a process counts as hung; compiling a kernel or loading a model take less
Open = Callable[[int], Session]


def suite_apart(
    names: Sequence[str],
    *,
    index: int = 0,
    quick: bool = False,
    progress: Progress = silent,
    budget: float | None = None,
    drift: bool = False,
    silence: float = SILENCE,
    opened: Open = opened,
) -> Iterator[BenchResult]:
    """Yield what `session.suite` yields for the GPU that CUDA counts as `index`, computed in a process of its own.

    `opened` opens the session there; it must be a function that can be imported. Raises UllageError for an unknown name, and where
    no session can be opened.
    """
    seconds = allowed(budget, drift)
    until = None if seconds is None else time.monotonic() + seconds
    worker = _Worker(opened, index, silence)
    try:
        for bench in chosen(names, drift):
            yield _result(bench.name, worker, quick or drift, until, progress)
    finally:
        worker.end()


@dataclass(frozen=True)
class _Request:
    """Run a bench's cases but the first `skip`, until a time of the monotonic clock (which all processes share)."""

    bench: str
    quick: bool
    skip: int
    until: float | None


@dataclass(frozen=True)
class _Head:
    """What a result says beside its rows, and how many these will be."""

    total: int
    facts: dict[str, Any]


@dataclass(frozen=True)
class _Done:
    """The bench has ended."""


@dataclass(frozen=True)
class _Refused:
    """The session could not be opened."""

    problem: str
    hint: str


class _LostError(Exception):
    """The process died or fell silent; the message is a clause."""


# --- here ---


@dataclass
class _Current:
    """A bench as far as it was told: `step` is a case that has begun and not ended."""

    head: _Head | None = None
    rows: list[CaseRow] = field(default_factory=list)
    step: BenchProgress | None = None

    def take(self, message: _Head | BenchProgress, progress: Progress) -> None:
        if isinstance(message, _Head):
            self.head = self.head or message
        elif message.row is None:
            self.step = message
            progress(str(message))
        else:
            self.step = None
            self.rows.append(message.row)

    def fail(self, why: str) -> None:
        """Give the case in hand, if there is one, the row of one that was lost."""
        if self.step is not None:
            self.rows.append(CaseRow(self.step.labels, {}, None, why))
            self.step = None

    @property
    def complete(self) -> bool:
        return self.head is not None and len(self.rows) >= self.head.total


def _result(bench: str, worker: _Worker, quick: bool, until: float | None, progress: Progress) -> BenchResult:
    """Return a bench's result, with as many processes as it takes: each that is lost ends a case, or else the bench is given up."""
    notes: list[str] = []
    begin, current = time.monotonic(), _Current()
    while not current.complete and not notes:
        had = len(current.rows)
        try:
            for message in worker.asked(_Request(bench, quick, had, until)):
                current.take(message, progress)
            break
        except _LostError as lost:
            current.fail(str(lost))
            if len(current.rows) == had:
                notes = [f"{bench} was given up: {lost}"]
    head = current.head or _Head(0, {**worker.facts, "quick": quick})
    facts = {**head.facts, "notes": (*head.facts.get("notes", ()), *notes, *concluded(BENCHES[bench], current.rows))}
    return BenchResult(bench, rows=tuple(current.rows), seconds=time.monotonic() - begin, **facts)


class _Worker:
    """The process that computes: begun when it is first asked, and again after it was lost."""

    def __init__(self, opened: Open, index: int, silence: float) -> None:
        self.opened, self.index, self.silence = opened, index, silence
        self.process: Any = None
        self.pipe: Any = None
        self.facts: dict[str, Any] = {"date": "", "machine": {}}  # the last that were told

    def asked(self, request: _Request) -> Iterator[_Head | BenchProgress]:
        """Yield what the process tells of a bench. Raises _LostError when it tells no more, UllageError when it can't begin."""
        if self.process is None:
            self._begin()
        try:
            self.pipe.send(request)
        except OSError:
            raise self._lost() from None
        while not isinstance(message := self._heard(self.silence), _Done):
            if isinstance(message, _Head):
                self.facts = {name: message.facts[name] for name in ("date", "machine")}
            yield message

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, self.opened, self.index), daemon=True)
        self.process.start()
        theirs.close()
        first = self._heard(max(self.silence, SILENCE))  # importing PyTorch and waking a GPU take their time
        if isinstance(first, _Refused):
            self.end()
            if self.facts["date"]:  # it was there a while ago: what was measured then is not thrown away
                raise _LostError(first.problem)
            raise UllageError(first.problem, first.hint)

    def _heard(self, silence: float) -> Any:
        try:
            if self.pipe.poll(silence):
                return self.pipe.recv()
        except (EOFError, OSError):
            raise self._lost() from None
        self.end()
        raise _LostError(f"it did not end within {silence:.0f} s")

    def _lost(self) -> _LostError:
        self.process.join(10)
        code = self.process.exitcode
        self.end()
        return _LostError(f"the process that ran it ended (exit code {code})")

    def end(self) -> None:
        """End the process, even one that hangs."""
        if self.process is None:
            return
        self.process.kill()
        self.process.join(10)
        self.pipe.close()
        self.process = None


# --- there ---


def _serve(pipe: Any, opened: Open, index: int) -> None:
    """Open a session and answer requests until the other side ends."""
    try:
        session = opened(index)
    except UllageError as error:
        pipe.send(_Refused(error.problem, error.hint))
        return
    pipe.send(None)
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            _answer(pipe, pipe.recv(), session)


def _answer(pipe: Any, request: _Request, session: Session) -> None:
    date, bench = session.date, BENCHES[request.bench]
    cases, notes = laid_out(bench, session, request.quick)
    facts = {"date": date, "machine": session.machine, "quick": request.quick, "notes": notes, "extra": {"seed": session.seed}}
    pipe.send(_Head(len(cases), facts))
    for step in steps(bench, cases, session, request.skip, request.until):
        pipe.send(step)
        if session.device.lost:  # the next process has a context of its own, and PyTorch with it
            os._exit(0)  # no farewell: the driver's would wait for a kernel that does not end
    pipe.send(_Done())
