"""Who comes late to collectives, how far apart ranks come, and how sure their clocks are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ullage.sums.lanes.code.calls import MPI, CallRow
from ullage.sums.lanes.collectives.collectives import TOGETHER, operation
from ullage.sums.lanes.collectives.matched import Matched
from ullage.sums.lanes.collectives.transfer import Skew, Straggler, skew, stragglers
from ullage.views.numbers import counted


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


def not_compared(calls: Sequence[CallRow]) -> list[str]:
    """Return a note on the hosts' sends, broadcasts and the like, in which ranks are not compared; none where there are none.

    >>> not_compared([CallRow("gloo:send", "mpi", 2, 9, 5, 4, 0), CallRow("gloo:all_reduce", "mpi", 1, 9, 9, 9, 0)])[0].partition(":")[0]
    '2 sends of hosts are not compared across ranks'
    """
    by_layer = Counter[tuple[str, str]]()  # what PyTorch calls c10d::send is gloo:send, too
    for row in calls:
        if row.sort == MPI and (word := operation(row.name)) and word not in TOGETHER:
            by_layer[word, row.name.rpartition(":")[0]] += row.count
    counts = Counter[str]()
    for (word, _), count in by_layer.items():
        counts[word] = max(counts[word], count)
    found = [counted(count, *_CALLED.get(word, (word,))) for word, count in counts.most_common()]
    if not found:
        return []
    return [
        f"{', '.join(found)} of hosts are not compared across ranks: a rank may leave one before the others have come, "
        "so who made whom wait in them is not told; the time in them counts as communication"
    ]


_CALLED = {"recv": ("receive",), "sendrecv": ("send with receive", "sends with receives"), "reduce": ("reduction",)}
