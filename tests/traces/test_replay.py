"""Replay of dependency graphs, held against an event-by-event simulation on random graphs."""

import random
from fractions import Fraction

import numpy as np
import pytest

from tests.traces.replay_brute_force import timeline
from ullage.sums.replay import graph, own_durations, replay


def drawn(seed):
    """A random graph: edges go up in a hidden order in which groups are contiguous, so there is no circle; durations are eighths."""
    rng = random.Random(seed)
    count = rng.randint(1, 25)
    hidden = rng.sample(range(count), count)
    groups, at = [], 0
    while at < count:
        size = rng.choice([1, 1, 1, 2, 2, 3, 5])
        groups.append(hidden[at : at + size])
        at += size
    edges = []
    for _ in range(rng.randint(0, 3 * count)):
        low, high = sorted(rng.choices(range(len(groups)), k=2))
        if low < high:
            edges.append((rng.choice(groups[low]), rng.choice(groups[high])))
    durations = [Fraction(rng.choice([0, 0, rng.randint(1, 80)]), 8) for _ in range(count)]
    released = [Fraction(rng.choice([0, 0, 0, rng.randint(0, 200)]), 8) for _ in range(count)]
    return count, edges, groups, durations, released


def group_numbers(count, groups):
    """A group of one is written as no group, or as one of its own: both mean the same."""
    numbers = np.full(count, -1, np.int64)
    for number, members in enumerate(groups):
        if len(members) > 1 or number % 2:
            numbers[members] = number
    return numbers


def columns(edges):
    return (np.array([edge[side] for edge in edges], np.int64) for side in (0, 1))


@pytest.mark.parametrize("seed", range(300))
def test_a_replay_is_what_happens_event_by_event(seed):
    count, edges, groups, durations, released = drawn(seed)
    start, end = timeline(count, edges, groups, durations, released)
    found = replay(
        graph(count, *columns(edges), group_numbers(count, groups)),
        np.array([float(d) for d in durations]),
        np.array([float(r) for r in released]),
    )
    assert found.start.tolist() == [float(t) for t in start]  # eighths are exact in binary
    assert found.end.tolist() == [float(t) for t in end]


@pytest.mark.parametrize("seed", range(20))
def test_several_cases_at_once_are_each_its_own_replay(seed):
    count, edges, groups, _, released = drawn(seed)
    whole = graph(count, *columns(edges), group_numbers(count, groups))
    cases = np.random.default_rng(seed).random((count, 3))
    start = np.array([float(r) for r in released])
    together = replay(whole, cases, start)
    for case in range(3):
        assert together.end[:, case].tolist() == replay(whole, cases[:, case], start).end.tolist()


@pytest.mark.parametrize("seed", range(100))
def test_a_replayed_timeline_gives_its_durations_back(seed):
    count, edges, groups, durations, _ = drawn(seed)
    numbers, given = group_numbers(count, groups), np.array([float(d) for d in durations])
    found = replay(graph(count, *columns(edges), numbers), given)
    assert own_durations(found.start, found.end, numbers).tolist() == given.tolist()


def test_a_circle_is_refused():
    with pytest.raises(ValueError, match="in a circle"):
        graph(2, np.array([0, 1]), np.array([1, 0]), np.array([-1, -1]))


def test_a_circle_through_groups_is_refused():
    # 0 and 1 are one transfer, 2 and 3 another; each has an end that waits for the other's
    with pytest.raises(ValueError, match="in a circle"):
        graph(4, np.array([0, 3]), np.array([2, 1]), np.array([5, 5, 6, 6]))


def test_an_edge_to_nowhere_is_refused():
    with pytest.raises(ValueError, match="does not exist"):
        graph(2, np.array([0]), np.array([2]), np.array([-1, -1]))


def test_no_operations_have_an_empty_timeline():
    nothing = np.zeros(0, np.int64)
    assert replay(graph(0, nothing, nothing, nothing), np.zeros(0)).end.tolist() == []
