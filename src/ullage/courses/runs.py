"""Runs of one kind beside one another: which of them is not like those before it. What people try differs; how much, the runs say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ullage.courses.changes import LEAST_CHANGE, logarithm

APART = 0.12  # standard deviation of the logarithm of the levels of runs of one kind, as long as these have not said otherwise
WORTH = 2.0  # runs that this is worth
SURE = 3.3  # standard deviations: one run in a thousand of those that are alike lies beyond
NEW_LEVEL = 3  # runs in a row beyond on one side: that is how runs of this kind are from now on


@dataclass(frozen=True)
class ChangedRun:
    """A run (its number in order of time) that is not like those before it: their `usual` level, its own, how many they are.

    `deviations` is how far it lies beyond what runs of its kind differ by; `until` is the number of the first run that is as usual again.
    """

    run: int
    usual: float
    level: float
    earlier: int
    deviations: float
    until: int | None = None


def changed_runs(levels: Sequence[float]) -> list[ChangedRun]:
    """Return the runs that are not like those before them; `levels` in order of their start.

    What runs differ by is learnt from them: one run says nothing of that, and the next must lie far off to be told; after ten that are
    alike a fifth is enough.

    >>> [(one.run, one.until) for one in changed_runs([0.30, 0.31, 0.12, 0.30])]
    [(2, 3)]
    >>> changed_runs([0.30, 0.24, 0.36, 0.27])
    []
    """
    usual: list[float] = []
    found: list[ChangedRun] = []
    beyond: list[ChangedRun] = []  # the latest runs that are not as usual
    for number, level in enumerate(levels):
        if not usual:
            usual.append(level)
            continue
        middle, spread = median(usual), _spread_of_runs(usual)
        away = logarithm(level, middle)
        deviations = abs(away) / spread
        if deviations < SURE or abs(away) < -math.log(1 - LEAST_CHANGE):
            found += [ChangedRun(one.run, one.usual, one.level, one.earlier, one.deviations, number) for one in beyond[:1]]
            beyond = []
            usual.append(level)
            continue
        if beyond and (beyond[-1].level > middle) != (level > middle):
            found += [ChangedRun(one.run, one.usual, one.level, one.earlier, one.deviations, number) for one in beyond[:1]]
            beyond = []
        beyond.append(ChangedRun(number, middle, level, len(usual), deviations))
        if len(beyond) == NEW_LEVEL:
            found.append(beyond[0])
            usual, beyond = [one.level for one in beyond], []
    return [*found, *beyond[:1]]


def _spread_of_runs(levels: Sequence[float]) -> float:
    """Return by how much one more run may differ (standard deviation of the logarithm)."""
    middle = median(levels)
    squares = sum(logarithm(level, middle) ** 2 for level in levels)
    learnt = (WORTH * APART**2 + squares) / (WORTH + len(levels) - 1)
    return math.sqrt(learnt * (1 + 1 / len(levels)))
