"""`ullage cupti check`: what this machine allows of tracing and counting, and what stands in the way."""

from __future__ import annotations

from pathlib import Path

import click

from ullage.cli._exit_status import end
from ullage.cli.options import check_out, give, output_options
from ullage.views.files import FORMS


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
@output_options
def command(need: str | None, path: str | None, as_json: bool, out: Path | None) -> None:
    """Whether CUDA programs can be traced here, and the GPUs' counters read; if not, why, and what to do.

    Looks at the driver, CUPTI, permissions, containers, MIG, other profilers and DCGM. Nothing is initialised.
    """
    check_out(out, FORMS)
    from ullage.cupti.permissions import report
    from ullage.render.machine_check import view

    found = report(path)
    give(view(found), lambda: found, as_json=as_json, out=out)
    end(gate=need is not None and found[need] == "no")
