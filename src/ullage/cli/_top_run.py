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
from ullage.errors import UllageError, harmless

if TYPE_CHECKING:
    from ullage.live.all_ranks import AllRanks
    from ullage.render.rank_trees import RankTreesView

UNSEEN = 120  # columns where nobody looks: a pipe or a file
BESIDE_RANKS = 22  # lines of a screen that trees and notes take


def show(folder: Path, every: float, *, once: bool, as_json: bool) -> None:
    """Show a run's ranks until it is over, or until Ctrl-C; once where no terminal is. Raises UllageError where nothing is recorded."""
    from ullage.live.all_ranks import AllRanks

    ranks, once = AllRanks(folder), once or as_json or not sys.stdout.isatty()
    ranks.look()
    view = looked(ranks) if once else _watched(ranks, every)
    if not view.whole.ranks:
        raise UllageError(f"{harmless(str(folder))}: {'; '.join(view.whole.tree.notes)}", "give the folder of a run: ullage run --keep DIR")
    _print(view, as_json)
    end(partial=once and not view.whole.complete)


def looked(ranks: AllRanks) -> RankTreesView:
    """Return what is known by the last look: of the whole, and of the last seconds."""
    from ullage.render.rank_trees import RankTreesView

    return RankTreesView(str(ranks.folder), ranks.together(), ranks.together(last=ranks.keep))


def _watched(ranks: AllRanks, every: float) -> RankTreesView:
    """Show every look in place of the one before, until the run is over or somebody ends it; return the last."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from ullage.render.rank_trees import text

    console, stop = Console(), threading.Event()
    view = looked(ranks)
    with ended_by(stop.set), Live(console=console, screen=True, auto_refresh=False) as shown:
        while True:
            most = max(console.height - BESIDE_RANKS, 1)
            shown.update(Text(text(view, console.width, most), no_wrap=True, overflow="ellipsis"), refresh=True)
            if view.whole.over or stop.wait(every):
                return view
            try:
                ranks.look()
            except UllageError:  # the run is over, and its folder was not to be kept
                return view
            view = looked(ranks)


def _print(view: RankTreesView, as_json: bool) -> None:
    from ullage.render.rank_trees import as_data, text
    from ullage.views.document import document_text

    if as_json:
        click.echo(document_text("top-run", as_data(view)))
    else:
        width = shutil.get_terminal_size((UNSEEN, 24)).columns if sys.stdout.isatty() else UNSEEN
        click.echo(text(view, width), nl=False)
