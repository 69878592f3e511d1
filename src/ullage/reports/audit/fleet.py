"""Every reported MFU of a fleet against OFU: which are wrong, and why. The answer of `ullage audit mfu --fleet`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from ullage.audit.mfu import OFU_ERROR, MfuFinding, audit
from ullage.audit.mistakes.mistake import AuditedJob
from ullage.errors import UllageError, harmless
from ullage.models.config import Config
from ullage.reports.audit.audit import case_of
from ullage.reports.fleet.agreement import Comparison
from ullage.reports.fleet.fleet import FleetReport
from ullage.reports.fleet.groups import Group
from ullage.reports.flops import StepQuestion
from ullage.views.numbers import percent
from ullage.views.shown import ShownByView

SHORTEST_S = 1800  # seconds that a job must have been observed
# Loading and compiling before the first step, and what else a job's own mean does not hold, weighs more in a short observation
START_S = 180
_MOST_ERROR = 0.5
LEAST_TRUSTED = 0.5  # of a job's GPU-hours: the OFU of a few of its GPUs is not the job's

Describe = Callable[[str, str | None], tuple[Config, StepQuestion] | None]


@dataclass(frozen=True)
class ReportingJob:
    """A job that reports an MFU, beside what was measured; its name, for how long it was observed, and how much of that is trusted."""

    told: Comparison
    name: str | None
    seconds: float
    trusted: float


@dataclass(frozen=True)
class Audited:
    """One job: what it reported, what was measured, and what the audit found. `name` is the job's, if it has one."""

    job: str
    name: str | None
    gpus: int
    chip: str
    finding: MfuFinding

    @property
    def verdict(self) -> str:
        """One of agrees, explained (OFU and MFU may both be right), wrong, unexplained."""
        if self.finding.agrees:
            return "agrees"
        if not self.finding.explanations:
            return "unexplained"
        return "wrong" if self.finding.flagged else "explained"


@dataclass(frozen=True)
class FleetAudit(ShownByView, view="ullage.render.audit_fleet"):
    """The jobs whose reported MFU was audited, those that are furthest apart first; `left_out` says why others were not.

    `complete` and `read_until` (ms) say how much of the telemetry was read, as in the fleet's report.
    """

    jobs: tuple[Audited, ...]
    left_out: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    complete: bool = True
    read_until: int | None = None

    def of(self, *verdicts: str) -> list[Audited]:
        """Return the jobs of some verdicts."""
        return [job for job in self.jobs if job.verdict in verdicts]


@dataclass(frozen=True)
class Measure:
    """What is known of every measurement: the tile efficiency if anybody measured it, OFU's error, GPUs in a machine."""

    tile_efficiency: float | None = None
    error: float = OFU_ERROR
    node: int = 8

    def error_of(self, seconds: float) -> float:
        """Return OFU's relative error for a job that was observed so long."""
        return min(self.error + START_S / seconds, _MOST_ERROR)


def audit_fleet(report: FleetReport, jobs: pa.Table | None, describe: Describe, measure: Measure) -> FleetAudit:
    """Return the audit of every job that reports an MFU and has a configuration.

    `report` is a fleet report by job, `jobs` a table of `tables.JOBS`; `describe(job, name)` gives a job's configuration and
    step, if there is one. What can't be audited is left out with the reason.
    """
    rows = [] if jobs is None else jobs.select(["job", "name", "mfu"]).to_pylist()
    names = {row["job"]: row["name"] for row in rows}
    groups = {group.key: group for group in report.groups}
    compared = report.agreement.jobs if report.agreement else []
    jobs_seen = [ReportingJob(c, names.get(c.job), *_seen(groups.get(harmless(c.job)))) for c in compared]
    found, left_out = audit_jobs(jobs_seen, describe, measure)
    known = {c.job for c in compared}
    reported = dict.fromkeys(row["job"] for row in rows if row["mfu"] is not None and row["job"] not in known)
    left_out += [(job, "no telemetry of its own can be trusted, or there is none") for job in reported]
    return FleetAudit(tuple(found), tuple(left_out), tuple(_notes(report, measure)), report.complete, report.read_until)


def _seen(group: Group | None) -> tuple[float, float]:
    return (group.gpu_hours / group.gpus * 3600, group.trusted_share) if group and group.gpus else (0.0, 0.0)


def audit_jobs(jobs: Iterable[ReportingJob], describe: Describe, measure: Measure) -> tuple[list[Audited], list[tuple[str, str]]]:
    """Return the audits of some jobs, those furthest apart first, and the jobs that could not be audited with the reason."""
    cases = _Cases(describe, measure)
    found: list[Audited] = []
    left_out: list[tuple[str, str]] = []
    for job in jobs:
        told = job.told
        try:
            finding = _finding(job, cases, measure)
        except UllageError as error:
            left_out.append((told.job, error.problem))
        else:
            found.append(Audited(told.job, job.name, told.gpus, told.chip, finding))
    return sorted(found, key=lambda job: -abs(math.log(job.finding.ratio))), left_out


def _finding(job: ReportingJob, cases: _Cases, measure: Measure) -> MfuFinding:
    if job.seconds < SHORTEST_S:
        raise UllageError(f"it was observed for less than {SHORTEST_S // 60} min")
    if job.trusted < LEAST_TRUSTED:
        raise UllageError(f"less than {percent(LEAST_TRUSTED)} of its telemetry can be trusted")
    case = cases.of(job.told, job.name)
    error = measure.error_of(job.seconds)
    return audit(case, job.told.mfu, job.told.ofu, tile_efficiency=measure.tile_efficiency, error=error, most=5)


class _Cases:
    """The cases of a fleet's jobs; jobs of one configuration on as many GPUs of one kind share theirs."""

    def __init__(self, describe: Describe, measure: Measure) -> None:
        self.describe, self.measure = describe, measure
        self.kept: dict[tuple[str, int, str], AuditedJob] = {}

    def of(self, comparison: Comparison, name: str | None) -> AuditedJob:
        """Return a job's case; raises UllageError where it has no configuration, or none that can be used."""
        described = self.describe(comparison.job, name)
        if described is None:
            named = "the job's id" if name is None else f"'{harmless(name, 60)}' or the job's id"
            raise UllageError(f"--configs has no file that is called by {named}")
        config, question = described
        key = (config.place, comparison.gpus, comparison.chip)
        if key not in self.kept:
            gpus = None if question.layout.world > 1 else comparison.gpus
            asked = replace(question, gpu=comparison.chip or question.gpu, gpus=gpus)
            self.kept[key] = case_of(config, asked, self.measure.node)[0]
        return self.kept[key]


def _notes(report: FleetReport, measure: Measure) -> list[str]:
    notes = [] if report.agreement else ["no job of this fleet reports an MFU: job records with a column mfu tell it (--jobs)"]
    if measure.tile_efficiency is None:
        notes.append("tile efficiency is not given: 0.90 to 1.00 is allowed (--tile-efficiency)")
    return notes
