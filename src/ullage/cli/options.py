"""What several commands share: times, prices, where the answer goes, and a word about progress."""

from __future__ import annotations

import datetime
import glob
import math
import re
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

_SPAN = re.compile(r"^(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)$")
_LONGEST = 1e11  # seconds; some 3,000 years
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds(text: str) -> float:
    """Return a span such as 90s, 15m, 24h, 7d in seconds.

    >>> seconds("24h"), seconds("90")
    (86400.0, 90.0)
    """
    found = _SPAN.match(text.strip().lower())
    try:
        value = float(found[1]) * _SECONDS[found[2]] if found else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _LONGEST:
        raise UllageError(f"'{text}' is not a span of time", "write 90s, 15m, 24h or 7d")
    return value


def moment(text: str | None, now: float) -> int | None:
    """Return a time in ms since 1970: ISO 8601 (UTC where no zone is given), seconds since 1970, or a span before now.

    >>> moment("2026-08-10T12:00:00Z", now=0), moment("1h", now=7200), moment(None, now=0)
    (1786363200000, 3600000, None)
    """
    if text is None:
        return None
    if _SPAN.match(text.strip().lower()):
        return round((now - seconds(text)) * 1000)
    if re.fullmatch(r"\d{9,10}(\.\d+)?", text.strip()):
        return round(float(text) * 1000)
    try:
        when = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise UllageError(
            f"'{text}' is not a time", "write 2026-08-10, 2026-08-10T12:00:00Z, seconds since 1970, or a span before now such as 24h"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return round(when.timestamp() * 1000)


def prices(texts: tuple[str, ...]) -> dict[str, float]:
    """Return prices per GPU-hour by GPU name; "" is for every other GPU.

    >>> prices(("2.5", "A100=1.2"))
    {'': 2.5, 'A100': 1.2}
    """
    found: dict[str, float] = {}
    for text in texts:
        for part in text.split(","):
            name, _, amount = part.rpartition("=")
            try:
                found[name.strip()] = float(amount)
            except ValueError:
                raise UllageError(f"'{part}' is not a price", "write --price 2.50, or --price H100=2.50,A100=1.20") from None
            if not 0 <= found[name.strip()] < math.inf:
                raise UllageError(f"a price is an amount from 0 on, not '{part}'", "write --price 2.50, or --price H100=2.50,A100=1.20")
    return found


def output_options(command: C) -> C:
    """Give a command `--json` and `--out`."""
    return out_option(click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command))


def out_option(command: C) -> C:
    """Give a command `--out`."""
    said = "Write the report to FILE; the form follows its name."
    return click.option("--out", type=click.Path(path_type=Path), help=said, metavar="FILE")(command)


def give(view: View, record: Callable[[], Any], *, as_json: bool, out: Path | None = None, more: Mapping[str, Form] | None = None) -> None:
    """Give an answer: into a file in the form of its name (one of `FORMS` or of `more`), as JSON, or as text on the terminal."""
    if out is not None:
        from ullage.views.files import write_answer

        write_answer(out, view, record, more)
        click.echo(f"wrote {out}", err=True)
    if as_json:
        click.echo(dump(record()))
    elif out is None:
        from ullage.views.text import text

        click.echo(text(view), nl=False)


def dump(data: Any) -> str:
    """Return data as JSON text, one key a line."""
    from ullage.views.json_text import json_text

    return json_text(data)


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


def share(text: str, option: str) -> float:
    """Return a ratio: "54.27%" and "54.27" are percent, "0.5427" is one already.

    Raises UllageError for no number, and for one that people mean as percent and as a ratio alike.

    >>> share("34", "--ofu"), share("0.5", "--ofu"), share("1", "--tile-efficiency"), share("1.5%", "--mfu")
    (0.34, 0.5, 1.0, 0.015)
    """
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        problem = f"{option} '{harmless(text, 40)}' is not a number"
        raise UllageError(problem, "give percent such as 54.27, or a ratio such as 0.5427") from None
    if text.strip().endswith("%") or value >= 2:
        return value / 100
    least = 1.0 if option in ("--ofu", "--mfu", "--reported") else 1.0 + 1e-12  # an efficiency of 1 is one; nobody's OFU or MFU is
    if value >= least:
        said = harmless(text.strip(), 40)
        raise UllageError(f"{option} {said} may be {said} % or a ratio of {said}", f"write {said}%, or a ratio such as {value / 100:g}")
    return value


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


def megabytes(context: click.Context, parameter: click.Parameter, text: str) -> int | None:
    """Return the bytes of a size in MB that an option was given, None for "all"; raises BadParameter for what is no size."""
    if text.strip().lower() == "all":
        return None
    try:
        size = float(text) * 1e6
    except ValueError:
        size = -1.0
    if not 0 <= size < 2**62:
        raise click.BadParameter(f"'{text}' is not a size in MB from 0 on, nor 'all'.", context, parameter)
    return round(size)


class Finite(click.FloatRange):
    """A number that is one: neither nan nor infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or say that it is none."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"'{value}' is not a finite number.", param, ctx)
        return found
