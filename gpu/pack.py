"""Evidence as a few files, and back: what can be copied from a machine where many files can't."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from gpu.evidence import put

PART = 15_000_000  # bytes of one archive at most, counted before they are packed


def pack(results: Path, target: Path) -> int:
    """Write the evidence of every GPU into one .tar.gz file and return how many files it holds; half-written ones are left out."""
    found = _files(results)
    put(target, _archive(found, results))
    return len(found)


def pack_parts(results: Path, folder: Path) -> list[Path]:
    """Write the evidence of every GPU into archives `evidence-1.tar.gz`, … in a folder, none above `PART` bytes; return their paths.

    Archives of an earlier call that are not needed any more are removed.
    """
    paths = []
    for number, files in enumerate(_parts(_files(results)), start=1):
        paths.append(folder / f"evidence-{number}.tar.gz")
        put(paths[-1], _archive(files, results))
    for old in set(folder.glob("evidence-*.tar.gz")) - set(paths):
        old.unlink()
    return paths


def _files(results: Path) -> list[Path]:
    return [path for path in sorted(results.glob("*/**/*")) if path.is_file() and not path.name.startswith(".")]


def _parts(files: Iterable[Path]) -> Iterable[list[Path]]:
    part: list[Path] = []
    size = 0
    for path in files:
        more = path.stat().st_size
        if part and size + more > PART:
            yield part
            part, size = [], 0
        part.append(path)
        size += more
    if part:
        yield part


def _archive(files: Sequence[Path], results: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in files:
            with suppress(FileNotFoundError):  # a check that runs may replace it
                archive.add(path, arcname=path.relative_to(results).as_posix(), recursive=False)
    return buffer.getvalue()


def unpack(sources: Sequence[Path], results: Path) -> int:
    """Put the evidence of archives into the folder of results, in place of what is there; return how many files there were."""
    results.mkdir(parents=True, exist_ok=True)
    count = 0
    for source in sources:
        with tarfile.open(source, mode="r:gz") as archive:
            members = [one for one in archive.getmembers() if one.isfile()]
            archive.extractall(results, members=members, filter="data")
            count += len(members)
    return count
