"""What do traces of a run hold, as any profiler would have recorded them, whose answers are known?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ullage.asking import asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.render.simulated import SimulatedTraceFiles
    from ullage.simulate.traces.pipeline import PipelinePlan
    from ullage.simulate.traces.scenario import Scenario

MAKER = "ullage simulate trace"


@dataclass(frozen=True, kw_only=True)
class SimulateTraceQuestion:
    """Traces of a run with known answers: PyTorch's, Nsight Systems' or TALP's files, or our own recordings."""

    run: str = asked("training, or a use case of the TALP paper: 1 to 7.", "training", metavar="NAME")
    ranks: int = asked("Ranks of the training job.", 2, least=1)
    steps: int = asked("Its profiler steps.", 3, least=1)
    straggler: int | None = asked("This rank is slow.", metavar="RANK", least=0)
    form: Literal["kineto", "nsys", "talp", "recording", "jax", "xplane", "rocpd", "rocprofv3", "otf2", "operations"] = asked(
        "Whose files.", "kineto", flag="--format"
    )
    out: str = asked("Where to write.", "traces", metavar="FOLDER", acts=True)
    graph: Literal["kernels", "whole", "hidden"] | None = asked("Launch CUDA graphs: recorded by kernel, as a whole, not at all.")
    stack: bool = asked("Record Python functions and modules; every second batch is slow to decode.", False)
    lengths: Literal["equal", "steps", "ranks", "microbatches"] = asked(
        "What differs in sequence length; microbatches need --format operations.", "equal"
    )
    host_bound: bool = asked("Small kernels, launched one by one.", False)
    stages: int = asked("Pipeline stages (--format operations).", 4, least=1, minor=True)
    long_stage: bool = asked("The last pipeline stage has twice the work (--format operations).", False, minor=True)
    generation: Literal["2020", "2022", "2024", "2026", "newest"] = asked("Nsight Systems' schema.", "2026", minor=True)


def answer(question: SimulateTraceQuestion, progress: Progress, command: str = "") -> SimulatedTraceFiles:  # noqa: ARG001 - a question's
    """Write the traces, and return which. Raises UllageError where they can't be written, or the run can't be simulated."""
    from ullage.output_folder import output_folder
    from ullage.render.simulated import SimulatedTraceFiles
    from ullage.simulate.traces.pipeline import write

    folder = Path(question.out)
    if question.lengths == ("ranks" if question.form == "operations" else "microbatches"):
        hint = "ranks: any but operations; microbatches: operations alone"
        raise UllageError(f"sequences can't differ by {question.lengths} in this format", hint)
    if question.form == "operations":
        job = _pipeline(question)
        with output_folder(folder, MAKER) as stage:
            name = write(job, stage / "operations.parquet").name
        return SimulatedTraceFiles(folder, (folder / name,), question.form)
    scenario = _scenario(question)
    with output_folder(folder, MAKER) as stage:
        names = [path.relative_to(stage) for path in _write(scenario, question.form, question.generation, stage)]
    return SimulatedTraceFiles(folder, tuple(folder / name for name in names), question.form)


def _scenario(question: SimulateTraceQuestion) -> Scenario:
    """Return the run that is asked for. Raises UllageError for a name that no run has."""
    from ullage.simulate.traces.pils import USE_CASES, pils
    from ullage.simulate.traces.training import TrainingPlan, training

    if question.run in USE_CASES:
        return pils(USE_CASES[question.run].load)
    if question.run != "training":
        raise UllageError(f"no run is called '{question.run}'", f"there are training, {', '.join(USE_CASES)}")
    plan = TrainingPlan(
        ranks=question.ranks,
        steps=question.steps,
        straggler=question.straggler,
        graph=question.graph or "",
        host_bound=question.host_bound,
        stack=question.stack,
        lengths=question.lengths,  # type: ignore[arg-type]
    )
    return training(plan)


def _pipeline(question: SimulateTraceQuestion) -> PipelinePlan:
    """Return a job whose ranks are replicas × stages. Raises UllageError where they don't divide."""
    from ullage.simulate.traces.pipeline import PipelinePlan

    ranks, stages = question.ranks, question.stages
    if question.run != "training":
        raise UllageError("only the training job has pipeline stages", "leave out --run")
    if ranks % stages:
        raise UllageError(
            f"{ranks} ranks can't be divided into {stages} stages",
            f"write --ranks {stages * (ranks // stages + 1)}",
        )
    return PipelinePlan(
        replicas=ranks // stages,
        stages=stages,
        steps=question.steps,
        straggler=question.straggler,
        long_stage=question.long_stage,
        lengths=question.lengths,  # type: ignore[arg-type]
    )


def _write(scenario: Scenario, form: str, generation: str, out: Path) -> list[Path]:
    from ullage.simulate.traces import jax, kineto, nsys, otf2, recording, rocprof, talp, xplane

    if form == "kineto":
        return list(kineto.write(scenario, out))
    if form in ("jax", "xplane"):
        return list((jax.write if form == "jax" else xplane.write)(scenario, out))
    if form == "otf2":
        return list(otf2.write(scenario, out / "archive"))
    if form in ("rocpd", "rocprofv3"):
        return list((rocprof.write_rocpd if form == "rocpd" else rocprof.write_json)(scenario, out))
    if form == "recording":
        return list(recording.write(scenario, out))
    if form == "nsys":
        return [nsys.write(scenario, out / f"{_file_name(scenario.name)}.sqlite", generation=generation)]
    return [talp.write(scenario, out / f"{_file_name(scenario.name)}.json")]


def _file_name(name: str) -> str:
    """Return a run's name as a file's.

    >>> _file_name("use case 7, overlapped")
    'use-case-7-overlapped'
    """
    return name.replace(",", "").replace(" ", "-")


_EXAMPLES = """
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
"""

QUESTION = register(
    RegisteredQuestion(
        name="simulate trace",
        asked=SimulateTraceQuestion,
        noun="simulated traces",
        answer=answer,
        shown_by="ullage.render.simulated:trace",
        examples=_EXAMPLES,
        only_reads=False,
    )
)

simulate_trace = python_function(QUESTION)
