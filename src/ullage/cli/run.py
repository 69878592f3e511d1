"""`ullage run`: run a program, and print its host and device trees when it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ullage.cli.options import Finite, check_apart, check_out, megabytes
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.live.counting import CountingPlan
    from ullage.live.gathering import Gathering
    from ullage.live.recording import Recorded
    from ullage.live.sampling.beside_a_program import Beside

_EPILOG = """\b
Examples:
  ullage run -- python train.py                      trees at the end, on stderr
  ullage run --json run.json -- ./a.out 4096         for programs; - is stdout
  ullage run --out run.html -- python train.py       the whole report; .svg is the timeline
  ullage run --region forward -- python train.py     one region: with ullage.region("forward"): … or an NVTX range
  ullage run --keep recordings/ -- ./a.out           keep what was recorded: `ullage trace recordings/` reads it
  ullage run --talp talp.json -- ./a.out             in TALP's form
  ullage run --kernels 200 -- ./a.out                FLOPs, bytes and roofs of the first 200 kernels, in place of a trace
  ullage run --stalls -- ./a.out                     what the warps of each kernel waited for, in place of a trace
\b
Several ranks:
  mpirun -n 4 ullage run -- ./a.out                  rank 0 reports on all
  ullage run -- mpirun -n 4 ./a.out                  the same
  ullage run -- torchrun --nproc-per-node 8 train.py

\b
Any program will do: the CUDA driver itself loads the recorder. What can't be recorded is said, and
the program runs all the same; `ullage cupti check` says what this machine allows.
"""


def _include(context: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print where ullage.h is, and leave."""
    if asked and not context.resilient_parsing:
        from ullage.live.launch import INCLUDE

        click.echo(INCLUDE)
        context.exit()


@click.command("run", epilog=_EPILOG, context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND…", type=click.UNPROCESSED)
@click.option("--region", metavar="R", help="Only within this region or NVTX range.")
@click.option("--by", type=click.Choice(["rank", "device", "region", "step"]), help="Trees of each of these.")
@click.option("--mode", type=click.Choice(["talp", "ai"]), help="Count collectives as work (talp) or apart (ai).  [default: by what ran]")
@click.option("--price", type=Finite(min=0), metavar="P", help="Money per GPU-hour, for the bill of losses.")
@click.option("--json", "json_out", metavar="FILE", help="Write JSON for programs; - is stdout.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write the report: .html, .svg, .json, .txt, .parquet, .pftrace."
)
@click.option("--talp", type=click.Path(path_type=Path), metavar="FILE", help="Write the result in TALP's JSON.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the recordings here; several hosts need a folder they share.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print no report.")
@click.option(
    "--counters",
    type=click.Choice(["gpm", "pm", "no"]),
    default="gpm",
    show_default=True,
    help="What samples the GPUs' counters beside the program, for OFU: NVML's GPM; PM sampling, which may hold the clocks still.",
)
@click.option("--no-counters", "counters", flag_value="no", help="The same as --counters no.")
@click.option(
    "--graphs",
    type=click.Choice(["nodes", "whole"]),
    default="nodes",
    show_default=True,
    help="Record each kernel of a CUDA graph, or each launch of a graph as one, which is cheaper.",
)
@click.option(
    "--kernels", type=click.IntRange(1, 100_000), metavar="N", help="In place of a trace, count what the first N kernels execute."
)
@click.option("--stalls", is_flag=True, help="In place of a trace, sample what warps wait for, by kernel, instruction and line.")
@click.option(
    "--period", type=click.IntRange(5, 31), metavar="N", help="With --stalls: a sample every 2**N cycles.  [default: CUPTI's choice]"
)
@click.option("--gpu", metavar="GPU", help="With --kernels: the GPU that the program uses.  [default: this machine's first]")
@click.option("--also", multiple=True, metavar="KIND", help="Record this kind of activity too: environment, unified-memory, … Repeatable.")
@click.option("--mpi/--no-mpi", default=True, help="Preload the recorder, noting waits in MPI and regions of ullage.h.  [default: mpi]")
@click.option("--python/--no-python", default=True, help="Note when PyTorch waits for other ranks.  [default: python]")
@click.option(
    "--nccl",
    type=click.Choice(["off", "calls", "gpu"]),
    default="calls",
    show_default=True,
    help="What to record of NCCL's collectives: calls: when the program enqueues them; gpu: also when GPUs run them, at a higher cost.",
)
@click.option("--cupti", type=click.Path(path_type=Path), metavar="PATH", help="The libcupti to use.  [default: the one that is found]")
@click.option(
    "--flush",
    type=click.IntRange(10, 3_600_000),
    default=1000,
    show_default=True,
    metavar="MS",
    help="How often what is recorded goes to disk: a killed program loses no more.",
)
@click.option(
    "--events",
    callback=megabytes,
    default="16",
    show_default=True,
    metavar="MB",
    help="Record a process' host event by event up to MB megabytes, then only sums; the trees stay exact. 0: only sums; all: no limit.",
)
@click.option("--wait", type=Finite(min=0), default=60.0, show_default=True, metavar="S", help="How long rank 0 waits for the others.")
@click.option("--strict", is_flag=True, help="Refuse to run what can't be recorded.")
@click.option(
    "--include",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_include,
    help="Print the folder of ullage.h and ullage.f90 (regions in C, C++ and Fortran) and exit: cc -I$(ullage run --include).",
)
def command(command: tuple[str, ...], **asked: Any) -> None:
    """Run a program and print its host and device trees when it ends: where its GPUs' time went.

    COMMAND runs as it would without us, its input, output and exit code untouched.
    """
    _check(asked)
    code = _run(command, asked)
    _leave()
    sys.exit(code)


def _leave() -> None:
    """Give what is still held to a stdout that may be closed or unread, neither of which makes the program's exit code another one."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _check(asked: dict[str, Any]) -> None:
    """Refuse at once what would only fail when the program has ended."""
    if asked["kernels"] is not None and (lost := [name for name in ("out", "talp", "region", "by") if asked[name] is not None]):
        raise click.UsageError(f"--kernels counts in place of a trace: there is nothing for --{lost[0]}")
    _check_stalls(asked)
    if asked["out"] is not None:
        check_out(asked["out"], _forms(asked))
    for name in ("talp", "json_out"):
        if asked[name] is not None and str(asked[name]) != "-":
            check_out(Path(asked[name]), (".json",))
    check_apart({"--json": asked["json_out"], "--out": asked["out"], "--talp": asked["talp"]})


def _check_stalls(asked: dict[str, Any]) -> None:
    if asked["period"] is not None and not asked["stalls"]:
        raise click.UsageError("--period is how often --stalls samples: give both")
    if asked["stalls"] and asked["kernels"] is not None:
        raise click.UsageError("--stalls and --kernels both take the place of a trace: run the program once with each")
    if asked["stalls"] and (lost := [name for name in ("talp", "region", "by") if asked[name] is not None]):
        raise click.UsageError(f"--stalls samples in place of a trace: there is nothing for --{lost[0]}")


def _forms(asked: dict[str, Any]) -> tuple[str, ...]:
    if asked["stalls"]:
        from ullage.render.stalls import FORMS

        return FORMS
    from ullage.render.trace_files import FORMS as OF_TRACES

    return tuple(OF_TRACES)


def _run(command: tuple[str, ...], asked: dict[str, Any]) -> int:
    from ullage.cli._ran import answer, tell
    from ullage.live.gathering import gathering
    from ullage.live.launch import NotRun
    from ullage.live.ranks import place

    try:
        run, well = gathering(asked["keep"], place(os.environ), strict=asked["strict"]), True
    except UllageError as error:
        if asked["strict"]:
            raise
        tell(f"the program runs without being recorded: {error}")
        return _unrecorded(command)
    try:
        recorded = _recorded(command, run, asked)
        run.done(recorded.code)
        if run.answers:
            well = answer(run, command, recorded, asked)
        return recorded.code
    except NotRun as error:
        run.done(error.code)
        tell(str(error))
        return error.code
    finally:
        if well or not run.recordings():
            run.remove()
        elif not run.kept:
            tell(f"the recordings are in {run.folder}: `ullage trace` reads them")


def _unrecorded(command: tuple[str, ...]) -> int:
    from ullage.cli._ran import tell
    from ullage.live.launch import NotRun, run

    try:
        return run(command, os.environ)
    except NotRun as error:
        tell(str(error))
        return error.code


def _recorded(command: tuple[str, ...], run: Gathering, asked: dict[str, Any]) -> Recorded:
    """Run the program, its GPUs' counters sampled beside it, and return how it ended."""
    from ullage.live.recording import Wanted, kinds, record

    found = kinds(asked["graphs"], asked["also"])
    wanted = Wanted(
        mpi=asked["mpi"],
        python=asked["python"],
        nccl=asked["nccl"],
        cupti=asked["cupti"],
        kinds=found,
        flush=asked["flush"],
        events=asked["events"],
        counting=_counting(asked),
        stalls=(asked["period"] or 0) if asked["stalls"] else None,
    )
    with _sampled(run, asked):
        return record(command, run.own, wanted, strict=asked["strict"])


def _counting(asked: dict[str, Any]) -> CountingPlan | None:
    """Return what is to be counted of each kernel; what the GPU is, `asked` knows from here on."""
    if asked["kernels"] is None:
        return None
    from ullage.live.counting import CountingPlan, this_gpu
    from ullage.reports.counters.counters import chip_code

    asked["gpu"] = asked["gpu"] or this_gpu()
    return CountingPlan(chip_code(asked["gpu"]), asked["kernels"], asked["cupti"])


@contextmanager
def _sampled(run: Gathering, asked: dict[str, Any]) -> Iterator[None]:
    if asked["counters"] == "no" or asked["kernels"] is not None or asked["stalls"] or not run.first_on_host:
        yield
        return
    from ullage.live.sampling.reachable import nvml_answers

    # what samples counters takes half a second to load, which a machine without any need not spend
    later = asked["counters"] == "gpm" and not nvml_answers()
    beside = None if later else _beside(run, asked)
    try:
        yield
    finally:
        if beside is None and run.recordings():  # it says why there is nothing
            beside = _beside(run, asked)
        if beside is not None:
            beside.stop()


def _beside(run: Gathering, asked: dict[str, Any]) -> Beside:
    from ullage.live.sampling.beside_a_program import Beside

    beside = Beside(run.folder, asked["counters"], cupti=asked["cupti"], everything=run.place is not None)
    beside.start()
    return beside
