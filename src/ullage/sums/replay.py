"""Operations that wait for one another, run again with other durations: what would the timeline have been?

An operation starts when all that it waits for has ended. A *group* is one transfer with an operation on each of its ranks (a collective,
a send with its receive): none of its operations ends before the last has started, and its duration counts from there. An operation
outside any group ends its duration after it started. Nothing else delays anything: a gap on the real timeline that no dependency explains
(the host was late) is gone on the replayed one.

The arithmetic is that of Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025), section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ReplayLevel:
    """Operations that may be computed together, for all they wait for is of earlier levels; whole groups only.

    `operations` are sorted by group; `of_group` says which of the level's groups each is of. Row `at[k]` of `operations` waits for
    `before[k]`; `at` is sorted.
    """

    operations: Indices
    of_group: Indices
    at: Indices
    before: Indices


@dataclass(frozen=True)
class Graph:
    """`count` operations and their `levels`, the first waiting for nothing."""

    count: int
    levels: tuple[ReplayLevel, ...]


@dataclass(frozen=True)
class Timeline:
    """When each operation starts, when its group is complete and its own duration begins to count, and when it ends."""

    start: Seconds
    begin: Seconds
    end: Seconds


def graph(count: int, before: Indices, after: Indices, group: Indices) -> Graph:
    """Return `count` operations of which `after[k]` waits for `before[k]`; `group` numbers each one's group, negative for none.

    Raises ValueError where operations wait for one another in a circle, and for an operation that does not exist.
    """
    edges = np.unique(np.column_stack((after, before)).astype(np.int64).reshape(-1, 2), axis=0)
    if len(edges) and not (edges.min() >= 0 and edges.max() < count):
        raise ValueError("an edge names an operation that does not exist")
    alone = -1 - np.arange(count, dtype=np.int64)
    _, node = np.unique(np.where(group < 0, alone, group), return_inverse=True)
    depth = _depths(int(node.max(initial=-1)) + 1, node[edges[:, 1]], node[edges[:, 0]])
    return Graph(count, tuple(_levels(node, depth, edges)))


def _depths(count: int, before: Indices, after: Indices) -> Indices:
    """Return how many others lie on the longest way to each node; raises ValueError for a circle."""
    order = np.argsort(before, kind="stable")
    after = after[order]
    first = np.searchsorted(before[order], np.arange(count + 1))
    waits = np.bincount(after, minlength=count)
    depth = np.full(count, -1, np.int64)
    ready = np.flatnonzero(waits == 0)
    level = 0
    while len(ready):
        depth[ready] = level
        level += 1
        lengths = first[ready + 1] - first[ready]
        offsets = np.repeat(first[ready] - np.cumsum(lengths) + lengths, lengths)
        freed = after[offsets + np.arange(lengths.sum())]
        np.subtract.at(waits, freed, 1)
        freed = np.unique(freed)
        ready = freed[waits[freed] == 0]
    if (depth < 0).any():
        raise ValueError("operations wait for one another in a circle")
    return depth


def _levels(node: Indices, depth: Indices, edges: Indices) -> Iterator[ReplayLevel]:
    operations = np.lexsort((node, depth[node]))
    place = np.empty_like(operations)
    place[operations] = np.arange(len(operations))
    edges = edges[np.argsort(place[edges[:, 0]], kind="stable")]
    bounds = np.searchsorted(depth[node[operations]], np.arange(depth.max(initial=-1) + 2))
    cuts = np.searchsorted(place[edges[:, 0]], bounds)
    for first, last, low, high in zip(bounds[:-1], bounds[1:], cuts[:-1], cuts[1:], strict=True):
        own = node[operations[first:last]]
        of_group = np.concatenate(([0], np.cumsum(own[1:] != own[:-1])))
        yield ReplayLevel(operations[first:last], of_group, place[edges[low:high, 0]] - first, edges[low:high, 1])


def replay(graph: Graph, durations: Seconds, released: Seconds | float = 0.0) -> Timeline:
    """Return the timeline of a graph; `durations` has the shape (operations,), or (operations, cases) for several cases at once.

    `released` is the earliest start of each operation, in the durations' unit: one number, (operations,), or as `durations`.
    """
    start = np.array(np.broadcast_to(_shaped(released, durations), durations.shape), np.float64)
    begin, end = np.empty_like(start), np.empty_like(start)
    for level in graph.levels:
        own = start[level.operations]
        if len(level.at):
            first = np.flatnonzero(np.diff(level.at, prepend=-1))
            waited = np.maximum.reduceat(end[level.before], first, axis=0)
            own[level.at[first]] = np.maximum(own[level.at[first]], waited)
        first = np.flatnonzero(np.diff(level.of_group, prepend=-1))
        start[level.operations] = own
        begin[level.operations] = np.maximum.reduceat(own, first, axis=0)[level.of_group]
        end[level.operations] = begin[level.operations] + durations[level.operations]
    return Timeline(start, begin, end)


def _shaped(released: Seconds | float, durations: Seconds) -> Seconds:
    given = np.asarray(released, np.float64)
    return given[:, None] if given.ndim == 1 and durations.ndim == 2 else given


def own_durations(start: Seconds | Indices, end: Seconds | Indices, group: Indices) -> Seconds:
    """Return how long recorded operations themselves took: those of a group from when its last one started, never less than 0.

    `start` and `end` are what was recorded, `group` as for `graph`. A receive that was posted a second before its send was waiting.

    >>> own_durations(np.array([0.0, 3.0]), np.array([4.0, 4.0]), np.array([7, 7])).tolist()
    [1.0, 1.0]
    """
    begin = start.astype(np.float64, copy=True)
    _, number = np.unique(group, return_inverse=True)
    last = np.full(number.max(initial=-1) + 1, -np.inf)
    np.maximum.at(last, number, start)
    grouped = group >= 0
    begin[grouped] = last[number[grouped]]
    return np.maximum(end - begin, 0.0)
