"""`ullage audit counter`: somebody's FLOPs function over cases with known answers."""

from __future__ import annotations

from pathlib import Path

import click

from ullage.cli._exit_status import end
from ullage.cli.options import check_out, give, output_options
from ullage.views.files import FORMS


@click.command(
    "counter",
    epilog="""\b
Examples:
  ullage audit counter mytrainer.flops:step_flops    function(config, seqlens) -> training FLOPs of the step
  ullage audit counter verl                          verl's FlopsCounter, as it is installed
  ullage audit counter hf                            the Transformers trainer's floating_point_ops
  ullage audit counter verl --json""",
)
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option("--timeout", type=float, default=20.0, show_default=True, help="Seconds a call may take.")
@output_options
def command(function: str, timeout: float, as_json: bool, out: Path | None) -> None:
    """What a FLOPs function counts wrongly, feature by feature.

    FUNCTION is called with a configuration (a mapping that also has attributes) and the lengths of a step's sequences, in
    another process, and returns the training FLOPs of the step. It runs: name only code that you trust.
    """
    from ullage.render import counter as render
    from ullage.reports.audit.counter import audit_counter

    check_out(out, FORMS)
    report = audit_counter(function, timeout=timeout)
    give(render.view(report), lambda: render.record(report), as_json=as_json, out=out)
    end(gate=report.right < len(report.rows))
