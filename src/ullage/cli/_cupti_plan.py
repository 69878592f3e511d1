"""`ullage cupti plan`: in how many passes metrics are collected, and how to do with fewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ullage.cli.options import check_out, give, output_options
from ullage.views.files import FORMS


@click.command(
    "plan",
    epilog="""\b
Examples:
  ullage cupti plan H200 --set device                                   what Ullage samples beside a job
  ullage cupti plan H200 --set kernel --mode range --groups             what it counts of each kernel, pass by pass
  ullage cupti plan GH100 sm__throughput dram__bytes_read.sum           a name without roll-up is completed
  ullage cupti plan B200 'sm__ops_path_tensor_op_utc*.sum' --json

\b
Passes are counted without a GPU by CUPTI 12.6 to 13.1; a later one does it only where there is a driver, and without one
counts those by ranges alone.""",
)
@click.argument("chip", metavar="CHIP")
@click.argument("metrics", nargs=-1, metavar="METRIC…")
@click.option("--set", "which", type=click.Choice(["device", "kernel", "vector"]), help="One of Ullage's own sets of counters as well.")
@click.option(
    "--mode",
    type=click.Choice(["both", "range", "pm"]),
    default="both",
    show_default=True,
    help="By ranges, which are replayed a pass each, or by PM sampling, which has one pass.",
)
@click.option("--groups", is_flag=True, help="Say which of them go together in a pass; in JSON they always stand.")
@click.option("--cupti", "path", metavar="PATH", help="The libcupti to ask.  [default: the one that is found]")
@output_options
def command(
    chip: str, metrics: tuple[str, ...], which: str | None, mode: Any, groups: bool, path: str | None, as_json: bool, out: Path | None
) -> None:  # fmt: skip
    """In how many passes a chip collects these metrics, which of them make it so, and which others would come cheaper."""
    check_out(out, FORMS)
    from ullage.cupti.counters.catalogue import source
    from ullage.render import counters as render
    from ullage.reports.counters.counters import planned

    if not metrics and not which:
        raise click.UsageError("name metrics, or one of Ullage's sets with --set")
    grouped = groups or as_json or (out is not None and out.suffix.lower() == ".json")
    found = planned(source(path), chip, metrics, which or "", mode, grouped)
    give(render.plan_view(found), lambda: render.plan_record(found), as_json=as_json, out=out)
