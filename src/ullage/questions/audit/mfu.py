"""Which known mistakes explain a reported MFU beside OFU: of one job, and of a fleet's?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from typing import TYPE_CHECKING, Any, ClassVar

from ullage.asking import WrongQuestionError, askable, asked, read_share
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.step import StepDescription, question_in_words, words_of_section
from ullage.asking.telemetry import StoredTelemetryReading
from ullage.written_values import expanded_path

if TYPE_CHECKING:
    from ullage.models.config import Config
    from ullage.reports.audit.audit import AuditReport, MistakeList
    from ullage.reports.audit.course import MfuCourse
    from ullage.reports.audit.fleet import FleetAudit
    from ullage.reports.flops import StepQuestion

    MfuAnswer = AuditReport | FleetAudit | MistakeList | MfuCourse


def read_share_or_log(text: str, flag: str, now: float) -> float | str:
    """Read a ratio, or take the name of a trainer's log as it is.

    >>> read_share_or_log("50", "--reported", 0), read_share_or_log("train.log=4711", "--reported", 0)
    (0.5, 'train.log=4711')
    """
    is_log = set(text) & {"/", "="} or (text.strip() and expanded_path(text).exists())
    return text if is_log else read_share(text, flag, now)


@dataclass(frozen=True, kw_only=True)
class AuditMfuQuestion(StepDescription, StoredTelemetryReading):
    """Which known mistakes explain a reported MFU beside OFU: the smallest sets that fit, the likeliest first.

    MFU = OFU × tile efficiency × model efficiency. Each mistake's factor is computed from this configuration and step,
    described with the options of `ullage flops`. With --fleet every job of a fleet is audited, which is read as `ullage fleet` reads it.
    """

    ALSO_MINOR: ClassVar = ("since", "until", "step_time", "gpus")

    config: str | Mapping[str, Any] | None = asked(
        "config.json, a folder with one, or a diffusers folder.", metavar="CONFIG", positional=True
    )
    reported: float | str | None = asked(
        "The MFU that was reported: percent (54.27), a ratio (0.5427), or the trainer's log of a job, set beside OFU in time.",
        metavar="MFU|LOG[=JOB]",
        read=read_share_or_log,
    )
    ofu: float | None = asked("What the counters say, in the same way.", metavar="OFU", read=read_share)
    tile_efficiency: float | None = asked(
        "Share of the executed FLOPs that tiles did not pad (`ullage gemm`).", metavar="RATIO", read=read_share
    )
    telemetry: tuple[str, ...] = asked(
        "With --reported LOG: where the telemetry of the job's GPUs is. Repeatable.", (), metavar="SOURCE", repeated=True
    )
    fleet: tuple[str, ...] = asked("Audit every job of a fleet instead. Repeatable.", (), metavar="SOURCE", repeated=True)
    jobs: tuple[str, ...] = asked("With --fleet: job records with the reported MFU. Repeatable.", (), metavar="FILE", repeated=True)
    configs: str | None = asked("With --fleet: a configuration for each job or job name.", metavar="FOLDER")
    error: float | None = asked("Relative error of OFU.", shown="0.03", minor=True)
    node: int = asked("GPUs in a machine.", 8, minor=True)
    peak_tflops: str | None = asked(
        "With --reported LOG: peak of a relabelled board, for FLOP/s that it reports.", metavar="TFLOPS", minor=True
    )
    most: int = asked("Explanations to show.", 10, flag="--top", least=1, minor=True)
    listed: bool = asked("List the known mistakes.", False, flag="--list", minor=True)

    def __post_init__(self) -> None:
        if not self.listed:
            for problem in _problems(self):
                raise WrongQuestionError(problem)


def _problems(question: AuditMfuQuestion) -> Iterator[str]:
    if question.fleet:
        return _problems_of_fleet(question)
    return _problems_of_log(question) if isinstance(question.reported, str) else _problems_of_job(question)


def _problems_of_log(question: AuditMfuQuestion) -> Iterator[str]:
    """Yield why a job's log can't be set beside OFU so."""
    if not question.telemetry:
        yield "--telemetry is missing: name where the samples of the job's GPUs are"
    for name in ("ofu", "configs"):
        if getattr(question, name) is not None:
            yield f"leave --{name} out: with a log OFU comes from --telemetry, and the model from --config"
    if question.config is None:
        for flag in _given(question, StepDescription):
            if flag not in ("--gpu", "--peak-tflops"):
                yield f"{flag} describes a model's step: name the model with --config"


def _problems_of_fleet(question: AuditMfuQuestion) -> Iterator[str]:
    """Yield why a question about a fleet can't be asked so."""
    for name in ("config", "reported", "ofu", "telemetry"):
        if getattr(question, name) not in (None, ()):
            yield f"leave --{name} out: it is for one job, and --fleet audits all jobs of a fleet"
    if question.configs is None:
        yield "--configs is missing: name the folder with the jobs' configurations"
    for flag in _given(question, StepDescription):
        if flag != "--gpu":
            yield f"leave {flag} out: with --fleet each job's step is read from --configs"


def _problems_of_job(question: AuditMfuQuestion) -> Iterator[str]:
    """Yield why a question about one job can't be asked so."""
    for name in ("config", "reported", "ofu"):
        if getattr(question, name) is None:
            yield f"--{name} is missing"
    for flag in _given(question, StepDescription):
        if flag in ("--step-time", "--peak-tflops"):
            yield f"leave {flag} out: an audit compares ratios"
    named = (f"--{name}" for name in ("jobs", "configs", "telemetry") if getattr(question, name))
    for flag in (*_given(question, StoredTelemetryReading), *named):
        yield f"{flag} needs a fleet or a job's log: give --fleet SOURCE, or --reported LOG"


def _given(question: AuditMfuQuestion, kind: type) -> Iterator[str]:
    """Yield the flags of what was given of a kind of options."""
    for field in askable(kind):
        if getattr(question, field.name) != field.default:
            yield field.flag


def answer(question: AuditMfuQuestion, progress: Progress, command: str = "") -> MfuAnswer:  # noqa: ARG001
    """Return the audit of a job or of a fleet's, a job's log beside its OFU, or the known mistakes.

    Jobs of a fleet that can't be audited are left out.
    """
    from ullage.reports.audit.audit import MistakeList, known_mistakes

    if question.listed:
        return MistakeList(known_mistakes())
    if question.fleet:
        return _fleet(question, progress)
    return _course(question, progress) if isinstance(question.reported, str) else _job(question, question.reported, question.ofu)


def _job(question: AuditMfuQuestion, mfu: float | None, ofu: float | None) -> AuditReport:
    from ullage.audit.mfu import OFU_ERROR
    from ullage.models.reading import read_config
    from ullage.reports.audit.audit import Reported, audit_mfu

    assert question.config is not None
    assert mfu is not None
    assert ofu is not None
    error = OFU_ERROR if question.error is None else question.error
    reported = Reported(mfu, ofu, question.tile_efficiency, error, question.node)
    model = read_config(question.config)
    return audit_mfu(model, question.question(model), reported, most=question.most)


def _course(question: AuditMfuQuestion, progress: Progress) -> MfuCourse:
    """Return what the log of a job reports beside its OFU, and where a model is named what explains the means."""
    from ullage.intake import opened
    from ullage.problems import Problems
    from ullage.reports.audit.course import logged_steps, mfu_course, with_mfu
    from ullage.reports.fleet.fleet import fleet
    from ullage.reports.fleet.request import FleetRequest
    from ullage.sources.clock import named_zone
    from ullage.trainlogs.log import read_log
    from ullage.trainlogs.reported import named_log

    name, job = named_log(str(question.reported))
    problems = Problems()
    series = read_log(name, problems, zone=named_zone(question.time_zone) or UTC, run=job)
    steps = logged_steps(series, job)
    since, until = steps.window
    since = since if question.since is None else max(since, question.since)
    until = until if question.until is None else min(until, question.until)
    options = replace(question.reading_options(progress), since=since, until=until)
    with opened(question.telemetry, jobs=question.jobs, options=options, engine=question.engine) as taken:
        if question.strict:
            taken.problems.refuse_partial()
        named = taken.samples.filter(taken.samples.job.notnull()).limit(1).to_pyarrow().num_rows > 0
        whose = FleetRequest(job=(job,) if named else (), one_job=not named, gpu=question.gpu, since=since, until=until, by="model")
        report = taken.marked(fleet(taken.samples, taken.jobs, whose, [*taken.problems.lines(), *problems.lines()]))
    made = mfu_course(report, with_mfu(steps, report, question.gpu, question.peak_tflops, job), job)
    return made if question.config is None else replace(made, explained=_job(question, made.mfu, made.ofu))


def _fleet(question: AuditMfuQuestion, progress: Progress) -> FleetAudit:
    from ullage.audit.configs import ConfigFolder
    from ullage.audit.mfu import OFU_ERROR
    from ullage.intake import opened
    from ullage.reports.audit.fleet import Measure, audit_fleet
    from ullage.reports.fleet.fleet import fleet
    from ullage.reports.fleet.request import FleetRequest

    folder = ConfigFolder(expanded_path(question.configs or ""), words_of_section)

    def describe(job: str, name: str | None) -> tuple[Config, StepQuestion] | None:
        found = folder.get(job, name)
        return None if found is None else (found.config, question_in_words(found.step, found.config))

    request = FleetRequest(by="job", gpu=question.gpu, since=question.since, until=question.until)
    measure = Measure(question.tile_efficiency, OFU_ERROR if question.error is None else question.error, question.node)
    options = question.reading_options(progress)
    with opened(question.fleet, jobs=question.jobs, options=options, engine=question.engine) as taken:
        if question.strict:
            taken.problems.refuse_partial()
        report = taken.marked(fleet(taken.samples, taken.jobs, request, taken.problems.lines()))
        return audit_fleet(report, taken.jobs, describe, measure)


def gate(question: AuditMfuQuestion, report: Any) -> bool:
    """Return whether a reported MFU is wrong or unexplained."""
    if question.listed:
        return False
    if isinstance(question.reported, str):
        return report.explained is not None and bool(report.explained.finding.flagged)
    return bool(report.of("wrong", "unexplained")) if question.fleet else bool(report.finding.flagged)


def shown_by(question: AuditMfuQuestion) -> str:
    """Return the module that describes the answer."""
    if isinstance(question.reported, str) and not question.listed:
        return "ullage.render.mfu_course"
    return "ullage.render.audit:mistakes" if question.listed else f"ullage.render.audit{'_fleet' if question.fleet else ''}"


def read_places(question: AuditMfuQuestion) -> list[str]:
    """Return the places that are read for a question."""
    from ullage.trainlogs.reported import named_log

    log = named_log(question.reported)[0] if isinstance(question.reported, str) else None
    places = (question.config, log, *question.telemetry, *question.fleet, *question.jobs, question.configs, question.step)
    return [place for place in places if isinstance(place, str)]


_EXAMPLES = """
  ullage audit mfu --config config.json --reported 54.27 --ofu 25.58 --seq 4096 --gpu 'H100 SXM'
  ullage audit mfu --config config.json --reported 26 --ofu 34 --seq 8192 --tile-efficiency 0.97
  ullage audit mfu --config Wan2.1/ --reported 3.1 --ofu 0.31 --latent 21,60,104 --prompt-tokens 512
  ullage audit mfu --config config.json --reported 54.27 --ofu 43.1 --seq 4096 --as verl --out audit.svg
  ullage audit mfu --reported train.log=4711 --telemetry week.parquet
  ullage audit mfu --reported slurm-4711.out --telemetry store/ --config config.json --seq 4096
  ullage audit mfu --fleet week.parquet --jobs jobs.csv --configs configs/
  ullage audit mfu --list

\b
With --fleet, configs/ holds NAME.json for each job or job name, its step in a section "step" in the words of
`ullage flops` ({"batch": 512, "seq": 4096}) or in NAME.step.json; GPUs and their number come from the samples.
"""

QUESTION = register(
    RegisteredQuestion(
        name="audit mfu",
        asked=AuditMfuQuestion,
        noun="an audit",
        answer=answer,
        shown_by=shown_by,
        examples=_EXAMPLES,
        read_places=read_places,
        gate=gate,
        status_3="a reported MFU is wrong or unexplained, or only a part of the fleet's telemetry could be read",
    )
)

audit_mfu = python_function(QUESTION)
