"""A folder that a command fills: its files are made aside and put in place when all are whole, and nobody else's file is touched.

A mark in the folder says which entries a command wrote there, and how they looked. The next run of that command replaces these, as
long as nobody changed them since; every other entry is somebody's own. A run that is killed leaves what it had made, with a lock that
nobody holds any more: the next one takes it away, and puts back what had been moved.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ullage.errors import UllageError, harmless

MARK = ".ullage-wrote.json"
STAGE, LOCK, OLD = ".ullage-", ".ullage-lock", ".old-"  # what is being made, and in it: who makes it, and what it takes the place of


@contextmanager
def output_folder(folder: Path, maker: str, names: Iterable[str] = ()) -> Iterator[Path]:
    """Yield an empty folder for the files of a command called `maker`; when the body ends well, they take their place in `folder`.

    What an earlier run of `maker` wrote there goes with that, all else stays. When the body raises, everything is as it was. Raises
    UllageError where an entry is in the way that `maker` did not write, or that was changed since: for `names` before the body
    begins, for what it wrote at its end; and where nothing can be written.
    """
    if folder.exists() and not folder.is_dir():
        raise UllageError(f"'{harmless(str(folder))}' is a file", "name a folder to write into")
    clear_interrupted(folder)
    _refuse_others(folder, maker, names)
    there, stage = folder.is_dir(), _stage(folder)
    held = _lock(stage / LOCK, os.O_CREAT)
    try:
        yield stage
        made = sorted(path.name for path in stage.iterdir() if path.name != LOCK)
        _refuse_others(folder, maker, made)
        _put_in_place(folder, stage, maker, made)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        if held is not None:
            os.close(held)
        if not there:
            with suppress(OSError):  # it is not empty: everything went well
                folder.rmdir()


def clear_interrupted(folder: Path) -> int:
    """Take away what runs left in a folder that were killed, as if they had never begun; returns how many there were."""
    cleared = 0
    for stage in sorted(folder.glob(f"{STAGE}*/")):
        held = None if stage.is_symlink() else _lock(stage / LOCK)
        if held is None:  # it goes on, or is none of ours
            continue
        try:
            _move_back(folder, stage)
            shutil.rmtree(stage)
            cleared += 1
        except OSError:  # what can't be taken away does not hinder the next run
            continue
        finally:
            os.close(held)
    return cleared


def _lock(file: Path, create: int = 0) -> int | None:
    """Return a descriptor that holds a lock until it is closed or its process ends; None where somebody has it, or there is no file."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | create, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _move_back(folder: Path, stage: Path) -> None:
    """Undo what a run had put in place when it was killed: its own entries go, unless somebody changed them, and the old ones return.

    The mark is made before the first entry moves, and moves last: without it nothing had moved, or all had.
    """
    if not (stage / MARK).exists():
        return
    for name, entry in _entries(stage).items():
        if os.path.lexists(folder / name) and not os.path.lexists(stage / name) and fingerprint(folder / name) == entry:
            (folder / name).rename(stage / name)
    for old in stage.glob(f"{OLD}*/*"):
        if not os.path.lexists(folder / old.name):
            old.rename(folder / old.name)


def _stage(folder: Path) -> Path:
    """Make the folder, and in it, so that a file is put in place by its new name alone, one for what is being made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=STAGE, dir=folder))
    except OSError as error:
        raise UllageError(f"{harmless(str(folder))} can't be written: {error.strerror or error}", "name a folder that is yours") from error


def _refuse_others(folder: Path, maker: str, names: Iterable[str]) -> None:
    wrote = _entries(folder, maker)
    for name in names:
        path = folder / name
        if os.path.lexists(path) and wrote.get(name) != fingerprint(path):
            why = f"was changed since `{maker}` wrote it" if name in wrote else f"is in the way, and `{maker}` did not write it"
            raise UllageError(f"{harmless(str(path))} {why}", "name another place with --out, or move it away")


def _entries(folder: Path, maker: str | None = None) -> Mapping[str, str]:
    """Return what `maker` (None: whoever) wrote into a folder, by its mark: the fingerprint of each entry.

    A mark that can't be read says nothing.
    """
    try:
        said = json.loads((folder / MARK).read_text(encoding="utf-8"))
        entries = said["entries"] if maker in (None, said["by"]) else {}
        return {str(name): str(entry) for name, entry in entries.items() if Path(name).name == name}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def fingerprint(path: Path) -> str:
    """Return what tells whether a file, or a folder with all that is in it, was changed: the names, sizes and times of its files."""
    found = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() and not path.is_symlink() else [path]:
        seen = file.lstat()
        if file.is_symlink() or not file.is_dir():
            found.update(f"{file.relative_to(path)}\0{seen.st_size}\0{seen.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return found.hexdigest()


def _put_in_place(folder: Path, stage: Path, maker: str, made: list[str]) -> None:
    """Swap an earlier run's entries for the new ones, or leave everything as it was."""
    before = [
        name for name, entry in _entries(folder, maker).items() if os.path.lexists(folder / name) and fingerprint(folder / name) == entry
    ]
    old = Path(tempfile.mkdtemp(prefix=OLD, dir=stage))
    mark = stage / MARK
    mark.write_text(json.dumps({"by": maker, "entries": {name: fingerprint(stage / name) for name in made}}, indent=1), encoding="utf-8")
    moved: list[tuple[Path, Path]] = []
    try:
        for here, there in [*((folder / name, old / name) for name in before), *((stage / name, folder / name) for name in made)]:
            here.rename(there)
            moved.append((here, there))
        mark.replace(folder / MARK)
    except BaseException:
        for here, there in reversed(moved):
            there.rename(here)
        raise
