"""A GPU or host that needs longer for the same work than the others of its job, which wait for it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from ullage.findings.fleet_evidence import DeviceOfJob, FleetEvidence, JobEvidence, price
from ullage.findings.kind import fleet_kind
from ullage.findings.place import place_of_devices
from ullage.metrics.metric import ratio
from ullage.views.notation import PERCENT
from ullage.views.view import Confidence, Fact, Finding

LEAST_BUSIER = 1.15  # times as busy as its peers: ranks of one job differ by up to a tenth
LEAST_POINTS = 0.03  # of SM activity: among GPUs that hardly work a ratio says nothing
MOST_WORK = 0.9  # of its peers' work in a busy hour: with as much work an hour it has more work, and is not slow
LEAST_WORKED = 0.25  # GPU-hours that a device must have worked
SLOW_CLOCK = 0.93  # of its peers' clock
SURE = 1.3  # times as busy: no uneven sharding that does no more work


@fleet_kind("straggler", "straggler", part="what the other GPUs of its job wait for it: load balance, or SM fill where they spin")
def straggler(fleet: FleetEvidence) -> Iterator[Finding]:
    """Yield the hosts, then the single GPUs, that are busier than the others of their job and do no more work."""
    for job in fleet.jobs:
        devices = [one for one in job.devices if one.worked >= LEAST_WORKED and one.busy is not None and one.ofu is not None]
        found = sorted(straggling_devices(devices), key=lambda slow: -_mean(_busy, slow))
        ordinary = [one for one in devices if not any(one in slow for slow in found)]
        for number, slow in enumerate(found):
            # with one straggler gone the job waits for the next: what each of them costs adds up to what all do
            following = _mean(_busy, found[number + 1]) if number + 1 < len(found) else max(map(_busy, ordinary))
            yield _finding(job, slow, [one for one in devices if one not in slow], ordinary, max(0.0, _mean(_busy, slow) - following))


def straggling_devices(devices: Sequence[DeviceOfJob]) -> list[list[DeviceOfJob]]:
    """Return the devices of each straggler among those of a job, whose times are of the same window: those of a host, or one."""
    hosts: dict[str | None, list[DeviceOfJob]] = {}
    for one in devices:
        hosts.setdefault(one.host, []).append(one)
    peers = _Peers.of(devices)
    found = [
        own
        for host, own in hosts.items()
        if host is not None and 1 < len(own) < len(devices) and all(peers.outdone_by(one, without=own) for one in own)
    ]
    slow = {id(one) for own in found for one in own}
    rest = [one for one in devices if id(one) not in slow]
    peers = _Peers.of(rest)
    return found + [[one] for one in rest if len(rest) > 1 and peers.outdone_by(one, without=[one])]


@dataclass(frozen=True)
class _Peers:
    """How busy devices are, and how much work they do in a busy hour, each in order: a job may have thousands of them."""

    busy: list[float]
    work: list[float]

    @classmethod
    def of(cls, devices: Sequence[DeviceOfJob]) -> _Peers:
        return cls(sorted(map(_busy, devices)), sorted(map(_work, devices)))

    def outdone_by(self, one: DeviceOfJob, without: Sequence[DeviceOfJob]) -> bool:
        """Return whether a device is busier than the others are, those `without` left out, and does no more work."""
        busy, usual = _busy(one), _middle(self.busy, map(_busy, without))
        if busy < LEAST_BUSIER * usual or busy - usual < LEAST_POINTS:
            return False
        work = ratio(_work(one), _middle(self.work, map(_work, without)))
        return work is not None and work <= MOST_WORK


def _middle(ordered: Sequence[float], without: Iterable[float]) -> float:
    """Return the median of numbers in order, some of them left out.

    >>> _middle([1.0, 2.0, 4.0, 8.0], [2.0]), _middle([1.0, 2.0, 4.0, 8.0], [])
    (4.0, 3.0)
    """
    left = list(ordered)
    for value in without:
        del left[bisect_left(left, value)]
    half = len(left) // 2
    return left[half] if len(left) % 2 else (left[half - 1] + left[half]) / 2


def _busy(one: DeviceOfJob) -> float:
    return one.busy or 0.0


def _work(one: DeviceOfJob) -> float:
    """Return how much work is done in a busy hour."""
    return ratio(one.ofu or 0.0, _busy(one)) or 0.0


def _mean(measure: Callable[[DeviceOfJob], float], devices: Sequence[DeviceOfJob]) -> float:
    return fmean(map(measure, devices))


def _finding(
    job: JobEvidence, slow: Sequence[DeviceOfJob], peers: Sequence[DeviceOfJob], ordinary: Sequence[DeviceOfJob], waited: float
) -> Finding:
    busy, usual = _mean(_busy, slow), median(map(_busy, ordinary))
    hours = waited * sum(one.worked for one in peers)
    slower_clock = ratio(_clock(slow), _clock(ordinary))
    confidence: Confidence = "high" if busy >= SURE * usual and len(ordinary) > 1 else "medium"
    return Finding(
        where=place_of_devices(job, slow),
        owner=job.owner if slower_clock is None or slower_clock > SLOW_CLOCK else "the operators of the hosts",
        gpu_hours=hours,
        money=price(hours, peers),
        confidence=confidence,
        evidence=(
            Fact("busy", busy, PERCENT),
            Fact("its peers", usual, PERCENT),
            Fact("work in a busy hour beside theirs", ratio(_mean(_work, slow), median(map(_work, ordinary))), PERCENT),
            Fact("clock beside theirs", slower_clock, PERCENT),
        ),
        advice=_advice(slower_clock, whole_host=len(slow) > 1),
    )


def _clock(devices: Sequence[DeviceOfJob]) -> float | None:
    clocks = [one.clock for one in devices if one.clock is not None]
    return median(clocks) if clocks else None


def _advice(slower_clock: float | None, *, whole_host: bool) -> str:
    what = "host" if whole_host else "GPU"
    if slower_clock is not None and slower_clock <= SLOW_CLOCK:
        return f"drain the {what} and look at its power and cooling: its clock is lower than that of its peers"
    return (
        f"compare the {what} alone with another one (ullage bench); if it is as fast, see what else its host does, and which rank comes "
        "late: ullage trace … --by rank"
    )
