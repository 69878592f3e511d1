"""What can this GPU really do, beside the papers' figures?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.asking import asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.benches.result import BenchResult
    from ullage.reports.bench.suite import EarlyStop


@dataclass(frozen=True, kw_only=True)
class BenchQuestion:
    """Microbenchmarks of this GPU: caches, memory, tensor cores by instruction, copies, clusters, library calls.

    Kernels are compiled at run time; each is checked against a reference on the host before it is timed, and every number says the
    SM clock, power, throttling and data that it was measured under. Clocks, limits and modes of the card are left as they are.
    """

    names: tuple[str, ...] = asked(
        "Microbenchmarks; without one, all.", (), metavar="[NAME…]", argument=True, repeated=True, suggested="ullage.benches.bench:BENCHES"
    )
    quick: bool = asked("Only the cases that matter most.", False)
    minutes: float | None = asked("Begin no case after so long.", metavar="M", least=0.1)
    device: int = asked("The GPU's number, as CUDA counts.", 0, least=0, shown="0")
    recorded: tuple[str, ...] = asked(
        "Show recorded results (a file or a folder of them); run nothing.",
        (),
        flag="--from",
        metavar="FILE",
        repeated=True,
    )
    paper: bool = asked("Show the published figures; run nothing.", False)
    save: bool = asked(
        "Keep the measured ceilings for the waterfall and `ullage gpus` (see ULLAGE_CEILINGS).",
        False,
        acts=True,
    )
    listed: bool = asked("List the microbenchmarks.", False, flag="--list")
    keep: Path | None = None  # where results are kept while the suite goes on


def answer(question: BenchQuestion, progress: Progress, command: str = "") -> Any:  # noqa: ARG001 - a question's `answer`
    """Return the tables of what was measured, recorded or published; or what microbenchmarks there are.

    After Ctrl-C, or when the GPU is lost, they are of what had ended. Raises UllageError for what the user can fix.
    """
    from ullage.reports.bench.bench import BenchList, bench_report
    from ullage.reports.bench.suite import check_ceilings_folder, chosen_benches

    if question.listed:
        return BenchList()
    if question.save:
        check_ceilings_folder()
    chosen = chosen_benches(question.names)
    results, early_stop = _results(question, chosen, progress)
    report = bench_report(results, chosen if question.paper or question.names else ())
    return replace(report, early_stop=early_stop, more_remarks=_ceilings_kept(results) if question.save else ())


def _results(question: BenchQuestion, chosen: list[str], progress: Progress) -> tuple[list[BenchResult], EarlyStop | None]:
    from ullage.reports.bench.suite import measured_suite, read_results

    if question.recorded:
        every = (one for path in question.recorded for one in read_results(Path(path)))
        return [one for one in every if not question.names or one.bench in chosen], None
    if question.paper:
        return [], None
    budget = None if question.minutes is None else question.minutes * 60
    return measured_suite(chosen, question.device, progress, quick=question.quick, budget=budget, keep=question.keep)


def _ceilings_kept(results: list[BenchResult]) -> tuple[str, ...]:
    """Keep the ceilings, and say where; or why not: what took an hour to measure is shown all the same."""
    from ullage.reports.bench.suite import keep_ceilings

    try:
        return (keep_ceilings(results),)
    except UllageError as error:
        return (f"no ceilings were kept: {error}",)


_EXAMPLES = """
  ullage bench                              every microbenchmark that this GPU can run
  ullage bench --quick                      the few cases of each that matter most
  ullage bench wgmma memory-latency --json  two of them, for programs
  ullage bench --out report.html --save     a page with roofline and curves; ceilings kept for `ullage waterfall`
  ullage bench --from results.json --out report.html   a page from what was recorded
  ullage bench --from results.json --out roofline.svg  the roofline
  ullage bench --list                       what there is, and how long it takes
  ullage bench wgmma --paper                the published figures; needs no GPU
  ullage bench gemm-ofu                     OFU beside application MFU over random products (OFU paper, table II)
  ullage bench drift --baseline node.json   does the GPU still do what it did?
"""

QUESTION: RegisteredQuestion[BenchQuestion, Any] = register(
    RegisteredQuestion(
        name="bench",
        asked=BenchQuestion,
        noun="microbenchmarks",
        answer=answer,
        shown_by=lambda question: "ullage.render.bench:list" if question.listed else "ullage.render.bench",
        examples=_EXAMPLES,
        read_places=lambda question: question.recorded,
        with_file=lambda question, out: replace(question, keep=out),
        only_reads=False,
        status_3="the microbenchmarks ended early, and what had ended is reported",
    )
)

bench = python_function(QUESTION)
