"""What `ullage run` says when the program has ended. Whatever fails here, the program has run: the exit code stays its own."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ullage.cli.options import Progress
from ullage.errors import UllageError, harmless

if TYPE_CHECKING:
    from ullage.cli.run import RunRequest
    from ullage.live.gathering import Gathering
    from ullage.live.recording import Recorded
    from ullage.reports.counters.kernel_counters import KernelCounters
    from ullage.reports.trace.run import RunReport
    from ullage.reports.trace.trace import TraceReport

NOTHING = (
    "nothing was recorded: the program used no GPU through CUDA, called no MPI, opened no region, "
    "and had no threads of OpenMP that tell when they wait"
)
ENDED = 128 + signal.SIGTERM
MOST_SHOWN = 8  # ranks named one by one
WORTH_KEEPING = 1 << 20  # bytes of recordings that could not be read


def answer(run: Gathering, command: tuple[str, ...], recorded: Recorded, request: RunRequest) -> bool:
    """Wait for the other ranks and report on the run; return whether all that was asked for could be given."""
    progress = Progress(quiet=request.quiet or sys.stderr is None)
    try:
        if recorded.code == ENDED:  # whoever said so may not wait for the report
            tell(f"the program was told to end; until there is a report on it, its recordings are in {run.folder}")
        notes = [*run.notes, *recorded.notes, *_ranks(run, *run.wait(request.wait, progress))]
        report = _report(run, command, recorded, notes, request, progress)
        progress.done()
        return report is None or _given(report, run.recordings(), request)
    except KeyboardInterrupt:
        tell(f"no report: interrupted (the program had ended, exit {recorded.code})")
    except (UllageError, OSError) as error:
        tell(f"the program ran (exit {recorded.code}), but there is no report on it: {error}")
    except Exception:
        traceback.print_exc()
        tell(f"the program ran (exit {recorded.code}), but there is no report on it: this is a mistake in Ullage")
    finally:
        progress.done()
    return False


def tell(words: str) -> None:
    """Say something on stderr, if anybody listens."""
    with suppress(OSError):
        click.echo("\n".join(harmless(line, 4000) for line in f"ullage: {words}".split("\n")), err=True)


def _ranks(run: Gathering, codes: dict[int, int], missing: list[int]) -> list[str]:
    """Return what is to be said of ranks that failed, that had not ended, and of which nothing came."""
    codes = {rank: code for rank, code in codes.items() if code}
    said = [f"rank {rank} ended with exit code {code}" for rank, code in list(codes.items())[:MOST_SHOWN]]
    said += [f"{len(codes) - MOST_SHOWN:,} more ranks failed"] if len(codes) > MOST_SHOWN else []
    running = [rank for rank in missing if run.of(rank).is_dir()]
    if running:
        said.append(f"{_called(running)} had not ended when this was written: what came later is not here")
    if silent := sorted(set(missing) - set(running)):
        hint = "is the folder one that all hosts share?" if run.kept else "if they are on other hosts, --keep a folder that all share"
        said.append(f"nothing came from {_called(silent)}: {hint}")
    return said


def _lost(lost: int, recorded: int) -> list[str]:
    """Return what is to be said where processes that had something to record left nothing."""
    if not lost:
        return []
    said = f"{lost + recorded:,} process{'es' if lost + recorded > 1 else ''} started, {recorded:,} recorded"
    return [f"{said}: what the others did is not here, as they could not write it or ended before they did (--flush)"]


def _called(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:MOST_SHOWN]) + (", …" if len(ranks) > MOST_SHOWN else "")
    return f"rank {shown}" if len(ranks) == 1 else f"{len(ranks):,} ranks ({shown})"


def _report(
    run: Gathering, command: tuple[str, ...], recorded: Recorded, notes: list[str], request: RunRequest, progress: Progress
) -> RunReport | None:
    """Return the report on what was recorded; None where that is nothing and only notes are to be told, which takes no time."""
    files = run.recordings()
    notes = [*notes, *_lost(run.unrecorded, len(files))]
    if not files and recorded.ready and not notes:
        notes = [NOTHING]
    if not files and all(getattr(request, name) is None for name in ("json_out", "out", "talp")):
        _say("\n" + "".join(f"note: {harmless(note, 1000)}\n" for note in notes), request)
        return None
    if request.kernels is not None and files and _counted(recorded, files, notes, request):
        return None
    if request.flops and files:
        _executed(recorded, files, notes, request)
        return None
    if request.stalls and files:
        _stalled(recorded, files, notes, request)
        return None
    from ullage.reports.trace.run import run_report

    trace = _trace(files, request, progress, notes) if files else None
    report = run_report(recorded.code, trace, run.folder, notes)
    return report if run.kept else _nameless(report, run, command)


def _counted(recorded: Recorded, files: list[Path], notes: list[str], request: RunRequest) -> bool:
    """Print what was counted of each kernel; return False (and leave a note) where that is nothing."""
    from ullage.live.counting import NOT_COUNTED
    from ullage.render import kernel_counters as render
    from ullage.views.text import text

    if any(note.startswith(NOT_COUNTED) for note in notes):
        return False
    try:
        report = _kernels(files, request, notes)
    except UllageError as error:
        notes.append(f"{error.problem} ({error.hint})")
        return False
    view = render.view(report)
    _say("\n" + text(view), request)
    _write_json(view.kind, render.record(report) | {"exit": recorded.code}, request)
    return True


def _kernels(files: list[Path], request: RunRequest, notes: list[str]) -> KernelCounters:
    """Return the kernels that recordings hold counters of; measured ceilings of their GPU go before its maker's.

    Raises UllageError where nothing was counted, and where CUPTI can't evaluate on this machine.
    """
    from ullage.cupti.library import find
    from ullage.gpus import chip
    from ullage.gpus.measured import ceilings_of
    from ullage.live.counting import evaluated
    from ullage.problems import Problems
    from ullage.reports.counters.kernel_counters import kernel_counters

    problems, gpu = Problems(), None
    values = list(evaluated(files, find(request.cupti), problems))
    if request.gpu is not None:
        with suppress(UllageError):  # of a GPU that nobody knows no roof is known
            gpu = chip.find(request.gpu)
    measured = None if request.gpu is None else ceilings_of(request.gpu)
    return kernel_counters(values, gpu, measured, [*notes, *problems.lines()])


def _executed(recorded: Recorded, files: list[Path], notes: list[str], request: RunRequest) -> None:
    """Print the FLOPs of each kernel by type, and write the JSON that was asked for; where nothing was counted say why."""
    from ullage.cupti.counters.sass_metrics import executed_instructions
    from ullage.render import kernel_flops as render
    from ullage.reports.counters.kernel_flops import program_flops
    from ullage.views.text import text

    try:
        report = program_flops(executed_instructions(files), notes)
    except UllageError as error:
        tell("\n".join([f"{error.problem}: {error.hint}", *notes]))
        if request.json_out is not None:
            tell(f"{request.json_out} is not written: nothing was counted")
        return
    view = render.view(report)
    _say("\n" + text(view), request)
    _write_json(view.kind, render.record(report) | {"exit": recorded.code}, request)


def _write_json(kind: str, record: dict[str, Any], request: RunRequest) -> None:
    """Write a report's data where `--json` says: - is stdout."""
    from ullage.views.document import document_text

    if request.json_out == "-":
        click.echo(document_text(kind, record))
    elif request.json_out is not None:
        _written(Path(request.json_out), (document_text(kind, record) + "\n").encode())


def _stalled(recorded: Recorded, files: list[Path], notes: list[str], request: RunRequest) -> None:
    """Print what the warps of each kernel waited for, and write the files that were asked for; where nothing was sampled say why."""
    from ullage.cupti.pc_sampling.recorded import sampled
    from ullage.render import stalls as render
    from ullage.reports.stalls.stalls import stall_report
    from ullage.views.files import content
    from ullage.views.text import text

    samples = sampled(files)
    try:
        report = stall_report(samples)
    except UllageError as error:
        why = samples.facts.problems or [f"{error.problem}: did a kernel run? a shorter --period samples more often"]
        tell("\n".join([f"no stalls: {'; '.join(why)}", *notes]))
        for path in (request.json_out, request.out):
            if path is not None:
                tell(f"{path} is not written: nothing was sampled")
        return
    report = replace(report, notes=(*report.notes, *notes))
    view = render.view(report)
    _say("\n" + text(view), request)
    _write_json(view.kind, render.record(report) | {"exit": recorded.code}, request)
    if request.out is not None:
        out = Path(request.out)
        _written(out, content(out, view, lambda: render.record(report), render.more_forms(report)))


def _trace(files: list[Path], request: RunRequest, progress: Progress, notes: list[str]) -> TraceReport | None:
    """Return the report on recordings. A region that isn't there, and recordings without any event, are notes: all else is good."""
    from ullage.questions.trace.trace import trace

    names, more = [str(path) for path in files], {"mode": request.mode, "price": request.price, "progress": progress}
    if request.region is not None:
        try:
            return trace(names, region=request.region, **more)
        except UllageError as error:
            notes.append(f"{error.problem}: this is the whole run ({error.hint})")
    try:
        return trace(names, **more)
    except UllageError as error:
        notes.append(f"{error.problem} ({error.hint})")
        return None


def _nameless(report: RunReport, run: Gathering, command: tuple[str, ...]) -> RunReport:
    """Return a report that names the program in place of files that nobody will find."""
    within = (f"{run.own}{os.sep}", f"{run.folder}{os.sep}")

    def without(notes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(note.replace(within[0], "").replace(within[1], "") for note in notes)

    trace = report.trace
    if trace is not None:
        trace = replace(trace, places=(shlex.join(command),), notes=without(trace.notes))
    return replace(report, trace=trace, notes=without(report.notes))


def _given(report: RunReport, files: list[Path], request: RunRequest) -> bool:
    """Print the report and write the files that were asked for; return whether that went well."""
    from ullage.cli.options import painter
    from ullage.render.run import view
    from ullage.views.text import text

    _say("\n" + text(view(report, by=request.by), paint=painter(sys.stderr)), request)
    well = report.trace is not None or sum(path.stat().st_size for path in files) < WORTH_KEEPING
    for form in (_json, _out, _talp):
        try:
            form(report, files, request)
        except (UllageError, OSError) as error:
            tell(str(error))
            well = False
    return well


def _say(words: str, request: RunRequest) -> None:
    if not request.quiet and words.strip():
        with suppress(OSError):
            click.echo(words, nl=False, err=True)


def _json(report: RunReport, _: list[Path], request: RunRequest) -> None:
    from ullage.render.run import record

    _write_json("run", record(report), request)


def _out(report: RunReport, files: list[Path], request: RunRequest) -> None:
    if request.out is not None and (trace := _recorded(request.out, report)) is not None:
        from ullage.render.run import record, view
        from ullage.render.trace_files import write

        made = view(report, by=request.by)
        write(trace, Path(request.out), files=[str(path) for path in files], made=made, data=lambda: record(report))
        tell(f"wrote {request.out}")


def _talp(report: RunReport, _: list[Path], request: RunRequest) -> None:
    if request.talp is not None and (trace := _recorded(request.talp, report)) is not None:
        from ullage.render.talp_json import talp_json

        _written(Path(request.talp), talp_json(trace).encode())


def _recorded(path: str, report: RunReport) -> TraceReport | None:
    """Return what goes into a file; where nothing was recorded, that is said."""
    if report.trace is None:
        tell(f"{path} is not written: nothing was recorded")
    return report.trace


def _written(path: Path, content: bytes) -> None:
    from ullage.views.files import replace as rewrite

    rewrite(path, content)
    tell(f"wrote {path}")
