"""`ullage trace scaling`: several runs of one program beside one another, as POP does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ullage.cli._exit_status import end
from ullage.cli.options import Progress, check_out, give
from ullage.cli.trace import reading
from ullage.errors import UllageError
from ullage.views.files import FORMS


@click.command(
    "scaling",
    epilog="""\b
Examples:
  ullage trace scaling nodes1/ nodes2/ nodes4/ nodes8/     folders of traces, one a run
  ullage trace scaling talp-*.json --strong                TALP files; more resources, the same problem
  ullage trace scaling one=a.json two=b.json --out scaling.svg
""",
)
@click.argument("runs", nargs=-1, required=True, metavar="[NAME=]RUN…")
@reading
@click.option("--region", metavar="R", help="Only within this region.")
@click.option("--reference", metavar="NAME", help="The run that the others are held against.  [default: the one with the fewest resources]")
@click.option("--strong", "kind", flag_value="strong", help="The runs solve the same problem.  [default: told from the work]")
@click.option("--weak", "kind", flag_value="weak", help="The problem grows with the resources.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE: .html, .md, .csv, .svg, .json or .txt.")
def command(runs: tuple[str, ...], reference: str | None, kind: Any, as_json: bool, out: Path | None, **asked: Any) -> None:
    """Efficiencies and scalability over several runs of one program.

    RUN is a trace file, or a folder or glob of one run's traces. Scalability is told against the reference run: by
    instructions, IPC and frequency where the traces hold counters, by kernel time, launches and bytes where not.
    """
    from ullage.cli.trace import answer
    from ullage.render.scaling import record, view
    from ullage.reports.trace.scaling import scaling

    if len(runs) < 2:
        raise UllageError("one run does not scale", "give two or more: ullage trace scaling RUN RUN…")
    check_out(out, (*FORMS, ".svg"), [place for _, place in map(named, runs)])
    progress = Progress(quiet=as_json)
    asked |= {"tables": "recorded"}  # no table is shown, so nothing needs to be read twice
    reports = [(name, answer((place,), asked, progress)) for name, place in map(named, runs)]
    report = scaling([(name, one.whole) for name, one in reports], reference=reference, kind=kind)
    give(view(report), lambda: record(report), as_json=as_json, out=out, more={".svg": lambda: _svg(report)})
    end(partial=any(one.partial for _, one in reports))


def named(text: str) -> tuple[str, str]:
    """Return a run's name and its place; without a name it is called by its place.

    >>> named("one=a.json"), named("runs/nodes2/")
    (('one', 'a.json'), ('nodes2', 'runs/nodes2/'))
    """
    name, equals, place = text.partition("=")
    if equals and name and place and not Path(text).exists():
        return name, place
    return Path(text).name.removesuffix(".gz").rsplit(".", 1)[0] or text, text


def _svg(report: Any) -> str:
    from ullage.render.svg.scaling import scaling as picture

    return str(picture(report))
