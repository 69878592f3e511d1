"""`ullage run`: run a program, and print its host and device trees.

A command, not a question: the answer is the program's own output and exit code; the report stands beside it, or in the files named for it.
Its options come from a dataclass, as those of questions do.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import click

from ullage.asking import WrongQuestionError, askable, asked, question_of
from ullage.asking.traces import TreeScope
from ullage.cli._question_command import TwoLists, option_of
from ullage.cli._suggested_values import complete_files
from ullage.cli.options import check_apart
from ullage.errors import UllageError, harmless
from ullage.views.files import check_out

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
  ullage run --flops -- ./a.out                      FLOPs of each kernel by type, no kernel run twice, in place of a trace
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


def read_megabytes(text: str, flag: str, now: float) -> int | None:  # noqa: ARG001 - a TextReader
    """Read a size in MB, in bytes; None for "all".

    >>> read_megabytes("16", "--events", 0), read_megabytes("all", "--events", 0)
    (16000000, None)
    """
    if text.strip().lower() == "all":
        return None
    try:
        size = float(text) * 1e6
    except ValueError:
        size = -1.0
    if not 0 <= size < 2**62:
        raise WrongQuestionError(f"{flag} '{harmless(text, 60)}' is not a size in MB from 0 on, nor 'all'.")
    return round(size)


@dataclass(frozen=True, kw_only=True)
class RunRequest(TreeScope):
    """Run a program and print its host and device trees when it ends: where its GPUs' time went.

    COMMAND runs as it would without us, its input, output and exit code untouched.
    """

    by: Literal["rank", "device", "region", "step"] | None = asked("Trees of each of these.")
    price: float | None = asked("Money per GPU-hour, for the bill of losses.", metavar="P", least=0)
    json_out: str | None = asked("Write JSON for programs; - is stdout.", flag="--json", metavar="FILE")
    out: str | None = asked("Write the report; the form follows the file's name.", metavar="FILE")
    talp: str | None = asked("Write the result in TALP's JSON.", metavar="FILE")
    keep: str | None = asked("Keep the recordings here; several hosts need a folder they share.", metavar="DIR")
    quiet: bool = asked("Print no report.", False, short="-q")
    counters: Literal["gpm", "pm", "no"] = asked(
        "What samples the GPUs' counters beside the program, for OFU: NVML's GPM; PM sampling, which may hold the clocks still.", "gpm"
    )
    kernels: int | None = asked("In place of a trace, count what the first N kernels execute.", metavar="N", least=1, most=100_000)
    flops: bool = asked("In place of a trace, count the FLOPs of each kernel by type; every kernel runs once, and longer.", False)
    stalls: bool = asked("In place of a trace, sample what warps wait for, by kernel, instruction and line.", False)
    period: int | None = asked(
        "With --stalls: a sample every 2**N cycles.", metavar="N", least=5, most=31, shown="CUPTI's choice", minor=True
    )
    gpu: str | None = asked(
        "With --kernels: the GPU that the program uses.",
        metavar="GPU",
        shown="this machine's first",
        minor=True,
        suggested="ullage.gpus.chip:all_names",
    )
    graphs: Literal["nodes", "whole"] = asked(
        "Record each kernel of a CUDA graph, or each launch of a graph as one, which is cheaper.", "nodes", minor=True
    )
    also: tuple[str, ...] = asked(
        "Record this too: unified-memory (pages that move), decompression. Repeatable.",
        (),
        metavar="KIND",
        repeated=True,
        minor=True,
        suggested="ullage.cupti.kinds:ALSO",
    )
    mpi: bool = asked("Preload the recorder, noting waits in MPI and regions of ullage.h.", True, shown="mpi", minor=True)
    python: bool = asked("Note when PyTorch waits for other ranks.", True, shown="python", minor=True)
    nccl: Literal["off", "calls", "gpu"] = asked(
        "What to record of NCCL's collectives: calls: when the program enqueues them; gpu: also when GPUs run them, at a higher cost.",
        "calls",
        minor=True,
    )
    cupti: str | None = asked("The libcupti to use.", metavar="PATH", shown="the one that is found", minor=True)
    flush: int = asked(
        "How often what is recorded goes to disk: a killed program loses no more.",
        1000,
        metavar="MS",
        least=10,
        most=3_600_000,
        minor=True,
    )
    events: int | None = asked(
        "Record a process' host event by event up to MB megabytes, then only sums; the trees stay exact. 0: only sums; all: no limit.",
        16_000_000,
        metavar="MB",
        read=read_megabytes,
        shown="16",
        minor=True,
    )
    wait: float = asked("How long rank 0 waits for the others.", 60.0, metavar="S", least=0, minor=True)
    strict: bool = asked("Refuse to run what can't be recorded.", False, minor=True)

    def __post_init__(self) -> None:
        """Refuse what can't be asked together."""
        if self.kernels is not None and (lost := self._given("out", "talp", "region", "by")):
            raise WrongQuestionError(f"--kernels counts in place of a trace: there is nothing for --{lost[0]}")
        if self.period is not None and not self.stalls:
            raise WrongQuestionError("--period is how often --stalls samples: give both")
        if self.stalls and self.kernels is not None:
            raise WrongQuestionError("--stalls and --kernels both take the place of a trace: run the program once with each")
        if self.flops and (self.stalls or self.kernels is not None):
            other = "--stalls" if self.stalls else "--kernels"
            raise WrongQuestionError(f"--flops and {other} both take the place of a trace: run the program once with each")
        if self.flops and (lost := self._given("out", "talp", "region", "by")):
            raise WrongQuestionError(f"--flops counts in place of a trace: there is nothing for --{lost[0]}")
        if self.stalls and (lost := self._given("talp", "region", "by")):
            raise WrongQuestionError(f"--stalls samples in place of a trace: there is nothing for --{lost[0]}")
        if self.keep is not None and Path(self.keep).is_file():
            raise WrongQuestionError(f"--keep '{harmless(self.keep)}' is a file: name a folder")

    def _given(self, *words: str) -> list[str]:
        return [word for word in words if getattr(self, word) is not None]


class _RunCommand(TwoLists):
    """The command, whose help lists what matters first."""

    minor: ClassVar[set[str]] = {field.name for field in askable(RunRequest) if field.minor}


def _main(command: tuple[str, ...], **words: Any) -> None:
    try:
        asked_words = {name: value for name, value in words.items() if value not in (None, ())}
        request = question_of(RunRequest, asked_words, noun="a run", command="ullage run --help")
    except WrongQuestionError as error:
        raise click.UsageError(str(error)) from None
    _check(request)
    code = _run(command, request)
    _leave()
    sys.exit(code)


command = _RunCommand(
    "run",
    params=[
        click.Argument(["command"], nargs=-1, required=True, metavar="-- COMMAND…", type=click.UNPROCESSED, shell_complete=complete_files),
        *map(option_of, askable(RunRequest)),
        click.Option(["--no-counters", "counters"], flag_value="no", help="The same as --counters no."),
        click.Option(
            ["--include"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_include,
            help="Print the folder of ullage.h and ullage.f90 (regions in C, C++ and Fortran) and exit: cc -I$(ullage run --include).",
        ),
    ],
    callback=_main,
    help=inspect.getdoc(RunRequest),
    epilog=_EPILOG,
    context_settings={"allow_interspersed_args": False},
)


def _check(request: RunRequest) -> None:
    """Refuse at once what would only fail when the program has ended."""
    if request.out is not None:
        check_out(Path(request.out), _forms(request))
    for name in (request.talp, request.json_out):
        if name is not None and name != "-":
            check_out(Path(name), (".json",))
    check_apart({"--json": request.json_out, "--out": request.out, "--talp": request.talp})


def _leave() -> None:
    """Give what is still held to a stdout that may be closed or unread, neither of which makes the program's exit code another one."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _forms(request: RunRequest) -> tuple[str, ...]:
    if request.stalls:
        from ullage.render.stalls import FORMS

        return FORMS
    from ullage.render.trace_files import FORMS as OF_TRACES

    return tuple(OF_TRACES)


def _run(command: tuple[str, ...], request: RunRequest) -> int:
    from ullage.cli._ran import answer, tell
    from ullage.live.gathering import gathering
    from ullage.live.launch import NotRun
    from ullage.live.ranks import place

    try:
        run, well = gathering(_path(request.keep), place(os.environ), strict=request.strict), True
    except UllageError as error:
        if request.strict:
            raise
        tell(f"the program runs without being recorded: {error}")
        return _unrecorded(command)
    try:
        request = _with_gpu(request)
        recorded = _recorded(command, run, request)
        run.done(recorded.code)
        if run.answers:
            well = answer(run, command, recorded, request)
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


def _recorded(command: tuple[str, ...], run: Gathering, request: RunRequest) -> Recorded:
    """Run the program, its GPUs' counters sampled beside it, and return how it ended."""
    from ullage.live.recording import Wanted, kinds, record

    found = kinds(request.graphs, request.also)
    wanted = Wanted(
        mpi=request.mpi,
        python=request.python,
        nccl=request.nccl,
        cupti=_path(request.cupti),
        kinds=found,
        flush=request.flush,
        events=request.events,
        counting=_counting(request),
        stalls=(request.period or 0) if request.stalls else None,
        flops=request.flops,
    )
    with _sampled(run, request):
        return record(command, run.own, wanted, strict=request.strict)


def _counting(request: RunRequest) -> CountingPlan | None:
    """Return what is to be counted of each kernel."""
    if request.kernels is None or request.gpu is None:
        return None
    from ullage.live.counting import CountingPlan
    from ullage.reports.counters.counters import chip_code

    return CountingPlan(chip_code(request.gpu), request.kernels, _path(request.cupti))


def _with_gpu(request: RunRequest) -> RunRequest:
    """Return what is asked with the GPU whose kernels are to be counted."""
    if request.kernels is None or request.gpu is not None:
        return request
    from ullage.live.counting import this_gpu

    return replace(request, gpu=this_gpu())


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


@contextmanager
def _sampled(run: Gathering, request: RunRequest) -> Iterator[None]:
    if request.counters == "no" or request.kernels is not None or request.stalls or request.flops or not run.first_on_host:
        yield
        return
    from ullage.live.sampling.reachable import nvml_answers

    # what samples counters takes half a second to load, which a machine without any need not spend
    later = request.counters == "gpm" and not nvml_answers()
    beside = None if later else _beside(run, request)
    try:
        yield
    finally:
        if beside is None and run.recordings():  # it says why there is nothing
            beside = _beside(run, request)
        if beside is not None:
            beside.stop()


def _beside(run: Gathering, request: RunRequest) -> Beside:
    from ullage.live.sampling.beside_a_program import Beside

    beside = Beside(run.folder, "pm" if request.counters == "pm" else "gpm", cupti=_path(request.cupti), everything=run.place is not None)
    beside.start()
    return beside
