"""`ullage config`: the settings of `ullage serve` as they count, or what is wrong in them."""

from __future__ import annotations

import click

from ullage.cli._exit_status import ERROR


@click.command(
    "config",
    epilog="""\b
Examples:
  ullage config                          every setting, as it is where nobody says otherwise
  ullage config ullage.toml              what a file comes to; secrets are hidden
  ullage config --check ullage.toml      every mistake, with its line""",
)
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--check", is_flag=True, help="Say what is wrong, and print no settings.")
def command(file: str | None, check: bool) -> None:
    """Print the settings of `ullage serve` as they count, in TOML.

    Settings that FILE does not name are what they are without it. Where a token and HTTP headers come from is said, and not what they are.
    """
    from ullage.service.settings import ServiceSettings, settings_and_mistakes, settings_text

    if check and file is None:
        raise click.UsageError("--check needs a FILE")
    settings, mistakes = settings_and_mistakes(file) if file else (ServiceSettings(), [])
    if mistakes:
        for one in mistakes:
            click.echo(f"ullage: {one}", err=True)
        raise click.exceptions.Exit(ERROR)
    settings.token(), settings.roles(), settings.headers()  # a secret that can't be read is a mistake, too
    click.echo(f"{file}: nothing is wrong" if check else settings_text(settings).rstrip("\n"))
