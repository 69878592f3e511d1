"""How long work waits between its launch and its begin, and how much of it stands in the queues of a device's streams."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ullage.arrays import chosen
from ullage.sums.lanes.gather import LaneRows
from ullage.sums.lanes.launches import Launches, Mask, distinct, is_sorted
from ullage.sums.lanes.spans import BLOCK, Spans, Times, intersect, union, within

MOST = 64  # streams of a device that are kept


@dataclass(frozen=True)
class StreamQueue:
    """The queue of one stream (-1: not known), times in ns.

    `delay` and `delay_95` are the median and the 95th percentile of the time from the begin of a launching call to the begin of its
    first work on the stream, over the `launches` whose work began while the device was looked at. `queued` is the time for which
    launches stood in the queue, summed over them, within the `elapsed` time that was looked at: their mean number is `queued / elapsed`;
    `longest` is the most that stood there at once. Work whose launch was not recorded is in none of these.
    """

    stream: int
    launches: int
    delay: int | None
    delay_95: int | None
    queued: int
    longest: int
    elapsed: int

    @property
    def mean(self) -> float | None:
        """The mean number of launches whose work had not begun."""
        return self.queued / self.elapsed if self.elapsed else None


def queues(rows: LaneRows, put: Launches, seen: Spans) -> tuple[StreamQueue, ...]:
    """Return the queue of each stream of a device, the one with the most launches first. `rows` are sorted by start."""
    streams = rows.stream[put.known]
    found = [_queue(stream, rows, put, seen, put.known & (rows.stream == stream)) for stream in distinct(streams)]
    return tuple(sorted(found, key=lambda queue: (-queue.launches, queue.stream))[:MOST])


def _queue(stream: int, rows: LaneRows, put: Launches, seen: Spans, mine: Mask) -> StreamQueue:
    called, begun = _firsts(rows, put, mine)
    delays = (begun - called)[within(seen, begun, begun + 1) > 0]
    waits = begun > called
    called, begun = chosen(called, waits), chosen(begun, waits)
    return StreamQueue(
        stream=stream,
        launches=len(delays),
        delay=quantile(delays, 0.5),
        delay_95=quantile(delays, 0.95),
        queued=int(within(seen, called, begun).sum()),
        longest=_most(called, begun, seen),
        elapsed=seen.total,
    )


def launch_delays(rows: LaneRows, put: Launches, seen: Spans) -> Times:
    """Return the time from each launching call to the begin of its first work, of work that began while the device was looked at."""
    called, begun = _firsts(rows, put, put.known & (within(seen, rows.start, rows.start + 1) > 0))
    return begun - called


def _firsts(rows: LaneRows, put: Launches, mine: Mask) -> tuple[Times, Times]:
    """Return when each launching call of some rows began, and when the first of these rows that it launched did."""
    begun, called = rows.start[mine], put.start[mine]
    if not is_sorted(called):
        order = np.argsort(called, kind="stable")  # rows are sorted by start, so the first of a call's work comes first
        begun, called = begun[order], called[order]
    first = np.concatenate((np.ones(min(len(called), 1), bool), called[1:] != called[:-1]))
    return chosen(called, first), chosen(begun, first)


def _most(called: Times, begun: Times, seen: Spans) -> int:
    """Return the largest number of waits that run at one moment of `seen`; they are in the order of their launches."""
    looked = intersect(union(called, begun), seen)  # it begins where the number may be largest: at a launch, or where looking begins
    moments = np.concatenate((looked.start, called[within(seen, called, called + 1) > 0]))
    over, most = np.sort(begun), 0
    for low in range(0, len(moments), BLOCK):
        some = moments[low : low + BLOCK]
        waiting = np.searchsorted(called, some, side="right") - np.searchsorted(over, some, side="right")
        most = max(most, int(waiting.max()))
    return most


def quantile(times: Times, share: float) -> int | None:
    """Return the smallest of some times that is not exceeded by at least this share of them; None without any."""
    if not len(times):
        return None
    place = int(np.ceil(share * len(times))) - 1
    return int(np.partition(times, place)[place])
