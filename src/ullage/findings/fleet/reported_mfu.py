"""Jobs whose reported MFU and measured OFU part."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.findings.fleet_evidence import FleetEvidence, JobEvidence, price
from ullage.findings.kind import fleet_kind
from ullage.findings.place import place_of_devices
from ullage.metrics.metric import ratio
from ullage.views.notation import FACTOR, PERCENT_1
from ullage.views.view import Fact, Finding

MOST_RATIO = 1.25  # of MFU to OFU: clock samples, padding and the first steps explain less
LEAST_RATIO = 0.82  # below it work is executed that the MFU does not count: padding to tiles is a tenth at most
LEAST_HOURS = 0.5  # of observation: before that the start weighs too much
RECOMPUTED = (0.65, 0.82)  # a forward pass that is computed again is a quarter of the work


@fleet_kind("reported_mfu", "MFU and OFU differ", part="no part of the ullage: the GPU-hours at the peak that MFU and OFU disagree about")
def reported_mfu(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the jobs whose reported MFU is more than a quarter above OFU, or further below it than padding explains."""
    for job in fleet.jobs:
        ofu = job.ofu_of_all
        if job.reported_mfu is None or not ofu or job.total(lambda one: one.held) / len(job.devices) < LEAST_HOURS:
            continue
        factor = job.reported_mfu / ofu
        if factor > MOST_RATIO or factor < LEAST_RATIO:
            yield _finding(job, job.reported_mfu, ofu)


def _finding(job: JobEvidence, mfu: float, ofu: float) -> Finding:
    hours = abs(mfu - ofu) * job.total(lambda one: one.held)
    return Finding(
        where=place_of_devices(job, job.devices),
        owner=job.owner,
        gpu_hours=hours,
        money=price(hours, job.devices),
        confidence="medium",
        evidence=(Fact("MFU", mfu, PERCENT_1), Fact("OFU", ofu, PERCENT_1), Fact("MFU over OFU", ratio(mfu, ofu), FACTOR)),
        advice=_advice(mfu / ofu),
    )


def _advice(factor: float) -> str:
    audit = "ullage audit mfu --fleet with the job's config ranks the mistakes that explain it"
    if factor > MOST_RATIO:
        return f"find what is counted and not executed, or a peak that is too low: {audit}"
    if RECOMPUTED[0] <= factor:
        return f"look for recomputation: the job executes about a third more than its MFU counts; {audit}"
    return f"find what is executed and not counted, or a peak that is too high (sparse in place of dense is half): {audit}"
