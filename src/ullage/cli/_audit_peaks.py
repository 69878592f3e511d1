"""`ullage audit peaks`: what is wrong with a table of peaks."""

from __future__ import annotations

import click

from ullage.cli._exit_status import end
from ullage.cli.options import dump


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
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def command(given: tuple[str, ...], precision: str, exact: bool, as_json: bool) -> None:
    """Each row of a table of peaks: right, with sparsity, another precision's, another GPU's, a fallback, or a name that
    catches other GPUs.

    A table is a Python file with dictionaries of GPU names (nested by precision, if it is), JSON, or lines name=value.
    The unit is told by magnitude.
    """  # fmt: skip
    from ullage.render import peaks as render
    from ullage.reports.peaks import audit_peaks

    report = audit_peaks(given, precision, exact=exact)
    click.echo(dump(render.record(report)) if as_json else render.text(report), nl=as_json)
    end(gate=bool(report.wrong))
