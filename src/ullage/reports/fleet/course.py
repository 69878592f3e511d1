"""A fleet in the course of time: OFU, "GPU utilization" and GPU-hours span by span, and a row an hour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ullage.reports.fleet.groups import Group, course_sums, groups_of, sums_between
from ullage.reports.fleet.judged import JudgedFleet, Verdicts, believed_rows, faults_of, samples_of_trusted
from ullage.reports.fleet.prices import row_prices
from ullage.reports.fleet.rated import losses, rate, weighted_means
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.fleet.trusted import clock_moves
from ullage.reports.fleet.where import rows_that_fit
from ullage.store.rollups import RolledSums
from ullage.sums.devices import KIND
from ullage.sums.grouping import collapse
from ullage.sums.spans import gpus_of, samples_in_spans
from ullage.units import HOUR_MS

BUCKETS = (60_000, 300_000, 900_000, HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS)


@dataclass(frozen=True)
class CoursePoint:
    """The fleet in one span of time: its start (ms), OFU, "GPU utilization", and GPU-hours observed."""

    time: int
    ofu: float | None
    gpu_util: float | None
    gpu_hours: float


def course_width(window: tuple[int, int]) -> int:
    """Return how long (ms) the spans are in which a window (ms) is shown: the shortest of which 400 or fewer fill it.

    >>> course_width((0, 24_000_000)), course_width((0, 24_000_001))
    (60000, 300000)
    """
    return next((width for width in BUCKETS if (window[1] - window[0]) / width <= 400), BUCKETS[-1])


def course_of(
    samples: Any, window: tuple[int, int], verdicts: Verdicts, gpu: str | None = None, rolled: RolledSums | None = None
) -> list[CoursePoint]:
    """Return trusted samples span by span; `gpu` names the GPU where they don't, `rolled` are sums kept of them."""
    bucket_ms = course_width(window)
    faults = faults_of(verdicts)

    def believed(table: Any) -> Any:
        return samples_in_spans(samples_of_trusted(table, verdicts), faults, inside=False)

    doubted = {gpu for (gpu, _), verdict in verdicts.items() if not verdict.trusted} | set(gpus_of(faults))
    sums = course_sums(samples, believed, doubted, bucket_ms, rolled)
    if not len(sums):
        return []
    rated = rate(collapse(sums, ["bucket", *KIND]), gpu)
    starts, codes = np.unique(rated.column("bucket"), return_inverse=True)
    ofu = weighted_means(rated.ofu_part, rated.ofu_time, rated.weight, codes, len(starts))
    util = weighted_means(rated.column("gpu_util_sum"), rated.column("gpu_util_ms"), rated.weight, codes, len(starts))
    hours = np.bincount(codes, rated.column("span_ms") * rated.weight, len(starts)) / HOUR_MS
    known = ([None if np.isnan(value) else value for value in values.tolist()] for values in (ofu, util))
    return [CoursePoint(int(start), *values) for start, *values in zip(starts.tolist(), *known, hours.tolist(), strict=True)]


def hourly_groups(whole: JudgedFleet, question: FleetRequest) -> list[Group]:
    """Return a row an hour of the part of a fleet that is asked about."""
    edges, faults = question.price_table.edges(whole.window), faults_of(whole.verdicts)
    rated = rate(sums_between(whole.samples, edges, faults, bucket_ms=HOUR_MS), question.gpu)
    trusted = believed_rows(rated, whole.verdicts)
    lost = losses(rated.take(trusted))
    condition = question.condition()
    if condition is not None:
        chosen = rows_that_fit(whole.in_columns(condition), rated.sums)
        lost = {name: values[chosen[trusted]] for name, values in lost.items()}
        rated, trusted = rated.take(chosen), trusted[chosen]
    moves = clock_moves(rated.take(trusted), whole.verdicts)
    return groups_of(rated, trusted, lost, "bucket", row_prices(rated, question.price_table), moves)
