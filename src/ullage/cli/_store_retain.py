"""`ullage store retain`: drop what is older."""

from __future__ import annotations

import math
from pathlib import Path

import click

from ullage.cli._store_compact import opened
from ullage.cli.options import check_out, give, output_options
from ullage.views.files import FORMS
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
@output_options
def command(folder: str, keep: str, as_json: bool, out: Path | None) -> None:
    """Drop samples and job records older than SPAN before the newest sample. Days are dropped whole."""
    from ullage.render.store import retained_view, upkeep_record

    check_out(out, FORMS, [folder])
    kept = opened(folder).retain(math.ceil(seconds(keep) / 86_400))
    give(retained_view(kept), lambda: upkeep_record(kept), as_json=as_json, out=out)
