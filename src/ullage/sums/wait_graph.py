"""Moments that wait for one another, in chains of any length: when does each come, and which chain of waits led to the last?

`ullage.sums.replay` computes together what is equally deep in the graph, which suits thousands of ranks and a few hundred operations each.
A profile has a few streams of a million operations each, so its graph is as deep as it is large. Here moments are put in an order in
which none waits for a later one, and then computed one by one in plain Python, a fraction of a microsecond each.

A moment comes a *lag* after each of those that it waits for, at the earliest. A lag is the sum of three *spans*: numbers of ns that a
what-if may change (a kernel's duration, a call's, a latency, or a switch: `NEVER` takes a wait out of the graph). The same graph so
answers every question, and a path through it is a list of spans, whose sum is its length.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Parts = npt.NDArray[np.int32]

NEVER = -(1 << 60)  # ns; a wait with this lag is none
ZERO, OFF = 0, 1  # the spans that are 0 and `NEVER` in every case
PARTS = 3  # spans of a lag
_BLOCK = 1 << 16  # moments whose lags are computed in one go


@dataclass(frozen=True)
class WaitTable:
    """Waits, a row each: the moment `after` comes no earlier than the moment `before` and its `lag`, three spans: shape (waits, 3)."""

    after: Parts
    before: Parts
    lag: Parts

    def where(self, mask: npt.NDArray[np.bool_]) -> WaitTable:
        """Return the rows where `mask`."""
        return WaitTable(self.after[mask], self.before[mask], self.lag[mask])


@dataclass(frozen=True)
class WaitGraph:
    """Moments in an order in which none waits for a later one; the first is the origin, at 0.

    Each waits for one or two others (`first`, `second`: their places in this order; lags of three spans each, shape (moments, 3)); what
    waits for more has moments of its own that join them. `place` says where each moment that was given stands, `moment` which one stands
    in each place, -1 for joints.
    """

    first: Parts
    second: Parts
    first_lag: Parts
    second_lag: Parts
    place: Numbers
    moment: Numbers


@dataclass(frozen=True)
class WaitPath:
    """The chain of waits that led to a moment, from it back to the origin: the moments (-1: a joint), and the lags before each, three
    spans in a row."""

    moments: Numbers
    lags: Parts


def wait_graph(recorded: Numbers, waits: WaitTable) -> WaitGraph:
    """Return the graph of moments 0, 1, …, of which 0 is the origin. `recorded` is when each came: what comes earlier is put first.

    Of waits that end together the one that stands first in the table counts as the cause. A moment without waits comes at 0. Raises
    ValueError where moments wait for one another in a circle, and for a moment that does not exist.
    """
    count = len(recorded)
    if len(waits.after) and not (min(waits.after.min(), waits.before.min()) >= 0 and max(waits.after.max(), waits.before.max()) < count):
        raise ValueError("a wait names a moment that does not exist")
    rows = np.argsort(waits.after, kind="stable")
    after = waits.after[rows]
    number = np.bincount(after, minlength=count)
    nth = np.arange(len(after)) - np.repeat(np.cumsum(number) - number, number)
    slots = np.maximum(number - 1, 1)  # joints of each moment, and itself
    joints = slots - 1
    first_joint = count + np.cumsum(joints) - joints
    slot = np.maximum(nth - 1, 0)
    node = np.where(slot == joints[after], after, first_joint[after] + slot)
    whole = count + int(joints.sum())
    first, second = np.zeros(whole, np.int32), np.zeros(whole, np.int32)
    first_lag, second_lag = np.full((whole, PARTS), ZERO, np.int32), np.full((whole, PARTS), ZERO, np.int32)
    second_lag[:, 0] = OFF
    opens = nth == 0
    first[node[opens]], first_lag[node[opens]] = waits.before[rows[opens]], waits.lag[rows[opens]]
    second[node[~opens]], second_lag[node[~opens]] = waits.before[rows[~opens]], waits.lag[rows[~opens]]
    joined = nth >= 2
    first[node[joined]] = first_joint[after[joined]] + slot[joined] - 1
    return _ordered(recorded, np.repeat(np.arange(count), joints), (first, second, first_lag, second_lag))


def _ordered(recorded: Numbers, joins: Numbers, columns: tuple[Parts, Parts, Parts, Parts]) -> WaitGraph:
    """Return the graph with its moments in order: by when they came, if that will do."""
    count, (first, second, first_lag, second_lag) = len(recorded), columns
    owner = np.concatenate((np.arange(count), joins))
    final = np.concatenate((np.ones(count, np.int8), np.zeros(len(joins), np.int8)))
    came = recorded[owner]
    order = np.lexsort((np.arange(len(owner)), final, owner, came))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    real = second_lag[:, 0] != OFF
    own = np.arange(len(order))
    if not ((place[first] < place[own]) | (own == 0)).all() or not (place[second] < place[own])[real].all():
        order = _sorted(first, np.where(real, second, 0))
        place[order] = np.arange(len(order))
    return WaitGraph(
        first=place[first[order]].astype(np.int32),
        second=place[second[order]].astype(np.int32),
        first_lag=first_lag[order],
        second_lag=second_lag[order],
        place=place[:count],
        moment=np.where(order < count, order, -1),
    )


def _sorted(first: Parts, second: Parts) -> Numbers:
    """Return an order in which nothing waits for what comes later: times that a profiler rounded do not tell one. Raises ValueError for
    a circle."""
    count = len(first)
    after, before = np.concatenate((np.arange(1, count),) * 2), np.concatenate((first[1:], second[1:]))
    rows = np.argsort(before, kind="stable")
    followers = array("q", after[rows].astype(np.int64).tobytes())
    begins = np.searchsorted(before[rows], np.arange(count + 1)).tolist()
    waiting = np.bincount(after, minlength=count).tolist()
    ready, order = deque([0]), array("q")
    while ready:
        node = ready.popleft()
        order.append(node)
        for follower in followers[begins[node] : begins[node + 1]]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    if len(order) < count:
        raise ValueError("moments wait for one another in a circle")
    return np.array(order, np.int64)


def moments(graph: WaitGraph, spans: Numbers) -> Numbers:
    """Return when each place of the graph comes, ns after the origin; `spans` has the ns of each span, of which 0 is 0 and 1 `NEVER`."""
    found = array("q", [0])
    add = found.append
    for low in range(1, len(graph.first), _BLOCK):
        part = slice(low, low + _BLOCK)
        lags = (spans[lag[part]].sum(axis=1).tolist() for lag in (graph.first_lag, graph.second_lag))
        for a, x, b, y in zip(graph.first[part].tolist(), next(lags), graph.second[part].tolist(), next(lags), strict=True):
            one, other = found[a] + x, found[b] + y
            add(one if one >= other else other)
    return np.frombuffer(found, np.int64)


def wait_path(graph: WaitGraph, spans: Numbers, came: Numbers, last: int) -> WaitPath:
    """Return what led to the moment in the place `last`; `came` is what `moments` returned for the same spans."""
    one = came[graph.first] + spans[graph.first_lag].sum(axis=1)
    other = came[graph.second] + spans[graph.second_lag].sum(axis=1)
    by_first = one >= other
    cause = array("q", np.where(by_first, graph.first, graph.second).astype(np.int64).tobytes())
    way, place = array("q"), last
    while place:
        way.append(place)
        place = cause[place]
    places = np.array(way, np.int64)
    lags = np.where(by_first[places, None], graph.first_lag[places], graph.second_lag[places])
    return WaitPath(graph.moment[places], lags)
