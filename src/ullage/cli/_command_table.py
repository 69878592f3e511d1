"""One table of all commands: what each reads, which window it takes, where its answer goes, how it may end. The rules are under test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click

from ullage.cli._exit_status import PASSED_ON, whys_of_3, whys_of_4

# One meaning a word: of what time a command speaks, and how long something goes on.
WINDOWS = {
    ("--since", "--until"): "telemetry: a time, or a span before now",
    ("--window",): "a trace: steps, first-last, or A:B seconds",
}


@dataclass(frozen=True)
class CommandRow:
    """A command: its name, with its group's before it, what it reads, its window, whether it prints JSON, what `--out` takes.

    `statuses` are those beside 0 to 2.
    """

    words: str
    reads: tuple[str, ...]
    windows: tuple[tuple[str, ...], ...]
    json: str
    out: str
    statuses: tuple[int, ...]

    @property
    def first(self) -> str:
        """Its group, or its name where it is in none."""
        return self.words.partition(" ")[0]

    @property
    def subcommand(self) -> str:
        """Its name in its group; "" where it is in none."""
        return self.words.partition(" ")[2]


def all_commands(group: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield each command that answers, and its words."""
    context = click.Context(group)
    for one in group.list_commands(context) if hasattr(group, "list_commands") else []:
        command = group.get_command(context, one)  # type: ignore[attr-defined]
        if command is not None:
            full = f"{name} {one}".strip()
            if not isinstance(command, click.Group):
                yield full, command
            yield from all_commands(command, full)


def command_rows() -> list[CommandRow]:
    """Return a row a command, in the order of the help."""
    from ullage.cli import cli

    threes, fours = whys_of_3(), whys_of_4()
    return [_row(words, command, words in threes, words in fours) for words, command in all_commands(cli)]


def _row(words: str, command: click.Command, three: bool, four: bool) -> CommandRow:
    options = {flag: param for param in command.params if isinstance(param, click.Option) for flag in param.opts}
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    json, out = options.get("--json"), options.get("--out")
    return CommandRow(
        words=words,
        reads=tuple(param.metavar or param.human_readable_name.upper() for param in arguments),
        windows=tuple(flags for flags in WINDOWS if options.keys() & {*flags}),
        json="" if json is None else "switch" if json.is_flag else str(json.metavar),
        out="" if out is None else out.metavar or "FOLDER",
        statuses=(*([3] if three else []), *([4] if four else [])),
    )


def command_table() -> str:
    """Return the table in Markdown."""
    lines = ["| command | subcommand | reads | window | `--json` | `--out` | more statuses |", "|---|---|---|---|---|---|---|"]
    for row in command_rows():
        windows = ", ".join("/".join(f"`{flag}`" for flag in flags) for flags in row.windows)
        reads = " ".join(f"`{one}`" for one in row.reads).replace("|", "\\|")
        out = f"`{row.out}`".replace("|", "\\|") if row.out else ""
        statuses = ", ".join(map(str, row.statuses)) + (" the program's" if row.words in PASSED_ON else "")
        json = "yes" if row.json == "switch" else f"`{row.json}`" if row.json else ""
        lines.append(f"| {row.first} | {row.subcommand} | {reads} | {windows} | {json} | {out} | {statuses.strip()} |")
    return "\n".join(lines)
