"""What a job's trainer reported beside OFU, in the course of time: the answer of `ullage audit mfu --reported LOG --telemetry SOURCE`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.gpus.chip import find, peak
from ullage.metrics.agreement import pearson
from ullage.reports.audit.audit import AuditReport
from ullage.reports.fleet.course import CoursePoint, course_width
from ullage.reports.fleet.fleet import FleetReport
from ullage.trainlogs.reported import periods
from ullage.views.shown import ShownByView

Floats = npt.NDArray[np.float64]
UNNAMED = "no model"  # the group of samples that name no GPU
LEAST_LOGGED = 0.01  # of a span: what a step only touches is not set beside OFU


@dataclass(frozen=True)
class MfuCoursePoint:
    """A span of time: its start and end (ms), the first and last step that lie in it, the share of it that steps took, what they reported
    on the mean, and the OFU of the job's GPUs over the span."""

    start: int
    end: int
    first_step: int | None
    last_step: int | None
    logged: float
    mfu: float | None
    ofu: float | None

    @property
    def ratio(self) -> float | None:
        """How many times OFU the reported MFU is."""
        return None if self.mfu is None or not self.ofu else self.mfu / self.ofu


@dataclass(frozen=True)
class MfuCourse(ShownByView, view="ullage.render.mfu_course"):
    """A job's reported MFU beside its OFU, span by span. `mfu` and `ofu` are means over the time of the steps, of spans that have both.

    `correlation` is Pearson's of both over these spans, and `explained` the audit of the two means where a model's configuration was given.
    `complete` says whether all of the telemetry was read; if not, `partial_because` is why.
    """

    job: str
    points: tuple[MfuCoursePoint, ...]
    mfu: float
    ofu: float
    correlation: float | None
    steps: int
    explained: AuditReport | None = None
    notes: tuple[str, ...] = ()
    complete: bool = True
    partial_because: str = ""


@dataclass(frozen=True)
class LoggedSteps:
    """The steps of a log as spans: when each starts and ends (ms), its number (-1: it has none), its MFU and the FLOP/s of a GPU
    (NaN: not reported). By end."""

    start: Floats
    end: Floats
    number: npt.NDArray[np.int64]
    mfu: Floats
    flops: Floats

    @property
    def window(self) -> tuple[int, int]:
        """From the start of the first to the end of the last."""
        return int(self.start.min()), int(np.ceil(self.end.max()))

    @property
    def flops_alone(self) -> bool:
        """Whether they report FLOP/s, and no MFU."""
        return bool(np.isnan(self.mfu).all() and not np.isnan(self.flops).all())


def logged_steps(series: pa.Table, job: str) -> LoggedSteps:
    """Return the steps of a log (a `trainlogs.log.SERIES` table) that say when they were.

    Raises UllageError for a log whose lines have no times: nothing can be set beside it.
    """
    seconds = periods(series)
    timed = series["time"].is_valid().to_numpy()
    if not timed.any():
        hint = "give --ofu and the MFU by hand, or a log with times: TensorBoard, W&B, JSON lines"
        raise UllageError(f"the log of job {harmless(job, 60)} does not say when its steps were", hint)
    end = series["time"].cast(pa.int64()).fill_null(0).to_numpy().astype(np.float64)
    number = series["step"].fill_null(-1).to_numpy().astype(np.int64)
    mfu, flops = (series[name].to_numpy().astype(np.float64) for name in ("mfu", "flops_per_gpu"))
    order = np.argsort(end[timed], kind="stable")
    return LoggedSteps(*(each[timed][order] for each in (end - seconds * 1000, end, number, mfu, flops)))


def with_mfu(steps: LoggedSteps, report: FleetReport, gpu: str | None, peak_tflops: str | None, job: str) -> LoggedSteps:
    """Return steps whose MFU is their FLOP/s over the peak of the job's GPU, where they report FLOP/s alone.

    `gpu` names the GPU where samples don't. Raises UllageError where there is no one peak.
    """
    if not steps.flops_alone:
        return steps
    chips = chips_of(report, gpu)
    if len(chips) != 1:
        problem = f"the log of job {harmless(job, 60)} reports FLOP/s without an MFU, and {' and '.join(chips)} have no one peak"
        raise UllageError(problem, "log the MFU as well, or give --telemetry of one kind of GPU")
    return replace(steps, mfu=steps.flops / peak(chips[0], "bf16", override=peak_tflops))


def chips_of(report: FleetReport, gpu: str | None) -> list[str]:
    """Return the names of the GPUs that a report is on: those that samples name, and `gpu` where some name none."""
    named = {gpu if group.key == UNNAMED else group.key for group in report.models}
    return sorted({find(name).name for name in named if name is not None})


def mfu_course(report: FleetReport, steps: LoggedSteps, job: str, notes: Sequence[str] = ()) -> MfuCourse:
    """Return what steps reported beside the course of OFU in a report on their job, whose window is that of the steps.

    Raises UllageError where no span has both.
    """
    points = tuple(_points(report.course, report.window, steps))
    both = [one for one in points if one.mfu is not None and one.ofu is not None]
    if not both:
        missing = "reports no MFU and no FLOP/s" if np.isnan(steps.mfu).all() else "covers no time for which OFU is known"
        raise UllageError(
            f"the log of job {harmless(job, 60)} {missing}",
            "compare the times of the log with those of the samples: `ullage fleet SOURCE --reported LOG=JOB` shows both",
        )
    weights = np.array([one.logged * (one.end - one.start) for one in both])
    mfu, ofu = (np.array([getattr(one, name) for one in both], dtype=float) for name in ("mfu", "ofu"))
    return MfuCourse(
        job=job,
        points=points,
        mfu=float(np.average(mfu, weights=weights)),
        ofu=float(np.average(ofu, weights=weights)),
        correlation=pearson(ofu, mfu),
        steps=_steps_within(steps, both),
        notes=(*notes, *report.notes),
        complete=report.complete,
        partial_because=report.partial_because,
    )


def _points(course: Sequence[CoursePoint], window: tuple[int, int], steps: LoggedSteps) -> list[MfuCoursePoint]:
    width = course_width(window)
    found = []
    for point in course:
        start, end = max(point.time, window[0]), min(point.time + width, window[1])
        shared = np.minimum(steps.end, end) - np.maximum(steps.start, start)
        inside = shared > 0
        logged = float(shared[inside].sum()) / max(1, end - start)
        if logged < LEAST_LOGGED:
            continue
        told = inside & ~np.isnan(steps.mfu)
        mfu = float(np.average(steps.mfu[told], weights=shared[told])) if told.any() else None
        numbers = steps.number[inside & (steps.number >= 0)]
        first, last = (int(numbers.min()), int(numbers.max())) if len(numbers) else (None, None)
        found.append(MfuCoursePoint(start, end, first, last, min(1.0, logged), mfu, point.ofu))
    return found


def _steps_within(steps: LoggedSteps, spans: Sequence[MfuCoursePoint]) -> int:
    """Return how many steps report an MFU in some of the spans, which follow each other in time."""
    starts, ends = np.array([one.start for one in spans]), np.array([one.end for one in spans])
    first = np.searchsorted(ends, steps.start, side="right")
    inside = (first < len(spans)) & (starts[np.minimum(first, len(spans) - 1)] < steps.end)
    return int((inside & ~np.isnan(steps.mfu)).sum())
