"""Which GPUs does Ullage know, with which peaks?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.asking import asked
from ullage.asking.question import RegisteredQuestion, python_function, register
from ullage.gpus.precision import PRECISIONS, canonical

if TYPE_CHECKING:
    from ullage.render.gpus import GpuList


@dataclass(frozen=True, kw_only=True)
class GpusQuestion:
    """The GPUs and their dense peaks, or one of them in full.

    NAME is as drivers, exporters, Kubernetes or people write it: 'NVIDIA H100 80GB HBM3', 'H100 SXM', 'A100-SXM-80GB'. JSON is in SI
    units (Hz, FLOP/s, B/s, B, W).
    """

    name: str | None = asked(
        "The GPU's name; without one all are listed.", metavar="[NAME]", argument=True, suggested="ullage.gpus.chip:all_names"
    )
    precision: str | None = asked(
        f"Only this precision: {', '.join(PRECISIONS)}, or a name such as bfloat16, e4m3, nvfp4.",
        short="-p",
        suggested="ullage.gpus.precision:PRECISIONS",
    )


def answer(question: GpusQuestion, *_: object) -> GpuList:
    """Return the GPUs; raises UllageError for a name or a precision that none has."""
    from ullage.gpus.chip import CHIPS, find
    from ullage.render.gpus import GpuList, in_order

    wanted = canonical(question.precision) if question.precision else None
    if question.name:
        return GpuList((find(question.name),), wanted, named=True)
    if wanted:
        return GpuList(tuple(sorted((c for c in CHIPS.values() if wanted in c.precisions), key=lambda c: c.peak(wanted))), wanted)
    return GpuList(tuple(in_order(CHIPS.values())))


_EXAMPLES = """
  ullage gpus                          every chip, with its dense peaks
  ullage gpus 'H100 SXM'               one chip in full, with its source
  ullage gpus --precision nvfp4        the chips that have FP4, fastest last
  ullage gpus H200 -p fp8              one figure
  ullage gpus --json | jq -r '.gpus[].name'

\b
Environment:
  ULLAGE_PEAK_TFLOPS  a peak that goes before the tables: 989.4 or bf16=989.4,fp8=1978.9
  ULLAGE_GPU_ALIAS    what a relabelled board really is: 'L20X=H200 SXM'
  ULLAGE_CEILINGS     the folder where `ullage bench --save` keeps what a GPU was measured to do
"""

QUESTION = register(
    RegisteredQuestion(
        name="gpus", asked=GpusQuestion, noun="a list of GPUs", answer=answer, shown_by="ullage.render.gpus", examples=_EXAMPLES
    )
)

gpus = python_function(QUESTION)
