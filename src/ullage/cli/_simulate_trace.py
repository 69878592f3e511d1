"""`ullage simulate trace`: runs with known answers, as any profiler would have recorded them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.simulate.traces.pipeline import PipelinePlan

FORMATS = ("kineto", "nsys", "talp", "recording", "jax", "xplane", "rocpd", "rocprofv3", "otf2", "operations")
NSYS = ("2020", "2022", "2024", "2026", "newest")


@click.command(
    "trace",
    epilog="""\b
Examples:
  ullage simulate trace                              a training job of two ranks, as PyTorch's profiler writes it
  ullage simulate trace --ranks 8 --straggler 3      one rank comes late to every collective
  ullage simulate trace --run 4                      the TALP paper's use case 4
  ullage simulate trace --run 4 --format nsys        the same run as Nsight Systems exports it
  ullage simulate trace --format recording           the training job as `ullage run` records it
  ullage simulate trace --format operations --ranks 16 --stages 4 --straggler 5
                                                     the operations of a job with pipeline stages, one rank slow
  ullage simulate trace --graph hidden               CUDA graphs whose kernels were not recorded
  ullage simulate trace --ranks 4 --lengths ranks    each rank has sequences of another length
  ullage simulate trace --stack                      with Python functions and modules, and a slow loader to find by them
""",
)
@click.option("--run", default="training", show_default=True, metavar="NAME", help="training, or a use case of the TALP paper: 1 to 7.")
@click.option("--ranks", type=click.IntRange(1), default=2, show_default=True, help="Ranks of the training job.")
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True, help="Its profiler steps.")
@click.option("--straggler", type=click.IntRange(0), metavar="RANK", help="This rank is slow.")
@click.option(
    "--graph", type=click.Choice(["kernels", "whole", "hidden"]), help="Launch CUDA graphs: recorded by kernel, as a whole, not at all."
)
@click.option("--stages", type=click.IntRange(1), default=4, show_default=True, help="Pipeline stages (--format operations).")
@click.option("--long-stage", is_flag=True, help="The last pipeline stage has twice the work (--format operations).")
@click.option("--stack", is_flag=True, help="Record Python functions and modules; every second batch is slow to decode.")
@click.option(
    "--lengths",
    type=click.Choice(["equal", "steps", "ranks", "microbatches"]),
    default="equal",
    show_default=True,
    help="What differs in sequence length; microbatches need --format operations.",
)
@click.option("--host-bound", is_flag=True, help="Small kernels, launched one by one.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="kineto", show_default=True, help="Whose files.")
@click.option("--generation", type=click.Choice(NSYS), default="2026", show_default=True, help="Nsight Systems' schema.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("traces"), show_default=True, metavar="FOLDER", help="Where to write.")
def command(
    run: str,
    ranks: int,
    steps: int,
    straggler: int | None,
    graph: str | None,
    stack: bool,
    host_bound: bool,
    stages: int,
    long_stage: bool,
    lengths: str,
    form: str,
    generation: str,
    out: Path,
) -> None:
    """Traces of a run with known answers: PyTorch's, Nsight Systems' or TALP's files, or our own recordings."""
    from ullage.output_folder import output_folder
    from ullage.simulate.traces.pils import USE_CASES, pils
    from ullage.simulate.traces.pipeline import write
    from ullage.simulate.traces.training import TrainingPlan, training

    if lengths == ("ranks" if form == "operations" else "microbatches"):
        raise UllageError(
            f"sequences can't differ by {lengths} in this format", "ranks: any but operations; microbatches: operations alone"
        )
    if form == "operations":
        job = _pipeline(run, ranks, stages, steps=steps, straggler=straggler, long_stage=long_stage, lengths=lengths)
        with output_folder(out, "ullage simulate trace") as stage:
            name = write(job, stage / "operations.parquet").name
        click.echo(f"  {out / name}\nnext: ullage trace stragglers {shlex.quote(str(out))}")
        return
    if run == "training":
        plan = TrainingPlan(
            ranks=ranks,
            steps=steps,
            straggler=straggler,
            graph=graph or "",  # type: ignore[arg-type]
            host_bound=host_bound,
            stack=stack,
            lengths=lengths,  # type: ignore[arg-type]
        )
        scenario = training(plan)
    elif run in USE_CASES:
        scenario = pils(USE_CASES[run].load)
    else:
        raise UllageError(f"no run is called '{run}'", f"there are training, {', '.join(USE_CASES)}")
    with output_folder(out, "ullage simulate trace") as stage:
        names = [path.relative_to(stage) for path in _write(scenario, form, generation, stage)]
    for path in names:
        click.echo(f"  {out / path}")
    click.echo(f"next: ullage trace {shlex.quote(str(out))}")


def _pipeline(run: str, ranks: int, stages: int, **known: Any) -> PipelinePlan:
    """Return a job whose ranks are replicas × stages. Raises UllageError where they don't divide."""
    from ullage.simulate.traces.pipeline import PipelinePlan

    if run != "training":
        raise UllageError("only the training job has pipeline stages", "leave out --run")
    if ranks % stages:
        raise UllageError(f"{ranks} ranks can't be divided into {stages} stages", f"write --ranks {stages * (ranks // stages + 1)}")
    return PipelinePlan(replicas=ranks // stages, stages=stages, **known)


def _write(scenario, form: str, generation: str, out: Path) -> list[Path]:  # type: ignore[no-untyped-def]
    from ullage.simulate.traces import jax, kineto, nsys, otf2, recording, rocprof, talp, xplane

    if form == "kineto":
        return list(kineto.write(scenario, out))
    if form in ("jax", "xplane"):
        return (jax.write if form == "jax" else xplane.write)(scenario, out)
    if form == "otf2":
        return otf2.write(scenario, out / "archive")
    if form in ("rocpd", "rocprofv3"):
        return (rocprof.write_rocpd if form == "rocpd" else rocprof.write_json)(scenario, out)
    if form == "recording":
        return recording.write(scenario, out)
    if form == "nsys":
        return [nsys.write(scenario, out / f"{_plain(scenario.name)}.sqlite", generation=generation)]
    return [talp.write(scenario, out / f"{_plain(scenario.name)}.json")]


def _plain(name: str) -> str:
    """Return a run's name as a file's.

    >>> _plain("use case 7, overlapped")
    'use-case-7-overlapped'
    """
    return name.replace(",", "").replace(" ", "-")
