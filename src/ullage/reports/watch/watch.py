"""What changed, since when, by how much, what it has cost, and what else changed then."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ullage.errors import public
from ullage.findings.fleet_evidence import SeenStraggler
from ullage.reports.fleet.judged import judged_fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.stragglers.seen_stragglers import seen_stragglers
from ullage.reports.watch.beside import changed_beside, device_facts
from ullage.reports.watch.job_courses import JobCourse, bucket_for, job_courses
from ullage.reports.watch.watched_changes import WatchedChange, found_changes
from ullage.store.rollups import RolledSums
from ullage.sums.devices import within
from ullage.units import HOUR_MS
from ullage.views.declared import iso
from ullage.views.shown import ShownByView

RECENT_MS = HOUR_MS  # of the window, at its end, in which stragglers are looked for scrape by scrape
LEAST_HOURS = 0.5  # GPU-hours that a change must have cost to be told where nobody says otherwise
AROUND_MS = HOUR_MS // 2  # of a change, in which it is looked for what else changed
MOST_LOOKED_AT = 30  # changes of which it is looked for what else changed: each is a question to the store


@dataclass(frozen=True)
class WatchReport(ShownByView, view="ullage.render.watch"):
    """The answer to `ullage watch`: `changes` of OFU that cost (or gained) at least `least_hours`, and of other measures; the worst first.

    `stragglers` are those of the last hour. `jobs` runs were looked at, `job_hours` long together, in buckets of `bucket_ms`; `smaller`
    changes cost less. Times are ms since 1970.
    """

    window: tuple[int, int]
    bucket_ms: int
    jobs: int
    job_hours: float
    gpu_hours: float
    least_hours: float
    least_change: float
    changes: tuple[WatchedChange, ...]
    smaller: int
    stragglers: tuple[SeenStraggler, ...] = ()
    command: str = ""
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    read_until: int | None = None
    partial_because: str = ""

    @property
    def worse(self) -> tuple[WatchedChange, ...]:
        """The changes for the worse, those that cost most first."""
        return tuple(one for one in self.changes if one.worse)

    @property
    def going_on(self) -> tuple[WatchedChange, ...]:
        """The changes for the worse that are not over."""
        return tuple(one for one in self.worse if one.goes_on)


def watch(
    samples: Any,
    jobs: pa.Table | None,
    request: FleetRequest,
    notes: list[str] | None = None,
    rolled: RolledSums | None = None,
    *,
    sources: Sequence[str] = (),
    least_hours: float = LEAST_HOURS,
    least_change: float,
) -> WatchReport:
    """Return what changed over settled samples (an Ibis table of `tables.SETTLED`) and job records; only series that can be trusted count.

    `sources` are the places that were asked, for the commands that show more. Raises UllageError for an empty window.
    """
    notes = list(notes or [])
    whole = judged_fleet(samples, request, notes, rolled)
    believed = whole.believed_samples
    bucket_ms = bucket_for(whole.window, whole.interval_ms)
    request.progress("laying out courses")
    courses = job_courses(believed, jobs, bucket_ms, request.gpu, notes)
    request.progress("looking for changes")
    found = found_changes(courses, least_change)
    told = [one for one in found if one.measure != "ofu" or abs(one.gpu_hours) >= least_hours]
    told = [_with_context(one, courses, believed, sources, looked_at=number < MOST_LOOKED_AT) for number, one in enumerate(told)]
    if not courses:
        notes.append("no job is known: courses are those of jobs, which exporters name or --jobs records")
    elif not any(one.name for one in courses):
        notes.append("no job has a name, so that runs of one kind are not known: job records (--jobs) have names")
    return WatchReport(
        window=whole.window,
        bucket_ms=bucket_ms,
        jobs=len(courses),
        job_hours=sum(one.end - one.start for one in courses) / HOUR_MS,
        gpu_hours=sum(float(one.ofu.hours.sum()) for one in courses),
        least_hours=least_hours,
        least_change=least_change,
        changes=tuple(told),
        smaller=len(found) - len(told),
        stragglers=tuple(seen_stragglers(within(believed, whole.window[1] - RECENT_MS, None))),
        command=request.command,
        notes=notes,
    )


def _with_context(
    change: WatchedChange, courses: Sequence[JobCourse], samples: Any, sources: Sequence[str], *, looked_at: bool
) -> WatchedChange:
    """Return a change with what else changed then, and the command that shows more."""
    spans = _sides(change, courses)
    beside = [] if spans is None or not looked_at else changed_beside(*(device_facts(samples, *side) for side in spans))
    return replace(change, beside=tuple(beside), command=_command(change, sources))


def _sides(change: WatchedChange, courses: Sequence[JobCourse]) -> tuple[tuple[str | None, str, tuple[int, int]], ...] | None:
    """Return whose samples to look at before and after a change, each with the span (ms)."""
    if change.scope == "fleet":
        return None
    after = (change.settled, change.settled + AROUND_MS)
    own = next(one for one in courses if one.job == change.jobs[0] and one.cluster == change.where.cluster and one.end > change.start)
    if change.scope == "job":
        return (own.cluster, own.job, (change.start - AROUND_MS, change.start)), (own.cluster, own.job, after)
    earlier = [one for one in courses if one.family == own.family and one.start < own.start]
    last = max(earlier, key=lambda one: one.start)
    return (last.cluster, last.job, (last.start, last.start + AROUND_MS)), (own.cluster, own.job, after)


def _command(change: WatchedChange, sources: Sequence[str]) -> str:
    """Return the command that shows a change: the time since it beside the time before. No secret of an address is in it."""
    places = [public(source) for source in sources]
    length = max(change.settled - change.start, AROUND_MS)
    since, until = change.settled, change.settled + length if change.until is None else min(change.until, change.settled + length)
    if change.scope != "fleet":
        return shlex.join(["ullage", "job", change.jobs[0], *places, "--since", iso(since)])
    before = change.start - (until - since)
    return shlex.join(["ullage", "fleet", *places, "--since", iso(since), "--until", iso(until), "--against", iso(before)])
