"""GPUs whose telemetry can't be believed, so that nobody knows what they do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.audit.trust import Verdict
from ullage.findings.fleet_evidence import FleetEvidence
from ullage.findings.kind import fleet_kind
from ullage.views.notation import COUNT, GPU_HOURS, WORDS
from ullage.views.view import Fact, Finding, FindingPlace

ADVICE = {
    "stuck at zero": "restart DCGM's host engine there: its profiling module stopped; another profiler on the GPU has the same effect",
    "stale": "restart the exporter there: it repeats its last reading",
    "sentinel": "see why the exporter has no values there: rights, a driver without the field, or a GPU that fell off the bus",
    "locked": "scrape with a jitter, or at an interval that is no multiple of the job's step",
    "impossible": "check units and names of the exporter's fields there, and that no two devices go by one name",
    "contradictory": "check units and names of the exporter's fields there: gauges of one GPU contradict each other",
}


@fleet_kind(
    "faulty_series", "faulty telemetry", part="no part of the ullage: GPU-hours that are left out, since their series can't be trusted"
)
def faulty_series(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the hosts with series that are left out, by what is wrong with them."""
    hosts: dict[tuple[str, str | None], list[Verdict]] = {}
    for verdict in fleet.verdicts:
        if not verdict.trusted:
            hosts.setdefault((verdict.verdict, verdict.host), []).append(verdict)
    for (fault, host), series in hosts.items():
        yield _finding(fault, host, series)


def _finding(fault: str, host: str | None, series: Sequence[Verdict]) -> Finding:
    hours, one = sum(verdict.gpu_hours for verdict in series), series[0] if len(series) == 1 else None
    return Finding(
        where=FindingPlace(host=host, index=one.index if one else None, gpu=one.gpu if one else None, mig=one.mig if one else None),
        owner="whoever runs the monitoring",
        gpu_hours=hours,
        confidence="high",
        evidence=(
            Fact("verdict", fault, WORDS),
            Fact("series", len(series), COUNT),
            Fact("left out", hours, GPU_HOURS, "GPU-hours"),
            Fact("seen", series[0].evidence, WORDS),
        ),
        advice=ADVICE[fault],
    )
