"""The trees of all ranks of a run while it runs, from the recordings that grow in its folder.

What is looked at ends where the rank that is furthest behind has told; each process counts from its own beginning, or from when its
MPI_Init returned, and one that is over counts to its own end. So do those of a finished run (`ullage trace`), whose trees these become.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ullage.cupti.endings import RECORDING
from ullage.errors import UllageError, harmless
from ullage.live.following import KEPT, Following
from ullage.live.process_tree import NOTHING, ProcessTree
from ullage.live.trees import ProcessShare, together
from ullage.recording import Mode

MOST_SAID = 8  # ranks, or files, that are named one by one
SILENT = 10_000_000_000  # ns for which a rank that goes on may tell nothing while others do; the recorder tells something every second
GONE = 60_000_000_000  # ns of silence after which it is taken to have been killed, until it tells something after all


@dataclass(frozen=True)
class Rank:
    """One rank's process: its `rank` (None: it tells none), where it runs, and its share. `over`: it ended by itself, or called
    MPI_Finalize. `until` is the last moment of it that is known, in ns since 1970."""

    rank: int | None
    host: str
    process: int
    share: ProcessShare
    over: bool
    until: int

    @property
    def label(self) -> str:
        """How it is called."""
        return f"rank {self.rank}" if self.rank is not None else f"process {self.process}"


@dataclass(frozen=True)
class Together:
    """A run's ranks until the last moment that is known of all, and their trees. `window` is from when any began to that moment, in ns
    since 1970 (None: there is no such time).

    `ranks` are in the order of their numbers; `expected` is how many the job has (None: nobody says). `lost` says which recordings
    could not be used.
    """

    tree: ProcessTree
    ranks: tuple[Rank, ...] = ()
    expected: int | None = None
    window: tuple[int, int] | None = None
    lost: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every rank of the job was seen."""
        return not self.lost and self.seen >= (self.expected or 1)

    @property
    def seen(self) -> int:
        """How many ranks were seen; where nobody tells any, processes."""
        return len({rank.rank for rank in self.ranks}) if self.expected is not None else len(self.ranks)

    @property
    def over(self) -> bool:
        """Whether all that was seen is over."""
        return bool(self.ranks) and all(rank.over for rank in self.ranks)


@dataclass
class AllRanks:
    """Follows the recordings in a run's folder, and in the folders of its ranks in it; `look` reads what is new."""

    folder: Path
    keep: int = KEPT
    _files: dict[Path, Following] = field(default_factory=dict)
    _lost: dict[Path, str] = field(default_factory=dict)
    _window: tuple[int, int] | None = None
    _begun: dict[Path, int] = field(default_factory=dict)

    def look(self) -> None:
        """Read what was written since the last time, and find out until when all ranks are known. Raises UllageError where the folder
        can't be read."""
        for path in recordings(self.folder):
            self._files.setdefault(path, Following(path, self.keep))
        for following in self._files.values():
            self._advance(following)
        lives = [(*life, one.over) for one in self._known() if (life := one.life) is not None]
        newest = max((last for _, last, _ in lives), default=0)
        end = min((last for _, last, over in lives if not over and newest - last <= GONE), default=newest)
        begin = min((first for first, _, _ in lives), default=end)
        self._window = (begin, end) if begin < end else None
        for following in self._known():
            self._limit(following, end)

    def _advance(self, following: Following) -> None:
        try:
            following.advance()
            self._lost.pop(following.path, None)
        except UllageError as error:
            self._lost[following.path] = error.problem

    def _limit(self, following: Following, until: int) -> None:
        """Look at a recording no later than that; one that has summed up more, or whose run turns out to begin later, is read again."""
        begun, life, settled = self._begun.get(following.path), following.life, following.settled
        if life is not None and settled is not None and (settled > until or begun != life[0]):
            following = self._files[following.path] = Following(following.path, self.keep)
            following.until = until
            self._advance(following)
        following.until, self._begun[following.path] = until, life[0] if life is not None else 0

    def _known(self) -> list[Following]:
        """Return the recordings that tell anything, in the order of their ranks."""
        found = [one for path, one in self._files.items() if one.life is not None and path not in self._lost]
        return sorted(found, key=_order)

    def together(self, region: str | None = None, *, last: int | None = None) -> Together:
        """Return the trees of all that is known by the last `look`, of a region, or of the last so many ns (no more than `keep`)."""
        name = region or ("run" if last is None else f"last {last / 1e9:g} s")
        known, lost = self._known(), tuple(self._lost.values())
        expected = max((one.recording.ranks or 0 for one in known), default=0) or None
        if self._window is None:
            return Together(ProcessTree(name, notes=(*lost[:MOST_SAID], NOTHING)), expected=expected, lost=lost)
        recent = None if last is None else (self._window[1] - last, self._window[1])
        ranks = tuple(rank for one in known for rank in _rank(one, region, recent))
        mode: Mode = next((rank.share.prefers for rank in ranks if rank.share.prefers), "talp")
        remarks = list(dict.fromkeys(note for one in known for note in one.notes))
        notes = (*self._said(ranks, expected), *lost[:MOST_SAID], *remarks[:MOST_SAID])
        return Together(together(name, [rank.share for rank in ranks], mode=mode, notes=notes), ranks, expected, self._window, lost)

    def _said(self, ranks: tuple[Rank, ...], expected: int | None) -> Iterator[str]:
        """Yield how many ranks the trees are of, until when, and who holds that up."""
        assert self._window is not None
        until = f"{datetime.fromtimestamp(self._window[1] / 1e9, UTC):%H:%M:%S} UTC"
        numbers = len({rank.rank for rank in ranks})
        yield f"{numbers:,} of {expected:,} ranks seen, until {until}" if expected else f"{_counted(len(ranks))} seen, until {until}"
        last = max((rank.until for rank in ranks), default=0)
        for rank in [rank for rank in ranks if not rank.over and last - rank.until > SILENT][:MOST_SAID]:
            silent = last - rank.until
            yield f"{rank.label} has told nothing for {silent / 1e9:.3g} s" + (": taken to have ended" if silent > GONE else "")


def _counted(processes: int) -> str:
    return f"{processes:,} process{'es' if processes != 1 else ''}"


def recordings(folder: Path) -> list[Path]:
    """Return a run's recordings: in its folder and in those of its ranks. Raises UllageError where the folder can't be read."""
    try:
        ranks = sorted(path for path in folder.iterdir() if path.name.startswith("rank-"))
        return [path for one in (folder, *ranks) for path in sorted(one.glob(f"*{RECORDING}"))]
    except OSError as error:
        raise UllageError(
            f"{harmless(str(folder))} can't be read: {error.strerror}", "give the folder of a run: ullage run --keep DIR"
        ) from error


def run_folder(path: Path) -> Path:
    """Return the folder of the run to which a recording belongs.

    >>> run_folder(Path("/kept/rank-000003/node-1-2.ullage")).name, run_folder(Path("/kept/node-1-2.ullage")).name
    ('kept', 'kept')
    """
    return path.parent.parent if path.parent.name.startswith("rank-") else path.parent


def _order(one: Following) -> tuple[bool, int, Path]:
    return one.recording.rank is None, one.recording.rank or 0, one.path


def _rank(one: Following, region: str | None, recent: tuple[int, int] | None) -> Iterator[Rank]:
    share, life = one.share(region, recent=recent), one.life
    if share is not None and life is not None:
        yield Rank(one.recording.rank, one.recording.host, one.process, share, one.over, life[1])


def lateness(found: Together) -> list[int]:
    """Return by how much longer than the least busy rank each one is busy, in ns: for so long it makes that one wait.

    Busy is a process that doesn't communicate; where devices communicate (`ai` mode), devices that run kernels.
    """
    busy = [round(rank.share.kernels or 0) if found.tree.mode == "ai" else rank.share.busy for rank in found.ranks]
    return [one - min(busy) for one in busy]
