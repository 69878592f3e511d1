"""`ullage open`: any input, and the report that it is for.

A command, not a question: what may be asked beside the places is what the command that answers can be asked.
"""

from __future__ import annotations

import shlex
import sys
from itertools import takewhile

import click

from ullage.cli._exit_status import ANSWERED
from ullage.cli._suggested_values import complete_files
from ullage.errors import public

STATUS_3 = "the command that answers ends with 3"


@click.command(
    "open",
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  ullage open scrapes/                             telemetry: `ullage fleet scrapes/`
  ullage open rank0.json.gz                        a profile: `ullage trace rank0.json.gz`
  ullage open config.json --batch 8                a model: `ullage flops config.json --batch 8`
  ullage open kernel.cubin                         machine code: `ullage sass kernel.cubin`
  ullage open events.out.tfevents.1786320000.host  a trainer's log, or a tracker's: `ullage waterfall …`
  ullage open telemetry.parquet traces/ config.json    a job, whatever is known of it: `ullage waterfall …`""",
)
@click.argument("what", nargs=-1, required=True, metavar="WHAT…", type=click.UNPROCESSED, shell_complete=complete_files)
def command(what: tuple[str, ...]) -> None:
    """Tell by its content what WHAT is, and give the report that it is for.

    WHAT is a URL, a file or a folder: telemetry, a store, a trace, a recording, a model's configuration, a trainer's log, a binary, sampled
    program counters; or several of one job. Options after it are those of the command that answers, whose name is said on stderr.
    """
    from ullage.cli import cli
    from ullage.opening import opening_of

    places = list(takewhile(lambda word: not word.startswith("-"), what))
    if not places:
        raise click.UsageError("name a URL, a file or a folder first, and options after it")
    opened = opening_of(places)
    words = [*opened.command.split(), *what]
    click.echo(f"{opened.words}: {public(shlex.join(['ullage', *words]))}", err=True)
    sys.argv = ["ullage", *words]  # what the report names as the command that asks again
    raise click.exceptions.Exit(cli.main(args=words, standalone_mode=False) or ANSWERED)
