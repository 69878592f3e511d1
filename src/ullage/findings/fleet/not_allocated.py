"""GPU time that nobody held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.findings.fleet_evidence import FleetEvidence, FreeHours
from ullage.findings.kind import fleet_kind
from ullage.views.notation import COUNT, GPU_HOURS, PERCENT
from ullage.views.view import Fact, Finding, FindingPlace

LEAST_SHARE = 0.05  # of a cluster's GPU-hours: between two jobs a host stands free for some minutes
MOST_OF_A_HOST = 0.5  # of its GPU-hours free: a host that hardly anybody uses
ONE_HOST = 0.8  # of the free GPU-hours on one host: the finding is about that host


@fleet_kind("not_allocated", "not allocated", part="the step 'not allocated' of the chain")
def not_allocated(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the clusters of which nobody held a twentieth or more."""
    clusters: dict[str | None, list[FreeHours]] = {}
    for host in fleet.free:
        clusters.setdefault(host.cluster, []).append(host)
    for cluster, hosts in clusters.items():
        free, observed = sum(one.free + one.not_sliced for one in hosts), sum(one.observed for one in hosts)
        if free > 0 and free >= LEAST_SHARE * observed:
            yield _finding(cluster, hosts, free, observed, named=bool(fleet.jobs))


def _finding(cluster: str | None, hosts: Sequence[FreeHours], free: float, observed: float, *, named: bool) -> Finding:
    empty = [one for one in hosts if one.free + one.not_sliced >= MOST_OF_A_HOST * one.observed]
    most = max(hosts, key=lambda one: one.free + one.not_sliced)
    unsliced = sum(one.not_sliced for one in hosts)
    costs = [one.cost for one in hosts]
    known = [cost for cost in costs if cost is not None]
    return Finding(
        where=FindingPlace(cluster=cluster, host=most.host if most.free + most.not_sliced >= ONE_HOST * free else None),
        owner="the scheduler, the demand",
        gpu_hours=free,
        money=sum(known) if len(known) == len(costs) else None,
        confidence="high" if named else "low",
        evidence=(
            Fact("free", free - unsliced, GPU_HOURS, "GPU-hours"),
            *([Fact("not sliced", unsliced, GPU_HOURS, "GPU-hours")] if unsliced else []),
            Fact("share of the cluster", free / observed, PERCENT),
            Fact("hosts that are mostly free", len(empty), COUNT),
        ),
        advice=_advice(unsliced > free / 2, named, len(empty), len(hosts)),
    )


def _advice(sliced: bool, named: bool, empty: int, hosts: int) -> str:
    if not named:
        return "give job records (--jobs): no sample names a job, so idle GPUs that a job holds count as free"
    if sliced:
        return "change how GPUs are sliced: a part of them is in no slice that anybody can ask for"
    if empty and empty < hosts:
        return "see why jobs do not start on the free hosts: drained, reserved, in another partition, or too few GPUs in one place"
    return "let waiting or preemptible jobs fill the gaps (backfill); without any in the queue, fewer GPUs would do"
