"""The time courses of every job: OFU, the factors that telemetry has, memory's roof, power; from its first work on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.courses.course import Array, TimeCourse
from ullage.metrics.metric import ratio
from ullage.reports.fleet.groups import in_slices, stacked
from ullage.reports.fleet.rated import Rated, rate
from ullage.sums.job_courses import job_course_sums
from ullage.units import HOUR_MS

BUCKETS = (60_000, 120_000, 300_000, 900_000, HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS)
MOST_BUCKETS = 2000  # of one course: finer ones take longer to search, and tell no more of so long a time
WHOLE = 0.5  # of the usual GPU time of a bucket: with less it is the start or the end of something
LONGEST_SILENCE = 4 * HOUR_MS  # a job name that comes back after longer is another run


@dataclass(frozen=True)
class JobCourse:
    """A run of a job and its courses by measure; `name` is that of its record, `models` those of its GPUs."""

    cluster: str | None
    job: str
    user: str | None
    namespace: str | None
    name: str | None
    gpus: int
    models: tuple[str, ...]
    courses: Mapping[str, TimeCourse]

    @property
    def family(self) -> tuple[object, ...] | None:
        """What runs of one kind have in common; None for a job that has no name."""
        return (self.cluster, self.user, self.name, self.gpus, self.models) if self.name else None

    @property
    def owner(self) -> str:
        """Whose the job is, as far as anybody says."""
        return self.user or self.namespace or "unknown"

    @property
    def ofu(self) -> TimeCourse:
        """The course of OFU."""
        return self.courses["ofu"]

    @property
    def start(self) -> int:
        """When it first worked (ms)."""
        return int(self.ofu.times[0])

    @property
    def end(self) -> int:
        """The end of its last bucket (ms)."""
        return int(self.ofu.times[-1]) + self.ofu.bucket_ms


def bucket_for(window: tuple[int, int], interval_ms: int) -> int:
    """Return how long a bucket is: two scrapes or more, a minute or more, and no more than `MOST_BUCKETS` in the window.

    >>> bucket_for((0, 24 * HOUR_MS), 30_000), bucket_for((0, 7 * 24 * HOUR_MS), 30_000), bucket_for((0, HOUR_MS), 60_000)
    (60000, 900000, 120000)
    """
    least = max(2 * interval_ms, (window[1] - window[0]) / MOST_BUCKETS)
    return next((bucket for bucket in BUCKETS if bucket >= least), BUCKETS[-1])


def job_courses(samples: Any, jobs: pa.Table | None, bucket_ms: int, gpu: str | None, notes: list[str]) -> list[JobCourse]:
    """Return the courses of every job of settled samples (Ibis), in order of when they first worked; job records name them."""
    sums = stacked([job_course_sums(table, bucket_ms=bucket_ms) for table in in_slices(samples, notes)])
    if not len(sums):
        return []
    rated = rate(sums, gpu)
    codes, firsts = rated.alike("cluster", "job")
    buckets = rated.column("bucket").astype(np.int64)
    names, named = _words(rated, firsts), _named_jobs(jobs)
    order = np.lexsort((buckets, codes))
    cells = np.flatnonzero(np.concatenate([[True], (np.diff(codes[order]) != 0) | (np.diff(buckets[order]) != 0)]))
    added = {name: np.add.reduceat(values[order], cells) for name, values in _parts(rated).items()}
    whose, times = codes[order][cells], buckets[order][cells]
    models = _models(rated, codes, len(firsts))
    found: list[JobCourse] = []
    for code, words in enumerate(names):
        own = whose == code
        name, gpus = named.name_and_gpus(words["cluster"], words["job"])
        found += [
            JobCourse(words["cluster"], words["job"], words["user"], words["namespace"], name, gpus or _gpus(made), models[code], made)
            for made in _runs(times[own], {key: values[own] for key, values in added.items()}, bucket_ms)
        ]
    return sorted(found, key=lambda one: (one.start, one.job))


def _words(rated: Rated, firsts: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = rated.sums.select(["cluster", "job", "user", "namespace"]).take(pa.array(firsts)).to_pylist()
    return rows


NameAndGpus = tuple[str | None, int | None]


@dataclass(frozen=True)
class _NamedJobs:
    """Names and numbers of GPUs that records give jobs: the first record that says so counts."""

    by_cluster: Mapping[tuple[str | None, str], NameAndGpus]  # None: of records that name no cluster
    anywhere: Mapping[str, NameAndGpus]

    def name_and_gpus(self, cluster: str | None, job: str) -> NameAndGpus:
        """Return what the records of a job's own cluster say, then those that name none; a job of no known cluster takes any."""
        if cluster is None:
            return self.anywhere.get(job, (None, None))
        own, others = self.by_cluster.get((cluster, job), (None, None)), self.by_cluster.get((None, job), (None, None))
        return own[0] or others[0], own[1] or others[1]


def _named_jobs(jobs: pa.Table | None) -> _NamedJobs:
    by_cluster: dict[tuple[str | None, str], NameAndGpus] = {}
    anywhere: dict[str, NameAndGpus] = {}
    for row in [] if jobs is None else jobs.select(["cluster", "job", "name", "gpus"]).to_pylist():
        cluster, job, name, gpus = row["cluster"], row["job"], row["name"], row["gpus"]
        known, seen = by_cluster.get((cluster, job), (None, None)), anywhere.get(job, (None, None))
        by_cluster[cluster, job] = known[0] or name, known[1] or gpus
        anywhere[job] = seen[0] or name, seen[1] or gpus
    return _NamedJobs(by_cluster, anywhere)


def _models(rated: Rated, codes: npt.NDArray[np.int64], count: int) -> list[tuple[str, ...]]:
    found: list[set[str]] = [set() for _ in range(count)]
    for code, chip in {(int(code), int(chip)) for code, chip in zip(codes, rated.chip, strict=True)}:
        found[code].add(rated.chips[chip].name if chip >= 0 else "unknown")
    return [tuple(sorted(one)) for one in found]


def _parts(rated: Rated) -> dict[str, Array]:
    """Return what courses are quotients of, for each row of sums."""
    quiet, weight = rated.sums["_quiet"].to_numpy(zero_copy_only=False).astype(bool), rated.weight
    column = {name: np.nan_to_num(rated.column(name)) * weight for name in rated.sums.column_names if name.endswith(("_ms", "_sum"))}
    clocks = np.array([chip.memory_clock or np.nan for chip in rated.chips] + [np.nan])[rated.chip]
    known = ~np.isnan(clocks)
    return {
        "time": column["span_ms"],
        "worked": np.where(quiet, 0.0, column["span_ms"]),
        "ofu": np.nan_to_num(rated.ofu_part * weight),
        "ofu_time": np.nan_to_num(rated.ofu_time * weight),
        "tensor": np.where(rated.chip >= 0, np.nan_to_num(rated.tensor_part * weight), 0.0),
        "sm": column["sm_active_sum"],
        "sm_time": column["sm_active_ms"],
        "gr": column["gr_active_sum"],
        "gr_time": column["gr_active_ms"],
        "memory": np.where(known, column["memory_sum"] / np.where(known, clocks, 1.0), 0.0),
        "memory_time": np.where(known, column["memory_ms"], 0.0),
        "energy": column["energy_sum"] + column["sampled_sum"],
        "energy_time": column["energy_ms"] + column["sampled_ms"],
    }


def _runs(times: npt.NDArray[np.int64], parts: Mapping[str, Array], bucket_ms: int) -> list[dict[str, TimeCourse]]:
    """Return the courses of each run of a job: from after its first work on, without buckets of which little was seen."""
    whole = parts["time"] >= WHOLE * float(np.median(parts["time"]))
    times, parts = times[whole], {name: values[whole] for name, values in parts.items()}
    apart = np.flatnonzero(np.diff(times) > LONGEST_SILENCE) + 1
    found = []
    for run in np.split(np.arange(len(times)), apart):
        works = np.flatnonzero(parts["worked"][run] > 0)
        own = run[works[0] + 1 :] if len(works) else run[:0]  # in its first bucket it was starting
        if len(own):
            found.append(_courses(times[own], {name: values[own] for name, values in parts.items()}, bucket_ms))
    return found


def _courses(times: npt.NDArray[np.int64], parts: Mapping[str, Array], bucket_ms: int) -> dict[str, TimeCourse]:
    ofu, tensor = ratio(parts["ofu"], parts["ofu_time"]), ratio(parts["tensor"], parts["ofu_time"])
    sm, engine = ratio(parts["sm"], parts["sm_time"]), ratio(parts["gr"], parts["gr_time"])
    values = {
        "ofu": ofu,
        "at_work": ratio(parts["worked"], parts["time"]),
        "activity": engine,
        "sm_fill": ratio(sm, engine),
        "tensor_issue": ratio(tensor, sm),
        "clock": ratio(ofu, tensor),
        "memory": ratio(parts["memory"], parts["memory_time"]),
        "power": ratio(parts["energy"], parts["energy_time"]),
    }
    hours = parts["time"] / HOUR_MS
    return {name: TimeCourse(bucket_ms, times, np.asarray(course, dtype=float), hours) for name, course in values.items()}


def _gpus(courses: Mapping[str, TimeCourse]) -> int:
    """Return on how many GPUs a run was, by the time that was observed in its buckets."""
    one: TimeCourse = courses["ofu"]
    return max(1, round(float(np.max(one.hours)) * HOUR_MS / one.bucket_ms))


def likely_interval(spans: Sequence[float]) -> int:
    """Return the usual time between two scrapes (ms) from the spans that samples stand for."""
    return int(np.median(spans)) if len(spans) else 0
