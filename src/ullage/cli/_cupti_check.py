"""`ullage cupti check`: what this machine allows of tracing and counting, and what stands in the way."""

from __future__ import annotations

import click

from ullage.cli._exit_status import end
from ullage.cli.options import dump


@click.command(
    "check",
    epilog="""\b
Examples:
  ullage cupti check
  ullage cupti check --need counters && ullage run --kernels 100 -- ./a.out
  ullage cupti check --json | jq -r '.findings[].do'""",
)
@click.option("--need", type=click.Choice(["tracing", "counters"]), help="A gate for scripts: is this possible?")
@click.option("--cupti", "path", metavar="PATH", help="The libcupti to ask.  [default: the one that is found]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def command(need: str | None, path: str | None, as_json: bool) -> None:
    """Whether CUDA programs can be traced here, and the GPUs' counters read; if not, why, and what to do.

    Looks at the driver, CUPTI, permissions, containers, MIG, other profilers and DCGM. Nothing is initialised.
    """
    from ullage.cupti.permissions import report
    from ullage.render.machine_check import text

    found = report(path)
    click.echo(dump(found) if as_json else text(found), nl=as_json)
    end(gate=need is not None and found[need] == "no")
