"""How well did one job use its GPUs, and where did the rest go?"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal

from ullage.asking import WrongQuestionError, asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.telemetry import StoredTelemetryReading
from ullage.problems import Problems
from ullage.reports.fleet.request import FleetRequest, GpuAssumptions

if TYPE_CHECKING:
    import pyarrow as pa

    from ullage.reports.job.job import JobReport
    from ullage.reports.job.setup import JobSetup
    from ullage.sources.jobs.slurm_job import SlurmJob


@dataclass(frozen=True, kw_only=True)
class JobQuestion(GpuAssumptions, StoredTelemetryReading):
    """What `seff` says of CPUs, of a job's GPUs: where it ran, its OFU, and where the rest went.

    ID is a job as the samples or Slurm write it: 4711, a task 4711_3, an array 4711 (all its tasks), a step 4711.0, or CLUSTER/4711.
    SOURCE is telemetry as `ullage fleet` reads it; the numbers are those of `ullage fleet SOURCE --job ID`.
    """

    id: str | None = asked("The job.", metavar="[ID]", argument=True)
    sources: tuple[str, ...] = asked(
        "Files, folders, stores or URLs.", (), metavar="[SOURCE…]", argument=True, repeated=True, env="ULLAGE_SOURCE", local=True
    )
    jobs: tuple[str, ...] = asked(
        "Job records: sacct output, a CSV, a mapping folder. They also say which time to read. Repeatable.",
        (),
        metavar="FILE",
        repeated=True,
        local=True,
    )
    reported: tuple[str, ...] = asked(
        "A trainer's log, for the MFU that it reports. Repeatable.", (), metavar="LOG[=JOB]", repeated=True, local=True
    )
    against: str | None = asked("Another job to stand beside it: an earlier run of the same thing.", metavar="ID")
    setup: Literal["slurm", "kubernetes"] | None = asked(
        "What the scheduler needs for a report on every job: its scripts, settings, labels, the query."
    )
    mail_to: tuple[str, ...] = asked(
        "Whom the e-mail is for that --out FILE.eml writes. Repeatable.", (), metavar="ADDRESS", repeated=True, minor=True
    )

    def __post_init__(self) -> None:
        """Refuse what makes no sense before anything is read."""
        from ullage.views.mail import mail_address

        if (self.id is None) == (self.setup is None):
            raise WrongQuestionError("name a job, or a scheduler with --setup: one of the two")
        for address in self.mail_to:
            mail_address(address)
        if self.against is not None and self.id is None:
            raise WrongQuestionError("--against names a job to stand beside another one: name that, too")
        super().__post_init__()

    def fleet_request(self, progress: Progress, command: str) -> FleetRequest:
        """Return what is asked of the fleet that the job is a part of."""
        assumed = {field.name: getattr(self, field.name) for field in fields(GpuAssumptions)}
        return FleetRequest(by="job", since=self.since, until=self.until, progress=progress, command=command, **assumed)


def answer(question: JobQuestion, progress: Progress, command: str = "") -> JobReport | JobSetup:
    """Return the report on a job, or what a scheduler needs for one.

    Raises UllageError for what the user can fix, and for partial input under `strict`.
    """
    from ullage.errors import UllageError
    from ullage.reports.job.job import with_other_job
    from ullage.reports.job.setup import job_setup

    wanted = question.id
    if wanted is None:
        return job_setup(question.setup or "slurm")
    if not question.sources:
        raise UllageError(
            "no telemetry is named", "name a file, a folder, a store or a URL after the job, or set ULLAGE_SOURCE to it; see --help"
        )
    report = _report(question, wanted, progress, command)
    if question.against is None:
        return report
    return with_other_job(report, _report(replace(question, id=question.against), question.against, progress, command))


def _report(question: JobQuestion, wanted: str, progress: Progress, command: str) -> JobReport:
    from ullage.errors import public
    from ullage.intake import at_rest, opened
    from ullage.reports.job.job import job_report

    problems, given = Problems(), question
    records, slurm = _records(question, problems)
    if not any(map(at_rest, question.sources)):  # a store is asked in no time, and its series are judged whole
        since, until = _window(question, records, slurm)
        question = replace(question, since=since, until=until)
    request = question.fleet_request(progress, command)
    options = question.reading_options(progress)
    with opened(question.sources, jobs=records, reported=question.reported, options=options, engine=question.engine) as taken:
        if question.strict:
            taken.problems.refuse_partial()
        notes = [*taken.problems.lines(), *problems.lines()]
        place = public(question.sources[0]) if len(question.sources) == 1 else "SOURCE"
        report = job_report(taken.samples, taken.jobs, wanted, request, slurm, notes, taken.rolled, place)
        return taken.marked(replace(report, mail_to=question.mail_to, next_command=_next_command(given, report)))


def _next_command(question: JobQuestion, report: JobReport) -> str:
    """Return the command of the chain from peak to MFU, where the job is one."""
    from ullage.asking.next_commands import waterfall_command

    names = {job.name for job in report.jobs}
    return waterfall_command(question, names.pop()) if len(names) == 1 else ""


def _records(question: JobQuestion, problems: Problems) -> tuple[list[pa.Table], list[SlurmJob]]:
    """Return all job records, and Slurm's own of the id."""
    from ullage.reports.job.job_ids import job_and_step
    from ullage.sources.clock import named_zone
    from ullage.sources.jobs.job import read_jobs
    from ullage.sources.jobs.slurm_job import slurm_jobs

    zone, quiet = named_zone(question.time_zone), Problems()  # what is wrong with a record is said once
    base, _ = job_and_step((question.id or "").rpartition("/")[2])
    slurm = [job for name in question.jobs for job in slurm_jobs(name, base, quiet, zone)]
    return [read_jobs(name, problems, zone) for name in question.jobs], slurm


def _window(question: JobQuestion, records: list[pa.Table], slurm: list[SlurmJob]) -> tuple[int | None, int | None]:
    """Return the window that is read: what the question leaves open is the job's start and end, as far as its records say them."""
    from ullage.reports.job.job import recorded_window

    start, end = recorded_window(question.id or "", records, slurm) or (None, None)
    return start if question.since is None else question.since, end if question.until is None else question.until


def read_places(question: JobQuestion) -> list[str]:
    """Return the places that are read for a question."""
    from ullage.trainlogs.reported import named_log

    logs = [named_log(text)[0] for text in question.reported]
    return [*question.sources, *question.jobs, *logs]


_EXAMPLES = """
  ullage job 4711 store/                                      a job, from what was kept
  ullage job 4711 http://prometheus:9090 --jobs sacct.txt     from a Prometheus, in the time that Slurm's records say
  ullage job 4711_3 scrapes/ --jobs sacct.txt                 a task of a job array; 4711 is all its tasks
  ullage job 4711.0 scrapes/ --jobs sacct.txt                 the time of one step
  ullage job east/4711 store/                                 where two clusters have a job of that number
  ullage job ml/train-0 http://prometheus:9090 --since 12h    a pod of Kubernetes
  ullage job 4711 store/ --against 4650                       beside an earlier run of it
  ullage job 4711 store/ --price H100=2.50 --out job.html     a page; .json, .md, .csv and .txt as well
  ullage job 4711 store/ --out job.eml --mail-to ann@example.org    an e-mail: sendmail -t < job.eml
  ullage job 4711 store/ --out job.js1                        a Jobstats summary for Slurm's AdminComment
  ullage job --setup slurm                                    prolog, epilog, settings, labels, queries

\b
Environment:
  ULLAGE_SOURCE  where telemetry is, for `ullage job ID` alone
"""

QUESTION = register(
    RegisteredQuestion(
        name="job",
        asked=JobQuestion,
        noun="a job's report",
        answer=answer,
        shown_by=lambda question: "ullage.render.job" if question.setup is None else "ullage.render.job_setup",
        examples=_EXAMPLES,
        read_places=read_places,
        status_3="only a part of the source could be read",
    )
)

job = python_function(QUESTION)
