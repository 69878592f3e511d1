"""A store on object storage (S3, Google Cloud Storage, Azure): the same files under one address, kept apart by conditional puts.

Parts never change under their names, so this machine keeps those that were asked for in its cache, and none is brought twice. What is
replaced in one step (the manifest, job records, …) is put only if nobody else has put it since it was read (If-Match, If-None-Match):
this stands in place of a lock. Whoever comes second reads again what is there, and does its piece of work once more.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from ullage.cache_folder import cache_folder
from ullage.errors import UllageError, harmless, missing_extra
from ullage.store.durable import Hook, nothing, write_whole
from ullage.store.hidden_names import NAME as HIDDEN
from ullage.store.jobs import NAME as JOBS
from ullage.store.manifest import NAME, ROLLUPS, TAILS, ChangedMeanwhileError, Manifest, StoreFolder, StorePart
from ullage.store.units import NAME as UNITS
from ullage.units import DAY_MS

SCHEMES = ("s3://", "gs://", "az://")
REPLACED = (NAME, JOBS, HIDDEN, UNITS)  # files that are replaced in one step; all others never change under their names
TRANSFERS = 16  # at once: object storage answers slowly, and many at a time
YOUNG_MS = DAY_MS  # files of this age may be another writer's that are not yet listed
_RETRIES = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}
_CLIENT = {"timeout": "60s", "connect_timeout": "5s"}


def is_bucket(place: str | Path) -> bool:
    """Return whether a place is an address on object storage.

    >>> is_bucket("s3://metrics/fleet"), is_bucket("http://prometheus:9090"), is_bucket("store")
    (True, False, False)
    """
    return str(place).startswith(SCHEMES)


def bucket_folder(url: str, hook: Hook = nothing, objects: Any = None) -> BucketFolder:
    """Return where the store at an address lies. Credentials come from the environment (AWS_…, GOOGLE_…, AZURE_…) or the machine's role.

    `objects` is an open store of `obstore`, for tests. Raises UllageError for an address that names no bucket, and without `obstore`.
    """
    if re.search(r"[?#@\s]", url) or not re.fullmatch(r"\w+://[^/]+(/[^/]+)*/?", url):
        raise UllageError(
            f"'{harmless(url, 200)}' is no address of a store", "write s3://BUCKET/FOLDER; credentials come from the environment"
        )
    if objects is None:
        obstore = _library("obstore.store")
        options = _CLIENT | ({"allow_http": True} if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://") else {})
        with _refused(url):
            objects = obstore.from_url(url, client_options=options, retry_config=_RETRIES)
    private = TemporaryDirectory(prefix="ullage-bucket-")
    cache = cache_folder(os.environ) / "stores" / hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]
    return BucketFolder(Path(private.name), hook, url=url.rstrip("/"), objects=objects, cache=cache, private=private)


@dataclass(frozen=True, kw_only=True)
class BucketFolder(StoreFolder):
    """A store's files at an address; `path` holds this process's copies of `REPLACED`, `cache` the machine's of all others."""

    url: str
    objects: Any
    cache: Path
    private: TemporaryDirectory[str]  # which is removed with it
    _tags: dict[str, str] = field(default_factory=dict, compare=False, repr=False)  # of what was read or put last, by name
    _sizes: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The address."""
        return self.url

    def place(self, name: str) -> str:
        """Return the address of a file."""
        return f"{self.url}/{name}"

    def at(self, name: str) -> Path:
        """Return where a file lies on this machine, to which it is brought if need be. Raises FileNotFoundError where there is none."""
        if name in REPLACED:
            return self.path / name
        path = self.cache / name
        if not path.exists():
            with _refused(self.place(name)):
                found = self.objects.get(name)
                write_whole(path.parent, path.name, lambda file: file.writelines(found))  # a piece at a time: parts are large
        return path

    def fetch(self, names: Iterable[str]) -> None:
        """Bring files to this machine, many at a time; those that there are not are left out."""

        def bring(name: str) -> None:
            with suppress(FileNotFoundError):
                self.at(name)

        with ThreadPoolExecutor(TRANSFERS) as pool:
            list(pool.map(bring, [name for name in names if not (self.cache / name).exists()]))

    def create(self, ours: frozenset[str]) -> None:
        """Begin a store at the address. Raises UllageError where other files lie than those that are called as `ours`."""
        foreign = next((name for name, _, _ in self._listed("") if name.split("/")[0] not in ours), None)
        if foreign is not None:
            problem = f"{self.name} holds other files ({harmless(foreign)}) and no store"
            raise UllageError(problem, "give an address at which nothing lies yet")
        with suppress(ChangedMeanwhileError):  # somebody else has begun one
            self.write(Manifest())

    def refresh(self) -> None:
        """Bring what is replaced in one step to this process, where it has changed."""
        with ThreadPoolExecutor(len(REPLACED)) as pool:
            list(pool.map(self._refresh, REPLACED))

    def verify(self, parts: Iterable[StorePart]) -> None:
        """Bring parts to this machine and look through them, as `StoreFolder.verify` does."""
        parts = [*parts]
        self.fetch(part.file for part in parts)
        super().verify(parts)

    def sound(self, part: StorePart) -> bool:
        """Return whether a part's content is as it was written; one that a disk has changed here is brought anew."""
        if super().sound(part):
            return True
        self.at(part.file).unlink(missing_ok=True)
        return super().sound(part)

    def write_whole(self, name: str, write: Callable[[IO[bytes]], object], what: str) -> tuple[Path, str]:
        """Put a file; return where it lies on this machine, and its SHA-256. Raises ChangedMeanwhileError where somebody else put it."""
        written = io.BytesIO()
        write(written)
        content = written.getvalue()
        digest = hashlib.sha256(content).hexdigest()
        name = name.replace("{hash}", digest[:16])
        self.hook(f"{what} written")
        with _refused(self.place(name)):
            found = self._put(name, content)
        self.hook(f"{what} renamed")
        path = (self.path if name in REPLACED else self.cache) / name
        _keep(path, content)
        if name in REPLACED:
            self._tags[name] = found["e_tag"]
        return path, digest

    def check(self, manifest: Manifest) -> None:
        """Raise UllageError for the first live file that is missing or not as long as it was written, by one listing."""
        self._sizes.clear()
        self._sizes.update((name, size) for name, size, _ in self._listed("samples", TAILS))
        super().check(manifest)

    def size(self, name: str) -> int | None:
        """Return a file's size in bytes, as it was listed last or is now; None where there is none."""
        if name not in self._sizes:
            with _refused(self.place(name)), suppress(FileNotFoundError):
                self._sizes[name] = int(self.objects.head(name)["size"])
        return self._sizes.get(name)

    def remove_others(self, kept: set[str]) -> int:
        """Remove files of samples, tails and roll-ups that are not `kept`, here and there, and return how many there.

        Those that were put within a day stay: another writer may be about to list them.
        """
        for path in self.cache.rglob("*.parquet"):
            if path.relative_to(self.cache).as_posix() not in kept:
                path.unlink(missing_ok=True)
        limit = time.time() * 1000 - YOUNG_MS
        others = [name for name, _, since in self._listed("samples", TAILS, ROLLUPS) if name not in kept and since <= limit]
        for name in others:
            with _refused(self.place(name)), suppress(FileNotFoundError):
                self.objects.delete(name)
            self.hook("old removed")
        return len(others)

    def _refresh(self, name: str) -> None:
        known = self._tags.get(name)
        with _refused(self.place(name)):
            try:
                found = self.objects.get(name, options={"if_none_match": known} if known else {})
                content, tag = bytes(found.bytes()), found.meta["e_tag"]
            except FileNotFoundError:
                self._tags.pop(name, None)
                (self.path / name).unlink(missing_ok=True)
                return
            except _library("obstore.exceptions").NotModifiedError:
                return
        _keep(self.path / name, content)
        self._tags[name] = tag

    def _put(self, name: str, content: bytes) -> Any:
        if name not in REPLACED:
            return self.objects.put(name, content)
        known = self._tags.get(name)
        return self.objects.put(name, content, mode={"e_tag": known} if known else "create")

    def _listed(self, *folders: str) -> Iterator[tuple[str, int, float]]:
        """Name, size and time (ms) of each file in some folders of the store; "" is the whole of it."""
        with _refused(self.url):
            for folder in folders:
                for some in self.objects.list(folder or None):
                    for one in some:
                        yield str(one["path"]), int(one["size"]), one["last_modified"].timestamp() * 1000


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing_extra("obstore", "bucket", "a store on object storage") from error


def _keep(path: Path, content: bytes) -> None:
    write_whole(path.parent, path.name, lambda file: file.write(content))


@contextmanager
def _refused(place: str) -> Iterator[None]:
    """Turn what object storage refuses into a UllageError that says what and where; FileNotFoundError is for the caller."""
    exceptions = _library("obstore.exceptions")
    try:
        yield
    except (exceptions.PreconditionError, exceptions.AlreadyExistsError) as error:
        raise ChangedMeanwhileError(
            f"{harmless(place)} was changed by another process meanwhile", "run the command again: it skips what is stored"
        ) from error
    except exceptions.NotModifiedError:
        raise
    except exceptions.BaseError as error:
        denied = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
        hint = "check the address, the bucket's policy and the environment (AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL, …)"
        reason = "access is denied" if denied else harmless(str(error).partition("\n")[0], 300)
        raise UllageError(f"{harmless(place)} can't be reached: {reason}", hint) from error
