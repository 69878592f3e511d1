"""Changes told from courses laid out by hand: which jobs they are of, what they cost, whether they go on."""

from __future__ import annotations

import numpy as np
import pytest

from ullage.courses.course import TimeCourse
from ullage.reports.watch.job_courses import JobCourse
from ullage.reports.watch.watched_changes import found_changes

MINUTE, BUCKETS, FALL = 60_000, 120, 60
MEASURES = ("ofu", "at_work", "activity", "sm_fill", "tensor_issue", "clock", "memory", "power")


def falling(cluster: str | None, job: str, seed: int, before: float = 0.4, after: float = 0.2) -> JobCourse:
    """Return a job of four GPUs whose OFU falls in the middle of two hours."""
    times = np.arange(BUCKETS) * MINUTE
    hours = np.full(BUCKETS, 4 / 60)
    ofu = np.where(np.arange(BUCKETS) < FALL, before, after) + np.random.default_rng(seed).normal(0, 0.002, BUCKETS)
    unknown = np.full(BUCKETS, np.nan)
    courses = {name: TimeCourse(MINUTE, times, ofu if name == "ofu" else unknown, hours) for name in MEASURES}
    return JobCourse(cluster, job, "ann", None, None, 4, ("H100 SXM",), courses)


@pytest.mark.parametrize("clusters", [("east", "west"), ("east", "east"), (None, None)])
def test_a_fall_of_all_jobs_at_once_is_of_each_of_them_and_goes_on(clusters: tuple[str | None, str | None]) -> None:
    """Two clusters may each have a job of one number."""
    numbers = ("1", "2") if clusters[0] != clusters[1] else ("1", "2", "3", "4")
    jobs = [falling(cluster, job, seed) for seed, (cluster, job) in enumerate((c, j) for c in dict.fromkeys(clusters) for j in numbers)]
    (one,) = found_changes(jobs)
    assert one.scope == "fleet" and sorted(one.runs, key=str) == sorted(((job.cluster, job.job) for job in jobs), key=str)
    assert one.gpus == 16 and one.goes_on and one.worse
    # half of what each of 16 GPUs does is lost for an hour
    assert one.gpu_hours == pytest.approx(8, rel=0.03)
