"""`ullage top --run`: the trees of a run's ranks while it goes on, read from the folder that it records into."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ullage.cli._ending import ended_by
from ullage.cli._exit_status import end
from ullage.cli.options import painter
from ullage.errors import UllageError, harmless
from ullage.views.table import Paint, plain

if TYPE_CHECKING:
    from ullage.live.all_ranks import AllRanks
    from ullage.render.rank_trees import WatchedRun

UNSEEN = 120  # columns where nobody looks: a pipe or a file
BESIDE_RANKS = 22  # lines of a screen that trees and notes take


def show(folder: Path, every: float, *, once: bool, as_json: bool) -> None:
    """Show a run's ranks until it is over, or until Ctrl-C; once where no terminal is. Raises UllageError where nothing is recorded."""
    from ullage.live.all_ranks import AllRanks

    ranks, once = AllRanks(folder), once or as_json or not sys.stdout.isatty()
    ranks.look()
    run = looked(ranks) if once else _watched(ranks, every)
    if not run.whole.ranks:
        raise UllageError(f"{harmless(str(folder))}: {'; '.join(run.whole.tree.notes)}", "give the folder of a run: ullage run --keep DIR")
    _print(run, as_json)
    end(partial=once and not run.whole.complete)


def looked(ranks: AllRanks) -> WatchedRun:
    """Return what is known by the last look: of the whole, and of the last seconds."""
    from ullage.render.rank_trees import WatchedRun

    return WatchedRun(str(ranks.folder), ranks.together(), ranks.together(last=ranks.keep))


def _watched(ranks: AllRanks, every: float) -> WatchedRun:
    """Show every look in place of the one before, until the run is over or somebody ends it; return the last."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console, stop = Console(), threading.Event()
    run = looked(ranks)
    with ended_by(stop.set), Live(console=console, screen=True, auto_refresh=False) as shown:
        while True:
            most = max(console.height - BESIDE_RANKS, 1)
            words = screen(run, console.width, most, painter())
            shown.update(Text.from_ansi(words, no_wrap=True, overflow="ellipsis"), refresh=True)
            if run.whole.over or stop.wait(every):
                return run
            try:
                ranks.look()
            except UllageError:  # the run is over, and its folder was not to be kept
                return run
            run = looked(ranks)


def screen(run: WatchedRun, width: int, most: int | None = None, paint: Paint = plain) -> str:
    """Return the ranks as a terminal of this width shows them, of more than `most` the latest; in colour by a painter."""
    from ullage.render.rank_trees import view
    from ullage.views.text import text

    return text(view(run, most), width=width, fill=True, paint=paint)


def _print(run: WatchedRun, as_json: bool) -> None:
    from ullage.render.rank_trees import record
    from ullage.views.document import document_text

    if as_json:
        click.echo(document_text("top-run", record(run)))
    else:
        width = shutil.get_terminal_size((UNSEEN, 24)).columns if sys.stdout.isatty() else UNSEEN
        click.echo(screen(run, width), nl=False)
