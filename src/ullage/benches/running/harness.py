"""The harness: a bench's cases one after the other, each compiled, checked, timed and stamped, or a row that says why not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ullage.benches.bench import AnyCase, Bench, Case, IdleCase, Labels, cases_for
from ullage.benches.result import BenchResult, CaseRow
from ullage.benches.running import kernel_case, library_case, timing
from ullage.errors import UllageError, harmless

if TYPE_CHECKING:
    from ullage.benches.running.session import Session


@dataclass(frozen=True)
class BenchProgress:
    """How far a bench is: case `number` (from 1) of `total` begins, or, with a `row`, has ended."""

    bench: str
    number: int
    total: int
    labels: Labels
    row: CaseRow | None = None

    def __str__(self) -> str:
        labels = ", ".join(f"{name} {value}" for name, value in self.labels.items() if value is not None)
        said = "" if self.row is None else f": {self.row.problem or 'measured'}"
        return f"{self.bench} {self.number}/{self.total} ({labels}){said}"


Progress = Callable[[str], None]
AHEAD = 24  # cases whose kernels are compiled side by side, before the first of them runs


def silent(line: str) -> None:
    """Say nothing."""


def run(
    bench: Bench,
    session: Session,
    *,
    quick: bool = False,
    progress: Progress = silent,
    until: float | None = None,
) -> BenchResult:
    """Return a bench's rows on the session's device, one for each of its cases.

    A case that fails or is wrong gives a row with its problem, and the next goes on; past `until` (by the session's clock) the rest
    say that the time was up. Only Ctrl-C and the like end the bench. `progress` is told of each case as it begins.
    """
    begin, date, rows = session.now(), session.date, []
    cases, notes = laid_out(bench, session, quick)
    for step in steps(bench, cases, session, until=until):
        if step.row is None:
            progress(str(step))
        else:
            rows.append(step.row)
    told = (*notes, *concluded(bench, rows))
    return BenchResult(bench.name, date, session.machine, quick, tuple(rows), told, session.now() - begin, {"seed": session.seed})


def concluded(bench: Bench, rows: Sequence[CaseRow]) -> tuple[str, ...]:
    """Return what a bench says of its rows taken together; a mistake in that costs no row."""
    try:
        return bench.findings(rows) if bench.findings is not None else ()
    except Exception as error:
        return (f"{bench.name}: nothing can be said of the rows together: {said(error)}",)


def laid_out(bench: Bench, session: Session, quick: bool) -> tuple[list[AnyCase], tuple[str, ...]]:
    """Return a bench's cases for the session's device, and what is to be said where there is none."""
    try:
        cases = cases_for(bench, session.target, quick)
    except Exception as error:  # a mistake in one bench must not cost the others
        return [], (f"{bench.name} can't be laid out for this GPU: {said(error)}",)
    return cases, () if cases else (f"{bench.name} has nothing for {session.target.architecture}",)


def steps(bench: Bench, cases: list[AnyCase], session: Session, skip: int = 0, until: float | None = None) -> Iterator[BenchProgress]:
    """Yield a step as each case begins and another, with its row, when it has ended; the first `skip` cases are left out."""
    for number, case in enumerate(cases[skip:], skip + 1):
        if (number - skip) % AHEAD == 1:  # some at a time: nothing is heard of a bench while it compiles
            kernel_case.compile_ahead(cases[number - 1 : number - 1 + AHEAD], session.target.architecture, os.cpu_count() or 1)
        step = BenchProgress(bench.name, number, len(cases), case.labels)
        yield step
        late = until is not None and session.now() > until
        yield replace(step, row=without(case, "not run: the time was up") if late else _row(case, session))
        if session.device.lost:
            _recover(session)


def _row(case: AnyCase, session: Session) -> CaseRow:
    """Return a case's row, whatever happens; all that it held on the device is given back."""
    if session.device.lost:
        return without(case, f"not run: {session.device.lost}")
    try:
        found = _measured(case, session)
        return CaseRow(case.labels, found.values, found.stamp, "", case.precision, case.sparse, case.flops, case.bytes)
    except Exception as error:
        if not isinstance(error, kernel_case.UnmeasuredError):
            session.device.notice(error)
        return without(case, said(error))
    finally:
        session.give_back()


def _measured(case: AnyCase, session: Session) -> kernel_case.MeasuredCase:
    if isinstance(case, Case):
        generator = np.random.default_rng(session.seed)
        return kernel_case.measure(case, session.device, session.target.architecture, session.target.sms, session.monitor, generator)
    if isinstance(case, IdleCase):
        return _idle(case, session)
    return library_case.measure(case, session.torch, session.target.sms, session.monitor)


def _idle(case: IdleCase, session: Session) -> kernel_case.MeasuredCase:
    """Return what the board draws while nothing runs on it."""
    session.device.sleep(case.settle)
    with session.monitor.watching() as watch:
        session.device.sleep(case.seconds)
    spans = timing.TimedSpans((case.seconds,), watch.observed(), case.seconds, case.settle)
    values = kernel_case.summed("power", [spans.observed.power])
    return kernel_case.MeasuredCase(kernel_case.refuse_none(values, case.quantities), kernel_case.stamp(spans, case.data))


def without(case: AnyCase, problem: str) -> CaseRow:
    """Return the row of a case that has no number."""
    return CaseRow(case.labels, {}, None, problem, case.precision, case.sparse, case.flops, case.bytes)


def said(error: BaseException) -> str:
    """Return an error as one sentence.

    >>> said(ValueError("no such size\\nmore")), said(UllageError("the kernel is too large", "make it smaller"))
    ('ValueError: no such size', 'the kernel is too large')
    """
    if isinstance(error, UllageError):
        return harmless(error.problem, 400)
    first = next(iter(str(error).splitlines()), "")
    return harmless(f"{type(error).__name__}: {first}" if first else type(error).__name__, 400)


def _recover(session: Session) -> None:
    """Open another context; where that fails the device stays lost, and every later row says so."""
    if session.device.stuck:
        return
    try:
        session.recover()
    except UllageError as error:
        session.device.lost = f"{session.device.lost}, and another context can't be had ({said(error)})"
