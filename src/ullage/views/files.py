"""An answer written to a file, in the form that its name says, whole or not at all."""

from __future__ import annotations

import glob
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ullage.errors import UllageError, harmless
from ullage.views.view import View
from ullage.written_values import expanded_path

FORMS = (".html", ".htm", ".json", ".md", ".csv", ".parquet", ".arrow", ".txt")  # what every view can be written as, with the answer's JSON
Form = Callable[[], str | bytes]


def write_answer(path: Path, view: View, record: Callable[[], Mapping[str, Any]], more: Mapping[str, Form] | None = None) -> None:
    """Write an answer in the form that the ending of the file's name says: one of `FORMS`, or of `more`, made when it is wanted.

    Raises UllageError where nothing can be written; an old file stays until the new one is whole.
    """
    replace(path, content(path, view, record, more))


def content(path: Path, view: View, record: Callable[[], Mapping[str, Any]], more: Mapping[str, Form] | None = None) -> bytes:
    """Return what `write_answer` writes to a file of this name."""
    ending = path.suffix.lower()
    made = more[ending]() if more and ending in more else printed(view, record, ending)
    return made if isinstance(made, bytes) else made.encode("utf-8", "replace")


def printed(view: View, record: Callable[[], Mapping[str, Any]], ending: str) -> str | bytes:
    """Return an answer in one of `FORMS`. Raises UllageError for another ending.

    CSV, Parquet and Arrow hold the first table of the view, whole: UllageError where it has none.
    """
    # each form is imported when it is wanted
    if ending == ".json":
        from ullage.views.document import document_text

        return document_text(view.kind, record())
    if ending == ".md":
        from ullage.views.markdown import markdown

        return markdown(view)
    if ending == ".csv":
        from ullage.views.csv import chosen_table, table_csv

        return table_csv(chosen_table(view))
    if ending in (".parquet", ".arrow"):
        from ullage.views.arrow import arrow_bytes, parquet_bytes
        from ullage.views.csv import chosen_table

        return parquet_bytes(chosen_table(view)) if ending == ".parquet" else arrow_bytes(chosen_table(view))
    if ending == ".txt":
        from ullage.views.text import text

        return text(view, whole=True)
    if ending in (".html", ".htm"):
        from ullage.views.html import html

        return html(view)
    raise UllageError(f"there is no form '{harmless(ending, 20)}'", f"use {', '.join(FORMS)}")


def replace(path: Path, written: bytes | Iterable[bytes]) -> None:
    """Write a file whole, from bytes or from pieces: an old one of that name stays until the new one is on the disk.

    Raises UllageError for a folder in which nothing can be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _not_written(path, error, "name a file in a folder that exists and is yours") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines([written] if isinstance(written, bytes) else written)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _not_written(path, error) from error
        raise


def _not_written(path: Path, error: OSError, hint: str = "") -> UllageError:
    return UllageError(f"{harmless(str(path), 200)} can't be written: {error.strerror or error}", hint)


def check_out(out: Path | None, forms: Iterable[str], read: Iterable[str | Path | None] = ()) -> None:
    """Refuse a file that can't take the answer, before anything is read or measured for it; None is no file, and fine.

    `read` are the places that the command reads: an answer never takes the place of a file that is read. In a folder that is read, only
    a page or a picture may be there already, which nothing reads.
    """
    if out is None:
        return
    if out.suffix.lower() not in forms:
        lacking = f"this report has no {out.suffix} format" if out.suffix else "its name does not say in which format"
        raise UllageError(f"cannot write '{harmless(str(out), 200)}': {lacking}", f"use {', '.join(forms)}")
    if out.is_dir():
        raise UllageError(f"{out} is a folder", "give the name of a file")
    if not out.absolute().parent.is_dir():
        raise UllageError(f"there is no folder {out.parent}", f"make it first: mkdir -p {shlex.quote(str(out.parent))}")
    if out.exists() and any(_reads(expanded_path(place), out) for place in read if place is not None):
        raise UllageError(f"{harmless(str(out), 200)} is read, and the answer would take its place", "name another file with --out")


_NEVER_READ = (".html", ".htm", ".svg")


def _reads(place: Path, out: Path) -> bool:
    """Return whether a file that is there is a place that is read, or lies in it. A pattern reads what it matches."""
    try:
        if place.is_dir():
            return out.suffix.lower() not in _NEVER_READ and out.resolve().is_relative_to(place.resolve())
        if place.exists():
            return place.samefile(out)
        return any(Path(name).samefile(out) for name in glob.glob(str(place), recursive=True))  # noqa: PTH207 - it may be absolute
    except (OSError, ValueError):  # it can't be read at all, and says so
        return False
