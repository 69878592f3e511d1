"""How the runs of each kind of job ended: within a window, and before it, by the scheduler's records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ullage.findings.fleet_evidence import FamilyRuns, LostRuns
from ullage.reports.fleet.job_runs import LOST, JobRun
from ullage.units import HOUR_MS

MOST_BEFORE = 50  # runs before a window that count, the last ones: what was long ago says little of how runs are


def family_runs(runs: Sequence[JobRun], window: tuple[int, int]) -> tuple[FamilyRuns, ...]:
    """Return of each kind of job that has a name how its runs ended that were over within a window (ms), and those before it.

    A kind of job is what has one cluster, user, name and number of GPUs. A run counts with all of its time, also that before the window:
    where it is lost, all of it is. Runs that still go on, and those of which nobody says how they ended, count nowhere.
    """
    families: dict[tuple[str | None, str | None, str, int], list[JobRun]] = defaultdict(list)
    for one in runs:
        if one.over and one.name and one.gpus:
            families[one.cluster, one.user, one.name, one.gpus].append(one)
    return tuple(_families(families, window))


def _families(families: dict[tuple[str | None, str | None, str, int], list[JobRun]], window: tuple[int, int]) -> Iterator[FamilyRuns]:
    for (cluster, user, name, gpus), own in families.items():
        now = [one for one in own if window[0] <= one.end < window[1]]
        before = sorted((one for one in own if one.end < window[0]), key=lambda one: one.end)[-MOST_BEFORE:]
        if now:
            yield FamilyRuns(cluster, user, name, gpus, _lost_runs(now), _lost_runs(before))


def _lost_runs(runs: Sequence[JobRun]) -> LostRuns:
    lost: dict[str, float] = {}
    for one in runs:
        if one.ending in LOST:
            lost[one.ending] = lost.get(one.ending, 0.0) + _hours(one)
    return LostRuns(len(runs), sum(one.ending in LOST for one in runs), sum(map(_hours, runs)), lost)


def _hours(run: JobRun) -> float:
    return (run.gpus or 0) * (run.end - run.start) / HOUR_MS
