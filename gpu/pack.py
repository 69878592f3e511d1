"""All evidence as one file, and back: what can be copied from a machine where many files can't."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path


def pack(results: Path, target: Path) -> int:
    """Write the evidence of every GPU into a .tar.gz file and return how many files it holds; half-written ones are left out."""
    found = [path for path in sorted(results.glob("*/**/*")) if path.is_file() and not path.name.startswith(".")]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in found:
            archive.add(path, arcname=path.relative_to(results).as_posix(), recursive=False)
    target.write_bytes(buffer.getvalue())
    return len(found)


def unpack(source: Path, results: Path) -> int:
    """Put the evidence of a file that `pack` wrote into the folder of results, in place of what is there; return how many files."""
    results.mkdir(parents=True, exist_ok=True)
    with tarfile.open(source, mode="r:gz") as archive:
        members = [one for one in archive.getmembers() if one.isfile()]
        archive.extractall(results, members=members, filter="data")
    return len(members)
