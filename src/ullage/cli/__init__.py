"""The command line: a file a command, loaded when it is called."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys

import click

from ullage.errors import UllageError


class Commands(click.Group):
    """The commands are the modules of this folder; each has one `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands, in the order in which a newcomer needs them."""
        first = ["demo", "fleet", "gpus", "metrics", "simulate", "store"]
        found = {m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")} - {"options"}
        return [name for name in first if name in found] + sorted(found - set(first))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command's module, and return its command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"ullage.cli.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was meant."""
        from ullage.errors import did_you_mean

        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            raise click.UsageError(f"there is no command '{args[0]}'; " + did_you_mean(args[0], self.list_commands(ctx), "ullage --help"))
        return super().resolve_command(ctx, args)


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
    """Run the command line; exit 1 with one sentence for what the user can mend, 2 for usage."""
    try:
        cli(standalone_mode=True)
    except UllageError as error:
        click.echo(f"ullage: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:  # `ullage fleet … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
