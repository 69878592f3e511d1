"""`ullage simulate`: a fleet with known answers, into files or behind HTTP."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import click

from ullage.cli._parts import WithParts
from ullage.cli.options import Progress
from ullage.errors import UllageError
from ullage.units import HOUR_MS

FORMATS = ("parquet", "exposition", "csv", "dmon", "prometheus", "acme")


@click.command(
    "simulate",
    cls=WithParts,
    epilog="""\b
Examples:
  ullage simulate                                          64 GPUs for a day into ./simulated, as Parquet
  ullage simulate --gpus 8 --hours 1 --format exposition --out scrapes
  ullage simulate --faults none --counters --out clean     cycle counters, and nothing goes wrong
  ullage simulate --fault stale --fault shared --out two   only these two
  ullage simulate --changes all --out moving               GPUs that are cut, move, come and go
  ullage simulate --serve 9400                             behind HTTP, for a Prometheus to scrape
  ullage simulate --serve 0 --speed 60                     an hour in a minute, on a free port
  ullage simulate trace                                    traces of a training job, for `ullage trace`
\b
What can be planted: """
    + "straggler held_idle free shared throttled power_capped application_clock\n"
    + "  regression latent_moe hybrid recomputation memory_bound stuck stale sentinel\n"
    + "  duplicated impossible percent hertz slow beating locked zero_clock gigahertz\n"
    + "  idle_clock tensor_above_sm faint_percent frozen_gauge stale_part stuck_part\n"
    + "  no_tensor constant_clock silent reordered skewed reset failing_memory\n"
    + "  failing_link application_xid\n"
    + """\b
What can change in time: """
    + "mig elastic renamed reclustered handed_over percent_later\n"
    + "  counters_appear counters_vanish clock_follows",
)
@click.option("--gpus", default=64, show_default=True, help="How many GPUs.")
@click.option("--hours", default=24.0, show_default=True, help="How many hours.")
@click.option("--interval", default=30.0, show_default=True, help="Seconds between two scrapes.")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same fleet, to the byte.")
@click.option("--start", help="Start of the window.  [default: 2026-08-10; with --serve, now]")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME[=SHARE]",
    help="GPU model and its share of the hosts. Repeatable.  [default: H100 0.75, A100 0.25]",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="parquet", show_default=True, help="Form of the samples.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("simulated"), show_default=True, metavar="FOLDER", help="Where to write."
)
@click.option("--force", is_flag=True, help="Replace what an earlier run wrote there.")
@click.option("--fault", "chosen", multiple=True, metavar="NAME", help="Plant this. Repeatable.")
@click.option(
    "--faults", "every", type=click.Choice(["all", "none"]), help="Plant everything, or nothing.  [default: all, unless --fault names some]"
)
@click.option("--change", "changes", multiple=True, metavar="NAME", help="Change this within the window. Repeatable.")
@click.option(
    "--changes",
    "every_change",
    type=click.Choice(["all", "none"]),
    help="Change everything, or nothing.  [default: only what --change names]",
)
@click.option("--counters", is_flag=True, help="Add cumulative cycle counters (DCGM 4.6).")
@click.option("--summed", is_flag=True, help="Sum the counters over the SMs instead of counting per SM.")
@click.option("--new-names", is_flag=True, help="Use the metric names and units of DCGM 4.6.")
@click.option("--gzip", "compress", is_flag=True, help="Compress text.")
@click.option(
    "--serve",
    "port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve expositions instead of writing files; 0 takes a free port.",
)
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to serve.")
@click.option("--speed", default=1.0, show_default=True, help="How much faster than real time to serve.")
def command(**asked: object) -> None:
    """A fleet with known answers: samples, job records, answer key."""
    from ullage.simulate.fleet import fleet

    simulation = fleet(_specification(asked))
    if simulation.skipped:
        click.echo(f"note: no place in this fleet for {', '.join(simulation.skipped)}; more GPUs or hours make room", err=True)
    if asked["port"] is not None:
        _serve(simulation, asked)
    else:
        _write(simulation, asked)


def _specification(asked: dict[str, object]):  # type: ignore[no-untyped-def]
    from ullage.simulate.specification import Specification
    from ullage.written_values import moment

    now = time.time()
    given = {name: asked[name] for name in ("gpus", "hours", "interval", "seed", "counters", "summed")}
    start = moment(None if asked["start"] is None else str(asked["start"]), now)
    if start is None and asked["port"] is not None:
        start = round(now * 1000)
    if start is not None:
        given["start"] = start
    if asked["models"]:
        given["models"] = tuple(_model(text) for text in _words(asked["models"]))
    return Specification(faults=_faults(asked), changes=_changes(asked), **given)  # type: ignore[arg-type]


def _faults(asked: dict[str, object]) -> tuple[str, ...]:
    chosen, every = _words(asked["chosen"]), asked["every"]
    if chosen and every == "none":
        raise UllageError("--fault names something to plant and --faults none forbids it", "leave one of them out")
    return chosen if chosen and every is None else (str(every or "all"),)


def _changes(asked: dict[str, object]) -> tuple[str, ...]:
    chosen, every = _words(asked["changes"]), asked["every_change"]
    if chosen and every == "none":
        raise UllageError("--change names something to change and --changes none forbids it", "leave one of them out")
    return ("all",) if every == "all" else chosen


def _model(text: str) -> tuple[str, float]:
    name, _, share = text.rpartition("=")
    if not name:
        return text, 1.0
    try:
        return name, float(share)
    except ValueError:
        raise UllageError(f"'{text}' is not a model with a share", "write --model 'NVIDIA H100 80GB HBM3=0.75'") from None


def _words(values: object) -> tuple[str, ...]:
    return tuple(str(value) for value in values) if isinstance(values, tuple) else ()


def _write(simulation, asked: dict[str, object]) -> None:  # type: ignore[no-untyped-def]
    from ullage.simulate.write import write

    progress = Progress()
    folder = Path(str(asked["out"]))
    flags = {"force": bool(asked["force"]), "new_names": bool(asked["new_names"]), "compress": bool(asked["compress"])}
    made = write(simulation, folder, str(asked["form"]), progress=progress, **flags)
    progress.done()
    key = simulation.answers
    hours = (key["window"]["end"] - key["window"]["start"]) / HOUR_MS
    click.echo(f"simulated {key['gpus']:,} GPUs for {hours:g} h: OFU is {key['fleet']['ofu']:.1%}, by {len(key['jobs']):,} jobs")
    click.echo(f"  {made.samples}   the samples ({asked['form']}), as exporters give them")
    click.echo(f"  {made.jobs}   the job records")
    click.echo(f"  {made.answers}   what a report must find")
    click.echo(f"  {made.configs}   the models that the jobs train, for `ullage audit mfu`")
    click.echo(f"next: ullage fleet {shlex.quote(str(made.samples))} --jobs {shlex.quote(str(made.jobs))}")


def _serve(simulation, asked: dict[str, object]) -> None:  # type: ignore[no-untyped-def]
    from ullage.simulate.serve import serve

    address, speed = str(asked["address"]), float(str(asked["speed"]))
    if not speed > 0:
        raise UllageError(f"a speed of {speed:g} is not possible", "1 is real time, 60 an hour in a minute")
    server = serve(simulation, int(str(asked["port"])), speed=speed, address=address, new_names=bool(asked["new_names"]))
    try:
        _announce(simulation, server, address)
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
    finally:
        server.server_close()


def _announce(simulation, server, address: str) -> None:  # type: ignore[no-untyped-def]
    click.echo(
        f"serving {simulation.specification.gpus:,} GPUs of {simulation.specification.hosts:,} hosts at http://{address}:{server.port}/metrics"
    )
    click.echo(f"one host: http://{address}:{server.port}/{server.hosts[0]}/metrics; Ctrl-C stops")
    click.echo(f"next: ullage fleet http://{address}:{server.port}/metrics --watch 60s")
