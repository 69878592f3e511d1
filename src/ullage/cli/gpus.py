"""`ullage gpus`: the chips that Ullage knows, their peaks, and where the figures come from."""

from __future__ import annotations

from pathlib import Path

import click

from ullage.cli.options import check_out, give, out_option
from ullage.gpus.chip import CHIPS, find
from ullage.gpus.precision import PRECISIONS, canonical
from ullage.views.files import FORMS

_EPILOG = """\b
Examples:
  ullage gpus                          every chip, with its dense peaks
  ullage gpus 'H100 SXM'               one chip in full, with its source
  ullage gpus --precision nvfp4        the chips that have FP4, fastest last
  ullage gpus H200 -p fp8              one figure
  ullage gpus --json | jq -r '.gpus[].name'

\b
Environment:
  ULLAGE_PEAK_TFLOPS  a peak that goes before the tables: 989.4 or bf16=989.4,fp8=1978.9
  ULLAGE_GPU_ALIAS    what a relabelled board really is: 'L20X=H200 SXM'
  ULLAGE_CEILINGS     the folder where `ullage bench --save` keeps what a GPU was measured to do
"""


@click.command("gpus", epilog=_EPILOG)
@click.argument("name", required=False)
@click.option("--precision", "-p", help=f"Only this precision: {', '.join(PRECISIONS)}, or a name such as bfloat16, e4m3, nvfp4.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs, in SI units (Hz, FLOP/s, B/s, B, W).")
@out_option
def command(name: str | None, precision: str | None, as_json: bool, out: Path | None) -> None:
    """The GPUs and their dense peaks, or one of them in full.

    NAME is as drivers, exporters, Kubernetes or people write it: 'NVIDIA H100 80GB HBM3', 'H100 SXM', 'A100-SXM-80GB'.
    """
    from ullage.render import gpus

    check_out(out, FORMS)
    wanted = canonical(precision) if precision else None
    chips = [find(name)] if name else gpus.in_order(CHIPS.values())
    if wanted and not name:
        chips = sorted((c for c in chips if wanted in c.precisions), key=lambda c: c.peak(wanted))
    view = gpus.list_view(chips, wanted) if not name else gpus.peak_view(chips[0], wanted) if wanted else gpus.view(chips[0])
    give(view, lambda: gpus.record(chips), as_json=as_json, out=out)
