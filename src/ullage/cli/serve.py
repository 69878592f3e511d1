"""`ullage serve`: the fleet's pages, kept up to date, with a JSON API."""

from __future__ import annotations

import atexit
import os
from typing import Any

import click

from ullage.cli._exit_status import ANSWERED
from ullage.cli._suggested_values import complete_files
from ullage.errors import missing_extra


@click.command(
    "serve",
    epilog="""\b
Examples:
  pip install 'ullage[serve]'
  ullage serve                                      this machine's GPUs, or a simulated fleet: http://127.0.0.1:9748
  ullage serve store/                               a store that others fill
  ullage serve http://prometheus:9090 --jobs sacct.txt    a Prometheus, followed every minute into a store
  ullage serve scrapes/ --store store/              a folder in which files appear
  ullage serve --config ullage.toml --check         whether the settings can be read

\b
Environment:
  ULLAGE_SERVE_TOKEN   who may ask: without a token nobody but this machine reaches the service
  ULLAGE_SERVE_HEADER  an HTTP header for the source, such as 'Authorization: Bearer …'""",
)
@click.argument("source", nargs=-1, metavar="[SOURCE…]", shell_complete=complete_files)
@click.option("--port", type=click.IntRange(0, 65_535), help="Where to listen; 0: any port that is free.  [default: 9748]")
@click.option("--host", help="Address to listen at; any but this machine's own needs a token.  [default: 127.0.0.1]")
@click.option(
    "--store",
    metavar="FOLDER",
    shell_complete=complete_files,
    help="Where to keep what is read.  [default: a folder in the user's data home]",
)
@click.option(
    "--jobs",
    multiple=True,
    metavar="FILE",
    shell_complete=complete_files,
    help="Job records, read again each time; sacct: asked of Slurm. Repeatable.",
)
@click.option(
    "--prices",
    "prices_file",
    metavar="FILE",
    shell_complete=complete_files,
    help="Prices of GPU-hours, and teams.",
)
@click.option("--every", metavar="SPAN", help="Time between two readings of the source.  [default: 60s]")
@click.option("--config", metavar="FILE", shell_complete=complete_files, help="Settings, in TOML; options go before them.")
@click.option("--check", is_flag=True, help="Say whether the settings can be read, and end.")
@click.option("--log", type=click.Choice(["text", "json"]), help="Form of the lines on stderr.  [default: text]")
def command(source: tuple[str, ...], config: str | None, check: bool, **given: Any) -> None:
    """Serve the fleet's pages and their numbers as JSON, and keep them up to date.

    SOURCE is what `ullage fleet` reads. A store is read as it grows; a Prometheus is read in time, what is new each minute; files and
    folders are read again when they change. Without SOURCE it is this machine's GPUs, or where there is none a simulated fleet.
    """
    needs_web_server("`ullage serve`")
    import msgspec

    from ullage.service.settings import ServiceSettings, checked, read_settings

    settings = read_settings(config) if config else ServiceSettings()
    said = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value not in (None, ())}
    settings = checked(msgspec.structs.replace(settings, **said, **({"source": list(source)} if source else {})))
    if check:
        click.echo(f"{config or 'the settings'}: nothing is wrong")
        return
    serve(settings)


def needs_web_server(what: str) -> None:
    """Raise UllageError with the packages to install where what serves pages is not there."""
    try:
        import uvicorn  # noqa: F401 - whether it is there
        from starlette.applications import Starlette  # noqa: F401 - as above
    except ImportError as error:
        raise missing_extra(error.name or "starlette", "serve", what) from error


def serve_demonstration(gpus: int, hours: float, seed: int, port: int, speed: float) -> None:
    """Serve the pages of a running simulated fleet, with alerts, until the process is told to end."""
    needs_web_server("`ullage demo --serve`")
    from ullage.service.demonstration import MovingPlan
    from ullage.service.settings import ServiceSettings

    serve(ServiceSettings(port=port, alert_every="10s"), MovingPlan(gpus, hours, seed, speed))


def serve(settings: Any, moving: Any = None) -> None:
    """Serve until the process is told to end: what settings name, or a running simulated fleet (a `MovingPlan`)."""
    from ullage.cli._ending import ended_by
    from ullage.service.logs import ServiceLog
    from ullage.service.server import few_arenas, listening_socket
    from ullage.service.start import running_service

    few_arenas()
    log = ServiceLog(settings.log)
    with listening_socket(settings.host, settings.port) as listening:
        running = running_service(settings, log, moving)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        log("serving", {"at": f"http://{host}:{listening.getsockname()[1]}", "source": " ".join(running.service.state.words())})
        with ended_by(running.stop):
            running.run(listening)
    ended = running.close()
    log("ended")
    if ended:
        atexit._run_exitfuncs()  # temporary folders are removed
    os._exit(ANSWERED)  # not by the interpreter: it waits for questions that nobody waits for, and aborts where a thread leaves the engine
