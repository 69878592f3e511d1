"""What the exit status of a command says: one table for all commands, shown in each command's help and in docs/commands.md."""

from __future__ import annotations

import importlib

import click

ANSWERED, ERROR, USAGE, PARTIAL, UNDER_LIMIT, INTERRUPTED = 0, 1, 2, 3, 4, 130
GATE = PARTIAL  # where no limit was named: a script asks "may I use this answer as it is?", and both mean no

MEANINGS = {
    ANSWERED: "answered. What an ordinary report finds, however bad, is an answer",
    ERROR: "error: there is no answer, and stderr says why and what to do",
    USAGE: "usage: the command line can't be read",
    PARTIAL: "answered, but from only a part of what was asked for; or a gate tripped",
    UNDER_LIMIT: "answered, and something falls under a limit that was named (`--fail-under`): a gate for pull requests",
    INTERRUPTED: "interrupted by Ctrl-C; what runs until Ctrl-C ends with 0",
}
# The one command whose status is another program's.
PASSED_ON = {"run": "that of the program; 126 or 127 when it can't be run, as a shell has it"}


def end(*, partial: bool = False, gate: bool = False, under_limit: bool = False, interrupted: bool = False) -> None:
    """End the command with the status of an answer that is partial, or whose gate tripped, or that Ctrl-C cut short; else do nothing.

    Of an answer that is partial and falls `under_limit` it is that of the limit: what is missing does not make it pass.
    """
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)
    if under_limit:
        raise click.exceptions.Exit(UNDER_LIMIT)
    if partial or gate:
        raise click.exceptions.Exit(PARTIAL)


def in_words(name: str, status_3: str = "", status_4: str = "") -> str:
    """Return one line on the exit statuses of a command, as its help shows it; `status_3` and `status_4` are what 3 and 4 say of it.

    >>> in_words("audit peaks", "a row is wrong")
    'Exit status: 0 answered, 1 error, 2 usage, 3 when a row is wrong.'
    """
    if name in PASSED_ON:
        return f"Exit status: {PASSED_ON[name]}; 1 error, 2 usage, where it is not started."
    whens = "".join(f", {status} when {why}" for status, why in ((PARTIAL, status_3), (UNDER_LIMIT, status_4)) if why)
    return f"Exit status: 0 answered, 1 error, 2 usage{whens}."


def described(command: click.Command, name: str, status_3: str = "") -> click.Command:
    """Return a command whose help ends with its exit statuses; that of a question's command, and of a group's parts, does already."""
    if not isinstance(command, click.Group) and "Exit status: " not in (command.epilog or ""):
        command.epilog = f"{(command.epilog or '').rstrip()}\n\n{in_words(name, status_3)}"
    return command


def status_3_of(name: str) -> str:
    """Return what 3 says of a command that is a module of this folder: its STATUS_3, as a question has its `status_3`."""
    return str(getattr(importlib.import_module(f"ullage.cli.{name}"), "STATUS_3", ""))


def whys_of_3() -> dict[str, str]:
    """Return what 3 says of each command that can end with it; every command is loaded."""
    from ullage.asking.question import QUESTIONS
    from ullage.cli._names import command_names

    questions = {name: question.status_3 for name, question in QUESTIONS.items()}
    reasons = questions | {name: status_3_of(name) for name in command_names()}
    return {name: reason for name, reason in reasons.items() if reason}


def whys_of_4() -> dict[str, str]:
    """Return what 4 says of each command that can end with it; every question is loaded."""
    from ullage.asking.question import QUESTIONS

    return {name: question.status_4 for name, question in QUESTIONS.items() if question.status_4}


def table() -> str:
    """Return the table of exit statuses in Markdown, and what 3 says of each command."""
    rows = [f"| {status} | {meaning} |" for status, meaning in MEANINGS.items()]
    fours = [f"| `ullage {name}` | {why} |" for name, why in sorted(whys_of_4().items())]
    threes = [f"| `ullage {name}` | {why} |" for name, why in sorted(whys_of_3().items())]
    return "\n".join(
        [
            "| status | means |",
            "|---|---|",
            *rows,
            "",
            *(f"The status of `ullage {name}` is {status}." for name, status in PASSED_ON.items()),
            "",
            "| command | status 3 when |",
            "|---|---|",
            *threes,
            "",
            "| command | status 4 when |",
            "|---|---|",
            *fours,
        ]
    )
