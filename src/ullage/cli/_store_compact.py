"""`ullage store compact`: few large parts in place of many small ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ullage.cli.options import check_out, give, output_options
from ullage.views.files import FORMS

if TYPE_CHECKING:
    from ullage.store.store import Store


@click.command(
    "compact",
    epilog="""\b
Examples:
  ullage store compact store/
  0 * * * *  ullage store compact /var/lib/ullage     (hourly, where samples come in all day)""",
)
@click.argument("folder", type=click.Path())
@output_options
def command(folder: str, as_json: bool, out: Path | None) -> None:
    """Merge each day's small parts into few large ones, keep their sums beside them, and remove files that nobody needs."""
    from ullage.render.store import compacted_view, upkeep_record

    check_out(out, FORMS, [folder])
    store = opened(folder)
    kept = store.compact()
    added_up = store.roll_up()
    give(compacted_view(kept, added_up), lambda: upkeep_record(kept, added_up), as_json=as_json, out=out)


def opened(folder: str) -> Store:
    """Return a store; who waits for another process is told so on stderr."""
    from ullage.store.store import Store

    return Store.open(folder, say=lambda words: click.echo(words, err=True))
