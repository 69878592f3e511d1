"""`ullage cupti metrics`: what a chip can count."""

from __future__ import annotations

from pathlib import Path

import click

from ullage.cli.options import check_out, give, output_options
from ullage.views.files import FORMS

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
@output_options
def command(chip: str, pattern: str, kind: str | None, limit: int | None, path: str | None, as_json: bool, out: Path | None) -> None:
    """The metrics of a chip, by a part of their names. CHIP is CUPTI's name (GH100) or a GPU's (H200, 'H100 SXM')."""
    check_out(out, FORMS)
    from ullage.cupti.counters.catalogue import source
    from ullage.render import counters as render
    from ullage.reports.counters.counters import listing

    found = listing(source(path), chip, pattern, kind or "")
    view = render.listing_view(found, SHOWN if limit is None else limit)
    give(view, lambda: render.listing_record(found, limit or 0), as_json=as_json, out=out)
