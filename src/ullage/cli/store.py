"""`ullage store`: what a store holds, and its upkeep."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ullage.cli.options import check_out, give, out_option
from ullage.views.files import FORMS
from ullage.views.numbers import counted, size
from ullage.written_values import seconds

if TYPE_CHECKING:
    from ullage.store.store import Store
    from ullage.store.upkeep import Kept


@click.group("store")
def command() -> None:
    """Show a store of samples, or keep it small. `ullage fleet SOURCE --store FOLDER` fills one."""


@command.command(
    "info",
    epilog="""\b
Examples:
  ullage store info store/
  ullage store info store/ --check
  ullage store info store/ --json | jq .bytes""",
)
@click.argument("folder", type=click.Path())
@click.option("--check", is_flag=True, help="Read every file and compare it with what was written.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs; times in ms since 1970, UTC.")
@out_option
def info(folder: str, check: bool, as_json: bool, out: Path | None) -> None:
    """Say how much a store holds, of how many devices, from when to when."""
    from ullage.render.store import view

    check_out(out, FORMS)
    store = _opened(folder)
    if check:
        store.verify()
    found = store.info()
    give(view(found, checked=check), lambda: asdict(found), as_json=as_json, out=out)


@command.command(
    "compact",
    epilog="""\b
Examples:
  ullage store compact store/
  0 * * * *  ullage store compact /var/lib/ullage     (hourly, where samples come in all day)""",
)
@click.argument("folder", type=click.Path())
def compact(folder: str) -> None:
    """Merge each day's small parts into few large ones, and remove files that nobody needs."""
    kept = _opened(folder).compact()
    if kept.parts_after == kept.parts_before:
        click.echo(f"nothing to merge in {counted(kept.parts_before, 'part')}, {size(kept.bytes_before)}")
    else:
        click.echo(f"{kept.parts_before:,} parts became {kept.parts_after:,}; {size(kept.bytes_before)} became {size(kept.bytes_after)}")
    _left_over(kept)


@command.command(
    "retain",
    epilog="""\b
Examples:
  ullage store retain store/ --keep 90d""",
)
@click.argument("folder", type=click.Path())
@click.option(
    "--keep", required=True, metavar="SPAN", help="How much to keep before the newest sample, in whole days (rounded up): 90d, 12w."
)
def retain(folder: str, keep: str) -> None:
    """Drop samples and job records older than SPAN before the newest sample. Days are dropped whole."""
    days = math.ceil(seconds(keep) / 86_400)
    kept = _opened(folder).retain(days)
    dropped = kept.parts_before - kept.parts_after
    click.echo(f"{counted(kept.rows_dropped, 'sample')} dropped with {dropped:,} of {counted(kept.parts_before, 'part')}")
    _left_over(kept)


def _opened(folder: str) -> Store:
    from ullage.store.store import Store

    return Store.open(folder, say=lambda words: click.echo(words, err=True))


def _left_over(kept: Kept) -> None:
    if kept.files_removed:
        click.echo(f"{counted(kept.files_removed, 'file')} that nobody needs any more removed")
