"""Which time of which jobs is of runs that did not complete, by the scheduler's records: a job may have several runs, one after another."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from ullage.job_names import separate_names
from ullage.sources.jobs.record import Record, records

T = TypeVar("T")
EVER = (-(2**62), 2**62)  # a run without a start or an end

# Slurm's words, Kubernetes' and LSF's, by what ended a run
ENDINGS: Mapping[str, frozenset[str]] = {
    "failed": frozenset({"FAILED", "ERROR", "EXIT"}),
    "out of memory": frozenset({"OUT_OF_MEMORY", "OOMKILLED"}),
    "node failed": frozenset({"NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"}),
    "restarted": frozenset({"REQUEUED", "PREEMPTED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "EVICTED"}),
    "timed out": frozenset({"TIMEOUT", "DEADLINE"}),
    "cancelled": frozenset({"CANCELLED"}),
}
CUT_SHORT = ("timed out", "cancelled")  # whose work may be what was wanted: many jobs save it and end so; records can't tell
LOST = tuple(name for name in ENDINGS if name not in CUT_SHORT)
_ENDING_OF = {state: ending for ending, states in ENDINGS.items() for state in states}
_STANDING = frozenset({"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "STAGE_OUT", "SIGNALING", "RESIZING"})


@dataclass(frozen=True)
class JobRun:
    """A run of a job, from its start to its end (ms), on `gpus` GPUs (None: nobody says). Its `state` is the scheduler's word.

    `name` and `user` are the job's, where its record says so.
    """

    job: str
    cluster: str | None
    queue_start: int | None
    start: int
    end: int
    gpus: int | None
    state: str | None
    name: str | None = None
    user: str | None = None

    @property
    def over(self) -> bool:
        """Whether its record says how it ended, and when."""
        return self.start != EVER[0] and self.end != EVER[1] and _plain(self.state) not in {"", *_STANDING}

    @property
    def ending(self) -> str | None:
        """What ended it, of `ENDINGS`; None where it completed, or runs, or nobody says."""
        return _ENDING_OF.get(_plain(self.state))

    @property
    def wait(self) -> int | None:
        """How long it waited in the queue (ms); None where its record does not say."""
        return None if self.queue_start is None or self.start == EVER[0] else max(0, self.start - self.queue_start)


def _plain(state: str | None) -> str:
    return (state or "").upper().split(" ")[0].rstrip("+")


def runs_of(jobs: pa.Table | None) -> list[JobRun]:
    """Return the runs that records (`tables.JOBS`) tell of, each once however many devices and hosts it has, in order of time.

    A run is what has one job and one start; of jobs of several clusters, one cluster. A record of it that says how it ended goes before
    one that was kept while it ran.
    """
    starts: dict[tuple[str, int | None], list[Record]] = defaultdict(list)
    for one in [] if jobs is None else records(jobs):
        if one.start is not None or one.end is not None or one.state is not None:
            starts[one.job, one.start].append(one)
    runs = []
    for those in starts.values():
        clusters = dict.fromkeys(one.cluster for one in those)
        several = len(set(clusters) - {None}) > 1
        runs += [_run([one for one in those if one.cluster == name]) for name in clusters] if several else [_run(those)]
    return sorted(runs, key=lambda one: (one.start, one.job, one.cluster or ""))


def _run(those: Sequence[Record]) -> JobRun:
    devices = len({(each.host, each.index, each.gpu) for each in those if each.index is not None or each.gpu is not None})
    states = [each.state for each in those if each.state]
    return JobRun(
        job=those[0].job,
        cluster=_first(each.cluster for each in those),
        queue_start=_first(each.queue_start for each in those),
        start=EVER[0] if those[0].start is None else those[0].start,
        end=max((each.end for each in those if each.end is not None), default=EVER[1]),
        gpus=_first(each.gpus for each in those) or devices or None,
        state=_first(state for state in states if _plain(state) not in _STANDING) or _first(states),
        name=_first(each.name for each in those),
        user=_first(each.user for each in those),
    )


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


@dataclass(frozen=True)
class EndedSpan:
    """From when to when (ms) a job's time is of runs that did not complete, and what ended them."""

    start: int
    end: int
    ending: str

    @property
    def whole(self) -> bool:
        """Whether it is all of the job's time, also where samples name the job outside of its runs."""
        return (self.start, self.end) == EVER


@dataclass(frozen=True)
class JobRuns:
    """The runs of a window by job, and the clusters that samples name."""

    runs: Sequence[JobRun]
    clusters: Collection[str | None]
    window: tuple[int, int]

    def by_job(self) -> dict[str, list[JobRun]]:
        """Return the runs that have any time in the window, by job."""
        found: dict[str, list[JobRun]] = defaultdict(list)
        for one in self.runs:
            if max(one.start, self.window[0]) < min(one.end, self.window[1]):
                found[one.job].append(one)
        return found

    def own(self, runs: Iterable[JobRun], cluster: str | None) -> list[JobRun]:
        """Return those that may be of a cluster of the samples; a name that no sample knows may be the scheduler's for any of them."""
        return [one for one in runs if cluster is None or one.cluster in (None, cluster) or one.cluster not in self.clusters]

    def endings(self, words: Iterable[tuple[str | None, str]]) -> Counter[str]:
        """Return how many runs with any time in the window ended how, of the jobs in some words of the samples."""
        names = {name for _, word in words for name in separate_names(word)}
        return Counter(one.ending for job, runs in self.by_job().items() if job in names for one in runs if one.ending)

    def ended_spans(self, cluster: str | None, word: str, runs: Mapping[str, Sequence[JobRun]]) -> list[EndedSpan]:
        """Return when the time of the jobs that samples name by one word is of runs that did not complete.

        Of several jobs on one GPU, when none of their runs completed. `runs` are by job.
        """
        every = [_ended(self.own(runs.get(name, ()), cluster)) for name in separate_names(word)]
        found = every[0] if every else []
        for other in every[1:]:
            pairs = ((a, b, max(a.start, b.start), min(a.end, b.end)) for a in found for b in other)
            found = [EndedSpan(start, end, max(a.ending, b.ending, key=_milder)) for a, b, start, end in pairs if start < end]
        return found


def _milder(ending: str) -> int:
    return list(ENDINGS).index(ending)


def _ended(runs: Sequence[JobRun]) -> list[EndedSpan]:
    """Return when a job's runs (in order of time) did not complete; all of its time where each run ended for one reason."""
    endings = {one.ending for one in runs}
    if len(endings) == 1 and (ending := endings.pop()) is not None:
        return [EndedSpan(*EVER, ending)]
    found: list[EndedSpan] = []
    for one in runs:  # no time is of two runs
        start = max(one.start, found[-1].end if found else EVER[0])
        if one.ending is not None and start < one.end:
            found.append(EndedSpan(start, one.end, one.ending))
    return found
