"""How fast collectives moved data, held against the rate of the link that they went over."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.metrics.collectives import algorithm_bandwidth, bus_bandwidth, crossings
from ullage.metrics.metric import ratio
from ullage.reports.gemms.gemms import chip_of
from ullage.sums.lanes.collectives.matched import Matched
from ullage.sums.lanes.collectives.moved import MovedBytes, moved
from ullage.sums.lanes.run import Run

GIVEN = "the link given"


@dataclass(frozen=True)
class Bandwidth(MovedBytes):
    """Collectives of one operation, process group and size, with their `algorithm` and `bus` bandwidth in B/s.

    Where `waiting` is true both are at least this. `link` is what the bus bandwidth is held against, `rate` its B/s one way, `share` the
    bus bandwidth over it; None where nobody knows what link the group is on.
    """

    algorithm: float | None
    bus: float | None
    link: str | None
    rate: float | None
    share: float | None

    @property
    def mean(self) -> float:
        """Return how long one of them took, in ns."""
        return self.time / self.count


def bandwidths(run: Run, matched: Matched, given: float | None = None) -> tuple[Bandwidth, ...]:
    """Return the bandwidths of a run's collectives, of those that move data by a known factor; `given` is the rate in B/s of the link of
    groups that are not known to be within a host, or whose GPUs have no link of their own."""
    chip = chip_of(run) if run.devices else None
    within = chip.link if chip is not None else None
    found = []
    for one in moved(run.captures, matched):
        factor, seconds = crossings(one.operation, one.members), one.time / 1e9
        if factor is None:
            continue
        link, rate = (GIVEN, given) if given is not None else (None, None)
        if one.hosts == 1 and within is not None:
            link, rate = within.name, within.per_direction
        bus = bus_bandwidth(one.bytes, seconds, factor)
        share = None if bus is None or rate is None else ratio(bus, rate)
        found.append(Bandwidth(**vars(one), algorithm=algorithm_bandwidth(one.bytes, seconds), bus=bus, link=link, rate=rate, share=share))
    return tuple(found)
