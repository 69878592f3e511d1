"""Files that are whole or absent, whatever happens while they are written; and the lock that keeps writers apart."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import xxhash

from ullage.errors import UllageError

BLOCK = 1 << 20  # bytes read at once
Hook = Callable[[str], None]  # called at each named point of a commit; tests kill the process there


def nothing(_: str) -> None:
    """Do nothing: the hook of a store in use."""


def write_whole(
    folder: Path, name: str, write: Callable[[IO[bytes]], object], hook: Hook = nothing, what: str = "file"
) -> tuple[Path, str]:
    """Return the path and the SHA-256 of a new file that is on the disk, whole, under its name, or not there at all.

    `{hash}` in `name` becomes the first 16 digits of the content's hash. The content goes to a temporary name in the
    same folder, then fsync, rename, fsync of the folder: the order that survives a loss of power (see `man 2 fsync`).
    An older file of that name is replaced in one step. Raises UllageError when the disk refuses.
    """
    temporary = folder / f".{os.getpid()}-{threading.get_native_id()}.tmp"  # no two writers have one name
    with refused(folder):
        make_folder(folder)
        try:
            with temporary.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            hook(f"{what} written")
            digest = content_hash(temporary)
            path = folder / name.replace("{hash}", digest[:16])
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        hook(f"{what} renamed")
        sync_folder(folder)
    return path, digest


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_of(path: Path) -> str:
    """Return the XXH3 checksum (128 bits) of a file's content, in hexadecimal.

    It finds whatever a disk does to a file, at the speed of memory: every question asks it of every part. Against somebody who forges
    files stands the SHA-256 beside it.
    """
    with path.open("rb") as file:
        found = xxhash.xxh3_128()
        while block := file.read(BLOCK):
            found.update(block)
    return found.hexdigest()


def make_folder(folder: Path) -> None:
    """Create a folder and its parents so that their names last."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Without its lock two writers would undo each other's commits: there is no writing without one.
_LOCKLESS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_LOCKS = "put the store on a local disk, or mount it with locks: Lustre with -o flock, NFS with its lock service; reading needs none"
_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than is allowed",
}


@contextmanager
def refused(place: Path) -> Iterator[None]:
    """Turn an operating system's refusal to write into a UllageError that says what, where, and that nothing was lost."""
    try:
        yield
    except OSError as error:
        reason = _FULL.get(error.errno or 0, (error.strerror or str(error)).lower())
        remedy = "free some space" if error.errno in _FULL else "put that right"
        raise UllageError(
            f"nothing more can be stored in {place}: {reason}",
            f"nothing that was stored is lost and the store can be read; {remedy}, then run the command again (it skips what is stored)",
        ) from error


@contextmanager
def locked(file: Path, wait_s: float, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the one writer's lock of a store; wait up to `wait_s` seconds for another writer, then raise UllageError.

    The lock belongs to the open file: it goes away with the process, however that ends.
    """
    with refused(file.parent):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _wait(descriptor, file, wait_s, say)
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, file: Path, wait_s: float, say: Callable[[str], None]) -> None:
    end, told = time.monotonic() + wait_s, False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno not in _LOCKLESS:
                raise
            problem = f"the file system of the store {file.parent} gives no locks ({(error.strerror or str(error)).lower()})"
            raise UllageError(problem, _LOCKS) from error
        if time.monotonic() >= end:
            raise UllageError(
                f"another process has been writing to the store {file.parent} for {wait_s:,.0f} s",
                "wait for it, or stop it; reading needs no lock",
            )
        if not told:
            say(f"another process is writing to {file.parent}; waiting")
            told = True
        time.sleep(0.05)
