"""Which files are the store: one small JSON file, replaced in one step. A part that it does not list does not exist."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec

from ullage.errors import UllageError, harmless
from ullage.store.durable import Hook, checksum_of, content_hash, nothing, write_whole

VERSION = 1
NAME = "manifest.json"


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
        return f"tails/{Path(self.file).name}"


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
    """Where a store lies, and the hook that tests hang on."""

    path: Path
    hook: Hook = nothing
    _sound: set[str] = field(default_factory=set, compare=False, repr=False)  # parts that were looked at, and are as they were written

    def verify(self, parts: Iterable[StorePart]) -> None:
        """Raise UllageError for the first part whose content is not as it was written; each is read through once by one `StoreFolder`.

        Whoever asks a part comes here first: neither a number that changed on the disk nor statistics that hide rows get into a sum,
        or into a new part.
        """
        parts = [part for part in parts if part.file not in self._sound]
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:  # hashing lets other threads run
            for part, sound in zip(parts, pool.map(self.sound, parts), strict=True):
                if not sound:
                    raise lost(self.path / part.file, "is not as it was written")
                self._sound.add(part.file)

    def sound(self, part: StorePart) -> bool:
        """Return whether a part's content is as it was written. Raises UllageError where the file is missing or can't be read."""
        path = self.path / part.file
        try:
            return checksum_of(path) == part.xxh3 if part.xxh3 else content_hash(path) == part.sha256
        except FileNotFoundError:
            raise lost(path, "is missing") from None
        except OSError as error:
            raise lost(path, f"can't be read ({error.strerror or error})") from error

    def read(self) -> Manifest:
        """Return the manifest as it stands on the disk. Raises UllageError when there is none or it is damaged."""
        path = self.path / NAME
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise UllageError(f"there is no store at '{self.path}'", "`ullage fleet SOURCE --store FOLDER` makes one") from None
        except OSError as error:
            raise UllageError(f"{path} can't be read: {error.strerror or error}", "check the folder's permissions") from error
        return _decoded(content, path)

    def write(self, manifest: Manifest) -> None:
        """Replace the manifest in one step: this is the moment in which a change happens."""
        ordered = Manifest(parts=tuple(sorted(manifest.parts, key=lambda p: (p.first, p.file))), dead=manifest.dead)

        def write(file: IO[bytes]) -> None:
            file.write(msgspec.json.format(msgspec.json.encode(ordered), indent=1))

        write_whole(self.path, NAME, write, self.hook, "manifest")

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
                size = self._size(name)
                if size is None:
                    raise lost(self.path / name, "is missing")
            if self._size(part.file) != part.bytes:
                raise lost(self.path / part.file, f"has {self._size(part.file):,} bytes where {part.bytes:,} were written")

    def _size(self, name: str) -> int | None:
        try:
            return (self.path / name).stat().st_size
        except OSError:
            return None


def _decoded(content: bytes, path: Path) -> Manifest:
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


def lost(path: Path, what: str) -> UllageError:
    """Return the error for a live file that is damaged or gone."""
    return UllageError(
        f"the store's file {path} {what}", "bring it back from a backup, or remove its entry from manifest.json to go on without it"
    )
