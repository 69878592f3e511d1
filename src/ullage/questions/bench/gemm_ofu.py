"""How well does OFU tell the MFU of products whose FLOPs are known?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ullage.asking import asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.step import read_words

if TYPE_CHECKING:
    from ullage.reports.bench.suite import EarlyStop
    from ullage.reports.gemms.ofu import GemmOfuReport


@dataclass(frozen=True, kw_only=True)
class GemmOfuQuestion:
    """OFU beside application MFU over random matrix products (OFU paper, table II).

    Each product runs without a pause while NVML tells tensor activity, cycle counters and clock over the very same span. OFU is
    held against the FLOPs done in it over the peak; adjusted OFU takes out the padding that the kernel's name tells.
    Needs PyTorch and a GPU from Hopper on, without MIG.
    """

    count: int = asked("Random products in each precision.", 60, least=0)
    seconds: float = asked("How long each is watched.", 1.0, least=0.1)
    minutes: float | None = asked("Begin no product after so long.", metavar="M", above=0)
    precisions: tuple[str, ...] = asked(
        "Which precisions.",
        ("fp16", "bf16", "tf32", "fp8", "fp4"),
        flag="--precision",
        short="-p",
        read=read_words,
        shown="fp16,bf16,tf32,fp8,fp4",
    )
    seed: int = asked("Makes the shapes.", 0, least=0, shown="0")
    largest: int = asked("The largest dimension.", 8192, least=16)
    device: int = asked("The GPU's number, as CUDA counts.", 0, least=0, shown="0")
    record: str = asked(
        "Where every product is kept at once; what it holds is not measured again.",
        "gemm-ofu.jsonl",
        metavar="FILE",
        acts=True,
    )
    recorded: str | None = asked("Report what FILE holds; nothing is measured.", flag="--from", metavar="FILE")
    picture: Literal["errors", "overheads", "speedups"] = asked("Which .svg.", "errors")


def answer(question: GemmOfuQuestion, progress: Progress, command: str = "") -> GemmOfuReport:  # noqa: ARG001 - a question's `answer`
    """Return the table of what was measured or recorded; what ended it early, Ctrl-C too, is said in the answer.

    Raises UllageError for what the user can fix.
    """
    from ullage.benches.gemm_ofu_record import read
    from ullage.reports.gemms.ofu import gemm_ofu

    early_stop, remarks = _measure(question, progress) if question.recorded is None else (None, ())
    report = gemm_ofu(read(Path(question.recorded or question.record)))
    return replace(report, picture=question.picture, early_stop=early_stop, more_remarks=remarks)


def _measure(question: GemmOfuQuestion, progress: Progress) -> tuple[EarlyStop | None, tuple[str, ...]]:
    """Measure into the file; return what stopped it, or that it went to the end of the time that it was given."""
    from ullage.benches.gemm_ofu import TIME_UP, measure
    from ullage.benches.running.session import opened
    from ullage.reports.bench.suite import EarlyStop

    more = {name: getattr(question, name) for name in ("count", "seconds", "minutes", "precisions", "seed", "largest")}
    with opened(question.device) as session:
        try:
            words = measure(session, Path(question.record), progress=progress, **more)
        except KeyboardInterrupt:
            return EarlyStop("stopped; the same command goes on where this ended", interrupted=True), ()
    if words.startswith(TIME_UP):
        return None, (words,)
    return (EarlyStop(words) if words else None), ()


_EXAMPLES = """
  ullage bench gemm-ofu                           60 random products in each precision; about 8 minutes
  ullage bench gemm-ofu --minutes 3               what fits; the same command goes on where this ended
  ullage bench gemm-ofu --count 500 --seconds 5 -p fp16,fp8
  ullage bench gemm-ofu --from gemm-ofu.jsonl --out table.html   what was recorded; needs no GPU
  ullage bench gemm-ofu --from gemm-ofu.jsonl --out figure3.svg --picture speedups
"""

QUESTION = register(
    RegisteredQuestion(
        name="bench gemm-ofu",
        asked=GemmOfuQuestion,
        noun="OFU of known products",
        answer=answer,
        shown_by="ullage.render.gemm_ofu",
        examples=_EXAMPLES,
        read_places=lambda question: [question.recorded or question.record],
        only_reads=False,
        status_3="the products ended early, and what was measured is reported",
    )
)

bench_gemm_ofu = python_function(QUESTION)
