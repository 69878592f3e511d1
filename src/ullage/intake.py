"""From a source to settled samples: read, attribute to jobs, settle, store. The one way in."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.sources.jobs.attribute import attribute, note_unmatched
from ullage.sources.jobs.job import read_jobs
from ullage.sources.source import Options, read_samples
from ullage.store.reading import SettledFiles, is_settled, open_settled
from ullage.store.store import Store

ROWS = 1_000_000  # rows gathered before they are settled and stored together


@dataclass(frozen=True)
class Intake:
    """What a report is made from: an Ibis table of `tables.SETTLED`, a table of `tables.JOBS`, and what was dropped."""

    samples: Any
    jobs: pa.Table
    problems: Problems


@contextmanager
def opened(
    sources: Sequence[str], *, jobs: Sequence[str] = (), options: Options | None = None, gap_ms: int | None = None, store: str | None = None
) -> Iterator[Intake]:
    """Yield the settled samples of some places: a store or a settled file is asked where it lies, the rest is taken in.

    What is taken in goes to the store `store` (made when it does not exist), or to a temporary one that is gone after.
    """
    options, problems = options or Options(), Problems()
    records = [read_jobs(name, problems) for name in jobs]
    if len(sources) == 1 and store is None and at_rest(sources[0]):
        place = _resting(Path(sources[0]).expanduser())
        if records:
            problems.note("samples at rest keep the jobs they were stored with; the job records given now only tell what was reported")
        yield Intake(place.samples(), pa.concat_tables([place.jobs(), *records]), problems)
        return
    with tempfile.TemporaryDirectory(prefix="ullage-") as folder:
        kept = Store.open(Path(store) if store else Path(folder), create=True)
        take(kept, sources, pa.concat_tables(records) if records else None, options=options, problems=problems, gap_ms=gap_ms)
        yield Intake(kept.samples(), kept.jobs(), problems)


def at_rest(name: str) -> bool:
    """Return whether a place is a store, or a Parquet file of settled samples."""
    path = Path(name).expanduser()
    return "://" not in name and ((path / "manifest.json").is_file() or (path.is_file() and is_settled(path)))


def _resting(path: Path) -> Store | SettledFiles:
    return Store.open(path) if path.is_dir() else open_settled(path)


def take(
    store: Store, sources: Sequence[str], jobs: pa.Table | None, *, options: Options, problems: Problems, gap_ms: int | None = None
) -> int:
    """Read places, attribute their samples to jobs, and append them to a store; returns how many rows were new.

    A place that fails after some of it was read ends early with a note; one that gives nothing at all raises UllageError.
    """
    if jobs is not None:
        store.add_jobs(jobs)
    known, seen = store.jobs(), set[str]()
    taken = _Count(options.progress)
    for name in sources:
        before = taken.rows
        tables = taken.each(gathered(read_samples(name, options, problems)))
        try:
            taken.new += store.append(_attributed(tables, known, problems, seen), gap_ms=gap_ms).rows_new
        except UllageError as error:  # what came before it is stored
            if taken.rows == before:
                raise
            problems.note(f"{harmless(name)} ended early, and what came before is reported: {error.problem}")
    if jobs is not None:
        note_unmatched(jobs, seen, problems)
    return taken.new


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


def _attributed(tables: Iterator[pa.Table], jobs: pa.Table, problems: Problems, seen: set[str]) -> Iterator[pa.RecordBatch]:
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
