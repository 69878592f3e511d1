"""`ullage schema`: the JSON Schema of what Ullage prints as JSON."""

from __future__ import annotations

import click

from ullage.cli._suggested_values import complete_from


@click.command(
    epilog="""\b
Examples:
  ullage schema                     the kinds of documents, and what prints each
  ullage schema fleet               the JSON Schema of `ullage fleet --json`
  ullage schema trace | jq .required   the keys that every trace has""",
)
@click.argument("kind", required=False, shell_complete=complete_from("ullage.render.documents:KINDS"))
def command(kind: str | None) -> None:
    """The JSON Schema of a kind of document, or the list of all kinds.

    Every JSON answer names its kind in its first key: "ullage.fleet/1" is of the kind fleet.
    """
    from ullage.render.documents import KINDS, schema
    from ullage.views.json_text import json_text

    if kind is not None:
        click.echo(json_text(schema(kind)))
        return
    from ullage.views.table import table

    found = [schema(name) for name in sorted(KINDS)]
    click.echo(table(["schema", "what"], [[one["title"], one["description"].split("\n")[0]] for one in found], left=2))
