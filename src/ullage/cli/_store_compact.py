"""`ullage store compact`: few large parts in place of many small ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ullage.views.numbers import counted, size

if TYPE_CHECKING:
    from ullage.store.store import Store
    from ullage.store.upkeep import Kept


@click.command(
    "compact",
    epilog="""\b
Examples:
  ullage store compact store/
  0 * * * *  ullage store compact /var/lib/ullage     (hourly, where samples come in all day)""",
)
@click.argument("folder", type=click.Path())
def command(folder: str) -> None:
    """Merge each day's small parts into few large ones, keep their sums beside them, and remove files that nobody needs."""
    store = opened(folder)
    kept = store.compact()
    if kept.parts_after == kept.parts_before:
        click.echo(f"nothing to merge in {counted(kept.parts_before, 'part')}, {size(kept.bytes_before)}")
    else:
        click.echo(f"{kept.parts_before:,} parts became {kept.parts_after:,}; {size(kept.bytes_before)} became {size(kept.bytes_after)}")
    if added_up := store.roll_up():
        click.echo(f"{counted(added_up, 'part')} added up for reports")
    say_removed(kept)


def opened(folder: str) -> Store:
    """Return a store; who waits for another process is told so on stderr."""
    from ullage.store.store import Store

    return Store.open(folder, say=lambda words: click.echo(words, err=True))


def say_removed(kept: Kept) -> None:
    """Say how many files upkeep removed, if any."""
    if kept.files_removed:
        click.echo(f"{counted(kept.files_removed, 'file')} that nobody needs any more removed")
