"""What several commands share: where the answer goes, and a word about progress."""

from __future__ import annotations

import glob
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ullage.errors import UllageError, harmless

if TYPE_CHECKING:
    from ullage.views.files import Form
    from ullage.views.view import View

C = TypeVar("C", bound=Callable[..., Any])


def output_options(command: C) -> C:
    """Give a command `--json` and `--out`."""
    return out_option(click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command))


def out_option(command: C) -> C:
    """Give a command `--out`."""
    said = "Write the report to FILE; the form follows its name."
    return click.option("--out", type=click.Path(path_type=Path), help=said, metavar="FILE")(command)


def give(
    view: View,
    record: Callable[[], Mapping[str, Any]],
    *,
    as_json: bool,
    out: Path | None = None,
    more: Mapping[str, Form] | None = None,
    partial_because: str = "",
    table: str = "",
) -> None:
    """Give an answer: into a file in the form of its name (one of `FORMS` or of `more`), as JSON, or as text on the terminal.

    Where a file holds an answer from a part of the input, `partial_because` is said beside it. With the name of a `table` it is that
    table alone, whole.
    """
    if table:
        view, more = view.alone(table), None
    if out is not None:
        from ullage.views.files import write_answer

        write_answer(out, view, record, more)
        say_written(out, partial_because)
    if as_json:
        from ullage.views.document import document_text

        click.echo(document_text(view.kind, record()))
    elif out is None:
        from ullage.views.text import text

        click.echo(text(view, whole=bool(table), paint=painter()), nl=False)


def painter(stream: Any = None) -> Any:
    """Return how a cell is coloured on a stream (stdout): not at all unless a terminal shows it and NO_COLOR is unset."""
    from ullage.views.table import plain

    stream = stream or sys.stdout
    if stream is None or not stream.isatty() or os.environ.get("NO_COLOR"):
        return plain

    def paint(cell: str, value: float | None) -> str:
        if value is None:
            return cell
        return click.style(cell, fg="green" if value >= 0.8 else "yellow" if value >= 0.5 else "red")

    return paint


def say_written(out: Path | None, partial_because: str = "") -> None:
    """Say on stderr that a file was written, and why it is partial."""
    click.echo(f"wrote {out}{f', which is partial: {partial_because}' if partial_because else ''}", err=True)


class Progress:
    """One line on stderr that says how far the work is; silent when nobody watches."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._shown = not quiet and sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        """Show a word in place of the last one."""
        if self._shown:
            click.echo(f"\r\x1b[2K{text[:100]}", nl=False, err=True)

    def done(self) -> None:
        """Clear the line."""
        if self._shown:
            click.echo("\r\x1b[2K", nl=False, err=True)


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
    if out.exists() and any(_reads(Path(place).expanduser(), out) for place in read if place is not None):
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


def check_apart(outs: Mapping[str, str | Path | None]) -> None:
    """Refuse two options that name one file, of which only the later answer would be left."""
    seen: dict[Path, str] = {}
    for option, out in outs.items():
        if out is not None and str(out) != "-" and (first := seen.setdefault(Path(out).resolve(), option)) != option:
            raise click.UsageError(f"{first} and {option} are one file: '{out}'")


class Finite(click.FloatRange):
    """A number that is one: neither nan nor infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or say that it is none."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"'{value}' is not a finite number.", param, ctx)
        return found
