"""`ullage cupti chips`: on which chips there are counters, and which GPUs have them."""

from __future__ import annotations

import click

from ullage.cli.options import dump


@click.command(
    "chips",
    epilog="""\b
Examples:
  ullage cupti chips
  ullage cupti chips --json | jq -r '.chips[] | select(.gpus != []) | .chip'
  ullage cupti chips --cupti /usr/local/cuda/extras/CUPTI/lib64     what that library knows""",
)
@click.option("--cupti", "path", metavar="PATH", help="The libcupti to ask.  [default: the one that is found]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def command(path: str | None, as_json: bool) -> None:
    """The chips that CUPTI can count on, with the GPUs of `ullage gpus` that have each."""
    from ullage.cupti.counters.catalogue import source
    from ullage.render import counters as render
    from ullage.reports.counters import chips

    found = chips(source(path))
    click.echo(dump(render.chips_record(found)) if as_json else render.chips_text(found))
