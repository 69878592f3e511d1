"""From trace files to one run: found, recognised, read one by one (or side by side in processes), reduced, merged.

A file's events are let go before the next file is read in the same process; only states leave a worker.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import chdir, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ullage.errors import UllageError, harmless
from ullage.memory import give_back
from ullage.named import found, ranks
from ullage.problems import Problems
from ullage.recording import Mode, Recording
from ullage.store.spark_tasks import on_spark
from ullage.sums.lanes.collectives.matching import match
from ullage.sums.lanes.common import beyond, beyond_region, with_common
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.observed import TableTime
from ullage.sums.lanes.reduce import Reduced, reduce
from ullage.sums.lanes.run import Run, merge
from ullage.sums.lanes.states import Host
from ullage.sums.lanes.window import TraceWindow
from ullage.totals import Region, united
from ullage.traces.trace import TRACES, File, NoTraceError, Trace, TraceOptions, formats, recognised
from ullage.views.times import in_seconds
from ullage.workers import side_by_side

NO_TRACE, UNUSED = "files that are not traces", "traces that can't be used"
Tables = Literal["common", "recorded"]
WORTH_PROCESSES = 32 << 20  # bytes on disk from which on several files are read side by side


@dataclass(frozen=True)
class ProfileRequest:
    """How traces are to be read: the window, which threads are a process' `host` lane, `ranks` by file name, the reader's `options`;
    `workers` processes at most. `tables` are of the time in which all ranks were recorded, for which files of unequal times are read
    twice, or of all that was `recorded`; in a `region` alone if one is asked for. `replay` keeps the calls and operations of each, so that
    the run can be replayed. With an `engine`, the address of a Spark, each file is a task there."""

    window: TraceWindow = field(default_factory=TraceWindow)
    ranks: dict[str, int] = field(default_factory=dict)
    options: TraceOptions = field(default_factory=TraceOptions)
    workers: int | None = None
    host: Host = "busiest"
    tables: Tables = "common"
    replay: bool = False
    region: str | None = None
    engine: str | None = None


@dataclass(frozen=True)
class Profile:
    """One run as read: merged states (`run`), or `regions` where the files hold sums (TALP JSON); and what was left out.

    `replay` says whether it is to be replayed; `files` are what it was read from."""

    places: tuple[str, ...]
    source: str
    recordings: tuple[Recording, ...]
    run: Run | None
    regions: tuple[Region, ...]
    problems: Problems
    prefers: Mode
    replay: bool = False
    files: tuple[File, ...] = ()

    @property
    def window(self) -> str:
        """The rule of the window: where it was left to each file (`auto`), what it came to; the files' rules where they differ."""
        return " and ".join(sorted({r.rule for r in self.run.captures})) if self.run is not None and self.run.captures else "first-last"

    @property
    def partial(self) -> bool:
        """Whether something of the run is missing: a file that ends early, or device events that were dropped."""
        return any(r.cut or r.untimed for r in self.recordings) or (
            self.run is not None and bool(self.problems.dropped.keys() - {NO_TRACE})
        )


def profile(places: str | Sequence[str], asked: ProfileRequest | None = None) -> Profile:
    """Return one run from its trace files: a file, a folder, a glob, or several of them; one file may hold several ranks.

    Raises UllageError when nothing can be read, when two files claim one rank, or when files of different tools are mixed.
    """
    asked = asked or ProfileRequest()
    problems = Problems()
    files = _once(_recognised(found([places] if isinstance(places, str) else places), problems), problems)
    tools = {trace.name: file.name for trace, file in reversed(files)}
    if len(tools) > 1:
        named = " and ".join(f"{name} ({tool})" for tool, name in sorted(tools.items()))
        raise UllageError(f"these are traces of different tools: {named}", "give the files of one run by one tool")
    trace = files[0][0]
    if trace.sums is not None:
        return _stated(trace, [file for _, file in files], asked, problems)
    kept = _reduced([file for _, file in files], asked, problems)
    _refuse_twins(kept)
    _compare_clocks(kept, problems)
    recordings = tuple(r.recording for r in kept)
    run = _with_tables(merge(kept), [file for _, file in files], asked)
    return Profile(
        tuple(r.place for r in recordings),
        recordings[0].source or trace.name,
        recordings,
        run,
        (),
        problems,
        _prefers(recordings, run),
        asked.replay,
        tuple(file for _, file in files),
    )


def _recognised(paths: list[Path], problems: Problems) -> list[tuple[Trace, File]]:
    TRACES.load()
    aside = tuple(ending for t in TRACES.values() for ending in t.beside)
    files: list[tuple[Trace, File]] = []
    first: UllageError | None = None
    for path in paths:
        try:
            files.append(recognised(path))
        except UllageError as error:
            if len(paths) == 1:
                raise
            if path.suffix not in aside:
                first = first or error
                problems.drop(NO_TRACE if isinstance(error, NoTraceError) else UNUSED, where=error.problem)
    if not files:
        raise first or UllageError("none of the files is a trace that Ullage reads", formats())
    return files


def _once(files: list[tuple[Trace, File]], problems: Problems) -> list[tuple[Trace, File]]:
    """Return the files less those that another one tells the whole of; raises UllageError where the tool ran more than once."""
    paths = {file.path for _, file in files}
    kept = [(trace, file) for trace, file in files if trace.repeats is None or not trace.repeats(file.path, paths)]
    folders = {trace.session(file.path) for trace, file in kept if trace.session is not None}
    sessions = sorted(str(folder) for folder in folders if folder is not None)
    if len(sessions) > 1:
        raise UllageError(f"these are {len(sessions):,} profiles, one after the other", f"give one of them: {harmless(sessions[-1], 4096)}")
    if left := len(files) - len(kept):
        problems.note(
            f"{left:,} {'file' if left == 1 else 'files'} left out: others in the same folder hold the same profile, and all of it"
        )
    return kept


def _stated(trace: Trace, files: list[File], asked: ProfileRequest, problems: Problems) -> Profile:
    """Return a run from files of sums: one of the whole run, or one for each of its processes."""
    assert trace.sums is not None
    if asked.window.kind not in ("first-last", "auto"):
        raise UllageError(
            f"{files[0].name} holds sums over regions: no window can be cut out of them", "leave out --window, or use --region"
        )
    recordings, parts = [], []
    for file in files:
        recordings.append(Recording(file.name, source=trace.name, prefers="talp"))
        parts.append(trace.sums(file, recordings[-1], asked.options, problems))
    whole = [file.name for file, regions in zip(files, parts, strict=True) if not all(region.share for region in regions)]
    if len(files) > 1 and whole:
        raise UllageError(
            f"{whole[0]} holds the sums of a whole run", "give one run at a time, or compare them: ullage trace scaling RUN RUN…"
        )
    by_name: dict[str, list[Region]] = {}
    for region in (region for regions in parts for region in regions):
        by_name.setdefault(region.name, []).append(region)
    regions = tuple(united(shares) if len(shares) > 1 else shares[0] for shares in by_name.values())
    return Profile(tuple(f.name for f in files), recordings[0].source, tuple(recordings), None, regions, problems, "talp", asked.replay)


def _reduced(files: list[File], asked: ProfileRequest, problems: Problems) -> list[Reduced]:
    kept: list[Reduced] = []
    failed: UllageError | None = None
    for reduced, lost, error in _read_all(_tasks(files, asked), asked):
        _add(problems, lost)
        if error is not None:
            if asked.options.strict or len(files) == 1:
                raise error
            problems.drop(UNUSED, where=error.problem)
        elif reduced is not None:
            kept.append(reduced)
        failed = failed or error
    if not kept and failed is not None:
        raise failed
    return kept


def with_region_tables(found: Profile, asked: ProfileRequest, region: str) -> Profile:
    """Return a profile whose tables are of a region, for which the files are read again."""
    if found.run is None or all(capture.tables.region == region for capture in found.run.captures):
        return found
    return replace(found, run=_with_tables(found.run, list(found.files), replace(asked, region=region)))


def _with_tables(run: Run, files: list[File], asked: ProfileRequest) -> Run:
    """Return a run whose tables are of the same time as its trees: of what is recorded of some ranks for longer than of others, or while
    others are in a region, files are read again, for that is known only when all have been read. Where a file can't be, its tables stay
    as they are."""
    if asked.tables == "common":
        looked = with_common(run, match(run.captures).clocks)
    elif asked.region is None:
        return run
    else:
        looked = run
    if asked.region is None:
        changes: dict[str, dict[str, Any]] = {place: {"limit": limit} for place, limit in beyond(looked).items()}
    else:
        changes = {place: {"tables": time} for place, time in beyond_region(looked, asked.region).items()}
    if not changes:
        return run
    named = zip((file.name for file in files), _tasks(files, asked), strict=True)
    again = [replace(task, replay=False, **changes[name]) for name, task in named if name in changes]
    found = {reduced.recording.place: reduced for reduced, _, _ in _read_all(again, asked, "again ") if reduced is not None}
    kept = tuple(c.with_tables(found[c.recording.place]) if c.recording.place in found else c for c in run.captures)
    return replace(run, captures=kept)


@dataclass(frozen=True)
class _Task:
    """A file to be read, how, of which time alone (`limit`, ns by its clock), and of which time the `tables` are."""

    path: Path
    options: TraceOptions
    window: TraceWindow
    host: Host
    limit: tuple[int, int] | None = None
    replay: bool = False
    tables: TableTime | str | None = None


def _tasks(files: list[File], asked: ProfileRequest) -> list[_Task]:
    given = ranks([file.path for file in files], asked.ranks)
    options = {f.path: replace(asked.options, rank=given.get(f.path, asked.options.rank)) for f in files}
    return [_Task(f.path, options[f.path], asked.window, asked.host, replay=asked.replay, tables=asked.region) for f in files]


def _read_all(tasks: list[_Task], asked: ProfileRequest, how: str = "") -> list[_Result]:
    """Return what files come to, in their order: read side by side where that is worth it, or by Spark where one is asked for."""
    if asked.engine is not None:
        return on_spark(_read_elsewhere, [(Path.cwd(), _told(task, progress=_silent)) for task in tasks], asked.engine)
    workers = min(asked.workers or os.cpu_count() or 1, len(tasks))
    size = sum(_size(task.path) for task in tasks)
    if workers > 1 and (asked.workers or size >= WORTH_PROCESSES):
        silent = [_told(task, progress=_silent) for task in tasks]
        return side_by_side(read_one, silent, workers, lambda done: asked.options.progress(f"{how}{done:,} of {len(tasks):,} traces"))
    within = asked.workers or os.cpu_count() or 1  # one file at a time may itself be read by several
    tasks = [_told(task, workers=within) for task in tasks]
    return [_one_by_one(task, number, len(tasks), asked.options.progress) for number, task in enumerate(tasks, 1)]


def _told(task: _Task, **more: Any) -> _Task:
    return replace(task, options=replace(task.options, **more))


_Result = tuple[Reduced | None, Problems, UllageError | None]


def _one_by_one(task: _Task, number: int, of: int, progress: Callable[[str], None]) -> _Result:
    head = f"{number:,} of {of:,} traces" if of > 1 else ""
    return read_one(_told(task, progress=lambda word: progress(f"{head} {word}".strip())))


def _silent(word: str) -> None:
    """Say nothing: a worker has no terminal."""


def read_one(task: _Task) -> _Result:
    """Return one file's states, what was left out of it, and the error that kept it from being used, if any."""
    path, options = task.path, task.options
    problems = Problems()
    try:
        trace, file = recognised(path)
        assert trace.read is not None
        recording = Recording(file.name, source=trace.name, rank=options.rank)
        capture = gather(trace.read(file, recording, options, problems), recording)
        give_back()
        if options.rank is not None:
            _rename(recording, options.rank)
        return reduce(capture, task.window, task.host, task.limit, replay=task.replay, tables=task.tables), problems, None
    except UllageError as error:
        return None, problems, _with_losses(error, problems)
    except BrokenPipeError:
        raise
    except OSError as error:
        return None, problems, UllageError(f"{harmless(str(path))} can't be read: {error.strerror or error}")


def _read_elsewhere(given: tuple[Path, _Task]) -> _Result:
    """Do the same on another machine, where a relative name is looked for in the folder that it was given in."""
    folder, task = given
    with nullcontext() if task.path.is_absolute() else chdir(folder):
        return read_one(task)


def _rename(recording: Recording, rank: int) -> None:
    """Give a capture the rank that the user says it is, whatever it says itself."""
    own = {p.rank for p in recording.processes.values() if p.rank is not None}
    if len(own) > 1:
        raise UllageError(f"{recording.place} holds {len(own):,} ranks, which one number can't name", "leave out --rank for it")
    for process in recording.processes.values():
        process.rank = rank if process.rank is not None else None
    recording.rank = rank


def _with_losses(error: UllageError, problems: Problems) -> UllageError:
    """Return an error that also says what was left out on the way to it: that may be why."""
    lost = Problems(problems.dropped, first={}).lines()
    return UllageError(f"{error.problem} ({'; '.join(lost[:3])})", error.hint) if lost else error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # gone meanwhile: who reads it says so


def _add(problems: Problems, more: Problems) -> None:
    problems.dropped.update(more.dropped)
    problems.repaired.update(more.repaired)
    for what, where in more.first.items():
        problems.first.setdefault(what, where)
    for note in more.notes:
        problems.note(note)


def _refuse_twins(kept: list[Reduced]) -> None:
    whose: dict[int, str] = {}
    for capture in kept:
        if capture.recording.by_process:
            continue
        for rank in {p.rank for p in capture.processes if p.rank is not None}:
            if rank in whose:
                raise UllageError(
                    f"rank {rank} is in both {whose[rank]} and {capture.recording.place}",
                    "give one run's files at a time, or say which is which: --rank FILE=0 --rank FILE=1",
                )
            whose[rank] = capture.recording.place


def _compare_clocks(kept: list[Reduced], problems: Problems) -> None:
    clocks = {r.recording.clock for r in kept}
    if len(kept) < 2:
        return
    if clocks == {"own"}:
        problems.note("the files have no common clock; each is measured on its own, from its first event")
    elif len(clocks) > 1:
        own = next(r.recording.place for r in kept if r.recording.clock == "own")
        problems.note(f"{own} has no common clock with the other files; it is measured on its own")
    windows = sorted((r.window, r.recording.place) for r in kept if r.recording.clock == "utc")
    for (a, first), (b, second) in itertools.pairwise(windows):
        if b[0] >= a[1]:
            problems.note(f"{first} and {second} were recorded at different times ({in_seconds(b[0] - a[1])} between them)")
            break


def _prefers(recordings: tuple[Recording, ...], run: Run) -> Mode:
    """Return the mode that suits a run: what its source calls for; else `ai` where collectives run on devices and nobody uses MPI."""
    stated = next((r.prefers for r in recordings if r.prefers), None)
    if stated:
        return stated
    return "ai" if any(d.collective.pieces for d in run.devices) and not any(p.communication.pieces for p in run.processes) else "talp"
