"""GPUs whose clock something lowered: heat, a failing power supply, a clock that was set, or a power limit below that of their like."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from ullage.findings.fleet_evidence import DeviceOfJob, FleetEvidence, JobEvidence, price
from ullage.findings.kind import fleet_kind
from ullage.findings.place import place_of_devices
from ullage.metrics.metric import ratio
from ullage.views.notation import COUNT, PERCENT, WATTS, WORDS
from ullage.views.view import Fact, Finding

LEAST_SHARE = 0.05  # of the time at work: a fan that follows a new load takes minutes
MOST_OF_OTHERS = 0.95  # of the clock of others of the model: loads of one kind differ by less
CAPPED = 0.9  # of the job's others, whose power is capped, too: GPUs of one model need different voltages, and differ by some percent
OTHERS = 2  # GPUs under the cap beside it, at least: of two nobody can say which one is limited
LEAST_TENSOR = 0.5  # hours of tensor activity of others of the model: before that their clock is not known

LABELS: Final = {
    "thermal": "heat",
    "slowdown": "power brake or hardware slowdown",
    "application": "a clock that was set",
    "power_cap": "power cap",
}
OPERATORS = "the operators of the hosts"
ADVICE: Final = {
    "thermal": "look at cooling: fans, air flow, thermal paste, a rack that is too warm; drain {what} if its like are cooler",
    "slowdown": "look at the power supply of the host: a power brake or a hardware slowdown is no choice of the driver",
    "application": "see who set clocks there (nvidia-smi -q -d CLOCK); nvidia-smi -rgc and -rac take the setting back",
    "power_cap": "compare the power limit with that of the others (nvidia-smi -q -d POWER): {what} runs slower under its cap than they do",
}


@fleet_kind("throttled", "throttled", part="a part of the step 'clock': up to the clock of others of the model")
def throttled(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield, by job and cause, the GPUs whose clock was lower than others' for a twentieth of their time at work."""
    usual = _usual_clocks(fleet)
    for job in fleet.jobs:
        for cause in LABELS:
            slow = [one for one in job.devices if _under(one, cause) >= LEAST_SHARE * one.worked > 0]
            clocks = {id(one): _reference(one, cause, job, usual) for one in slow}
            share = CAPPED if cause == "power_cap" else MOST_OF_OTHERS
            slow = [one for one in slow if _clock(one, cause) <= share * clocks[id(one)]]
            if slow:
                yield _finding(job, cause, slow, [clocks[id(one)] for one in slow], known=all((one.model or "") in usual for one in slow))


def _under(one: DeviceOfJob, cause: str) -> float:
    return one.limits[cause].hours if cause in one.limits and one.limits[cause].tensor > 0 else 0.0


def _clock(one: DeviceOfJob, cause: str) -> float:
    """Return the mean clock under a cause over the tensor clock."""
    return ratio(one.limits[cause].kept, one.limits[cause].tensor) or 0.0


def _usual_clocks(fleet: FleetEvidence) -> Mapping[str, float]:
    """Return for each model the mean clock over the tensor clock where no heat, slowdown or setting lowered it."""
    tensor: dict[str, float] = defaultdict(float)
    kept: dict[str, float] = defaultdict(float)
    for one in (one for job in fleet.jobs for one in job.devices):
        lowered = [limit for cause, limit in one.limits.items() if cause != "power_cap"]
        tensor[one.model or ""] += one.tensor - sum(limit.tensor for limit in lowered)
        kept[one.model or ""] += one.kept - sum(limit.kept for limit in lowered)
    return {model: kept[model] / amount for model, amount in tensor.items() if amount >= LEAST_TENSOR}


def _reference(one: DeviceOfJob, cause: str, job: JobEvidence, usual: Mapping[str, float]) -> float:
    """Return the clock that a device would have: that of its model's others; under a power cap that of its job's, which do the same work.

    Where nobody tells, it is the tensor clock, and for a cap its own: nothing says that it is lower than others are.
    """
    if cause != "power_cap":
        return usual.get(one.model or "", 1.0)
    others = [_clock(other, cause) for other in job.devices if other is not one and other.model == one.model and _under(other, cause) > 0]
    return median(others) if len(others) >= OTHERS else _clock(one, cause)


def _finding(job: JobEvidence, cause: str, slow: Sequence[DeviceOfJob], clocks: Sequence[float], *, known: bool) -> Finding:
    hours = sum(one.limits[cause].tensor * clock - one.limits[cause].kept for one, clock in zip(slow, clocks, strict=True))
    under, worked = sum(_under(one, cause) for one in slow), sum(one.worked for one in slow)
    powers = [one.power for one in slow if one.power is not None]
    beside = median(_clock(one, cause) / clock for one, clock in zip(slow, clocks, strict=True))
    return Finding(
        where=place_of_devices(job, slow),
        owner=OPERATORS if cause != "application" else f"{OPERATORS}, or {job.owner}",
        gpu_hours=hours,
        money=price(hours, slow),
        confidence="high" if known and cause in ("thermal", "slowdown") else "medium" if known else "low",
        evidence=(
            Fact("cause", LABELS[cause], WORDS),
            Fact("of the time at work", under / worked, PERCENT),
            Fact("clock beside others", beside, PERCENT),
            Fact("GPUs", len(slow), COUNT),
            *([Fact("power", sum(powers) / len(powers), WATTS)] if powers else []),
        ),
        advice=ADVICE[cause].format(what="the GPU" if len(slow) == 1 else "these GPUs"),
    )
