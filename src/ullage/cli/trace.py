"""`ullage trace`: host and device trees of a profile, of many ranks, of several runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from ullage.cli._exit_status import end
from ullage.cli._parts import WithParts
from ullage.cli.options import Finite, Progress, check_out
from ullage.errors import UllageError

_EPILOG = """\b
Examples:
  ullage trace trace.json.gz                      a PyTorch profile
  ullage trace profiles/                          many ranks, a file each
  ullage trace report.sqlite --by rank            Nsight Systems (nsys export --type sqlite report.nsys-rep)
  ullage trace host.trace.json.gz                 a JAX profile
  ullage trace 4711_results.db                    rocprofv3 (rocprofv3 --sys-trace -- ./a.out)
  ullage trace talp.json                          TALP's JSON: recomputed from its raw times
  ullage trace scorep-20260101/traces.otf2        Score-P (pip install 'ullage[otf2]')
  ullage trace trace.json --window steps          from the first profiler step to the last
  ullage trace trace.json --region forward        one NVTX range or user annotation
  ullage trace profiles/ --what-if                how much faster without late ranks, communication, launches
  ullage trace trace.json --out trace.svg         the timeline; .html is the whole report, .pftrace opens in Perfetto
\b
Several runs:
  ullage trace compare before.json after.json     what changed, factor by factor
  ullage trace scaling run1/ run2/ run4/          the table of POP: efficiencies and scalability
"""


def reading(command: Any) -> Any:
    """Give a command the options that say how traces are read."""
    for option in (
        click.option("--strict", is_flag=True, help="Refuse damaged files instead of using their good part."),
        click.option("--workers", type=click.IntRange(1), metavar="N", help="Read N files side by side.  [default: as many as CPUs]"),
        click.option("--limit", type=Finite(min=0, min_open=True), default=64.0, show_default=True, help="Most GiB a file may unpack to."),
        click.option("--window", default="first-last", show_default=True, metavar="W", help="first-last, steps, or A:B seconds."),
        click.option(
            "--host", type=click.Choice(["busiest", "union"]), default="busiest", show_default=True, help="Threads of a process' host lane."
        ),
        click.option(
            "--mode", type=click.Choice(["talp", "ai"]), help="Count collectives as work (talp) or apart (ai).  [default: by the source]"
        ),
    ):
        command = option(command)
    return command


@click.command("trace", cls=WithParts, epilog=_EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@reading
@click.option("--region", metavar="R", help="Only within this NVTX range or user annotation.")
@click.option("--by", type=click.Choice(["rank", "device", "region", "step"]), help="Trees of each of these.")
@click.option("--rank", "ranks", multiple=True, metavar="[FILE=]N", help="The rank of a file that tells none, or a wrong one. Repeatable.")
@click.option("--price", type=Finite(min=0), metavar="P", help="Money per GPU-hour, for the bill of losses.")
@click.option(
    "--link", type=Finite(min=0, min_open=True), metavar="R", help="GB/s of a GPU's link one way, for collectives not within a host."
)
@click.option(
    "--tables",
    type=click.Choice(["common", "recorded"]),
    default="common",
    show_default=True,
    help="Which time the tables cover: the time in which all ranks were recorded, as the trees do, or all that was recorded.",
)
@click.option(
    "--what-if",
    is_flag=True,
    help="Replay the run: how much faster it would be without late ranks, communication or launches; and its critical path.",
)
@click.option("--top", type=click.IntRange(1), default=12, show_default=True, help="Rows of a table.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to FILE: .html, .md, .csv, .json, .txt, .svg, .parquet, .pftrace (Perfetto).",
)
def command(files: tuple[str, ...], as_json: bool, out: Path | None, by: str | None, top: int, **asked: Any) -> None:
    """Host and device efficiency trees of a profile, and where its time goes.

    FILE is a trace of PyTorch (Kineto JSON), JAX (trace.json.gz, xplane.pb), Nsight Systems (SQLite), rocprofv3 (rocpd, JSON),
    TALP (JSON), Paraver or Score-P (OTF2), plain or compressed; a folder or a glob of them is one run, a file a rank.
    """
    from ullage.render.trace import view
    from ullage.render.trace_files import FORMS, write

    check_out(out, FORMS, files)
    report = answer(files, asked, Progress(quiet=as_json))
    made = view(report, by=by, top=top)
    if out is not None:
        write(report, out, files=files, made=made, table="" if by is None else f"by {by}")
        click.echo(f"wrote {out}", err=True)
    if as_json:
        from ullage.render.trace_json import record
        from ullage.views.document import document_text

        click.echo(document_text(made.kind, record(report)))
    elif out is None:
        from ullage.views.text import text

        click.echo(text(made, paint=painter()), nl=False)
    end(partial=report.partial)


def answer(files: tuple[str, ...], asked: dict[str, Any], progress: Progress) -> Any:
    """Return the report on one run that the command line asks for."""
    from ullage.questions._traces import trace

    ranks = dict(_rank(text) for text in asked.get("ranks", ()))
    try:
        return trace(
            files,
            mode=asked["mode"],
            region=asked.get("region"),
            window=asked["window"],
            ranks=ranks,
            price=asked.get("price"),
            link=asked["link"] * 1e9 if asked.get("link") else None,
            strict=asked["strict"],
            limit=round(asked["limit"] * 2**30),
            workers=asked["workers"],
            host=asked["host"],
            tables=asked.get("tables", "common"),
            what_if=asked.get("what_if", False),
            progress=progress,
        )
    finally:
        progress.done()


def _rank(text: str) -> tuple[str, int]:
    """Return a file's name ("" for the only file) and its rank.

    >>> _rank("a.json=3"), _rank("3")
    (('a.json', 3), ('', 3))
    """
    name, _, number = text.rpartition("=")
    if not number.isascii() or not number.isdigit():
        raise UllageError(f"'{text}' names no rank", "write --rank 3, or --rank FILE=3")
    return name, int(number)


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
