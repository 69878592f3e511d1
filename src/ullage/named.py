"""Files by what a user calls them: paths, folders and globs; and what was said of a file by its path, or the end of it."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ullage.errors import UllageError, harmless
from ullage.written_values import expanded_path

_GIVE = "give a trace file, a folder of traces, or a glob"
MOST_RANK = 2**31


def found(places: Sequence[str]) -> list[Path]:
    """Return the files that places name: themselves, those of a folder, those of a glob; in order, each once, by whatever names.

    What begins with a dot, and what is no regular file, is not looked at in a folder. Raises UllageError for a place that names
    nothing, or no file.
    """
    paths = [path for place in places for path in _of(place)]
    if not paths:
        raise UllageError(f"there is no file in '{harmless(places[0]) if places else ''}'", _GIVE)
    return list({_identity(path): path for path in reversed(paths)}.values())[::-1]


def _of(place: str) -> list[Path]:
    path = expanded_path(place)
    if path.is_dir():
        return sorted(_within(path))
    if path.exists():
        if not path.is_file():
            raise UllageError(f"'{harmless(place)}' is a pipe or a device, not a file", "write what it gives to a file, and give that")
        return [path]
    named = glob.glob(str(path), recursive=True)  # noqa: PTH207 - the pattern may be absolute
    matches = sorted(Path(name) for name in named if Path(name).is_file())
    if not matches:
        raise UllageError(f"there is no file or folder '{harmless(place)}'", _GIVE)
    return matches


def _within(folder: Path) -> Iterator[Path]:
    for base, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (path for name in names if not name.startswith(".") and (path := Path(base, name)).is_file())


def _refuse(error: OSError) -> None:
    raise UllageError(f"the folder '{harmless(str(error.filename))}' can't be read: {error.strerror}", _GIVE) from error


def _identity(path: Path) -> object:
    """Return what is the same for a file under all its names."""
    try:
        seen = path.stat()
    except OSError:
        return path
    return (seen.st_dev, seen.st_ino) if stat.S_ISREG(seen.st_mode) and seen.st_ino else path


def ranks(files: Sequence[Path], given: Mapping[str, int]) -> dict[Path, int]:
    """Return the rank that was given to a file: by its path, by the end of its path, or (by "") to the only one.

    Raises UllageError for a name that means no file or several.

    >>> ranks([Path("a/trace.json"), Path("b/trace.json")], {"b/trace.json": 1})
    {PosixPath('b/trace.json'): 1}
    """
    by_file: dict[Path, int] = {}
    for name, rank in given.items():
        if not 0 <= rank < MOST_RANK:
            raise UllageError(f"rank must be a whole number from 0 to {MOST_RANK - 1:,}, not {rank}", "ranks count from 0")
        meant = [file for file in files if _called(file, name)] if name else list(files)
        if not name and len(meant) > 1:
            raise UllageError(f"rank {rank} is for one file, and there are {len(meant):,}", "say for which: --rank FILE=N")
        if len(meant) != 1:
            shown = ", ".join(harmless(str(file)) for file in (meant or files)[:4]) + (", …" if len(meant or files) > 4 else "")
            raise UllageError(f"'{harmless(name)}' is the name of {len(meant) or 'no'} file{'s' * bool(meant)}", f"there are {shown}")
        by_file[meant[0]] = rank
    return by_file


def _called(file: Path, name: str) -> bool:
    parts = expanded_path(name).parts
    return bool(parts) and file.parts[-len(parts) :] == parts
