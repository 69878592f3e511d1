"""`ullage simulate job`: one training job of which every factor from peak to MFU is known."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command(
    "job",
    epilog="""\b
Examples:
  ullage simulate job                         telemetry, traces, config and matrix products, and the truth
  ullage simulate job --seed 7 --ranks 8      another job, on eight GPUs
  ullage simulate job --shapes                its traces say what each kernel was asked for
  ullage simulate job --mixed                 products in BF16 and in FP8 or TF32
""",
)
@click.option("--ranks", type=int, default=4, show_default=True, help="GPUs of the job.")
@click.option("--steps", type=int, default=3, show_default=True, help="Steps in its traces.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed gives the same job.")
@click.option("--shapes", is_flag=True, help="Traces with many short kernels, and the shapes of their operators.")
@click.option("--mixed", is_flag=True, help="Products in two precisions: the peak is their mixture's.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("job"), show_default=True, metavar="FOLDER", help="Where to write.")
def command(ranks: int, steps: int, seed: int, shapes: bool, mixed: bool, out: Path) -> None:
    """A job with a known answer, for `ullage waterfall`: telemetry, traces, config, matrix products, and the truth."""
    from ullage.metrics.steps import LABELS
    from ullage.simulate.job import JobPlan, job
    from ullage.simulate.job_files import write

    simulated = job(JobPlan(ranks, steps, seed, shapes, mixed))
    made = write(simulated, out)
    truth = simulated.truth
    click.echo(f"simulated a job on {ranks:,} GPUs: OFU {truth['ofu']:.1%}, MFU {truth['mfu']:.1%}")
    planted = truth["factors"].items()
    click.echo("planted: " + ", ".join(f"{LABELS[factor]} {value:.3f}" for factor, value in planted))
    if simulated.mixture is not None:
        share = f"{simulated.mixture.share:.0%} of the products with weights in {simulated.mixture.other.upper()}"
        click.echo(f"peak of its precisions: {truth['peak'] / 1e12:,.1f} TFLOP/s, {share}")
    click.echo(f"  {made.telemetry}   an hour of telemetry")
    click.echo(f"  {made.traces}   {steps:,} steps traced, a file a rank")
    click.echo(f"  {made.config}   the model and its step")
    click.echo(f"  {made.gemms}   its matrix products")
    click.echo(f"  {made.truth}   every factor, as a report must find it")
    named = " ".join(shlex.quote(str(path)) for path in (made.telemetry, made.traces, made.config, made.gemms))
    click.echo(f"next: ullage waterfall {named}")
