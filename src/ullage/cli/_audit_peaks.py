"""`ullage audit peaks`: what is wrong with a table of peaks."""

from __future__ import annotations

from pathlib import Path

import click

from ullage.cli._exit_status import end
from ullage.cli.options import check_out, give, output_options
from ullage.views.files import FORMS


@click.command(
    "peaks",
    epilog="""\b
Examples:
  ullage audit peaks flops_counter.py              every dictionary of GPU names in a Python file; nothing is executed
  ullage audit peaks peaks.json --precision fp8
  ullage audit peaks 'H100 PCIe=989' H200=2000     name=value, in TFLOP/s or FLOP/s
  ullage audit peaks table.yaml --exact --json
""",
)
@click.argument("given", nargs=-1, required=True, metavar="FILE|NAME=VALUE…")
@click.option("--precision", "-p", default="bf16", show_default=True, help="Precision of rows that name none.")
@click.option("--exact", is_flag=True, help="Names are compared whole, not searched for in the driver's name.")
@output_options
def command(given: tuple[str, ...], precision: str, exact: bool, as_json: bool, out: Path | None) -> None:
    """Each row of a table of peaks: right, with sparsity, another precision's, another GPU's, a fallback, or a name that
    catches other GPUs.

    A table is a Python file with dictionaries of GPU names (nested by precision, if it is), JSON, or lines name=value.
    The unit is told by magnitude.
    """  # fmt: skip
    from ullage.render import peaks as render
    from ullage.reports.audit.peaks import audit_peaks

    check_out(out, FORMS, given)
    report = audit_peaks(given, precision, exact=exact)
    give(render.view(report), lambda: render.record(report), as_json=as_json, out=out)
    end(gate=bool(report.wrong))
