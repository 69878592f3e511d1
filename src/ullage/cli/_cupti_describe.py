"""`ullage cupti describe`: all that is known of a metric."""

from __future__ import annotations

from pathlib import Path

import click

from ullage.cli.options import check_out, give, output_options
from ullage.views.files import FORMS


@click.command(
    "describe",
    epilog="""\b
Examples:
  ullage cupti describe H200 sm__cycles_active
  ullage cupti describe GB100 sm__pipe_tensor_cycles_active dram__bytes_read
  ullage cupti describe GH100 'lts__t_sectors_op_*' --json""",
)
@click.argument("chip", metavar="CHIP")
@click.argument("metrics", nargs=-1, required=True, metavar="METRIC…")
@click.option("--cupti", "path", metavar="PATH", help="The libcupti to ask.  [default: the one that is found]")
@output_options
def command(chip: str, metrics: tuple[str, ...], path: str | None, as_json: bool, out: Path | None) -> None:
    """What metrics count: kind, unit, hardware unit, NVIDIA's description where its library is installed, what may follow the
    name, the passes it needs, and the field of DCGM that is the same.
    """  # fmt: skip
    check_out(out, FORMS)
    from ullage.cupti.counters.catalogue import source
    from ullage.render import counters as render
    from ullage.reports.counters.counters import WITHOUT, described

    asked = source(path)
    known, found = described(asked, chip, metrics)
    view = render.described_view(known.chip, [known.told, *([] if asked.library else [WITHOUT])], found)
    give(view, lambda: render.described_record(known.chip, known.told, found), as_json=as_json, out=out)
