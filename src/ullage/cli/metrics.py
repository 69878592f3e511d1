"""`ullage metrics`: what is computed, by which equation; and what is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ullage.cli.options import check_out, give, output_options
from ullage.errors import UllageError
from ullage.views.files import FORMS

if TYPE_CHECKING:
    from ullage.metrics.metric import Metric


@click.command(
    "metrics",
    epilog="""\b
Examples:
  ullage metrics                every metric with its equation and source
  ullage metrics sampled_ofu    one of them in full
  ullage metrics --fields       what is read from telemetry, in which unit""",
)
@click.argument("name", required=False)
@click.option("--fields", is_flag=True, help="List the fields of the samples table instead.")
@output_options
def command(name: str | None, fields: bool, as_json: bool, out: Path | None) -> None:
    """The equations, printed from the code that computes them."""
    check_out(out, FORMS)
    from ullage.render import metrics as render

    if fields:
        give(render.fields_view(), render.fields_record, as_json=as_json, out=out)
        return
    chosen = _chosen(name)
    view = render.view(chosen[0]) if [one.name for one in chosen] == [name] else render.list_view(chosen)
    give(view, lambda: render.record(chosen), as_json=as_json, out=out)


def _chosen(name: str | None) -> list[Metric]:
    """Return the metrics that are asked for: all, the one of that name, or those whose names hold it."""
    from ullage.metrics.metric import METRICS
    from ullage.tables import FIELDS

    if name is not None and name not in METRICS and name in FIELDS:
        raise UllageError(f"'{name}' is no metric but a field of the telemetry", "`ullage metrics --fields` lists all")
    alike = [m for m in METRICS.values() if name is None or name in m.name]
    return alike if name not in METRICS and alike else [METRICS[str(name)]]
