"""Where the recordings of one run come together: a folder for one process, or one that all ranks of a job find by themselves."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ullage.errors import UllageError, harmless
from ullage.live.ranks import Place

RANK, DONE = "rank-{:06d}", "done"
SOON = 3.0  # seconds within which ranks that belong together come, and go


@dataclass(frozen=True)
class Gathering:
    """The folder of a run, whose rank this process is (None: the only one), and whether the folder stays when the run is over.

    Each rank has a folder in it, `own`, which holds nothing of an earlier job of that name.
    """

    folder: Path
    place: Place | None
    kept: bool

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
        return [path for folder in folders for path in sorted(folder.glob("*.ullage"))]

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


def gathering(keep: Path | None, place: Place | None, temporary: Path | None = None) -> Gathering:
    """Return where a run's recordings go: the folder `keep`, else a temporary one; ranks of one job get the same.

    Raises UllageError for a folder that can't be used, or holds recordings of an earlier run.
    """
    if keep is not None:
        return _begun(Gathering(_kept(keep), place, kept=True))
    base = temporary or Path(tempfile.gettempdir())
    if place is None:
        with _refusals(base, "set TMPDIR to a folder with room, or give one with --keep"):
            return Gathering(Path(tempfile.mkdtemp(prefix="ullage-run-", dir=base)).absolute(), None, kept=False)
    # ranks without a common word have been started by one process
    name = f"ullage-run-{os.getuid()}-{place.job or os.getppid()}"
    return _begun(Gathering(_private(base / name), place, kept=False))


def _begun(run: Gathering) -> Gathering:
    """Make this rank's folder, with nothing in it."""
    with _refusals(run.own, "give another folder with --keep"):
        if run.kept:
            where = run.own.rglob("*.ullage") if run.own.is_dir() else iter(())
            if earlier := next(where, None):
                problem = f"{harmless(str(run.folder))} holds recordings of an earlier run ({harmless(earlier.name)})"
                raise UllageError(problem, "give an empty folder")
            (run.own / DONE).unlink(missing_ok=True)
        elif run.place is not None:
            shutil.rmtree(run.own, ignore_errors=True)
        run.own.mkdir(mode=0o700, exist_ok=True)
    return run


def _kept(folder: Path) -> Path:
    with _refusals(folder, "give another folder with --keep"):
        folder.mkdir(parents=True, exist_ok=True)
        return folder.absolute()


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
