"""What a kind of finding is: a function from what was measured to findings. Every file of a folder adds one.

    @fleet_kind("held_idle", "held idle", part="the step 'held idle' of the chain")
    def held_idle(fleet: FleetEvidence) -> Iterator[Finding]: ...

Each kind says which part of the ullage its GPU-hours are (`part`). Parts of different kinds are apart from each other, but for
kinds that speak of a whole job (`whole_job`): of these only what no other finding of the same job speaks of is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from ullage.findings.fleet_evidence import FleetEvidence
from ullage.registry import Registry
from ullage.views.view import Finding

FleetFinder = Callable[[FleetEvidence], Iterable[Finding]]
LEAST_SHARE = 0.001  # of the GPU-hours of a fleet: what costs less is not worth a line
LEAST_HOURS = 0.1  # and no less than six minutes of a GPU


@dataclass(frozen=True)
class FindingKind:
    """A kind of finding: its key, what a person reads, which part of the ullage it speaks of, and the function that finds it.

    A kind that speaks of a `whole_job` counts only what no other finding of the job does.
    """

    name: str
    title: str
    part: str
    find: FleetFinder
    whole_job: bool = False


FLEET_KINDS: Registry[FindingKind] = Registry("kind of finding", package="ullage.findings.fleet", command="ullage fleet --help")


def fleet_kind(name: str, title: str, *, part: str, whole_job: bool = False) -> Callable[[FleetFinder], FleetFinder]:
    """Register the decorated function as a kind of finding of a fleet, and return it unchanged."""

    def register(find: FleetFinder) -> FleetFinder:
        FLEET_KINDS.add(name, FindingKind(name, title, part, find, whole_job))
        return find

    return register


def fleet_findings(fleet: FleetEvidence) -> list[Finding]:
    """Return all findings of a fleet, those that are worth most first; none speaks of what another one does."""
    found = [finding for kind in FLEET_KINDS.values() for finding in _of_kind(kind, fleet)]
    least = max(LEAST_HOURS, LEAST_SHARE * fleet.gpu_hours)
    return ranked(finding for finding in _counted_once(found) if finding.gpu_hours >= least)


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with those that are worth most first."""
    return sorted(findings, key=lambda one: (-one.gpu_hours, one.kind, str(one.where)))


def _of_kind(kind: FindingKind, fleet: FleetEvidence) -> Iterator[Finding]:
    for finding in kind.find(fleet):
        yield replace(finding, kind=kind.name, title=kind.title, part=kind.part, weeks=fleet.weeks)


def _counted_once(findings: list[Finding]) -> Iterator[Finding]:
    """Yield findings; those of a whole job are worth what no other finding of that job speaks of."""
    taken: dict[tuple[str | None, str | None], float] = {}
    for finding in sorted(findings, key=lambda one: FLEET_KINDS[one.kind].whole_job):  # the others first; a stable order
        job = (finding.where.cluster, finding.where.job)
        left = finding
        if FLEET_KINDS[finding.kind].whole_job and job in taken:
            hours = max(0.0, finding.gpu_hours - taken[job])
            share = hours / finding.gpu_hours if finding.gpu_hours else 0.0
            left = replace(finding, gpu_hours=hours, money=None if finding.money is None else finding.money * share)
        taken[job] = taken.get(job, 0.0) + left.gpu_hours
        yield left
