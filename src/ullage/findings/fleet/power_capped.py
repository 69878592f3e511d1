"""Jobs all of whose GPUs run under a power limit below their maker's: none has a sibling to differ from, so other jobs are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.errors import UllageError
from ullage.findings.fleet.throttled import LEAST_TENSOR, OPERATORS
from ullage.findings.fleet_evidence import DeviceOfJob, FleetEvidence, JobEvidence, price
from ullage.findings.kind import fleet_kind
from ullage.findings.place import place_of_devices
from ullage.gpus.chip import find
from ullage.views.notation import COUNT, PERCENT, WATTS
from ullage.views.view import Fact, Finding

MOST_OF_OTHERS = 0.8  # of the clock of other jobs on the model: what a kernel draws changes its clock under one and the same cap by a tenth
OTHERS = 2  # jobs on the model beside it, at least, whose clock is known
MOST_OF_STATED = 0.9  # of the power that the maker states: a limit is set in steps larger than a sensor's 5 %


@fleet_kind(
    "power_capped",
    "power capped",
    part="a part of the step 'clock': what a job all of whose GPUs are capped falls short of the clock of the model's others",
    without=("throttled",),
)
def power_capped(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the jobs whose clock is lower than other jobs', each of whose GPUs ran into a power limit below what its maker states."""
    for job in fleet.jobs:
        if job.devices and all(_is_low(one) for one in job.devices):
            clocks = [_clock_of_others(one.model, job, fleet) for one in job.devices]
            known = [clock for clock in clocks if clock is not None]
            if len(known) == len(clocks) and _kept(job) <= MOST_OF_OTHERS * _whole(job, known):
                yield _finding(job, known)


def highest_cap(one: DeviceOfJob) -> float | None:
    """Return the highest power (W) that a GPU's cap can be; None where nobody knows, or nothing was capped.

    What it drew under the cap is at most all that it drew while it worked, over the time under the cap: no guess at what it drew otherwise.
    """
    under = one.limits.get("power_cap")
    if under is None or not under.hours or one.power is None or one.mig is not None:
        return None
    return one.power * one.worked / under.hours


def _is_low(one: DeviceOfJob) -> bool:
    cap, stated = highest_cap(one), stated_power(one)
    return cap is not None and stated is not None and cap <= MOST_OF_STATED * stated and one.limits["power_cap"].tensor > 0


def stated_power(one: DeviceOfJob) -> float | None:
    """Return the power that the maker of a GPU states (W); None where nobody knows the GPU."""
    try:
        return find(one.model).power if one.model else None
    except UllageError:
        return None


def _clock_of_others(model: str | None, job: JobEvidence, fleet: FleetEvidence) -> float | None:
    """Return the mean clock over the tensor clock of other jobs on a model, where neither heat, a slowdown nor a setting lowered it.

    None where fewer than `OTHERS` jobs tell it.
    """
    tensor, kept, told = 0.0, 0.0, 0
    for other in fleet.jobs:
        devices = [one for one in other.devices if one.model == model and other is not job]
        lowered = [limit for one in devices for cause, limit in one.limits.items() if cause != "power_cap"]
        amount = sum(one.tensor for one in devices) - sum(limit.tensor for limit in lowered)
        if amount > 0:
            told += 1
            tensor += amount
            kept += sum(one.kept for one in devices) - sum(limit.kept for limit in lowered)
    return kept / tensor if told >= OTHERS and tensor >= LEAST_TENSOR else None


def _kept(job: JobEvidence) -> float:
    """Return the OFU-hours of a job under its caps."""
    return job.total(lambda one: one.limits["power_cap"].kept)


def _whole(job: JobEvidence, clocks: Sequence[float]) -> float:
    """Return the OFU-hours that these would be at the clocks of others."""
    return sum(one.limits["power_cap"].tensor * clock for one, clock in zip(job.devices, clocks, strict=True))


def _finding(job: JobEvidence, clocks: Sequence[float]) -> Finding:
    hours = _whole(job, clocks) - _kept(job)
    stated = [watts for one in job.devices if (watts := stated_power(one)) is not None]
    caps = [watts for one in job.devices if (watts := highest_cap(one)) is not None]
    under = job.total(lambda one: one.limits["power_cap"].hours)
    return Finding(
        where=place_of_devices(job, job.devices),
        owner=OPERATORS,
        gpu_hours=hours,
        money=price(hours, job.devices),
        confidence="medium",
        evidence=(
            Fact("cap at most", max(caps), WATTS),
            Fact("stated by the maker", sum(stated) / len(stated), WATTS),
            Fact("of the time at work", under / job.total(lambda one: one.worked), PERCENT),
            Fact("clock beside others", _kept(job) / _whole(job, clocks), PERCENT),
            Fact("GPUs", len(job.devices), COUNT),
        ),
        advice="see whether the power limit is meant (nvidia-smi -q -d POWER): where it is, the watts that it saves are in the energy; "
        "where it is not, nvidia-smi -pl takes it back to the maker's",
    )
