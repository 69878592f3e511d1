"""One job: its part of the fleet's report, its devices, what its peers and the scheduler's records add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import UllageError
from ullage.findings.kind import fleet_findings
from ullage.job_names import plain_name, separate_names
from ullage.metrics.telemetry import LABELS
from ullage.reports.fleet.comparison import FleetComparison, compared, figures_of
from ullage.reports.fleet.fleet import FleetReport, report_of
from ullage.reports.fleet.fleet_evidence import fleet_evidence
from ullage.reports.fleet.judged import JudgedFleet, judged_fleet, part_of_fleet
from ullage.reports.fleet.prices import row_prices
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.fleet.where import Condition, FieldTest, FleetFilter
from ullage.reports.job.devices import GpuOfJob, gpus_of_job, most_memory
from ullage.reports.job.job_ids import MeantJobs, NamedJob, job_and_step, meant_jobs
from ullage.reports.stragglers.job_stragglers import with_stragglers
from ullage.sources.jobs.jobstats import JobstatsSummary, is_summary, read_summary
from ullage.sources.jobs.record import Record, records
from ullage.sources.jobs.slurm_job import SlurmJob
from ullage.store.rollups import RolledSums
from ullage.units import HOUR_MS
from ullage.views.shown import ShownByView
from ullage.views.view import Finding


@dataclass(frozen=True)
class JobReport(ShownByView, view="ullage.render.job"):
    """The answer to `ullage job`. `asked` is the id that was given, `jobs` those that it means (several: an array's tasks).

    `fleet` is the report of `ullage fleet --job` on them, and so are its numbers; `window` is from the job's first to its last sample, or
    the step's time. `recorded_hours` are GPUs × time by the scheduler's records (None: they don't say). `findings` may rest on other jobs
    ("slower than its kind"), and each speaks of this one. `jobstats` is Jobstats' summary, where Slurm's record has one.
    `mail_to` are the addresses that an e-mail of it is for, and `against` is another job beside it.
    """

    asked: str
    jobs: tuple[NamedJob, ...]
    fleet: FleetReport
    gpus: tuple[GpuOfJob, ...]
    window: tuple[int, int]
    user: str | None
    namespace: str | None
    name: str | None
    state: str | None
    recorded_hours: float | None
    slurm: tuple[SlurmJob, ...]
    findings: list[Finding]
    jobstats: JobstatsSummary | None = None
    notes: list[str] = field(default_factory=list)
    command: str = ""
    next_command: str = ""
    mail_to: tuple[str, ...] = ()
    complete: bool = True
    read_until: int | None = None
    partial_because: str = ""
    against: FleetComparison | None = None

    @property
    def stragglers(self) -> list[Finding]:
        """The findings about GPUs or hosts that the others of the job wait for."""
        return [one for one in self.findings if one.kind == "straggler"]


def job_report(
    samples: Any,
    jobs: pa.Table | None,
    wanted: str,
    question: FleetRequest,
    slurm: Sequence[SlurmJob] = (),
    notes: Sequence[str] = (),
    rolled: RolledSums | None = None,
    place: str = "SOURCE",
) -> JobReport:
    """Return the report on one job, of settled samples (an Ibis table of `tables.SETTLED`) and job records.

    `slurm` are Slurm's own records of the id. Raises UllageError for a job that is not there, with near ones.
    """
    told = [*notes]
    whole = judged_fleet(samples, question, told, rolled)
    meant = meant_jobs(wanted, _named_jobs(whole), slurm, place)
    if meant.step is not None:
        start, end = meant.step
        question = replace(question, since=start, until=question.until if end is None else max(end, start + 1))
        told = [*notes, f"this is the time of step {wanted} alone, of all GPUs that its job held"]
        whole = judged_fleet(samples, question, told, None)
    return report_on_jobs(whole, wanted, meant, jobs, question, told)


def report_on_jobs(
    whole: JudgedFleet, asked: str, meant: MeantJobs, jobs: pa.Table | None, question: FleetRequest, told: list[str]
) -> JobReport:
    """Return the report on some jobs of a judged fleet, which were `asked` for by a name; `told` are notes."""
    part = part_of_fleet(whole, condition_of_jobs(meant.jobs))
    report = report_of(whole, part, jobs, question, told)
    of_job = _records_of(jobs, meant.jobs)
    jobstats, unreadable = _jobstats(meant.records)
    return JobReport(
        asked=asked,
        jobs=meant.jobs,
        fleet=report,
        gpus=gpus_of_job(part.rated, part.good, part.verdicts, most_memory(part.samples)),
        window=meant.step_window(_observed(part)),
        user=", ".join(sorted({one.user for one in of_job if one.user})) or _word(part, "user"),
        namespace=_word(part, "namespace"),
        name=next((one.name for one in of_job if one.name), None),
        state=_state(of_job, meant),
        recorded_hours=None if meant.step is not None else recorded_hours(of_job),
        slurm=meant.records,
        findings=_findings(whole, jobs, question, report, meant.jobs),
        jobstats=jobstats,
        notes=[*report.notes, *_notes(part, meant), *unreadable],
        command=question.command,
    )


def with_other_job(report: JobReport, other: JobReport) -> JobReport:
    """Return a job's report with another job beside it; what was read of that in part makes the whole partial."""
    before, now = figures_of(other.fleet), figures_of(report.fleet)
    found = compared(replace(before, groups={}), replace(now, groups={}), f"job {other.asked}", list(LABELS))
    made = replace(report, against=replace(found, notes=()))
    if other.complete:
        return made
    return replace(made, complete=False, partial_because=made.partial_because or f"job {other.asked}: {other.partial_because}")


def condition_of_jobs(jobs: Sequence[NamedJob]) -> Condition:
    """Return the condition that the rows of some jobs of one cluster fit."""
    named = tuple(FieldTest("job", job.name) for job in jobs)
    own: Condition = named[0] if len(named) == 1 else FleetFilter("or", named)
    return FleetFilter("and", (own, FieldTest("cluster", jobs[0].cluster or "")))


def _named_jobs(whole: JudgedFleet) -> list[NamedJob]:
    """Return all jobs that samples name, by cluster and name."""
    seen = whole.rated.sums.select(["cluster", "job"]).group_by(["cluster", "job"]).aggregate([])
    pairs = zip(seen["cluster"].cast(pa.string()).to_pylist(), seen["job"].cast(pa.string()).to_pylist(), strict=True)
    found = {NamedJob(cluster, plain_name(name)) for cluster, word in pairs if word for name in separate_names(word)}
    return sorted(found, key=lambda job: (job.cluster or "", job.name))


def _observed(part: JudgedFleet) -> tuple[int, int]:
    sums = part.rated.sums
    return int(pc.min(sums["start_ms"]).as_py()), int(pc.max(sums["last_ms"]).as_py())


def _word(part: JudgedFleet, column: str) -> str | None:
    """Return what the samples of a job say of it, the names of several in order."""
    words = {word for word in part.rated.words(column) if word}
    return ", ".join(sorted({plain_name(name) for word in words for name in separate_names(word)})) or None


def _records_of(jobs: pa.Table | None, meant: Sequence[NamedJob]) -> list[Record]:
    """Return the job records of some jobs; those that name another cluster are of others."""
    if jobs is None or not len(jobs):
        return []
    cluster = meant[0].cluster
    named = _records_named(jobs, {job.name for job in meant})
    return [one for one in named if cluster is None or one.cluster in (None, cluster)]


def _records_named(jobs: pa.Table, names: set[str]) -> list[Record]:
    """Return the job records with some names."""
    own = [plain_name(word) in names for word in jobs["job"].to_pylist()]
    return records(jobs.filter(pa.array(own, pa.bool_())))


def _state(of_job: Sequence[Record], meant: MeantJobs) -> str | None:
    """Return the scheduler's words for how a job ended; of an array those of all its tasks."""
    told = {one.job: one.state for one in of_job if one.state} | {one.job: one.state for one in meant.records if one.state}
    return ", ".join(sorted({state for state in told.values() if state})) or None


def recorded_hours(of_job: Sequence[Record]) -> float | None:
    """Return the GPU-hours that records say a job held: its GPUs × its time, each of its numbers once; None where one does not say."""
    held: dict[str, float] = {}
    for one in of_job:
        if one.gpus is not None and one.start is not None and one.end is not None:
            held[one.job] = max(held.get(one.job, 0.0), one.gpus * (one.end - one.start) / HOUR_MS)
    return sum(held.values()) if held and held.keys() == {one.job for one in of_job} else None


def _findings(
    whole: JudgedFleet, jobs: pa.Table | None, question: FleetRequest, report: FleetReport, meant: Sequence[NamedJob]
) -> list[Finding]:
    """Return the findings about these jobs: those of the whole fleet, as far as they speak of them, and on series that they held."""
    mfus = {} if report.agreement is None else {job.job: job.mfu for job in report.agreement.jobs}
    prices = row_prices(whole.good, question.price_table).paid
    lost_runs = {} if report.goodput is None else report.goodput.lost_by_job
    measured = fleet_evidence(whole.good, whole.lost, prices, jobs, whole.window, mfus, report.doubtful_series, lost_runs)
    # what is worth a line is a part of the job's own hours; and no job goes on for a week
    measured = replace(measured, hours=0.0, gpu_hours=report.gpu_hours, free=(), terms=question.price_table.terms)
    names, cluster = {job.name for job in meant}, meant[0].cluster

    def is_meant(job: str, where: str | None) -> bool:
        return where == cluster and bool(names & {plain_name(name) for name in separate_names(job)})

    measured = with_stragglers(measured, whole, lambda job: is_meant(job.job, job.cluster))
    return [one for one in fleet_findings(measured) if one.where.job is None or is_meant(one.where.job, one.where.cluster)]


def _jobstats(slurm: Sequence[SlurmJob]) -> tuple[JobstatsSummary | None, list[str]]:
    """Return the summary that a single job's record has, and why it can't be read."""
    told = [one.comment for one in slurm if one.comment and is_summary(one.comment)]
    if len(slurm) != 1 or not told:
        return None, []
    try:
        return read_summary(told[0]), []
    except UllageError as error:
        return None, [f"{error.problem}{f'; {error.hint}' if error.hint else ''}"]


def _notes(part: JudgedFleet, meant: MeantJobs) -> list[str]:
    found = []
    if len(meant.jobs) > 1:
        shown = [record.shown for record in meant.records if record.job in {job.name for job in meant.jobs}] or [
            job.name for job in meant.jobs
        ]
        found.append(f"these are {len(meant.jobs):,} jobs together: {', '.join(shown[:8])}{', …' if len(shown) > 8 else ''}")
    if any(len(separate_names(word)) > 1 for word in part.rated.words("job") if word):
        found.append("other jobs held some of these GPUs at the same time; what a shared GPU did counts for each of them")
    return found


def recorded_window(wanted: str, jobs: Sequence[pa.Table], slurm: Sequence[SlurmJob]) -> tuple[int, int | None] | None:
    """Return when the records say that a job ran: from its first start to its last end (None: it runs still, or nobody knows).

    None where no record is of such a job, or one does not say when it started.
    """
    cluster, _, name = wanted.rpartition("/")
    base, _ = job_and_step(name)
    tasks = [one for one in slurm if one.shown == base or one.shown.startswith((f"{base}_", f"{base}+"))]
    rows = [] if tasks else [one for table in jobs for one in _records_named(table, {wanted, base})]
    found: list[SlurmJob | Record] = [*tasks, *rows]
    spans = [(one.start, one.end) for one in [one for one in found if one.cluster == cluster] or found]
    starts, ends = [start for start, _ in spans if start is not None], [end for _, end in spans if end is not None]
    if not spans or len(starts) < len(spans):
        return None
    return min(starts), max(ends) if len(ends) == len(spans) else None
