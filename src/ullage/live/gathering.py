"""Where the recordings of one run come together: a folder for one process, or one that all ranks of a job find by themselves."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ullage.cupti.endings import RECORDING, STARTED
from ullage.errors import UllageError, harmless
from ullage.live.ranks import RankPlace

RANK, DONE, OF_JOB = "rank-{:06d}", "done", ".run-{}"
MOST_BESIDE, MOST_KEPT = 10, 1000  # folders of one name that are tried: temporary ones, and those within a kept one
SOON = 3.0  # seconds within which ranks that belong together come, and go


@dataclass(frozen=True)
class Gathering:
    """The folder of a run, whose rank this process is (None: the only one), and whether the folder stays when the run is over.

    Each rank has a folder in it, `own`, which holds nothing of an earlier job of that name. `notes` say why it is another folder than
    the one that was asked for.
    """

    folder: Path
    place: RankPlace | None
    kept: bool
    notes: tuple[str, ...] = ()

    @property
    def unrecorded(self) -> int:
        """Return how many processes had something to record and left no recording: they were killed, or left by `_exit`."""
        return sum(1 for _ in self.folder.rglob(f"*{STARTED}"))

    @property
    def own(self) -> Path:
        """Where this rank's program records."""
        return self.folder if self.place is None else self.of(self.place.rank)

    def of(self, rank: int) -> Path:
        """Where a rank's program records."""
        return self.folder / RANK.format(rank)

    @property
    def answers(self) -> bool:
        """Whether this process is the one that reports on all: rank 0, or the only one."""
        return self.place is None or self.place.rank == 0

    @property
    def first_on_host(self) -> bool:
        """Whether this process is the one that samples this host's GPUs."""
        return self.place is None or self.place.local == 0

    def recordings(self) -> list[Path]:
        """Return what all ranks recorded."""
        folders = [self.folder] if self.place is None else [self.of(rank) for rank in range(self.place.ranks)]
        return [path for folder in folders for path in sorted(folder.glob(f"*{RECORDING}"))]

    def done(self, code: int) -> None:
        """Say that this rank's program has ended, with its exit code, and that its recordings are whole."""
        if self.place is not None:
            with contextlib.suppress(OSError):  # rank 0 has gone, and the folder with it
                part = self.own / (DONE + ".part")
                part.write_text(str(code))
                part.replace(self.own / DONE)

    def ended(self, among: Iterable[int] | None = None) -> dict[int, int]:
        """Return the ranks that have said that they are done, and their exit codes."""
        found = {}
        for rank in range(self.place.ranks if self.place is not None else 0) if among is None else among:
            with contextlib.suppress(OSError, ValueError):
                found[rank] = int((self.of(rank) / DONE).read_text())
        return found

    def wait(
        self, patience: float, progress: Callable[[str], None] = lambda _: None, sleep: Callable[[float], None] = time.sleep
    ) -> tuple[dict[int, int], list[int]]:
        """Wait until all ranks are done that can be seen from here; return the exit codes of those that are, and those that are not.

        That takes `patience` seconds at most, and no longer than `SOON` where one has failed: the others may wait for it, and whoever
        started them does not end them before it knows.
        """
        codes: dict[int, int] = {}
        left = list(range(self.place.ranks)) if self.place is not None else []
        until, elsewhere, pause = time.monotonic() + patience, self._elsewhere(), 0.02
        while True:
            codes |= (new := self.ended(left))
            left = [rank for rank in left if rank not in codes]
            if any(new.values()):
                until = min(until, time.monotonic() + SOON)
            if len(left) <= elsewhere or time.monotonic() >= until:
                return codes, left
            progress(f"waiting for {len(left) - elsewhere:,} ranks")
            sleep(pause)
            pause = min(2 * pause, 0.5)

    def _elsewhere(self) -> int:
        """Return how many ranks are on other hosts, where a temporary folder is another one."""
        return 0 if self.place is None or self.kept or self.place.here is None else self.place.ranks - self.place.here

    def remove(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Remove what nobody asked for: everything when rank 0 has reported, this rank's part when no rank 0 on this host is going to."""
        if self.kept:
            return
        if self.answers:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif not self._read_here(sleep):
            shutil.rmtree(self.own, ignore_errors=True)
            with contextlib.suppress(OSError):  # another rank is still there
                self.folder.rmdir()

    def _read_here(self, sleep: Callable[[float], None]) -> bool:
        """Whether rank 0 is on this host; it may come a little later."""
        until = time.monotonic() + SOON
        while not (first := self.of(0).is_dir()) and self.folder.is_dir() and time.monotonic() < until:
            sleep(0.05)
        return first


def gathering(keep: Path | None, place: RankPlace | None, temporary: Path | None = None, *, strict: bool = False) -> Gathering:
    """Return where a run's recordings go: the folder `keep`, else a temporary one; ranks of one job get the same.

    A folder that can't be used (somebody else's, a link that was planted, recordings of an earlier run in it) is no reason not to run:
    another one is taken, and a note says so. Raises UllageError where there is none, and with `strict` at the first.
    """
    refused: UllageError | None = None
    for folder in _candidates(keep, place, temporary):
        try:
            run = _begun(Gathering(_made(folder, place, keep), place, kept=keep is not None))
        except UllageError as error:
            if strict:
                raise
            refused = refused or error
        else:
            return replace(run, notes=(f"{refused.problem}: what was recorded went to {harmless(str(run.folder))}",)) if refused else run
    raise refused or UllageError("there is no folder for recordings", "give one with --keep")


def _candidates(keep: Path | None, place: RankPlace | None, temporary: Path | None) -> Iterator[Path]:
    """Yield the folders that may be taken, in an order that is the same for all ranks of a job."""
    if keep is not None:
        yield keep
        name = "-".join(["run", *([place.job] if place is not None and place.job else [])])
        if os.path.isdir(keep):  # noqa: PTH112 - is_dir() raises where a folder above may not be entered
            yield from (keep / f"{name}-{number}" for number in range(2, MOST_KEPT))
    try:
        base = temporary or Path(tempfile.gettempdir())
    except OSError as error:
        raise UllageError(f"there is no folder for temporary files: {error.strerror}", "set TMPDIR to a folder with room") from error
    if place is None:
        yield base
        return
    # ranks whose launcher says no word of this launch alone have been started by one process
    words = [place.job] if place.job else []
    name = "-".join(["ullage-run", str(os.getuid()), *words, *([] if place.unique else [str(os.getppid())])])
    yield from (base / (name if number == 1 else f"{name}-{number}") for number in range(1, MOST_BESIDE + 1))


def _made(folder: Path, place: RankPlace | None, keep: Path | None) -> Path:
    """Return a folder that is there: within the one to keep, or a temporary one that nobody else can write to."""
    if keep is not None and (folder == keep or keep in folder.parents):
        return _kept(folder, place)
    if place is not None:
        return _private(folder)
    with _refusals(folder, "set TMPDIR to a folder with room, or give one with --keep"):
        return Path(tempfile.mkdtemp(prefix="ullage-run-", dir=folder)).absolute()


def _begun(run: Gathering) -> Gathering:
    """Make this rank's folder, with nothing in it."""
    with _refusals(run.own, "give another folder with --keep"):
        if run.kept:
            where = run.own.rglob(f"*{RECORDING}") if run.own.is_dir() else iter(())
            if earlier := next(where, None):
                raise _of_another(run.folder, earlier)
            (run.own / DONE).unlink(missing_ok=True)
        elif run.place is not None:
            shutil.rmtree(run.own, ignore_errors=True)
        run.own.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=run.own):  # it can be written to
            return run


def _kept(folder: Path, place: RankPlace | None) -> Path:
    """Return a folder to keep. An earlier job's is known by the job's name in it, whichever of its ranks left recordings."""
    with _refusals(folder, "give another folder with --keep"):
        folder.mkdir(parents=True, exist_ok=True)
        if place is not None and place.job:
            mine = folder / OF_JOB.format(place.job)
            if other := next((path for path in folder.glob(OF_JOB.format("*")) if path != mine), None):
                raise _of_another(folder, other)
            mine.touch()
        return folder.absolute()


def _of_another(folder: Path, what: Path) -> UllageError:
    return UllageError(f"{harmless(str(folder))} holds recordings of an earlier run ({harmless(what.name)})", "give an empty folder")


def _private(folder: Path) -> Path:
    """Return a folder that nobody else can write to: a name in /tmp that others can guess may be theirs."""
    with _refusals(folder, "give a folder with --keep"):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise UllageError(f"{harmless(str(folder))} belongs to somebody else", "give a folder with --keep")
    return folder.absolute()


@contextlib.contextmanager
def _refusals(folder: Path, hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UllageError(f"{harmless(str(folder))} can't be used: {error.strerror}", hint) from error
