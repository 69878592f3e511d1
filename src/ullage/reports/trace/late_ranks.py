"""Who comes late to collectives, how far apart ranks come, and how sure their clocks are."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.sums.lanes.collectives.matched import Matched
from ullage.sums.lanes.collectives.transfer import Skew, Straggler, skew, stragglers


@dataclass(frozen=True)
class ClockDifference:
    """A capture's clock against the first one's: `offset` in ns, drift in ns per ns, and what is left, all None if too few matched."""

    place: str
    matches: int
    offset: int | None
    drift: float | None
    residual: float | None
    worst: float | None


@dataclass(frozen=True)
class Late:
    """`collectives` matched across ranks; those who came late, the skew (None where arrivals can't be compared), the clocks."""

    collectives: int
    stragglers: tuple[Straggler, ...]
    skew: Skew | None
    clocks: tuple[ClockDifference, ...]


def late(matched: Matched) -> Late | None:
    """Return who comes late, None where no collective was found in two ranks."""
    if not matched.count:
        return None
    places = {lane.capture: lane.place for lane in matched.lanes}
    clocks = tuple(
        ClockDifference(
            places.get(c.capture, ""),
            c.matches,
            *((c.line.offset, c.line.drift, c.line.residual, c.line.worst) if c.line is not None else (None, None, None, None)),
        )
        for c in matched.clocks
    )
    return Late(matched.count, stragglers(matched), skew(matched), clocks)
