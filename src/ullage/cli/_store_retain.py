"""`ullage store retain`: drop what is older."""

from __future__ import annotations

import math

import click

from ullage.cli._store_compact import opened, say_removed
from ullage.views.numbers import counted
from ullage.written_values import seconds


@click.command(
    "retain",
    epilog="""\b
Examples:
  ullage store retain store/ --keep 90d""",
)
@click.argument("folder", type=click.Path())
@click.option(
    "--keep", required=True, metavar="SPAN", help="How much to keep before the newest sample, in whole days (rounded up): 90d, 12w."
)
def command(folder: str, keep: str) -> None:
    """Drop samples and job records older than SPAN before the newest sample. Days are dropped whole."""
    days = math.ceil(seconds(keep) / 86_400)
    kept = opened(folder).retain(days)
    dropped = kept.parts_before - kept.parts_after
    click.echo(f"{counted(kept.rows_dropped, 'sample')} dropped with {dropped:,} of {counted(kept.parts_before, 'part')}")
    say_removed(kept)
