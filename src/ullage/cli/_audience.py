"""Who called a command, as the audience of an answer that goes on: what belongs to it goes to stdout, all else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import click

from ullage.cli._ending import ended_by
from ullage.cli._keyboard import TerminalKeyboard
from ullage.cli.options import painter

if TYPE_CHECKING:
    from ullage.asking.question import Describer

UNSEEN = 120  # columns where nobody looks: a pipe or a file


class TerminalAudience:
    """The caller of a command; nobody is `at_terminal` where the answer goes to a file or is to be a table alone."""

    def __init__(self, described: Describer, *, as_json: bool, elsewhere: bool) -> None:
        self.as_json = as_json
        self.at_terminal = sys.stdout is not None and sys.stdout.isatty() and not elsewhere
        self._described = described

    def line(self, words: str) -> None:
        """Print a line of the answer."""
        click.echo(words)

    def remark(self, words: str) -> None:
        """Say something beside the answer."""
        click.echo(words, err=True)

    def ended_by(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `stop` at the first Ctrl-C or SIGTERM."""
        return ended_by(stop)

    def keyboard(self) -> AbstractContextManager[TerminalKeyboard]:
        """Return what tells which keys are pressed at the terminal; none are where stdin is something else."""
        return TerminalKeyboard()

    @contextmanager
    def screens(self, first: str) -> Iterator[Callable[[Any], None]]:
        """Yield what shows a report in place of the one before; `first` stands there until the first one."""
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        from ullage.views.text import text

        console = Console()
        with Live(console=console, screen=True, auto_refresh=False) as screen:
            screen.update(first, refresh=True)

            def show(report: Any) -> None:
                fitted = self._described.fitted
                view = self._described.view(report) if fitted is None else fitted(report, console.width, console.height)
                words = text(view, width=console.width, fill=True, paint=painter())
                screen.update(Text.from_ansi(words, no_wrap=True, overflow="ellipsis"), refresh=True)

            yield show
