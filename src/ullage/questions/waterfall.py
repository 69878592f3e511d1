"""How much of the peak is left at each step of the way to MFU?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ullage.asking import WrongQuestionError, askable, asked, read_share
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.step import SECTION, StepDescription, question_in_words, words_of_section
from ullage.asking.telemetry import StoredTelemetryReading
from ullage.errors import UllageError, harmless
from ullage.written_values import expanded_path

if TYPE_CHECKING:
    from ullage.models.config import Config
    from ullage.reports.flops import StepQuestion
    from ullage.reports.waterfall.known import GivenByHand
    from ullage.reports.waterfall.sources import JobSources
    from ullage.reports.waterfall.waterfall import WaterfallReport


@dataclass(frozen=True, kw_only=True)
class WaterfallQuestion(StepDescription, StoredTelemetryReading):
    """One multiplicative chain from peak to MFU, and whose work each step is.

    MFU = load balance × communication × orchestration × SM fill × tensor issue × clock × tile × model. Each step in points, in
    GPU-hours and in money, from telemetry, traces, a model's step, matrix products, or numbers by hand: whatever there is.
    """

    ALSO_MINOR: ClassVar = ("until", "step_time", "gpus", "precision")

    sources: tuple[str, ...] = asked("Telemetry, traces, a model, products.", (), argument=True, repeated=True, metavar="[SOURCE…]")
    telemetry: tuple[str, ...] = asked("Telemetry: a file, a folder, a store or a URL. Repeatable.", (), metavar="PLACE", repeated=True)
    job: str | None = asked("Whose samples count, where there are several jobs.", metavar="ID")
    jobs: tuple[str, ...] = asked("Job records, where the samples name no jobs. Repeatable.", (), metavar="FILE", repeated=True, minor=True)
    trace: tuple[str, ...] = asked("Traces: files, a folder or a glob, a file a rank. Repeatable.", (), metavar="FILE", repeated=True)
    window: str = asked("Of the trace: steps, first-last, or A:B seconds.", "auto", metavar="W", shown="steps, if it has any", minor=True)
    config: str | Mapping[str, Any] | None = asked("config.json, a folder with one, or a diffusers folder.", metavar="CONFIG")
    gemms: str | None = asked("Matrix products with kernels or tiles: JSON.", metavar="FILE", minor=True)
    tile_efficiency: float | None = asked(
        "Share of the executed FLOPs that tiles did not pad (`ullage gemm`).", metavar="RATIO", read=read_share, minor=True
    )
    model_efficiency: float | None = asked(
        "Share of the executed FLOPs that the model needs (`ullage flops`).", metavar="RATIO", read=read_share, minor=True
    )
    ofu: float | None = asked("OFU, where there is no telemetry: 34%, 34 or 0.34.", metavar="OFU", read=read_share)
    mfu: float | None = asked("A reported MFU, in the same way; below 2 % with its sign.", metavar="MFU", read=read_share)
    ceiling: str | float | None = asked(
        "Measured ceiling: FLOP/s (800e12), a file of `ullage bench --save`, or 'measured': what that kept of this GPU.",
        metavar="FLOPS",
        minor=True,
    )
    price: float | None = asked("Money per GPU-hour.", metavar="P", least=0)
    currency: str | None = asked("What --price is in: EUR, USD, credits.", metavar="NAME", env="ULLAGE_CURRENCY", minor=True)
    hours: float | None = asked("Hours that the job ran, where telemetry doesn't hold all.", metavar="H", above=0, minor=True)
    steps: int | None = asked("Steps that it took, instead of its hours.", metavar="N", least=1, minor=True)
    error: float | None = asked("Relative error of OFU as a measure of executed FLOPs.", least=0, most=0.99, shown="0.03", minor=True)


def answer(question: WaterfallQuestion, progress: Progress, command: str = "") -> WaterfallReport:  # noqa: ARG001 - a question's `answer`
    """Return the chain of a job; raises UllageError for what the user can fix, and where nothing is known."""
    from ullage.reports.waterfall.ceiling import with_measured
    from ullage.reports.waterfall.sources import read
    from ullage.reports.waterfall.waterfall import waterfall

    named = (question.sources, question.telemetry, question.trace, question.config, question.ofu, question.mfu)
    if not any(named):
        raise WrongQuestionError(
            "nothing is known of the job: name its telemetry, its traces or its config.json, or give --ofu or --mfu; "
            "`ullage simulate job` makes one to try"
        )
    places = job_sources(question, progress)
    found = read(places)
    return waterfall(found, with_measured(_given(question, places), found))


def job_sources(question: WaterfallQuestion, progress: Progress = lambda _: None) -> JobSources:
    """Return where a job's sources lie. Raises UllageError for a place that nobody recognises, and for two models."""
    from ullage.profiles import ProfileRequest
    from ullage.reports.waterfall.inputs import sorted_by_kind
    from ullage.reports.waterfall.sources import JobSources
    from ullage.sums.lanes.window import parse
    from ullage.traces.trace import TraceOptions

    found = sorted_by_kind(question.sources)
    config = _one("configurations", [*([] if question.config is None else [question.config]), *found.get("config", [])])
    log = _one("trainers' logs", found.get("log", []))
    gemms = _one("lists of matrix products", [*([] if question.gemms is None else [question.gemms]), *found.get("gemms", [])])
    model, step = _step(config, question)
    return JobSources(
        telemetry=(*question.telemetry, *found.get("telemetry", [])),
        jobs=question.jobs,
        job=question.job,
        trace=(*question.trace, *found.get("trace", [])),
        config=model,
        step=step,
        gemms=None if gemms is None else expanded_path(str(gemms)),
        log=log,
        gpu=step.gpu,
        options=question.reading_options(progress),
        engine=question.engine,
        strict=question.strict,
        asked=ProfileRequest(parse(question.window), options=TraceOptions(strict=question.strict, progress=progress)),
        progress=progress,
    )


def _one(what: str, places: list[Any]) -> Any:
    if len(places) > 1:
        listed = ", ".join(harmless(str(place), 80) for place in places)
        raise UllageError(f"there are {len(places)} {what}: {listed}", "a waterfall is one job's: name one")
    return places[0] if places else None


# What says something of a job without a model's step, too
_OF_A_JOB = {"gpus", "gpu", "peak_tflops", "precision", "layout", "dp", "tp", "pp", "cp", "sp", "ep"}


def _step(config: Any, question: WaterfallQuestion) -> tuple[Config | None, StepQuestion]:
    """Return the model and the question about its step; what is asked goes before what the configuration's own section says."""
    from ullage.models.reading import read_config

    words = question.words()
    if config is None:
        if left := [field.flag for field in askable(StepDescription) if field.name in words.keys() - _OF_A_JOB]:
            raise UllageError(f"{left[0]} describes a model's step, and there is no model", "name its config.json: --config")
        return None, question_in_words(words)
    model, section = step_of(read_config(config))
    try:
        return model, question_in_words({**section, **words}, model)
    except TypeError as error:
        wrong = harmless(str(error), 120)
        raise UllageError(f"'{SECTION}' of {model.place} has a value of the wrong kind: {wrong}", "see docs/flops.md") from error


def step_of(config: Config) -> tuple[Config, dict[str, Any]]:
    """Return a configuration without its section `step`, and the section: a step in the words of `ullage.flops`."""
    section = words_of_section(config.values.get(SECTION) or {}, config.place)
    return replace(config, values={name: value for name, value in config.values.items() if name != SECTION}), section


def _given(question: WaterfallQuestion, places: JobSources) -> GivenByHand:
    """Return what is said by hand."""
    from ullage.reports.waterfall.ceiling import MEASURED, stated_ceiling
    from ullage.reports.waterfall.known import GivenByHand

    values: dict[str, Any] = {"tile": question.tile_efficiency, "model": question.model_efficiency}
    values |= {field.name: getattr(question, field.name) for field in fields(GivenByHand) if field.name in _SAID}
    given = GivenByHand(**{name: value for name, value in values.items() if value is not None})
    if question.ceiling is None or places.step is None:
        return given
    precision = places.step.precisions.get("*", "bf16")
    if question.ceiling == MEASURED:
        return replace(given, measured_at=precision)
    chosen, memory = stated_ceiling(question.ceiling, precision)
    return replace(given, ceiling=chosen.value, ceiling_source=chosen.source, ceiling_caution=chosen.caution, memory=memory)


_SAID = ("ofu", "mfu", "price", "currency", "hours", "steps", "error")


def read_places(question: WaterfallQuestion) -> list[str]:
    """Return the places that are read for a question."""
    named = [*question.sources, *question.telemetry, *question.trace, *question.jobs, question.config, question.gemms, question.step]
    return [place for place in named if isinstance(place, str | os.PathLike)]


_EXAMPLES = """
  ullage waterfall job                                         a folder with all of it
  ullage waterfall job/telemetry.parquet job/traces job/config.json job/gemms.json
  ullage waterfall week.parquet --job 4711 --config config.json --batch 512 --seq 4096 --step-time 21
  ullage waterfall week.parquet --job 4711 --config config.json --step step.toml
  ullage waterfall --trace profiles/ --config Llama-3-8B/ --batch 64 --seq 8192 --gpu 'H100 SXM'
  ullage waterfall http://prometheus:9090 --job 4711 --tile-efficiency 0.97 --price 2.50 --out waterfall.svg
  ullage waterfall --ofu 34 --mfu 26 --tile-efficiency 97% --model-efficiency 75%

\b
SOURCE is told by content: telemetry (as `ullage fleet` reads it), traces (as `ullage trace`), a model's config.json, a list of
matrix products, a trainer's log (as `ullage fleet --reported` reads it; --job names its run).
A configuration may hold its step in a section "step": {"batch": 512, "seq": 4096, "step_time": 21.0}.
What is not known is merged with its neighbour, and says so. To try it: `ullage simulate job` writes a job with a known answer.
"""

QUESTION = register(
    RegisteredQuestion(
        name="waterfall",
        asked=WaterfallQuestion,
        noun="a waterfall",
        answer=answer,
        shown_by="ullage.render.waterfall",
        examples=_EXAMPLES,
        read_places=read_places,
        gate=lambda _, report: report.contradiction is not None,
        status_3="the step is not the traced one and was left out, or only a part of the telemetry or of the traces could be read",
    )
)

waterfall = python_function(QUESTION)
