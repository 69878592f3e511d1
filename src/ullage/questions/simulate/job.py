"""What does a simulated training job hold, of which every factor from peak to MFU is known?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.asking import asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register

if TYPE_CHECKING:
    from ullage.render.simulated import SimulatedJobFiles


@dataclass(frozen=True, kw_only=True)
class SimulateJobQuestion:
    """A job with a known answer, for `ullage waterfall`: telemetry, traces, config, matrix products, and the truth."""

    ranks: int = asked("GPUs of the job.", 4)
    steps: int = asked("Steps in its traces.", 3)
    seed: int = asked("The same seed gives the same job.", 0, least=0, shown="0")
    shapes: bool = asked("Traces with many short kernels, and the shapes of their operators.", False)
    mixed: bool = asked("Products in two precisions: the peak is their mixture's.", False)
    out: str = asked("Where to write.", "job", metavar="FOLDER", acts=True)


def answer(question: SimulateJobQuestion, progress: Progress, command: str = "") -> SimulatedJobFiles:  # noqa: ARG001 - a question's
    """Write the job, and return what was written. Raises UllageError where it can't be, or can't be simulated."""
    from ullage.render.simulated import SimulatedJobFiles
    from ullage.simulate.job import JobPlan, job
    from ullage.simulate.job_files import write

    simulated = job(JobPlan(question.ranks, question.steps, question.seed, question.shapes, question.mixed))
    return SimulatedJobFiles(write(simulated, Path(question.out)), simulated)


_EXAMPLES = """
  ullage simulate job                         telemetry, traces, config and matrix products, and the truth
  ullage simulate job --seed 7 --ranks 8      another job, on eight GPUs
  ullage simulate job --shapes                its traces say what each kernel was asked for
  ullage simulate job --mixed                 products in BF16 and in FP8 or TF32
"""

QUESTION = register(
    RegisteredQuestion(
        name="simulate job",
        asked=SimulateJobQuestion,
        noun="a simulated job",
        answer=answer,
        shown_by="ullage.render.simulated:job",
        examples=_EXAMPLES,
        only_reads=False,
    )
)

simulate_job = python_function(QUESTION)
