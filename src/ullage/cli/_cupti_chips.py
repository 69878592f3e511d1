"""`ullage cupti chips`: on which chips there are counters, and which GPUs have them."""

from __future__ import annotations

from pathlib import Path

import click

from ullage.cli.options import check_out, give, output_options
from ullage.views.files import FORMS


@click.command(
    "chips",
    epilog="""\b
Examples:
  ullage cupti chips
  ullage cupti chips --json | jq -r '.chips[] | select(.gpus != []) | .chip'
  ullage cupti chips --cupti /usr/local/cuda/extras/CUPTI/lib64     what that library knows""",
)
@click.option("--cupti", "path", metavar="PATH", help="The libcupti to ask.  [default: the one that is found]")
@output_options
def command(path: str | None, as_json: bool, out: Path | None) -> None:
    """The chips that CUPTI can count on, with the GPUs of `ullage gpus` that have each."""
    check_out(out, FORMS)
    from ullage.cupti.counters.catalogue import source
    from ullage.render import counters as render
    from ullage.reports.counters.counters import chips

    found = chips(source(path))
    give(render.chips_view(found), lambda: render.chips_record(found), as_json=as_json, out=out)
