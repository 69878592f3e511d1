"""A command whose first word names a part of it, or may: its parts are the questions in the folder of its name."""

from __future__ import annotations

from typing import Any

import click

from ullage.cli._names import answers_itself, is_group, question_names
from ullage.cli._question_command import group_help, question_command
from ullage.errors import did_you_mean, harmless


def parts(command: str | None) -> list[str]:
    """Return the names of a command's parts."""
    return question_names(command) if command is not None and is_group(command) else []


def part(command: str | None, name: str) -> click.Command:
    """Load a part."""
    return question_command(f"{command} {name}")


def question_or_group(name: str) -> click.Command:
    """Load a question's command, or a group of questions, which may have an answer of its own."""
    if not is_group(name):
        return question_command(name)
    return question_command(name, WithParts) if answers_itself(name) else Parts(name, **group_help(name))


class Parts(click.Group):
    """A command that is nothing but its parts."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the parts."""
        return parts(self.name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a part."""
        return part(self.name, cmd_name) if cmd_name in self.list_commands(ctx) else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the part, or say which one was meant."""
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            hint = did_you_mean(args[0], known, f"ullage {self.name} --help")
            raise click.UsageError(f"there is no `ullage {self.name} {harmless(args[0], 60)}`; {hint}")
        return super().resolve_command(ctx, args)


class WithParts(click.Command):
    """A command that takes arguments itself, beside the parts that it has."""

    def list_commands(self, ctx: click.Context | None) -> list[str]:  # noqa: ARG002 - as a click.Group has it
        """Return the names of the parts."""
        return parts(self.name)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command:  # noqa: ARG002 - as a click.Group has it
        """Load a part."""
        return part(self.name, cmd_name)

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any) -> click.Context:
        """Read the command line as that of the part that its first word names, or of the command itself."""
        if args and args[0] in self.list_commands(None):
            return self.get_command(None, args[0]).make_context(f"{info_name} {args[0]}", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)
