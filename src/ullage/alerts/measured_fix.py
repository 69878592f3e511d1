"""What a fix brought: how much fuller GPUs are after a problem was over than while it lasted, in GPU-hours a week, with its error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import sqrt
from typing import Any

import msgspec

BLOCK_H = 6  # hours that count as one observation: neighbouring hours are alike, for jobs run on
LEAST_BLOCKS = 3  # on each side: fewer say nothing of how much weeks differ
HOURS_A_WEEK = 168.0
DAY_S = 86_400.0
LONGEST_S = 7 * DAY_S  # before and after that are compared
ZONE_S = DAY_S  # before the end of a problem: a finding is of the last 24 hours, and lasts that much longer than its cause


class MeasuredFix(msgspec.Struct, frozen=True, kw_only=True):
    """GPU-hours at the peak that are won a week (lost where negative), and by how much that may be wrong (95 %).

    `of` says of which GPUs, `ofu_before` and `ofu_after` are means over `hours_before` and `hours_after` that were seen. What changed by
    itself in that time is part of it: another job on the same GPUs is no fix.
    """

    of: str
    gpu_hours_a_week: float
    error: float
    ofu_before: float
    ofu_after: float
    hours_before: int
    hours_after: int

    @property
    def certain(self) -> bool:
        """Whether it is more than its error."""
        return abs(self.gpu_hours_a_week) > self.error


def windows_of_fix(opened: float, resolved: float, now: float) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Return the times (s) that are compared, while a problem lasted and since it was over; None where one is too short yet."""
    least = LEAST_BLOCKS * BLOCK_H * 3600.0
    ended = resolved - ZONE_S
    before = (max(opened, ended - LONGEST_S), ended)
    after = (resolved, min(now, resolved + LONGEST_S))
    return (before, after) if before[1] - before[0] >= least and after[1] - after[0] >= least else None


def measured_fix(of: str, before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> MeasuredFix | None:
    """Return what a fix brought by the hours before and after it (rows of a fleet's report by hour); None where they are too few.

    What is won is the difference of the mean OFUs times the GPU-hours a week of the hours after. The error is that of both means, by how
    much blocks of six hours differ among themselves.
    """
    sides = [_blocks(rows) for rows in (before, after)]
    if min(map(len, sides)) < LEAST_BLOCKS:
        return None
    (mean_before, error_before), (mean_after, error_after) = (_mean(blocks) for blocks in sides)
    seen = [sum(1 for row in rows if _known(row)) for rows in (before, after)]
    weekly = sum(hours for _, hours in sides[1]) / seen[1] * HOURS_A_WEEK
    quantile = _student(len(sides[0]) + len(sides[1]) - 2)
    return MeasuredFix(
        of=of,
        gpu_hours_a_week=(mean_after - mean_before) * weekly,
        error=quantile * sqrt(error_before**2 + error_after**2) * weekly,
        ofu_before=mean_before,
        ofu_after=mean_after,
        hours_before=seen[0],
        hours_after=seen[1],
    )


def _known(row: Mapping[str, Any]) -> bool:
    return row.get("ofu") is not None and row.get("gpu_hours", 0.0) > 0


def _blocks(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return OFU and GPU-hours of each block of hours of which anything is known."""
    blocks: dict[int, list[float]] = {}
    for row in rows:
        if _known(row):
            hour = datetime.fromisoformat(str(row["key"])).replace(tzinfo=UTC).timestamp() / 3600
            block = blocks.setdefault(int(hour // BLOCK_H), [0.0, 0.0])
            block[0] += row["ofu"] * row["gpu_hours"]
            block[1] += row["gpu_hours"]
    return [(part / hours, hours) for part, hours in blocks.values()]


def _mean(blocks: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean, weighed by GPU-hours, and its standard error."""
    weight, count = sum(hours for _, hours in blocks), len(blocks)
    mean = sum(ofu * hours for ofu, hours in blocks) / weight
    spread = sum((hours * (ofu - mean)) ** 2 for ofu, hours in blocks)
    return mean, sqrt(spread * count / (count - 1)) / weight


def _student(freedom: int) -> float:
    """Return the 97.5 % point of Student's distribution (Abramowitz and Stegun, 26.7.5; 0.3 % off at four degrees).

    >>> round(_student(4), 2), round(_student(10), 2), round(_student(1000), 2)
    (2.77, 2.23, 1.96)
    """
    z = 1.959964
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / float(freedom) ** power for power, term in enumerate(terms, 1))
