"""`ullage demo`: the main job on a simulated fleet whose answers are known."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click

from ullage.cli.options import Progress


@click.command(
    "demo",
    epilog="""\b
Examples:
  ullage demo
  ullage demo --gpus 512 --hours 12 --out /tmp/fleet""",
)
@click.option("--gpus", default=256, show_default=True, help="How many GPUs.")
@click.option("--hours", default=24.0, show_default=True, help="How many hours.")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same fleet.")
@click.option("--out", type=click.Path(path_type=Path), help="Where to put store, report and answers.  [default: ./ullage-demo]")
def command(gpus: int, hours: float, seed: int, out: Path | None) -> None:
    """A simulated fleet with known answers: stored, reported, drawn. Nothing to configure, no network."""
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
