"""`ullage metrics`: what is computed, by which equation; and what is read."""

from __future__ import annotations

from typing import Any

import click

from ullage.cli.options import dump
from ullage.errors import UllageError


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
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def command(name: str | None, fields: bool, as_json: bool) -> None:
    """The equations, printed from the code that computes them."""
    rows = _fields() if fields else _metrics(name)
    if as_json:
        click.echo(dump(rows))
    elif len(rows) == 1 and rows[0]["name"] == name and not fields:
        click.echo(_whole(rows[0]))
    else:
        click.echo("\n".join(_line(row) for row in rows))


def _metrics(name: str | None) -> list[dict[str, Any]]:
    from ullage.metrics.metric import METRICS

    if name is not None and name not in METRICS and name in {row["name"] for row in _fields()}:
        raise UllageError(f"'{name}' is no metric but a field of the telemetry", "`ullage metrics --fields` lists all")
    alike = [m for m in METRICS.values() if name is None or name in m.name]
    chosen = alike if name not in METRICS and alike else [METRICS[str(name)]]
    return [
        {
            "name": m.name,
            "unit": m.unit,
            "equation": m.equation,
            "needs": list(m.parameters),
            "source": m.source,
            "summary": m.summary,
            "page": m.page,
        }
        for m in chosen
    ]


def _fields() -> list[dict[str, Any]]:
    from ullage.tables import FIELDS

    return [{"name": f.name, "unit": f.unit, "kind": f.kind, "summary": f.meaning} for f in FIELDS.values()]


def _line(row: dict[str, Any]) -> str:
    if "equation" in row:
        return f"{row['name']}: {row['summary']}\n    = {row['equation']}    [{row['unit']}]  {row['source']}"
    return f"{row['name']:18} {row['unit']:7} {row['kind']:8} {row['summary']}"


def _whole(row: dict[str, Any]) -> str:
    return f"{row['name']} = {row['equation']}    [{row['unit']}]\n{row['source']}\n\n{row['page']}"
