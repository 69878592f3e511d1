"""SQL templates in the user's cache, for the next process: Ibis takes a fifth of a short question's time to write them.

A file has a name of what its SQL depends on (the question's structure, the versions of what writes SQL, the code that marks places) and
begins with a digest of what follows. One that is damaged, or that somebody else could have written, is not read; where nothing can be
written, nothing is kept.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import duckdb
import ibis
import sqlglot
import xxhash

from ullage.cache_folder import cache_folder

MOST = 2_000  # files of a few kilobytes; beyond it the folder is emptied
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_WRITERS = ("sql_templates.py", "templates_on_disk.py")


def read_template(structure: bytes) -> tuple[str, ...] | None:
    """Return the template of a structure that an earlier process wrote; None where there is none that is whole and the user's own."""
    try:
        with _path(structure).open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
                return None
            digest, _, text = file.read().partition(b"\n")
    except (OSError, RuntimeError):
        return None
    return tuple(json.loads(text)) if digest == _digest(text) else None


def write_template(structure: bytes, template: tuple[str, ...]) -> None:
    """Keep a template for later processes, whole or not at all, as far as the user has a folder to write into."""
    text = json.dumps(template).encode()
    with suppress(OSError, RuntimeError):
        path = _path(structure)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_room(path.parent)
        handle, name = tempfile.mkstemp(prefix=".", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(text) + b"\n" + text)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)


def _path(structure: bytes) -> Path:
    return cache_folder(os.environ) / "sql" / xxhash.xxh3_128_hexdigest(_writers() + structure)


@cache
def _writers() -> bytes:
    """Return what SQL depends on beside a structure: versions, and the code of these modules; raises OSError where it has no files."""
    versions = " ".join(str(library.__version__) for library in (ibis, sqlglot, duckdb)).encode()
    return xxhash.xxh3_128_digest(b"\0".join([versions, *(Path(__file__).with_name(name).read_bytes() for name in _WRITERS)]))


def _digest(text: bytes) -> bytes:
    return xxhash.xxh3_128_hexdigest(text).encode()


def _make_room(folder: Path) -> None:
    kept = list(folder.iterdir())
    for path in kept if len(kept) >= MOST else []:
        path.unlink(missing_ok=True)
