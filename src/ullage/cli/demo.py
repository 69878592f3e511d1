"""`ullage demo`: the main job on a simulated fleet whose answers are known."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click
from click.core import ParameterSource

from ullage.cli.options import Progress

SERVED_GPUS = 64  # so that pages follow what comes to pass


@click.command(
    "demo",
    epilog="""\b
Examples:
  ullage demo
  ullage demo --gpus 512 --hours 12 --out /tmp/fleet
  ullage demo --serve                      pages of a running fleet: http://127.0.0.1:9748""",
)
@click.option("--gpus", default=256, show_default=True, help="How many GPUs.")
@click.option("--hours", default=24.0, show_default=True, help="How many hours.")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same fleet.")
@click.option("--out", type=click.Path(path_type=Path), help="Where to put store, report and answers.  [default: ./ullage-demo]")
@click.option(
    "--serve",
    is_flag=False,
    flag_value=9748,
    type=click.IntRange(0, 65_535),
    metavar="[PORT]",
    help="Serve the pages of a simulated fleet in which a job soon becomes slow, at this port; 0: any free port.",
)
@click.option(
    "--speed",
    type=click.FloatRange(1, 10_000),
    default=120.0,
    show_default=True,
    help="With --serve, how many times faster than real time the fleet runs.",
)
@click.pass_context
def command(context: click.Context, gpus: int, hours: float, seed: int, out: Path | None, serve: int | None, speed: float) -> None:
    """A simulated fleet with known answers: stored, reported, drawn. Nothing to configure, no network."""
    if serve is not None:
        from ullage.cli.serve import serve_demonstration

        if out is not None:
            raise click.UsageError("--serve keeps nothing: leave --out out")
        usual = context.get_parameter_source("gpus") is ParameterSource.DEFAULT
        serve_demonstration(SERVED_GPUS if usual else gpus, hours, seed, serve, speed)
        return
    from ullage.demo import demo
    from ullage.render.fleet import view
    from ullage.views.text import text

    started = time.monotonic()
    folder = out or _folder()
    progress = Progress()
    done = demo(folder, gpus=gpus, hours=hours, seed=seed, progress=progress)
    progress.done()
    click.echo(text(view(done.report, top=12)))
    click.echo("\n".join(done.against_answers))
    click.echo(f"\nthe report as a page: {done.page}")
    click.echo(f"ask further:          ullage fleet {done.store} --by user")
    click.echo(f"pages that stay open: ullage serve {done.store}")
    click.echo("a fleet that moves:   ullage demo --serve")
    click.echo(f"audit reported MFUs:  ullage audit mfu --fleet {done.store} --configs {done.store.parent / 'configs'}")
    click.echo(f"the planted answers:  {done.answers}")
    click.echo(
        f"{gpus:,} GPUs, {hours:g} h, {done.rows:,} samples simulated, stored and reported in {time.monotonic() - started:.1f} s", err=True
    )


def _folder() -> Path:
    """Return where a demonstration goes that nobody gave a place: here, or where nothing can be written here, a temporary folder."""
    folder = Path("ullage-demo")
    try:
        with tempfile.TemporaryFile(dir=folder if folder.exists() else Path()):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="ullage-demo-"))
