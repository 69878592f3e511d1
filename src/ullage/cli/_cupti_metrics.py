"""`ullage cupti metrics`: what a chip can count."""

from __future__ import annotations

import os

import click

from ullage.cli.options import dump

SHOWN = 40  # lines that a person gets without --limit


@click.command(
    "metrics",
    epilog="""\b
Examples:
  ullage cupti metrics GH100                          how many there are, and the first of them
  ullage cupti metrics 'H100 SXM' 'dram*'             a glob
  ullage cupti metrics B200 'ops_path_tensor.*fp4'    a regular expression
  ullage cupti metrics H200 hit_rate --kind ratio     a part of the name
  ullage cupti metrics H200 --json | jq -r '.metrics[].name'""",
)
@click.argument("chip", metavar="CHIP")
@click.argument("pattern", required=False, default="", metavar="[PATTERN]")
@click.option("--kind", type=click.Choice(["counter", "ratio", "throughput"]), help="Only metrics of this kind.")
@click.option("--limit", type=click.IntRange(min=0), help=f"Lines at most; 0 for all.  [default: {SHOWN}; with --json all]")
@click.option("--cupti", "path", metavar="PATH", help="The libcupti to ask.  [default: the one that is found]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def command(chip: str, pattern: str, kind: str | None, limit: int | None, path: str | None, as_json: bool) -> None:
    """The metrics of a chip, by a part of their names. CHIP is CUPTI's name (GH100) or a GPU's (H200, 'H100 SXM')."""
    from ullage.cupti.counters.catalogue import source
    from ullage.render import counters as render
    from ullage.reports.counters import listing

    found = listing(source(path), chip, pattern, kind or "")
    if as_json:
        click.echo(dump(render.listing_record(found, limit or 0)))
    else:
        click.echo(render.listing_text(found, SHOWN if limit is None else limit, _dim))


def _dim(text: str) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, dim=True)
