"""From a source to settled samples: read, attribute to jobs, settle, store. The one way in."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import NoSampleError, UllageError, UnreadableError, harmless, public
from ullage.problems import Problems
from ullage.sources.clock import named_zone
from ullage.sources.jobs.attribute import JobsSeen, attribute, note_seen
from ullage.sources.jobs.job import read_jobs
from ullage.sources.source import Options, file_names, files_of, read_samples
from ullage.store.append import Appended
from ullage.store.bucket import is_bucket
from ullage.store.reading import SettledFiles, asking, is_settled, open_settled
from ullage.store.rollups import RolledSums
from ullage.store.spark_session import DUCKDB
from ullage.store.store import Store
from ullage.trainlogs.reported import read_reported
from ullage.written_values import expanded_path

EARLIEST, LATEST = -62_135_596_800_000, 253_402_300_800_000  # the years 1 to 9999: what a calendar can say, in ms
Report = TypeVar("Report")  # a dataclass with `complete`, `read_until` and `partial_because`
# What is read on either side of a window: the sample after its end may reach back into it, and the one before its start says since when
# the first one speaks and by how much its counters have grown. Enough for scrapes up to 5 minutes apart, which stand for 10 at most.
MARGIN_MS = 600_000
ROWS = 1_000_000  # rows gathered before they are settled and stored together


@dataclass(frozen=True)
class Intake:
    """What a report is made from: an Ibis table of `tables.SETTLED`, a table of `tables.JOBS`, and what was dropped.

    `samples` may reach beyond the window that was asked for, which is the question's to cut (`sums.devices.within`).

    `rolled` are the sums that a store keeps of its samples, those of the window that was asked for (None: there are none).
    Of job records that contradict each other the first counts: trainers' logs that were named, then job records that were, then the rest.
    """

    samples: Any
    jobs: pa.Table
    problems: Problems
    rolled: RolledSums | None = None

    def marked(self, report: Report) -> Report:
        """Return a report on these samples that says whether all that was asked for was read, and if not, until when it was."""
        cuts = self.problems.cuts
        return replace(  # type: ignore[type-var]
            report, complete=not cuts, read_until=self.problems.read_until, partial_because=cuts[0].reason if cuts else ""
        )


@contextmanager
def opened(
    sources: Sequence[str],
    *,
    jobs: Sequence[str | pa.Table] = (),
    reported: Sequence[str] = (),
    options: Options | None = None,
    gap_ms: int | None = None,
    store: str | None = None,
    engine: str = DUCKDB,
) -> Iterator[Intake]:
    """Yield the settled samples of some places: a store or a settled file is asked where it lies, the rest is taken in.

    What is taken in goes to the store `store` (made when it does not exist), or to a temporary one that is gone after.
    `jobs` are job records, named or read already; `reported` trainers' logs as `LOG=JOB`. `engine` names what asks what is at rest.
    """
    options, problems = options or Options(), Problems()
    _check_window(options)
    zone = named_zone(options.time_zone)
    records = [read_reported(text, problems, since=options.since, until=options.until) for text in reported]
    records += [read_jobs(one, problems, zone) if isinstance(one, str) else one for one in jobs]
    if len(sources) == 1 and store is None and at_rest(sources[0]):
        with asking(sources[0]):
            place = _resting(sources[0], engine)
            if records:
                problems.note("samples at rest keep the jobs they were stored with; the job records given now only tell what was reported")
            if gap_ms is not None:
                problems.note("samples at rest stand for the time that they were stored with; --gap changes nothing")
            rolled = place.rolled(options.since, options.until) if isinstance(place, Store) else None
            with _saying_what_there_is(place):
                yield Intake(place.speaking(options.since, options.until), pa.concat_tables([*records, place.jobs()]), problems, rolled)
        return
    if engine != DUCKDB and store is None:
        raise UllageError(f"{engine} asks a store, or Parquet files of settled samples", "--store FOLDER keeps what is read in one")
    with tempfile.TemporaryDirectory(prefix="ullage-") as folder:
        kept = Store.open(store or folder, create=True, engine=engine)
        wider = _with_margin(options, max(MARGIN_MS, gap_ms or 0))
        take(kept, sources, pa.concat_tables(records) if records else None, options=wider, problems=problems, gap_ms=gap_ms)
        with asking(kept.name):
            if store is not None:
                kept.roll_up(options.progress)
            rolled = kept.rolled(options.since, options.until)
            yield Intake(kept.samples(), pa.concat_tables([*records, kept.jobs()]), problems, rolled)


@contextmanager
def _saying_what_there_is(place: Store | SettledFiles) -> Iterator[None]:
    """Add to the error that a window has no sample from when to when the place has some."""
    try:
        yield
    except NoSampleError as error:
        if (window := place.window()) is None:
            raise
        raise NoSampleError(error.problem, f"the samples lie between {_utc(window[0])} and {_utc(window[1])}; {error.hint}") from None


def _utc(time: int) -> str:
    return datetime.fromtimestamp(time / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _with_margin(options: Options, margin_ms: int) -> Options:
    """Return options that ask for more on either side, so that what lies in the window reads as it does in the whole."""
    since, until = options.since, options.until
    return replace(
        options,
        since=None if since is None else max(EARLIEST, since - margin_ms),
        until=None if until is None else min(LATEST - 1, until + margin_ms),
    )


def _check_window(options: Options) -> None:
    for time in (options.since, options.until):
        if time is not None and not EARLIEST <= time < LATEST:
            raise UllageError(f"{time:,} ms since 1970 is not a time of the calendar", "give a time between the years 1 and 9999")
    if options.since is not None and options.until is not None and options.since >= options.until:
        start, end = map(_utc, (options.since, options.until))
        raise UllageError(f"the window is empty: it begins at {start} and ends at {end}", "--since must lie before --until")


def at_rest(name: str) -> bool:
    """Return whether a place is a store, or a Parquet file of settled samples."""
    path = expanded_path(name)
    return is_bucket(name) or (
        bool(name) and "://" not in name and ((path / "manifest.json").is_file() or (path.is_file() and is_settled(path)))
    )


def _resting(place: str, engine: str) -> Store | SettledFiles:
    whole = is_bucket(place) or expanded_path(place).is_dir()
    return Store.open(place, engine=engine) if whole else open_settled(expanded_path(place), engine=engine)


def take(
    store: Store,
    sources: Sequence[str],
    jobs: pa.Table | None,
    *,
    options: Options,
    problems: Problems,
    gap_ms: int | None = None,
    renamed: Callable[[pa.Table], pa.Table] = lambda table: table,
) -> int:
    """Read places, attribute their samples to jobs, and append them to a store; returns how many rows were new.

    Samples are stored as they are `renamed`; job records must have been.

    A place that fails after some of it was read is cut short, with a note; one that gives nothing at all raises UllageError.
    """
    if jobs is not None:
        store.add_jobs(jobs)
    known, seen = store.jobs(), JobsSeen()
    taken = _Count(options.progress)
    names = file_names(files_of(sources))
    for name in sources:
        tables = taken.each(_as_far_as_it_goes(name, options, problems, names, taken.rows > 0))
        done = store.append(_attributed(map(renamed, tables), known, problems, seen), gap_ms=gap_ms)
        taken.new += done.rows_new
        _note_settled(done, public(name), problems)
    if jobs is not None:
        note_seen(jobs, seen, problems)
    return taken.new


def take_read(store: Store, tables: Iterator[pa.Table], where: str, problems: Problems) -> int:
    """Attribute samples that were read already to the store's jobs, and append them; returns how many rows were new."""
    done = store.append(_attributed(tables, store.jobs(), problems, JobsSeen()))
    _note_settled(done, where, problems)
    return done.rows_new


def _note_settled(done: Appended, where: str, problems: Problems) -> None:
    problems.repair("readings under the name of a ratio are percent; settled by exporter and host", done.percent, where)
    for column, count in sorted(done.impossible.items()):
        problems.drop(f"impossible values of {column}", count, where)


def _as_far_as_it_goes(name: str, options: Options, problems: Problems, names: Mapping[Path, str], others: bool) -> Iterator[pa.Table]:
    """Yield the tables of a place up to where it fails, with a note; a failure before the first is raised.

    Only reading may end early: where nothing more can be stored, the work has failed. A place that the deadline kept out altogether
    fails nobody where `others` gave something.
    """
    begun = False
    try:
        for table in gathered(read_samples(name, options, problems, names)):
            begun = True
            yield table
    except UllageError as error:
        late = others and not options.deadline.left and isinstance(error, UnreadableError)
        if not begun and not late:
            from ullage.sources.running_service import require_no_service

            require_no_service(name, options)
            raise
        place = harmless(public(name))
        problems.note(f"{place} ended early, and what came before is reported: {error.problem}")
        problems.cut(f"{place} ended early: {error.problem}", error.read_until if isinstance(error, UnreadableError) else None)


@dataclass
class _Count:
    """How many rows came by, told as they come."""

    progress: Callable[[str], None]
    rows: int = 0
    new: int = 0

    def each(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            self.rows += len(table)
            self.progress(f"{self.rows:,} samples")
            yield table


def _attributed(tables: Iterator[pa.Table], jobs: pa.Table, problems: Problems, seen: JobsSeen) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from (attribute(table, jobs, problems, seen) if len(jobs) else table).to_batches()


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables of about `ROWS` rows from record batches; what came before an error is yielded, then the error raised.

    A table ends where a host does: job records of whole hosts are matched by counting a host's devices.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    failed: UllageError | None = None
    try:
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= ROWS:
                whole, waiting = _cut(pa.Table.from_batches(waiting).unify_dictionaries())
                rows = sum(b.num_rows for b in waiting)
                yield whole
    except UllageError as error:
        failed = error
    if rows:
        yield pa.Table.from_batches(waiting).unify_dictionaries()
    if failed is not None:
        raise failed


def _cut(table: pa.Table) -> tuple[pa.Table, list[pa.RecordBatch]]:
    last = pc.equal(pc.fill_null(table["host"].cast(pa.string()), ""), table["host"][-1].as_py() or "")
    kept = pc.sum(last).as_py()
    if kept > len(table) // 2:  # one host's long history: nothing to be gained by waiting
        return table, []
    return table.filter(pc.invert(last)), table.filter(last).to_batches()
