"""Kinds of jobs whose runs fail, or are started again, more often than before: the runtime part of their goodput fell."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ullage.findings.fleet.lost_hours import ADVICE, OWNERS
from ullage.findings.fleet_evidence import FamilyRuns, FleetEvidence
from ullage.findings.kind import fleet_kind
from ullage.views.notation import COUNT, GPU_HOURS, PERCENT
from ullage.views.view import Confidence, Fact, Finding, FindingPlace

LEAST_BEFORE = 5  # runs before the window: fewer say little of how often runs of a kind are lost
LEAST_DROP = 0.1  # of goodput
LEAST_HOURS = 1.0  # GPU-hours that were lost beyond what was usual
CHANCE = 0.01  # that as many runs are lost by chance: a fleet has dozens of kinds of jobs
SURE = 0.001


@fleet_kind(
    "goodput_fell",
    "goodput fell",
    part="no part of the ullage: what runs of a kind that ended in the window lost beyond what such runs lost before",
)
def goodput_fell(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the kinds of jobs of whose runs many more were lost than of those before the window."""
    for one in fleet.families:
        if one.before.runs >= LEAST_BEFORE and _drop(one) >= LEAST_DROP and _beyond(one) >= LEAST_HOURS and chance(one) < CHANCE:
            yield _finding(one)


def chance(family: FamilyRuns) -> float:
    """Return how likely as many runs are lost, or more, if each is lost as often as those before: a binomial tail.

    How often that is, is the mean of what the runs before leave open: one more lost, of two more runs.
    """
    rate = (family.before.lost + 1) / (family.before.runs + 2)
    runs = family.now.runs
    return sum(math.comb(runs, lost) * rate**lost * (1 - rate) ** (runs - lost) for lost in range(family.now.lost, runs + 1))


def _drop(family: FamilyRuns) -> float:
    return family.now.lost_share - family.before.lost_share


def _beyond(family: FamilyRuns) -> float:
    """Return the GPU-hours that were lost beyond those that would have been lost at the share before."""
    return _drop(family) * family.now.gpu_hours


def _finding(family: FamilyRuns) -> Finding:
    now, before = family.now, family.before
    most = max(now.lost_hours, key=lambda ending: now.lost_hours[ending])
    confidence: Confidence = "high" if chance(family) < SURE else "medium"
    return Finding(
        where=FindingPlace(cluster=family.cluster, user=family.user, job_name=family.name, gpus=family.gpus),
        owner=OWNERS.get(most, family.user or "unknown"),
        gpu_hours=_beyond(family),
        confidence=confidence,
        evidence=(
            Fact("runtime goodput", 1 - now.lost_share, PERCENT),
            Fact("before", 1 - before.lost_share, PERCENT),
            Fact("runs lost", now.lost, COUNT),
            Fact("of runs", now.runs, COUNT),
            Fact("lost before", before.lost, COUNT),
            Fact("of runs before", before.runs, COUNT),
            *(Fact(ending, hours, GPU_HOURS) for ending, hours in now.lost_hours.items()),
        ),
        advice=ADVICE[most],
    )
