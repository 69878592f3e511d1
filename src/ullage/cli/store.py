"""`ullage store`: what a store holds, and its upkeep."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from ullage.cli.options import dump
from ullage.written_values import seconds

if TYPE_CHECKING:
    from ullage.store.store import Info, Store
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
def info(folder: str, check: bool, as_json: bool) -> None:
    """Say how much a store holds, of how many devices, from when to when."""
    store = _opened(folder)
    if check:
        store.verify()
    found = store.info()
    click.echo(dump(asdict(found)) if as_json else _described(found))
    if check and not as_json:
        click.echo("every part is as it was written")


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
        click.echo(f"nothing to merge in {_counted(kept.parts_before, 'part')}, {_size(kept.bytes_before)}")
    else:
        click.echo(f"{kept.parts_before:,} parts became {kept.parts_after:,}; {_size(kept.bytes_before)} became {_size(kept.bytes_after)}")
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
    click.echo(f"{_counted(kept.rows_dropped, 'sample')} dropped with {dropped:,} of {_counted(kept.parts_before, 'part')}")
    _left_over(kept)


def _opened(folder: str) -> Store:
    from ullage.store.store import Store

    return Store.open(folder, say=lambda words: click.echo(words, err=True))


def _left_over(kept: Kept) -> None:
    if kept.files_removed:
        click.echo(f"{_counted(kept.files_removed, 'file')} that nobody needs any more removed")


def _described(found: Info) -> str:
    if found.first is None or found.last is None:
        return f"no samples in {found.folder}"
    lines = [
        f"{_counted(found.rows, 'sample')} of {_counted(found.devices, 'device')}          {_when(found.first)} to {_when(found.last)} UTC",
        "",
        f"{_size(found.bytes)} in {_counted(found.parts, 'part')}, {found.bytes / found.rows:.1f} bytes a sample; "
        f"{_counted(found.jobs, 'job record')}",
        "",
        f"{'day':<10}  {'samples':>13}",
        *(f"{day:<10}  {rows:>13,}" for day, rows in sorted(found.days.items())),
    ]
    if found.parts > 8 * len(found.days) and found.rows < 1_000_000 * found.parts:
        lines += ["", "note: many small parts; `ullage store compact` merges them"]
    return "\n".join(lines)


def _when(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def _counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> _counted(1, "part"), _counted(1200, "part")
    ('1 part', '1,200 parts')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _size(count: float) -> str:
    """Bytes for people.

    >>> _size(999), _size(1_234_567)
    ('999 B', '1.2 MB')
    """
    if count < 1000:
        return f"{count:.0f} B"
    power = 3 if count >= 1e9 else 2 if count >= 1e6 else 1
    return f"{count / 1000**power:,.1f} {('kB', 'MB', 'GB')[power - 1]}"
