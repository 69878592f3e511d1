"""`ullage audit`: why a reported MFU and the counters disagree, and whether peaks and FLOP counters can be believed."""

from __future__ import annotations

import importlib
import pkgutil

import click

from ullage.errors import did_you_mean


class Audits(click.Group):
    """The audits: each module `_audit_…` of this package is one, with its `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the audits."""
        import ullage.cli

        return sorted(m.name.removeprefix("_audit_") for m in pkgutil.iter_modules(ullage.cli.__path__) if m.name.startswith("_audit_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load an audit's module, and return its command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        found: click.Command = importlib.import_module(f"ullage.cli._audit_{cmd_name}").command
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the audit, or say which one was meant."""
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            known = self.list_commands(ctx)
            raise click.UsageError(f"there is no audit '{args[0]}'; " + did_you_mean(args[0], known, "ullage audit --help"))
        return super().resolve_command(ctx, args)


@click.group(
    "audit",
    cls=Audits,
    epilog="""\b
Examples:
  ullage audit mfu --config config.json --reported 54.27 --ofu 25.58 --seq 4096
  ullage audit peaks peaks.py                a framework's table of peaks
  ullage audit counter mytrainer:flops       somebody's FLOPs function over cases with known answers""",
)
def command() -> None:
    """Why a reported MFU and the counters disagree, and whether peaks and FLOP counters can be believed."""
