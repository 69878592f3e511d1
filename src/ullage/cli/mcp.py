"""`ullage mcp`: the questions as tools for an assistant."""

from __future__ import annotations

import click

from ullage.askable import read_headers
from ullage.errors import missing_extra


@click.command(
    epilog="""\b
Examples:
  pip install 'ullage[mcp]'
  claude mcp add ullage -- ullage mcp                   an assistant of the command line
  ullage mcp --header 'Authorization: Bearer …'         for a Prometheus that wants a token
\b
For an assistant that is set up by a file:
  {"mcpServers": {"ullage": {"command": "ullage", "args": ["mcp"]}}}""",
)
@click.option(
    "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="HTTP header for telemetry; no tool shows it. Repeatable."
)
def command(headers: tuple[str, ...]) -> None:
    """Serve the questions as tools of the Model Context Protocol, on stdin and stdout.

    An assistant that starts this command can ask what `ullage fleet`, `job`, `trace`, `flops` and the others answer, in the same words.
    Tools only read: none keeps a store, writes a file or measures a GPU. They read what you can read.
    """
    given = read_headers(headers, "--header", 0.0)
    try:
        import anyio

        from ullage.cli._mcp_server import serve
    except ImportError as error:
        raise missing_extra("mcp", "mcp", "serving the Model Context Protocol") from error
    anyio.run(serve, {"headers": given})
