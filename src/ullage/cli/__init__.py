"""The command line: the questions, and a file for each other command, loaded when it is called."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ullage.cli._exit_status import ANSWERED, ERROR, INTERRUPTED, described, status_3_of
from ullage.cli._names import command_names, one_line_help, question_names
from ullage.errors import UllageError, harmless

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Commands(click.Group):
    """The commands are the questions, and the modules of this folder, each with one `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands, in the order in which a newcomer needs them."""
        first = ["demo", "open", "fleet", "job", "trace", "flops", "waterfall", "bench"]
        found = command_names() | set(question_names())
        return [name for name in first if name in found] + sorted(found - set(first))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command's module, and return its command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        if cmd_name not in command_names():
            from ullage.cli._parts import question_or_group

            return described(question_or_group(cmd_name), cmd_name)
        command: click.Command = importlib.import_module(f"ullage.cli.{cmd_name}").command
        return described(command, cmd_name, status_3_of(cmd_name))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command, which loads none of them, or an option."""
        from click.shell_completion import CompletionItem

        found = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=one_line_help(name)) for name in found]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each command is in a line, which needs none of them."""
        names = self.list_commands(ctx)
        limit = formatter.width - 6 - max(map(len, names))
        with formatter.section("Commands"):
            formatter.write_dl([(name, textwrap.shorten(one_line_help(name), limit, placeholder="…")) for name in names])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was meant."""
        from ullage.errors import did_you_mean

        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx) and not ctx.resilient_parsing:
            raise click.UsageError(f"there is no command '{args[0]}'; " + did_you_mean(args[0], self.list_commands(ctx), "ullage --help"))
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the command line, or show the help."""
        with _while_somebody_reads():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _while_somebody_reads():
            return super().invoke(ctx)


@contextmanager
def _while_somebody_reads() -> Iterator[None]:
    """When the reader has left (`ullage fleet … | head`), end without a word."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(ANSWERED) from None


_SHELL_ASKS = "_ULLAGE_COMPLETE"  # the variable by which a shell asks what completes a word


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ullage", message="ullage %(version)s")
def cli() -> None:
    """How far every GPU falls short of full, and where the shortfall goes.

    \b
    Begin with:
      ullage demo                          a simulated fleet: stored, reported, drawn
      ullage fleet scrapes/                a folder of dcgm-exporter scrapes
      ullage fleet http://prometheus:9090  the last day of a Prometheus
    """


def main() -> None:
    """Run the command line, and exit with the status that `ullage.cli._exit_status` has for what came of it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without "█" gets "?", not a traceback
    if _SHELL_ASKS in os.environ:
        from ullage.cli._completing import register_shells

        register_shells()
    try:
        sys.exit(cli.main(standalone_mode=False))
    except (click.exceptions.Abort, KeyboardInterrupt):
        _clear()
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        (_with_what_begins_so(error) if isinstance(error, click.NoSuchOption) else error).show()
        sys.exit(error.exit_code)
    except UllageError as error:
        _tell(str(error))
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        _tell(f"{error.filename or 'the answer'} can't be read or written: {error.strerror}")


# What the machine refuses and its owner can repair; any other error of the operating system is a bug of ours.
_REFUSALS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    *(errno.EMFILE, errno.ENFILE, errno.ENAMETOOLONG),
}


def _with_what_begins_so(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with the options that begin as the unknown one does; where none does, with those that look like it."""
    options = [] if error.ctx is None else error.ctx.command.get_params(error.ctx)
    begun = sorted(name for one in options for name in (*one.opts, *one.secondary_opts) if name.startswith(error.option_name))
    return click.NoSuchOption(error.option_name, possibilities=begun, ctx=error.ctx) if begun else error


def _tell(words: str) -> None:
    _clear()
    click.echo("\n".join(harmless(line, 4000) for line in f"ullage: {words}".split("\n")), err=True)
    sys.exit(ERROR)


def _clear() -> None:
    """Remove the line that says how far the work is."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[2K", nl=False, err=True)
