"""Changes of a fleet: of one job while it runs, of a run beside earlier ones of its kind, of many jobs at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from ullage.courses.changes import LEAST_CHANGE, LEAST_LENGTH, LevelChange, level_changes, logarithm
from ullage.courses.course import TimeCourse
from ullage.courses.runs import ChangedRun, changed_runs
from ullage.reports.watch.job_courses import JobCourse
from ullage.reports.watch.measures import FACTORS, MEASURES
from ullage.views.view import Confidence, FindingPlace

Scope = Literal["job", "run", "fleet"]
NEAR = 5  # buckets: what two measures do within these is one change
WARM_UP = 20  # buckets after the first work of a run, in which its way up is its start
SURE, CERTAIN = 6.0, 10.0  # standard errors: of medium, and of high confidence
FAR = 5.0  # times what runs of a kind differ by
LARGE = 0.1  # a change by less is not told with high confidence
SEVERAL = 3  # earlier runs of a kind, or jobs that move together: one or two may be exceptions
MOST_MOVE = 0.6  # of the jobs of a fleet, where the fleet changed and not some of its jobs
HALF = 0.5  # of the fleet's change: a job that moves by as much moves with it


@dataclass(frozen=True)
class WatchedChange:
    """What changed: `measure` from `before` to `after`, from `start` to `settled` (ms), `until` when it was over (None: it goes on).

    `scope` says of what: a job while it runs, a run beside `earlier` ones of its kind, the whole fleet (whose level is a ratio to what
    its jobs had). `low` and `high` bound the difference with 95 % confidence. `gpu_hours` is what it has cost since then (below 0: gained;
    0 of all measures but OFU), `moved` how far each factor moved (after over before), `beside` what else changed, `course` where it is
    seen. `runs` are the jobs that it is of, with their clusters, and `ended` says that they had ended before the window did.
    """

    measure: str
    scope: Scope
    where: FindingPlace
    owner: str
    gpus: int
    start: int
    settled: int
    until: int | None
    before: float
    after: float
    low: float
    high: float
    gpu_hours: float
    confidence: Confidence
    moved: Mapping[str, float]
    runs: tuple[tuple[str | None, str], ...]
    earlier: int = 0
    ended: bool = False
    beside: tuple[str, ...] = ()
    command: str = ""
    course: TimeCourse | None = field(default=None, repr=False, compare=False)

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that it is of."""
        return tuple(job for _, job in self.runs)

    @property
    def worse(self) -> bool:
        """Whether OFU fell, or its GPUs were at work for less of the time."""
        return self.measure in ("ofu", "at_work") and self.after < self.before

    @property
    def goes_on(self) -> bool:
        """Whether it is not over: neither is the level before back, nor has the job ended."""
        return self.until is None and not self.ended

    @property
    def factor(self) -> float | None:
        """How many times smaller OFU is (or larger, where it rose); None where it fell to nothing."""
        low, high = sorted((self.before, self.after))
        return high / low if low > 0 else None

    @property
    def mover(self) -> str:
        """The factor that moved furthest in the direction of the change; "" where none is known."""
        own = {name: abs(logarithm(ratio, 1.0)) for name, ratio in self.moved.items() if (ratio < 1) == (self.after < self.before)}
        return max(own, key=lambda name: own[name]) if own else ""


def job_changes(one: JobCourse, least_change: float = LEAST_CHANGE) -> list[WatchedChange]:
    """Return what changed while a job ran: OFU with the factors that moved, then what moved without it."""
    found: list[WatchedChange] = []
    for measure, course in one.courses.items():
        for change in level_changes(course, least_change):
            if abs(change.after - change.before) < MEASURES[measure].least or _warms_up(one, change):
                continue
            if not any(_same_time(change, other, course.bucket_ms) for other in found):
                found.append(_of_job(one, measure, change))
    return found


def _warms_up(one: JobCourse, change: LevelChange) -> bool:
    return change.after > change.before and change.until is None and change.start - one.start < WARM_UP * one.ofu.bucket_ms


def _same_time(change: LevelChange, other: WatchedChange, bucket_ms: int) -> bool:
    edges = [other.start, other.settled, *([] if other.until is None else [other.until])]
    return any(abs(change.start - edge) <= NEAR * bucket_ms for edge in edges)


def _of_job(one: JobCourse, measure: str, change: LevelChange) -> WatchedChange:
    course, end = one.courses[measure], one.end if change.until is None else change.until
    sides = (max(one.start, change.start - (end - change.settled)), change.start), (change.settled, end)
    lost = _lost_gpu_hours(course.part(change.start, end), change.before) if measure == "ofu" else 0.0
    sure, large = change.deviations, abs(logarithm(change.after, change.before)) >= LARGE
    low, high = change.bounds
    return WatchedChange(
        measure=measure,
        scope="job",
        where=_place(one),
        owner=one.owner,
        gpus=one.gpus,
        start=change.start,
        settled=change.settled,
        until=change.until,
        before=change.before,
        after=change.after,
        low=low,
        high=high,
        gpu_hours=lost,
        confidence="high" if sure >= CERTAIN and large else "medium" if sure >= SURE else "low",
        moved=_factor_ratios(one, *sides),
        runs=_keys([one]),
        course=course,
    )


def _keys(jobs: Sequence[JobCourse]) -> tuple[tuple[str | None, str], ...]:
    """Return what tells jobs apart: two clusters may each have a job of one number."""
    return tuple((one.cluster, one.job) for one in jobs)


def _place(one: JobCourse) -> FindingPlace:
    return FindingPlace(cluster=one.cluster, job=one.job, job_name=one.name)


def _lost_gpu_hours(part: TimeCourse, before: float) -> float:
    """Return the GPU-hours that less work than before costs: those that the same work would not have needed."""
    known = part.known
    return float((part.hours[known] * (1 - part.values[known] / before)).sum()) if before > 0 else 0.0


def _factor_ratios(one: JobCourse, before: tuple[int, int], after: tuple[int, int], other: JobCourse | None = None) -> dict[str, float]:
    """Return how far each factor moved: its mean after over that before, which another job may have had."""
    found = {}
    for name in FACTORS:
        then, now = (other or one).courses[name].part(*before).mean(), one.courses[name].part(*after).mean()
        if then is not None and now is not None and then > 0:
            found[name] = now / then
    return found


def run_changes(jobs: Sequence[JobCourse], least_hours: float = 0.0) -> Iterator[WatchedChange]:
    """Yield the runs that are not like earlier ones of their kind; `least_hours` is what a run must have worked to tell anything."""
    kinds: dict[tuple[object, ...], list[JobCourse]] = {}
    for one in jobs:
        if one.family is not None and len(one.ofu.known) >= LEAST_LENGTH and float(one.ofu.hours.sum()) >= least_hours:
            kinds.setdefault(one.family, []).append(one)
    for runs in kinds.values():
        ordered = sorted(runs, key=lambda one: one.start)
        levels = [_first_level(one) for one in ordered]
        for change in changed_runs(levels):
            yield _of_run(ordered, levels, change)


def _first_level(one: JobCourse) -> float:
    """Return the OFU of a run before anything changed in it."""
    first = next(iter(level_changes(one.ofu)), None)
    if first is None:
        part = one.ofu
    elif _warms_up(one, first):
        part = one.ofu.part(first.settled, one.end)
    else:
        part = one.ofu.part(one.start, first.start)
    return part.mean() or 0.0


def _of_run(runs: Sequence[JobCourse], levels: Sequence[float], change: ChangedRun) -> WatchedChange:
    one, last = runs[change.run], None if change.until is None else runs[change.until]
    concerned = runs[change.run : change.until]
    reference = runs[min(range(change.run), key=lambda number: abs(logarithm(levels[number], change.usual)))]
    error = change.usual * abs(logarithm(change.level, change.usual)) / max(change.deviations, 1e-9)
    difference = change.level - change.usual
    sure = change.deviations
    return WatchedChange(
        measure="ofu",
        scope="run",
        where=_place(one),
        owner=one.owner,
        gpus=one.gpus,
        start=one.start,
        settled=one.start,
        until=None if last is None else last.start,
        before=change.usual,
        after=change.level,
        low=difference - 2 * error,
        high=difference + 2 * error,
        gpu_hours=sum(_lost_gpu_hours(run.ofu, change.usual) for run in concerned),
        confidence="high" if change.earlier >= SEVERAL and sure >= FAR else "medium" if change.earlier > 1 or sure >= FAR else "low",
        moved=_factor_ratios(one, (reference.start, reference.end), (one.start, one.end), reference),
        runs=_keys(concerned),
        earlier=change.earlier,
        course=_joined_courses([run.ofu for run in runs]),
    )


def _joined_courses(courses: Sequence[TimeCourse]) -> TimeCourse:
    """Return the courses of several runs as one; where two ran at once, both are in it."""
    times, values, hours = (np.concatenate([getattr(course, name) for course in courses]) for name in ("times", "values", "hours"))
    order = np.argsort(times, kind="stable")
    return TimeCourse(courses[0].bucket_ms, times[order], values[order], hours[order])


def fleet_course(jobs: Sequence[JobCourse]) -> TimeCourse | None:
    """Return what the jobs at work do, over what each does in all of its time: jobs that come and go do not move it. None: too few jobs."""
    parts = [(one.ofu, mean) for one in jobs if (mean := one.ofu.mean()) and len(one.ofu) >= 2 * LEAST_LENGTH]
    if len(parts) < SEVERAL:
        return None
    times = np.unique(np.concatenate([course.times for course, _ in parts]))
    done, due, hours, count = (np.zeros(len(times)) for _ in range(4))
    for course, mean in parts:
        known = course.known
        at = np.searchsorted(times, course.times[known])
        done[at] += course.values[known] * course.hours[known]
        due[at] += mean * course.hours[known]
        hours[at] += course.hours[known]
        count[at] += 1
    enough = (count >= SEVERAL) & (due > 0)
    return TimeCourse(parts[0][0].bucket_ms, times[enough], done[enough] / due[enough], hours[enough])


def fleet_changes(jobs: Sequence[JobCourse], least_change: float = LEAST_CHANGE) -> list[WatchedChange]:
    """Return where most jobs of a fleet changed at once."""
    course = fleet_course(jobs)
    return [] if course is None else [made for one in level_changes(course, least_change) if (made := _of_fleet(jobs, course, one))]


def _of_fleet(jobs: Sequence[JobCourse], course: TimeCourse, change: LevelChange) -> WatchedChange | None:
    width, whole = 2 * NEAR * course.bucket_ms, logarithm(change.after, change.before)
    moves: list[tuple[JobCourse, float, float]] = []
    for one in jobs:
        before, after = one.ofu.part(change.start - width, change.start), one.ofu.part(change.settled, change.settled + width)
        if min(len(before.known), len(after.known)) >= LEAST_LENGTH and (level := before.mean()):
            moves.append((one, logarithm(after.mean() or 0.0, level), level))
    with_it = [one for one, move, _ in moves if move * whole > 0 and abs(move) >= HALF * abs(whole)]
    if len(with_it) < max(SEVERAL, MOST_MOVE * len(moves)):
        return None
    end = int(course.times[-1]) + course.bucket_ms if change.until is None else change.until
    lost = sum(_lost_gpu_hours(one.ofu.part(change.start, end), level) for one, _, level in moves)
    low, high = change.bounds
    clusters = {one.cluster for one in with_it}
    return WatchedChange(
        measure="ofu",
        scope="fleet",
        where=FindingPlace(cluster=clusters.pop() if len(clusters) == 1 else None),
        owner="the operators of the hosts",
        gpus=sum(one.gpus for one in with_it),
        start=change.start,
        settled=change.settled,
        until=change.until,
        before=change.before,
        after=change.after,
        low=low,
        high=high,
        gpu_hours=lost,
        confidence="high" if change.deviations >= CERTAIN else "medium" if change.deviations >= SURE else "low",
        moved={},
        runs=_keys(with_it),
        course=course,
    )


def found_changes(jobs: Sequence[JobCourse], least_change: float = LEAST_CHANGE) -> list[WatchedChange]:
    """Return every change of a fleet once, those that cost most first: what the fleet does, no job does again."""
    fleet = fleet_changes(jobs, least_change)
    own = [change for one in jobs for change in job_changes(one, least_change)]
    bucket_ms = jobs[0].ofu.bucket_ms if jobs else 0
    own = [change for change in own if not any(_part_of(change, whole, bucket_ms) for whole in fleet)]
    changed = [*fleet, *run_changes(jobs), *own]
    last = max((one.end for one in jobs), default=0) - NEAR * bucket_ms
    running = {(one.cluster, one.job) for one in jobs if one.end > last}
    dated = [replace(one, ended=running.isdisjoint(one.runs)) for one in changed]
    return sorted(dated, key=lambda one: (one.measure != "ofu", -one.gpu_hours, one.start))


def _part_of(change: WatchedChange, whole: WatchedChange, bucket_ms: int) -> bool:
    return set(change.runs) <= set(whole.runs) and abs(change.start - whole.start) <= NEAR * bucket_ms
