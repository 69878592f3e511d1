"""What several commands share: where the answer goes, and a word about progress."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ullage.views.files import Form
    from ullage.views.view import View


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
