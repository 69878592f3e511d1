"""Where a finding is, from the devices that it speaks of."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.findings.fleet_evidence import DeviceOfJob, JobEvidence
from ullage.views.view import FindingPlace


def place_of_devices(job: JobEvidence, devices: Sequence[DeviceOfJob]) -> FindingPlace:
    """Return where a finding about some devices of a job is: the host that all share, and the GPU where it is one."""
    hosts = {one.host for one in devices}
    one = devices[0] if len({(one.gpu, one.mig) for one in devices}) == 1 else None
    return FindingPlace(
        cluster=job.cluster,
        job=job.job,
        job_name=job.name,
        host=devices[0].host if len(hosts) == 1 else None,
        index=one.index if one else None,
        gpu=one.gpu if one else None,
        mig=one.mig if one else None,
    )
