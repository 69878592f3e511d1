"""`ullage trace stragglers`: which ranks, stages and operations hold a training job up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ullage.cli._exit_status import end
from ullage.cli.options import check_out, give
from ullage.views.files import FORMS


@click.command(
    "stragglers",
    epilog="""\b
Examples:
  ullage trace stragglers trace.parquet                  who is slow, compared within each step
  ullage trace stragglers trace.parquet --peers job      compared over all steps, as the paper has it
  ullage trace stragglers trace.parquet --out stragglers.html
  ullage simulate trace --format operations --straggler 3 && ullage trace stragglers traces/
""",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "--peers",
    type=click.Choice(["step", "job"]),
    default="step",
    show_default=True,
    help="Compare an operation with those of its type on all ranks in the same step, or in all steps of the job.",
)
@click.option("--top", type=click.IntRange(1), default=12, show_default=True, help="Rows of a table.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE: .html, .md, .csv, .json or .txt.")
def command(files: tuple[str, ...], peers: Any, top: int, as_json: bool, out: Path | None) -> None:
    """How much faster a training job were without stragglers, and what makes it slow.

    FILE tells the operations of each rank (Parquet: dp_rank, stage, rank, step, optype, start_ts, duration, seq_id, mb_id, mc, gmc). The
    job is replayed along its dependencies with other durations: what if each operation took as long as its peers' do, and what if only
    one rank, stage or kind of operation did not?
    """
    from ullage.questions._traces import stragglers
    from ullage.render.stragglers import record, view

    check_out(out, FORMS, files)
    report = stragglers(files, peers=peers)
    give(view(report, top), lambda: record(report), as_json=as_json, out=out)
    end(partial=report.partial)
