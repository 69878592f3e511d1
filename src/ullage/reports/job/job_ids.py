"""Which jobs an id means: one as samples write it, one of a cluster, a task of an array, a whole array, a step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ullage.errors import NoSuchNameError, UllageError, did_you_mean, harmless
from ullage.sources.jobs.slurm_job import SlurmJob

NO_CLUSTER = "no cluster"
_SLURM = re.compile(r"(?P<job>\d+(?:[_+]\d+)?)(?:\.(?P<step>\w+))?", re.ASCII)


@dataclass(frozen=True)
class NamedJob:
    """A job that samples name, in its cluster (None: the samples name none)."""

    cluster: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.cluster is None else f"{self.cluster}/{self.name}"


@dataclass(frozen=True)
class MeantJobs:
    """The jobs that an id means, all of one cluster, Slurm's records of them, and the step's time (ms) where it names a step."""

    jobs: tuple[NamedJob, ...]
    records: tuple[SlurmJob, ...] = ()
    step: tuple[int, int | None] | None = None

    def step_window(self, observed: tuple[int, int]) -> tuple[int, int]:
        """Return the time that is reported on: what was observed, within the step's time where one is named."""
        if self.step is None:
            return observed
        return max(observed[0], self.step[0]), observed[1] if self.step[1] is None else min(observed[1], self.step[1])


def job_and_step(wanted: str) -> tuple[str, str | None]:
    """Return a Slurm id without its step, and the step.

    >>> job_and_step("4711_3.batch"), job_and_step("4711.0"), job_and_step("ml/train.0")
    (('4711_3', 'batch'), ('4711', '0'), ('ml/train.0', None))
    """
    found = _SLURM.fullmatch(wanted)
    return (found["job"], found["step"]) if found else (wanted, None)


def meant_jobs(wanted: str, known: Sequence[NamedJob], records: Sequence[SlurmJob], place: str) -> MeantJobs:
    """Return the jobs that an id means, of those `known` to the samples; `records` are Slurm's of that id, `place` is what was read.

    What samples write goes first; then CLUSTER/ID; then Slurm's words for tasks, arrays and steps. Raises UllageError for an id that no
    sample has, with near ones, for one of several clusters, and for a step of which no record says when it ran.
    """
    asked, among = wanted, [*known]
    cluster, slash, rest = wanted.partition("/")
    if not any(job.name == wanted for job in known) and slash:
        own = [job for job in known if (job.cluster or NO_CLUSTER) == cluster]
        asked, among = (rest, own) if own else (wanted, among)
    base, step = (asked, None) if any(job.name == asked for job in among) else job_and_step(asked)
    tasks = [record for record in records if record.shown == base or re.match(rf"{re.escape(base)}[_+]", record.shown)]
    names = {record.job for record in tasks} | {record.shown for record in tasks} or {base}
    found = [job for job in among if job.name in names] or [job for job in among if re.fullmatch(rf"{re.escape(base)}[_+]\d+", job.name)]
    if not found:
        raise _not_there(wanted, known, tasks, place)
    if len(clusters := sorted({str(job.cluster or NO_CLUSTER) for job in found})) > 1:
        several, shown = ", ".join(harmless(name, 60) for name in clusters), harmless(asked, 60)
        raise UllageError(f"several clusters have a job '{shown}': {several}", f"name one: '{harmless(clusters[0], 60)}/{shown}'")
    here = [record for record in tasks if record.cluster in (None, found[0].cluster) or found[0].cluster is None]
    return MeantJobs(tuple(found), tuple(here), None if step is None else _step_time(base, step, here))


def _step_time(job: str, step: str, records: Iterable[SlurmJob]) -> tuple[int, int | None]:
    named = f"{job}.{step}"
    for record in records:
        for one in record.steps:
            if one.name == named and one.start is not None:
                return one.start, one.end
    raise UllageError(
        f"no record says when step {harmless(named, 60)} ran, and telemetry does not tell the steps of a job apart",
        f"give Slurm's records with steps (sacct without --allocations): --jobs FILE; or ask for the job: {harmless(job, 60)}",
    )


def _not_there(wanted: str, known: Sequence[NamedJob], records: Sequence[SlurmJob], place: str) -> UllageError:
    shown, lists = harmless(wanted, 60), f"ullage fleet {place} --by job"
    if records:
        return UllageError(
            f"job {shown} is in the records, and no sample of {place} is of it",
            "read the telemetry of its hosts at its time (--since, --until), and see in the notes of "
            f"`{lists}` which records match no sample",
        )
    if not known:
        return UllageError(f"no sample of {place} names a job", "give the scheduler's records: --jobs sacct.txt (docs/job-records.md)")
    names = [str(job) for job in known] + [job.name for job in known if job.cluster is not None]
    return NoSuchNameError(f"no sample of {place} is of a job '{shown}'", did_you_mean(wanted, map(harmless, names), lists))
