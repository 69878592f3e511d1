"""Which files are the store: one small JSON file, replaced in one step. A part that it does not list does not exist."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from ullage.errors import UllageError, harmless
from ullage.store.durable import Hook, checksum_of, content_hash, locked, make_folder, nothing, refused, sync_folder, write_whole

Result = TypeVar("Result")
VERSION = 1
NAME = "manifest.json"
TURNS = 12  # in which work is done that somebody else undid
TAILS, ROLLUPS = "tails", "rollups"  # folders within a store


class ChangedMeanwhileError(UllageError):
    """Somebody else has replaced a file since it was read: what was to come in its place is from another time."""


class StorePart(msgspec.Struct, frozen=True):
    """One Parquet file of samples of one day: its name within the store, size, and first and last time in ms (UTC).

    `sha256` is of its content, and so is `xxh3`, which is sooner known; `tail_sha256` is of its tail ("": an older release did not say).
    """

    file: str
    day: str
    rows: int
    bytes: int
    first: int
    last: int
    sha256: str
    tail_sha256: str = ""
    xxh3: str = ""

    @property
    def tail(self) -> str:
        """The name within the store of the file with each device's range and last rows."""
        return f"{TAILS}/{Path(self.file).name}"


class Dead(msgspec.Struct, frozen=True):
    """A file that was replaced or dropped at a time (ms); it stays a while for those who are reading it."""

    file: str
    since: int


class Manifest(msgspec.Struct, frozen=True):
    """The live parts, by first time, and the files that wait for removal."""

    version: int = VERSION
    parts: tuple[StorePart, ...] = ()
    dead: tuple[Dead, ...] = ()


@dataclass(frozen=True)
class StoreFolder:
    """Where a store lies: a folder of this machine; and the hook that tests hang on."""

    path: Path
    hook: Hook = nothing
    _sound: set[str] = field(default_factory=set, compare=False, repr=False)  # parts that were looked at, and are as they were written

    @property
    def name(self) -> str:
        """How people call the place."""
        return str(self.path)

    def create(self, ours: frozenset[str]) -> None:
        """Begin a store; the caller holds no lock. Raises UllageError where other files lie than those that are called as `ours`."""
        if self.path.exists() and not self.path.is_dir():
            raise UllageError(f"'{self.path}' is a file, and a store is a folder", "give another folder")
        with refused(self.path):
            make_folder(self.path)
        foreign = sorted(p.name for p in self.path.iterdir() if p.name not in ours and not p.name.endswith(".tmp"))
        if foreign:
            problem = f"'{self.path}' holds other files ({foreign[0]}) and no store"
            raise UllageError(problem, "give a folder that is empty or not there yet")
        with self.lock():
            if not (self.path / NAME).exists():
                self.write(Manifest())

    def lock(self, wait_s: float = 60.0, say: Callable[[str], None] = nothing) -> AbstractContextManager[None]:
        """Hold what keeps writers apart, see `durable.locked`."""
        return locked(self.path / "lock", wait_s, say)

    def repeated(self, work: Callable[[], Result]) -> Result:
        """Do a piece of work, again where somebody else has changed the store meanwhile; raises ChangedMeanwhileError when it stays so."""
        for turn in range(TURNS):
            try:
                return work()
            except ChangedMeanwhileError:
                time.sleep(random.uniform(0, min(2.0, 0.05 * 2**turn)))
                self.refresh()
        return work()

    def at(self, name: str) -> Path:
        """Return where a file of the store (`name` within it) lies on this machine, whether or not there is one."""
        return self.path.absolute() / name

    def fetch(self, names: Iterable[str]) -> None:
        """Bring files to this machine together, which `at` would bring one by one; those that there are not are left out."""

    def refresh(self) -> None:
        """Bring what is replaced in one step (the manifest, job records, …) to this machine as it is now."""

    def write_whole(self, name: str, write: Callable[[IO[bytes]], object], what: str) -> tuple[Path, str]:
        """Keep a new file, whole or not at all (`durable.write_whole`); return where it lies on this machine, and its SHA-256."""
        folder, _, last = name.rpartition("/")
        return write_whole(self.path / folder, last, write, self.hook, what)

    def verify(self, parts: Iterable[StorePart]) -> None:
        """Raise UllageError for the first part whose content is not as it was written; each is read through once by one `StoreFolder`.

        Whoever asks a part comes here first: neither a number that changed on the disk nor statistics that hide rows get into a sum,
        or into a new part.
        """
        parts = [part for part in parts if part.file not in self._sound]
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:  # hashing lets other threads run
            for part, sound in zip(parts, pool.map(self.sound, parts), strict=True):
                if not sound:
                    raise lost(self.place(part.file), "is not as it was written")
                self._sound.add(part.file)

    def sound(self, part: StorePart) -> bool:
        """Return whether a part's content is as it was written. Raises UllageError where the file is missing or can't be read."""
        try:
            path = self.at(part.file)
            return checksum_of(path) == part.xxh3 if part.xxh3 else content_hash(path) == part.sha256
        except FileNotFoundError:
            raise lost(self.place(part.file), "is missing") from None
        except OSError as error:
            raise lost(self.place(part.file), f"can't be read ({error.strerror or error})") from error

    def read(self) -> Manifest:
        """Return the manifest as it stands now. Raises UllageError when there is none or it is damaged."""
        self.refresh()
        path = self.path / NAME
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise UllageError(f"there is no store at '{self.name}'", "`ullage fleet SOURCE --store FOLDER` makes one") from None
        except OSError as error:
            raise UllageError(f"{path} can't be read: {error.strerror or error}", "check the folder's permissions") from error
        return _decoded(content, self.place(NAME))

    def write(self, manifest: Manifest) -> None:
        """Replace the manifest in one step: this is the moment in which a change happens."""
        ordered = Manifest(parts=tuple(sorted(manifest.parts, key=lambda p: (p.first, p.file))), dead=manifest.dead)

        def write(file: IO[bytes]) -> None:
            file.write(msgspec.json.format(msgspec.json.encode(ordered), indent=1))

        self.write_whole(NAME, write, "manifest")

    def replace(self, old: Manifest, out: tuple[StorePart, ...], new: tuple[StorePart, ...], now: int) -> Manifest:
        """Commit `old` without the parts `out` and with the parts `new`; return it. Files of `out` wait for removal."""
        gone, come = {p.file for p in out}, {p.file for p in new}
        parts = tuple(p for p in old.parts if p.file not in gone | come) + new
        dead = tuple(d for d in old.dead if d.file not in come) + tuple(Dead(p.file, now) for p in out if p.file not in come)
        manifest = Manifest(parts=parts, dead=dead)
        self.write(manifest)
        return manifest

    def check(self, manifest: Manifest) -> None:
        """Raise UllageError for the first live file that is missing or not as long as it was written."""
        for part in manifest.parts:
            for name in (part.file, part.tail):
                size = self.size(name)
                if size is None:
                    raise lost(self.place(name), "is missing")
            if (size := self.size(part.file)) != part.bytes:
                raise lost(self.place(part.file), f"has {size:,} bytes where {part.bytes:,} were written")

    def place(self, name: str) -> str:
        """Return what people find a file by."""
        return str(self.path / name)

    def size(self, name: str) -> int | None:
        """Return a file's size in bytes; None where there is none."""
        try:
            return (self.path / name).stat().st_size
        except OSError:
            return None

    def remove_others(self, kept: set[str]) -> int:
        """Remove files of samples, tails and roll-ups that are not `kept`, and return how many; the caller holds the lock."""
        removed = 0
        with refused(self.path):
            for place in (*sorted((self.path / "samples").glob("day=*")), self.path / TAILS, self.path / ROLLUPS):
                names = sorted(place.iterdir()) if place.is_dir() else []
                others = [path for path in names if path.relative_to(self.path).as_posix() not in kept]
                for path in others:
                    path.unlink()
                    self.hook("old removed")
                removed += len(others)
                if others and len(others) == len(names) and place.name not in (TAILS, ROLLUPS):
                    place.rmdir()
                    sync_folder(place.parent)
        return removed


def _decoded(content: bytes, path: str) -> Manifest:
    hint = "bring back that file from a backup; the samples beside it are untouched"
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UllageError(f"{path} is damaged: {harmless(str(error))}", hint) from error
    if manifest.version != VERSION:
        raise UllageError(
            f"{path} has version {manifest.version}; this Ullage reads version {VERSION}", "use the Ullage that wrote it, or a newer one"
        )
    bad = next((p.file for p in manifest.parts if not _within(p.file)), None)
    if bad is not None:
        raise UllageError(f"{path} is damaged: it lists '{harmless(bad)}', which is not a file of a store", hint)
    return manifest


def _within(name: str) -> bool:
    return name.startswith("samples/day=") and ".." not in name and name.count("/") == 2


def lost(path: Path | str, what: str) -> UllageError:
    """Return the error for a live file that is damaged or gone."""
    return UllageError(
        f"the store's file {path} {what}", "bring it back from a backup, or remove its entry from manifest.json to go on without it"
    )
