"""A job's sources, read: telemetry, traces, the model's step and matrix products, each telling the next what it did not say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ullage.errors import UllageError
from ullage.gpus.chip import find, peak
from ullage.models.config import Config
from ullage.problems import Problems
from ullage.profiles import Profile, ProfileRequest
from ullage.reports.fleet.fleet import FleetReport
from ullage.reports.fleet.request import FleetRequest as FleetQuestion
from ullage.reports.flops import FlopsReport, StepQuestion, flops
from ullage.reports.gemms.file import read_gemms
from ullage.reports.trace.trace import TraceRequest, trace
from ullage.reports.waterfall import evidence as evidence_of
from ullage.reports.waterfall.known import LogReport, SourceReports, gpu_name, with_gpus
from ullage.sources.source import Options
from ullage.store.spark_session import DUCKDB
from ullage.sums.lanes.window import TraceWindow
from ullage.trainlogs.log import read_log
from ullage.trainlogs.reported import means_of
from ullage.views.numbers import percent


@dataclass(frozen=True)
class JobSources:
    """Where the sources of one job lie, and how they are to be read; each may be missing.

    `step` describes the step of the model in `config`; `job` names the job whose samples count; `strict` refuses telemetry that can be
    read only in part; `engine` adds up what a store holds.
    """

    telemetry: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    job: str | None = None
    trace: tuple[str, ...] = ()
    config: Config | None = None
    step: StepQuestion | None = None
    gemms: Path | None = None
    log: str | None = None
    gpu: str | None = None
    options: Options | None = None
    engine: str = DUCKDB
    strict: bool = False
    asked: ProfileRequest | None = None
    progress: Callable[[str], None] = lambda _: None


def read(places: JobSources) -> SourceReports:
    """Return the reports on a job's sources. Raises UllageError for what the user can fix."""
    notes: list[str] = []
    profile, traced = (None, None) if not places.trace else _traced(places)
    measured = _telemetry(places, notes) if places.telemetry else None
    gemms = None if places.gemms is None else read_gemms(places.gemms)
    precision = "bf16" if places.step is None else places.step.precisions.get("*", "bf16")
    found = SourceReports(telemetry=measured, trace=traced, gemms=gemms, gpu=places.gpu, precision=precision)
    found = with_gpus(found, _said_gpus(places.step) or (None if measured is not None else _world(profile)))
    if places.log is not None:
        found = replace(found, log=_log(places, found, notes))
    if places.config is not None:
        found = replace(found, flops=_step(places, found, notes))
        found = with_gpus(found, found.flops.gpus if found.flops is not None and found.flops.step_time is not None else found.gpus)
    kept = [] if traced is None else [note for note in traced.notes if traced.partial]
    return replace(found, notes=tuple(dict.fromkeys((*notes, *kept))))


def _log(places: JobSources, found: SourceReports, notes: list[str]) -> LogReport:
    """Return what a trainer's log reports; FLOP/s become an MFU where the GPU is known."""
    assert places.log is not None
    problems = Problems()
    means = means_of(read_log(places.log, problems, run=places.job))
    if places.strict:
        problems.refuse_partial()
    notes += problems.lines()
    reported, name = means.mfu, gpu_name(found)
    if reported is None and means.flops_per_gpu is not None and name is not None:
        reported = means.flops_per_gpu / peak(name, found.precision)
    return LogReport(Path(places.log).name, means.lines, reported, means.step_time, problems.complete)


def _telemetry(places: JobSources, notes: list[str]) -> FleetReport:
    from ullage.intake import opened

    options = places.options or Options(progress=places.progress)
    question = FleetQuestion(by="gpu", since=options.since, until=options.until, gpu=places.gpu, noise=True, progress=places.progress)
    with opened(places.telemetry, jobs=places.jobs, options=options, engine=places.engine) as taken:
        if places.strict:
            taken.problems.refuse_partial()
        report = taken.marked(evidence_of.job_report(taken.samples, taken.jobs, places.job, question, taken.problems.lines()))
    notes += report.notes
    return report


def _traced(places: JobSources) -> tuple[Profile, Any]:
    from ullage.profiles import profile

    asked = places.asked or ProfileRequest(TraceWindow("auto"))
    read = profile(list(places.trace), asked)
    return read, trace(read, read.window, TraceRequest(mode="ai"))


def _said_gpus(step: StepQuestion | None) -> int | None:
    if step is None:
        return None
    return step.gpus or (step.layout.world if step.layout.world > 1 else None)


def _world(profile: Profile | None) -> int | None:
    """Return how many ranks a trace's files say that the job has."""
    ranks = [recording.ranks for recording in profile.recordings if recording.ranks] if profile is not None else []
    return max(ranks, default=None)


SHAPED = 0.5  # of the GEMMs' time: where fewer tell their sizes, these may not be all precisions


def traced_precisions(found: SourceReports) -> dict[str, float]:
    """Return the FLOPs of a trace's products by precision, where these have not all the peak of BF16; nothing where they do.

    Kernels' names tell in which precision they multiply.
    """
    name, gemms = gpu_name(found), None if found.trace is None else found.trace.gemms
    if name is None or gemms is None or gemms.shaped < SHAPED * gemms.time:
        return {}
    try:
        chip = find(name)
    except UllageError:
        return {}
    mixed: dict[str, float] = {}
    for group in gemms.products:
        if group.precision in chip.precisions and group.flops:
            mixed[str(group.precision)] = mixed.get(str(group.precision), 0.0) + group.flops
    plain = chip.peak("bf16") if "bf16" in chip.precisions else None
    return {} if all(chip.peak(precision) == plain for precision in mixed) else mixed


def _precisions(mixed: dict[str, float], *, declared: bool) -> str:
    ranked = sorted(mixed.items(), key=lambda item: -item[1])
    listed = " and ".join(f"{precision.upper()} ({percent(flops / sum(mixed.values()))})" for precision, flops in ranked)
    counts = "the peak is that of --precision" if declared else "the peak is that of all of them (OFU paper, eq. 12)"
    return f"the trace's matrix products ran in {listed}: {counts}"


def _step(places: JobSources, found: SourceReports, notes: list[str]) -> FlopsReport:
    """Return the ledger of the model's step; what the question leaves open the other sources say: GPUs, their number, the step's time."""
    assert places.config is not None
    question = places.step or StepQuestion()
    said: dict[str, Any] = {}
    if question.gpu is None and question.peak_tflops is None and (name := gpu_name(found)) is not None:
        said["gpu"] = name
    if _said_gpus(question) is None and found.gpus is not None:
        said["gpus"] = found.gpus
    if question.peak_tflops is None and (mixed := traced_precisions(found)):
        said["traced"] = mixed
        notes.append(_precisions(mixed, declared=bool(question.precisions)))
    if question.step_time is None and found.log is not None and found.log.step_time is not None:
        said["step_time"] = found.log.step_time
        notes.append(f"the step's time is the mean of the trainer's log, {found.log.step_time:,.4g} s")
    elif question.step_time is None and found.trace is not None and (mean := evidence_of.mean_step(found.trace)) is not None:
        said["step_time"] = mean
        notes.append(f"the step's time is the mean of the trace's steps, {mean:,.4g} s: recording slows a job down (--step-time)")
    return flops(places.config, replace(question, **said))
