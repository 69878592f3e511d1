"""A GPU or host that needs longer for the same work than the others of its job, which wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median

from ullage.alerts.problem import STRAGGLER_ADVICE, STRAGGLES, TO_THE_END
from ullage.findings.fleet.throttled import OPERATORS
from ullage.findings.fleet_evidence import SIGN_COUNTERS, SIGNS, DeviceOfJob, FleetEvidence, JobEvidence, PlacedDevice, SeenStraggler, price
from ullage.findings.kind import fleet_kind
from ullage.findings.place import place_of_devices
from ullage.metrics.metric import ratio
from ullage.views.notation import FACTOR, PERCENT
from ullage.views.numbers import moment
from ullage.views.view import Confidence, Fact, Finding

OF_THE_HARDWARE = ("clock", "link")  # signs of what no program does


@fleet_kind("straggler", "straggler", part="what the other GPUs of its job wait for it: load balance, or SM fill where they spin")
def straggler(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the hosts and single GPUs that the others of their job waited for, scrape by scrape (see `reports.stragglers`)."""
    for job in fleet.jobs:
        for spells in _by_place(job.stragglers):
            named = {device for one in spells for device in one.devices}
            slow = [one for one in job.devices if _placed(one) in named]
            peers = [one for one in job.devices if _placed(one) not in named]
            if slow and peers:
                yield _finding(job, spells, slow, peers)


def _by_place(stragglers: Sequence[SeenStraggler]) -> list[list[SeenStraggler]]:
    """Return the times at which the same host, or the same GPU alone, was slow."""
    places: dict[object, list[SeenStraggler]] = {}
    for one in stragglers:
        host = one.devices[0][0]
        places.setdefault(host if len(one.devices) > 1 else one.devices[0], []).append(one)
    return [*places.values()]


def _placed(one: DeviceOfJob) -> PlacedDevice:
    return one.host, one.gpu, one.mig


def _finding(job: JobEvidence, spells: Sequence[SeenStraggler], slow: Sequence[DeviceOfJob], peers: Sequence[DeviceOfJob]) -> Finding:
    hours = sum(one.waited for one in spells) * sum(one.worked for one in peers)
    worst = max(spells, key=lambda one: one.waited)
    ends = [one.end for one in spells]
    confidence: Confidence = "high" if worst.longer >= STRAGGLES and len(peers) > 1 else "medium"
    return Finding(
        where=place_of_devices(job, slow),
        owner=OPERATORS if worst.sign in OF_THE_HARDWARE else job.owner,
        gpu_hours=hours,
        money=price(hours, peers),
        confidence=confidence,
        evidence=(
            Fact("seen by", f"{SIGN_COUNTERS[worst.sign]} ({SIGNS[worst.sign]})"),
            Fact("times as long as its peers", worst.longer, FACTOR),
            Fact("since", f"{moment(min(one.start for one in spells))} UTC"),
            Fact("until", TO_THE_END if None in ends else f"{moment(max(filter(None, ends)))} UTC"),
            Fact("busy", _typical(fmean, _busy, slow), PERCENT),
            Fact("its peers", _typical(median, _busy, peers), PERCENT),
            Fact("clock beside theirs", ratio(_typical(fmean, _clock, slow), _typical(median, _clock, peers)), PERCENT),
        ),
        advice=STRAGGLER_ADVICE[worst.sign],
    )


def _busy(one: DeviceOfJob) -> float | None:
    return one.busy


def _clock(one: DeviceOfJob) -> float | None:
    return one.clock


def _typical(
    how: Callable[[Sequence[float]], float], measure: Callable[[DeviceOfJob], float | None], devices: Sequence[DeviceOfJob]
) -> float | None:
    known = [value for one in devices if (value := measure(one)) is not None]
    return how(known) if known else None
