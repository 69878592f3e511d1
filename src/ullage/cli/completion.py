"""`ullage completion`: have a shell complete commands, options and their values."""

from __future__ import annotations

import click

from ullage.cli._suggested_values import complete_from
from ullage.errors import UllageError, did_you_mean, harmless

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog="""\b
Examples:
  eval "$(ullage completion bash)"                     in this shell; for every one, the same line in ~/.bashrc
  eval "$(ullage completion zsh)"                      the same in ~/.zshrc, after compinit
  ullage completion fish | source                      the same in ~/.config/fish/config.fish""",
)
@click.argument("shell", metavar="bash|zsh|fish", shell_complete=complete_from("ullage.cli.completion:SHELLS"))
def command(shell: str) -> None:
    """Print the script by which a shell completes commands, options and their values: GPUs, formats, metrics, files.

    A shell runs `ullage` for each word that you complete; no telemetry is read for it.
    """
    if shell not in SHELLS:
        raise UllageError(f"no words are completed in '{harmless(shell, 60)}'", did_you_mean(shell, SHELLS, "ullage completion --help"))
    from ullage.cli import cli
    from ullage.cli._completing import completion_script

    click.echo(completion_script(shell, cli), nl=False)
