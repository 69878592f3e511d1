"""What a kind of finding is: a function from what was measured to findings. Every file of a folder adds one.

    @fleet_kind("held_idle", "held idle", part="the step 'held idle' of the chain")
    def held_idle(fleet: FleetEvidence) -> Iterator[Finding]: ...

Each kind says which part of the ullage its GPU-hours are (`part`). Parts of different kinds are apart from each other. Where they are
not, a kind is `without` others: of a job it counts only what the findings of those do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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

    `without` names kinds whose GPU-hours in the same job are taken off its own ("*": of all kinds before it;
    "*" and a name: of that one, too, which is without all as well). What is found of a kind
    is told `however_small` its hours are, or from `LEAST_HOURS` and `LEAST_SHARE` on.
    """

    name: str
    title: str
    part: str
    find: FleetFinder
    without: tuple[str, ...] = ()
    however_small: bool = False

    @property
    def of_the_ullage(self) -> bool:
        """Whether its GPU-hours are a part of the ullage, and not beside it."""
        return not self.part.startswith("no part")


FLEET_KINDS: Registry[FindingKind] = Registry("kind of finding", package="ullage.findings.fleet", command="ullage fleet --help")


def fleet_kind(
    name: str, title: str, *, part: str, without: tuple[str, ...] = (), however_small: bool = False
) -> Callable[[FleetFinder], FleetFinder]:
    """Register the decorated function as a kind of finding of a fleet, and return it unchanged."""

    def register(find: FleetFinder) -> FleetFinder:
        FLEET_KINDS.add(name, FindingKind(name, title, part, find, without, however_small))
        return find

    return register


def fleet_findings(fleet: FleetEvidence) -> list[Finding]:
    """Return all findings of a fleet, those that are worth most first; none speaks of what another one does."""
    found = [finding for kind in FLEET_KINDS.values() for finding in _of_kind(kind, fleet)]
    least = worth_a_line(fleet)
    small = {kind.name for kind in FLEET_KINDS.values() if kind.however_small}
    return ranked(finding for finding in _counted_once(found) if finding.gpu_hours >= least or finding.kind in small)


def worth_a_line(fleet: FleetEvidence) -> float:
    """Return the GPU-hours from which on a finding is told."""
    return max(LEAST_HOURS, LEAST_SHARE * fleet.gpu_hours)


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with those that are worth most first."""
    return sorted(findings, key=lambda one: (-one.gpu_hours, one.kind, str(one.where)))


def _of_kind(kind: FindingKind, fleet: FleetEvidence) -> Iterator[Finding]:
    for finding in kind.find(fleet):
        yield replace(finding, kind=kind.name, title=kind.title, part=kind.part, weeks=fleet.weeks, terms=fleet.terms)


def _counted_once(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield findings; those of a kind that is `without` others are worth what those of the same job do not speak of."""
    taken: dict[tuple[str | None, str | None], dict[str, float]] = {}
    for finding in sorted(findings, key=lambda one: _order(one.kind)):
        before = taken.setdefault((finding.where.cluster, finding.where.job), {})
        others = FLEET_KINDS[finding.kind].without
        left = _less(finding, sum(hours for kind, hours in before.items() if kind in others or "*" in others))
        if FLEET_KINDS[finding.kind].of_the_ullage:
            before[finding.kind] = before.get(finding.kind, 0.0) + left.gpu_hours
        yield left


def _order(kind: str) -> int:
    """Return when a kind's turn is: after those that it is without, after all where it is without all, and last where it then names one."""
    others = FLEET_KINDS[kind].without
    return 1 + len(others) if "*" in others else 1 if others else 0


def _less(finding: Finding, hours: float) -> Finding:
    left = max(0.0, finding.gpu_hours - hours)
    money = None if finding.money is None or not finding.gpu_hours else finding.money * left / finding.gpu_hours
    return replace(finding, gpu_hours=left, money=money)
