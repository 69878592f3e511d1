"""Where were the warps of each kernel, and what did they wait for, by sampled program counters?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.asking import WrongQuestionError, asked
from ullage.asking.question import RegisteredQuestion, python_function, register

if TYPE_CHECKING:
    from ullage.render.stalls import StallReasons
    from ullage.reports.stalls.shares import StallReport


@dataclass(frozen=True, kw_only=True)
class CuptiStallsQuestion:
    """What the warps of each kernel waited for, by stall reason, instruction and line of source.

    Instructions are shown where the machine code is known and nvdisasm is here; lines where it was compiled with -lineinfo.
    """

    file: str | None = asked("A recording of sampled program counters.", metavar="[FILE]", argument=True)
    kernel: str = asked("Only kernels whose name holds NAME.", "", metavar="NAME")
    cubins: tuple[str, ...] = asked("Machine code: cubin, library.", (), flag="--cubin", metavar="FILE", repeated=True)
    cupti: str | None = asked("The libcupti that tells cubins by their CRC; without it the one that is found.", metavar="PATH", acts=True)
    top: int = asked("Kernels, and instructions of each.", 10, least=1, display=True)
    reasons: bool = asked("List the stall reasons.", False)

    def __post_init__(self) -> None:
        if self.reasons == (self.file is not None):
            raise WrongQuestionError("give a FILE, or --reasons")


def answer(question: CuptiStallsQuestion, *_: object) -> StallReport | StallReasons:
    """Return what was waited for, or the reasons that there are. Raises UllageError where nothing was sampled."""
    from ullage.cupti.pc_sampling.recorded import is_recorded, recorded
    from ullage.cupti.pc_sampling.samples import read
    from ullage.cupti.stalls import REASONS
    from ullage.kernels.sass.binary import open_binary
    from ullage.render.stalls import StallReasons
    from ullage.reports.stalls.stalls import stall_report

    if question.file is None:
        return StallReasons(tuple(REASONS.values()))
    file = Path(question.file)
    samples = recorded(file) if is_recorded(file) else read(file)
    cubins = [image.cubin for path in question.cubins for image in open_binary(Path(path)).images]
    return stall_report(samples, kernel=question.kernel, cubins=cubins, crc=_crc(question.cupti) if cubins else None)


def _crc(cupti: str | None) -> Callable[[bytes], int] | None:
    """Return what tells a cubin's CRC; None without a libcupti, unless one was named."""
    from ullage.cupti.library import find
    from ullage.cupti.modules import crc
    from ullage.errors import UllageError

    try:
        library = find(cupti)
    except UllageError:
        if cupti is not None:
            raise
        return None
    return lambda cubin: crc(library, cubin)


_EXAMPLES = """
  ullage cupti stalls step.parquet                              each kernel: what its warps waited for, and where
  ullage cupti stalls step.parquet --kernel attention --top 30  more instructions of the kernels whose name holds "attention"
  ullage cupti stalls step.parquet --cubin libkernels.so        with machine code that the recording lacks
  ullage cupti stalls step.parquet --out step.svg               the flame graph; .html with tables, .folded for other viewers
  ullage cupti stalls recordings/                               what `ullage run --stalls --keep recordings/` sampled
  ullage cupti stalls --reasons                                 every stall reason, what it means, its old name

\b
FILE is a recording of `ullage run --stalls`, or what this wrote in the program (never in production: sampling costs memory and time):
  from ullage.cupti.library import find
  from ullage.cupti.pc_sampling.pc_sampling import PcSampling, current_context
  with PcSampling(find(), [current_context()]) as sampling:
      with sampling.range():
          step()
  sampling.result().write(Path("step.parquet"))
"""

QUESTION = register(
    RegisteredQuestion(
        name="cupti stalls",
        asked=CuptiStallsQuestion,
        noun="a report on stalls",
        answer=answer,
        shown_by=lambda question: f"ullage.render.stalls{':reasons' if question.reasons else ''}",
        examples=_EXAMPLES,
        read_places=lambda question: [*filter(None, [question.file]), *question.cubins],
    )
)

cupti_stalls = python_function(QUESTION)
