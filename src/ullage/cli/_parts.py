"""A command whose first word may name a part of it: the modules `_<command>_<part>` of this package, each with its `command`.

In the part's name "_" is written "-".
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import click


class WithParts(click.Command):
    """A command that takes arguments itself, beside the parts that it has."""

    def list_commands(self, ctx: click.Context | None) -> list[str]:  # noqa: ARG002 - as a click.Group has it
        """Return the names of the parts."""
        import ullage.cli

        prefix = f"_{self.name}_"
        return sorted(
            m.name.removeprefix(prefix).replace("_", "-") for m in pkgutil.iter_modules(ullage.cli.__path__) if m.name.startswith(prefix)
        )

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command:  # noqa: ARG002 - as a click.Group has it
        """Load a part."""
        found: click.Command = importlib.import_module(f"ullage.cli._{self.name}_{cmd_name.replace('-', '_')}").command
        return found

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any) -> click.Context:
        """Read the command line as that of the part that its first word names, or of the command itself."""
        if args and args[0] in self.list_commands(None):
            return self.get_command(None, args[0]).make_context(f"{info_name} {args[0]}", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)
