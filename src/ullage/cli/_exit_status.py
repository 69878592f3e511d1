"""What the exit status of a command says: one table for all commands, shown in each command's help and in docs/commands.md."""

from __future__ import annotations

import click

ANSWERED, ERROR, USAGE, PARTIAL, INTERRUPTED = 0, 1, 2, 3, 130
GATE = PARTIAL  # a script asks "may I use this answer as it is?", and both mean no

MEANINGS = {
    ANSWERED: "answered. What an ordinary report finds, however bad, is an answer",
    ERROR: "error: there is no answer, and stderr says why and what to do",
    USAGE: "usage: the command line can't be read",
    PARTIAL: "answered, but from only a part of what was asked for; or a gate tripped",
    INTERRUPTED: "interrupted by Ctrl-C; what runs until Ctrl-C ends with 0",
}
# What 3 says of a command that is no question and can end with it (a question says it itself: `status_3`), and the one command whose
# status is another program's.
THREE = {
    "open": "the command that answers ends with 3",
    "top": "with --once or --json, only a part of the place could be read, or not all ranks of the run were seen",
}
PASSED_ON = {"run": "that of the program; 126 or 127 when it can't be run, as a shell has it"}


def end(*, partial: bool = False, gate: bool = False, interrupted: bool = False) -> None:
    """End the command with the status of an answer that is partial, or whose gate tripped, or that Ctrl-C cut short; else do nothing."""
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)
    if partial or gate:
        raise click.exceptions.Exit(PARTIAL)


def in_words(name: str, three: str = "") -> str:
    """Return one line on the exit statuses of a command, as its help shows it; `three` is what 3 says, where a question says it.

    >>> in_words("audit peaks", "a row is wrong")
    'Exit status: 0 answered, 1 error, 2 usage, 3 when a row is wrong.'
    """
    if name in PASSED_ON:
        return f"Exit status: {PASSED_ON[name]}; 1 error, 2 usage, where it is not started."
    three = three or THREE.get(name, "")
    return f"Exit status: 0 answered, 1 error, 2 usage{f', 3 when {three}' if three else ''}."


def described(command: click.Command, name: str) -> click.Command:
    """Return a command, or a group with its parts, whose help ends with its exit statuses; that of a question's command does already."""
    if isinstance(command, click.Group):
        for part, one in command.commands.items():
            described(one, f"{name} {part}")
    elif "Exit status: " not in (command.epilog or ""):
        command.epilog = f"{(command.epilog or '').rstrip()}\n\n{in_words(name)}"
    return command


def whys_of_3() -> dict[str, str]:
    """Return what 3 says of each command that can end with it; every question is loaded."""
    from ullage.asking.question import QUESTIONS

    return THREE | {name: question.status_3 for name, question in QUESTIONS.items() if question.status_3}


def table() -> str:
    """Return the table of exit statuses in Markdown, and what 3 says of each command."""
    rows = [f"| {status} | {meaning} |" for status, meaning in MEANINGS.items()]
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
        ]
    )
