"""Following a source: what is new since the last time goes into the store, again and again, and nothing is counted twice.

Each time a source is asked for what came since it was last read whole, and for a while before that, since exporters and agents are late
at times (`watermarks`). The store knows what it has: rows that come again change nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from ullage.errors import UllageError, harmless, public
from ullage.intake import take, take_read
from ullage.problems import Problems
from ullage.service.logs import ServiceLog
from ullage.service.pseudonyms import Pseudonyms
from ullage.service.remote_write import read_received, received_files, remove_received
from ullage.service.slurm_accounting import COMMAND, SlurmAccounting
from ullage.service.state import LATE_S, FollowedSource
from ullage.service.watermarks import OVERLAP_MS, SourceWatermark, keep_watermarks, read_watermarks
from ullage.sources.clock import named_zone
from ullage.sources.jobs.job import read_jobs
from ullage.sources.source import Deadline, Options, files_of, has_history, is_url_or_live_source
from ullage.store.old_names import without_old_names
from ullage.store.store import Store
from ullage.units import DAY_MS, HOUR_MS
from ullage.views.declared import iso

COMPACT_S = 3600.0  # s between two times at which small parts are merged and old ones dropped
MANY_PARTS = 200  # parts that are merged without waiting for that: a service that never lives so long must merge them, too
TURN_S = 600.0  # s that a turn may take: a server that drips is asked again, and what came before is kept
STRIDE_MS = 6 * HOUR_MS  # ms of a source's time that are read, stored and kept count of at once
HELD_MS = 6 * HOUR_MS  # ms for which counters wait for a source that can't be read
LOCK = "follower.lock"
SENT = "what Prometheus sends"


@dataclass(frozen=True)
class FollowPlan:
    """What is followed into which store: the sources, as `ullage fleet` reads them, how often (s), and from how far back at first (ms).

    `jobs` are places with job records, read again each time, or "sacct", which is run every five minutes; samples of more than
    `keep_days` before the newest are dropped (0: none).
    A source that takes longer than `turn_s` is asked again for the rest. Names that have `pseudonyms` are not stored; those of the fields
    of `keep_names` are for so long (ms).
    """

    sources: tuple[str, ...]
    store: Path
    every: float = 60.0
    first_ms: int = DAY_MS
    jobs: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)
    keep_days: int = 0
    turn_s: float = TURN_S
    pseudonyms: Pseudonyms | None = None
    keep_names: Mapping[str, int] = field(default_factory=dict)
    remote_write: bool = False  # whether samples are stored, too, that were sent

    @property
    def shown(self) -> str:
        """The sources in words, without secrets."""
        return ", ".join([*(harmless(public(source)) for source in self.sources), *([SENT] if self.remote_write else [])])


class StoppedError(Exception):
    """What is being done is of no use any more: the service ends."""


class Follower:
    """Fills a store from a plan's sources. One process does so at a time: others wait for it to end, and read."""

    def __init__(
        self,
        plan: FollowPlan,
        log: ServiceLog,
        say: Callable[[FollowedSource], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.plan, self.log, self._say, self._clock = plan, log, say, clock
        self.state = FollowedSource(plan.shown, plan.every, preparing=f"{plan.shown} is being read")
        self._marks: dict[str, SourceWatermark] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._lock: int | None = None
        self._files: tuple[object, ...] = ()
        self._name_limits: Mapping[str, int] = {}
        self._compacted = self._last_received = time.monotonic()
        self._accounting = SlurmAccounting(plan.first_ms / 1000, clock, time.monotonic)
        self._tell(self.state)

    def start(self) -> None:
        """Follow in a thread of its own, which ends with the process: the store is whole at any moment."""
        self._thread.start()

    def stop(self, patience: float = 1.0) -> bool:
        """Begin nothing more, and return whether nothing is being read any more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(patience)
        if self._thread.is_alive():
            return False
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        return True

    def _run(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()  # which nobody sets back
            self.turn()
            self._stop.wait(max(0.0, self.plan.every - (time.monotonic() - started)))

    def turn(self) -> None:
        """Read the source once, if this process is the one that does, and say what came of it."""
        try:
            if not self._leads():
                if self.state.writes:
                    self.log("another instance fills this store", {"store": self.plan.store})
                self._tell(replace(self.state, writes=False, preparing=""))
                return
            rows = self._pull()
        except StoppedError:
            return
        except UllageError as error:
            self._fail(error.problem)
        except Exception as error:  # a bug of ours in one turn ends no service
            self._fail(f"it can't be read: {error!r}")
        else:
            self._tell(replace(self.state.read(rows, self._clock()), read_until=self._read_until()))
            self.log("pull", {"source": self.plan.shown, "rows": rows})

    def _fail(self, problem: str) -> None:
        self._tell(replace(self.state.failed(problem, self._clock()), read_until=self._read_until()))
        self.log("pull failed", {"source": self.plan.shown, "problem": problem})

    def _tell(self, state: FollowedSource) -> None:
        self.state = state
        self._say(state)

    def _read_until(self) -> int | None:
        """Return up to when every source was read whole (ms); one that can't be read for long is not waited for."""
        urls = [source for source in self.plan.sources if "://" in source]
        if not urls:
            return None
        marks = [self._marks[_key(source)].read_until if _key(source) in self._marks else 0 for source in urls]
        return max(min(marks), round(self._clock() * 1000) - HELD_MS)

    def _leads(self) -> bool:
        """Return whether this process fills the store: whoever holds the lock does, until it ends."""
        if self._lock is not None:
            return True
        Store.open(self.plan.store, create=True)
        descriptor = os.open(self.plan.store / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        if not self.state.writes:
            self.log("this instance fills the store", {"store": self.plan.store})
        self._lock, self._marks = descriptor, read_watermarks(self.plan.store)  # as whoever led before left them
        return True

    def _pull(self) -> int:
        """Read what is new of each source, and return how many rows were; raises UllageError where not all of it could be read.

        A source that fails keeps no other one waiting.
        """
        store, rows, failures = Store.open(self.plan.store, create=True), 0, list[UllageError]()
        if self.plan.pseudonyms is not None:
            store.hide_names(self.plan.pseudonyms.fields, self.plan.pseudonyms.in_stored_table)
        self._name_limits = store.name_limits(self.plan.keep_names, round(self._clock() * 1000))
        files = [source for source in self.plan.sources if not is_url_or_live_source(source)]
        pulls = [[source] for source in self.plan.sources if source not in files]
        if files and self._files_changed(files):
            pulls.append(files)
        records = self._jobs(Problems(), failures) if pulls or self.plan.remote_write else None
        for sources in pulls:
            try:
                url = "://" in sources[0]
                rows += self._taken(store, sources[0], records) if url else self._files_taken(store, sources, records)
            except UllageError as error:
                failures.append(error)
        if self.plan.remote_write:
            try:
                rows += self._received(store, records)
            except UllageError as error:
                failures.append(error)
        if rows:
            self._keep_small(store)
            store.roll_up()
        if failures:
            raise failures[0]
        return rows

    def _taken(self, store: Store, source: str, records: pa.Table | None) -> int:
        """Read what is new of a source into the store, a stride at a time, and keep how far it was read; returns how many rows were new.

        Whoever kills a service that catches up, or whatever fails, takes one stride away.
        """
        now, rows, more = round(self._clock() * 1000), 0, True
        mark = self._mark(store, source, now)
        at_once = mark.read_until + STRIDE_MS >= now or not has_history(source)
        while more:
            until = now if at_once else min(now, mark.read_until + STRIDE_MS)
            problems = Problems()
            try:
                new = self._take(store, [source], records, problems, mark.since(until), until)
            except UllageError:
                if until == now:
                    raise
                until = now  # there may be nothing in that time, which says nothing of what came after it
                new = self._take(store, [source], records, problems, mark.since(until), until)
            more = until < now
            if new and (missed := mark.missed_since(until)) is not None and has_history(source):
                new += self._take(store, [source], None, problems, missed, until)
            read_until = until if problems.complete else problems.read_until
            if read_until is not None:
                self._marks[_key(source)] = mark = mark.read(until, read_until, new)
                keep_watermarks(store.path, self._marks)
            rows += new
            if problems.cuts:
                raise UllageError(problems.cuts[0].reason)
            if more and new:
                store.roll_up()
        return rows

    def _files_taken(self, store: Store, sources: list[str], records: pa.Table | None) -> int:
        """Read files, or this machine's GPUs; returns how many rows were new."""
        problems = Problems()
        try:
            rows = self._take(store, sources, records, problems, None, round(self._clock() * 1000))
            if problems.cuts:
                raise UllageError(problems.cuts[0].reason)
        except BaseException:
            self._files = ()
            raise
        return rows

    def _received(self, store: Store, records: pa.Table | None) -> int:
        """Store samples that were sent since the last turn; returns how many rows were new. Raises UllageError where long none came."""
        files = received_files(store.path)
        if not files:
            silent = time.monotonic() - self._last_received
            if silent > max(LATE_S, 3 * self.plan.every):
                raise UllageError(f"no samples have come for {silent / 60:.0f} min; the log of the Prometheus that sends them says why")
            return 0
        self._last_received = time.monotonic()
        if records is not None:
            store.add_jobs(records)
        tables = read_received(files, lambda path: self.log("received samples can't be read", {"file": path}))
        rows = take_read(store, map(self._renamed_again, tables), SENT, Problems())
        remove_received(files, self._clock())
        return rows

    def _take(self, store: Store, sources: list[str], records: pa.Table | None, problems: Problems, since: int | None, until: int) -> int:
        def progress(words: str) -> None:
            self._progress(words if until + STRIDE_MS > self._clock() * 1000 else f"{words}, up to {iso(until)}")

        limit = Deadline.after(self.plan.turn_s)
        options = replace(self.plan.options, since=since, until=until, progress=progress, deadline=limit)
        return take(store, sources, records, options=options, problems=problems, renamed=self._renamed)

    def _renamed(self, table: pa.Table) -> pa.Table:
        hidden = self.plan.pseudonyms
        return self._without_old_names(table if hidden is None else hidden.in_table(table))

    def _renamed_again(self, table: pa.Table) -> pa.Table:
        """Return samples that were received, perhaps before names were hidden."""
        hidden = self.plan.pseudonyms
        return self._without_old_names(table if hidden is None else hidden.in_stored_table(table))

    def _without_old_names(self, table: pa.Table) -> pa.Table:
        return without_old_names(table, self._name_limits) if self._name_limits else table

    def _mark(self, store: Store, source: str, now: int) -> SourceWatermark:
        """Return how far a source was read. Of one that was not, or nobody knows any more, `first_ms` are asked for, and all since the
        store's last sample where that is longer ago.
        """
        if (known := self._marks.get(_key(source))) is not None:
            return known
        window = store.window()
        first = min(now - self.plan.first_ms, now if window is None else window[1] - OVERLAP_MS)
        return SourceWatermark(first + OVERLAP_MS, now)

    def _files_changed(self, sources: list[str]) -> bool:
        """Return whether there may be something new in files: those that are as they were have nothing."""
        seen = tuple((str(file), found.st_mtime_ns, found.st_size) for file in files_of(sources) if (found := _stat(file)) is not None)
        changed, self._files = seen != self._files, seen
        return changed or not seen

    def _jobs(self, problems: Problems, failures: list[UllageError]) -> pa.Table | None:
        """Return what there is of job records; a place that can't be read keeps no samples waiting."""
        zone = named_zone(self.plan.options.time_zone)
        tables = list[pa.Table]()
        for place in self.plan.jobs:
            try:
                found = self._accounting.records(problems) if place == COMMAND else read_jobs(place, problems, zone)
            except UllageError as error:
                failures.append(error)
            else:
                tables += [] if found is None else [found]
        return self._renamed(pa.concat_tables(tables)) if tables else None

    def _keep_small(self, store: Store) -> None:
        if time.monotonic() - self._compacted < COMPACT_S and len(store.manifest().parts) < MANY_PARTS:
            return
        self._compacted = time.monotonic()
        store.compact()
        if self.plan.keep_days and (newest := store.retain(self.plan.keep_days).newest_ahead) is not None:
            self.log("samples ahead of the clock", {"newest": iso(newest), "kept": f"{self.plan.keep_days} days before now"})
        if self.plan.keep_names:
            store.forget_names(self.plan.keep_names, round(self._clock() * 1000))

    def _progress(self, words: str) -> None:
        if self._stop.is_set():
            raise StoppedError
        if self.state.last_read is None:
            self._tell(replace(self.state, preparing=f"{self.plan.shown} is being read: {words}"))


def _key(source: str) -> str:
    """Return what a source is called in a file that others may read: without its secrets, and yet no other's name."""
    return f"{harmless(public(source))} {hashlib.sha256(source.encode()).hexdigest()[:12]}"


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:
        return None
