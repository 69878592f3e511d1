"""Chains of waits of any length: held to the longest path, looked for from each moment's waits."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tests.seeds import some
from ullage.sums.lanes.replaying.spans_of_work import LIKELY, POSSIBLE, SORTS, SpanTable
from ullage.sums.wait_graph import NEVER, WaitTable, moments, wait_graph, wait_path


def drawn(seed: int):
    """Random waits, each for an earlier moment, with spans of which some switch waits off."""
    random = Random(seed)
    count, spans = random.randint(2, 40), [0, NEVER, *(random.choice((0, random.randint(0, 50))) for _ in range(10))]
    if random.random() < 0.3:
        spans[-1] = NEVER
    waits = [(after, before) for after in range(1, count) for before in random.sample(range(after), min(after, random.randint(0, 6)))]
    rows = [(*pair, [0, random.randrange(len(spans)), random.randrange(2, len(spans))]) for pair in waits if pair[0] != pair[1]]
    random.shuffle(rows)
    return count, np.array(spans, np.int64), rows


def longest(count: int, spans, rows) -> list[int]:
    """When each moment comes: the latest of what it waits for."""
    came = [0] * count
    for moment in range(1, count):
        mine = [came[before] + sum(int(spans[part]) for part in lag) for after, before, lag in rows if after == moment]
        came[moment] = max(mine, default=0)
    return came


def table(rows) -> WaitTable:
    """The waits as columns."""
    return WaitTable(
        np.array([row[0] for row in rows], np.int32),
        np.array([row[1] for row in rows], np.int32),
        np.array([row[2] for row in rows], np.int32).reshape(-1, 3),
    )


@pytest.mark.parametrize("seed", some(range(300), 40))
@pytest.mark.parametrize("told", ["in order", "at random"])
def test_moments_come_when_the_longest_chain_of_waits_has_ended(seed: int, told: str):
    count, spans, rows = drawn(seed)
    recorded = np.arange(count) if told == "in order" else np.array(Random(seed).choices(range(5), k=count))
    graph = wait_graph(recorded, table(rows))
    came = moments(graph, spans)
    truth = longest(count, spans, rows)
    assert [t if t > NEVER // 2 else None for t in came[graph.place].tolist()] == [t if t > NEVER // 2 else None for t in truth]
    last = int(np.argmax(came[graph.place]))
    path = wait_path(graph, spans, came, int(graph.place[last]))
    assert spans[path.lags].sum() == truth[last]
    assert not len(path.moments) or path.moments[0] == last


def test_a_circle_is_refused():
    rows = [(1, 2, [0, 0, 0]), (2, 1, [0, 0, 0])]
    with pytest.raises(ValueError, match="circle"):
        wait_graph(np.zeros(3, np.int64), table(rows))


@pytest.mark.parametrize("waits", [[(1, 1)], [(1, 0), (1, 1)], [(1, 0), (1, 0), (1, 1)]])
def test_a_moment_that_waits_for_itself_is_refused(waits: list[tuple[int, int]]):
    with pytest.raises(ValueError, match="circle"):
        wait_graph(np.arange(2), table([(*pair, [0, 0, 0]) for pair in waits]))


@pytest.mark.parametrize("before", [3, -1])
def test_a_moment_that_does_not_exist_is_refused(before: int):
    with pytest.raises(ValueError, match="does not exist"):
        wait_graph(np.zeros(3, np.int64), table([(1, before, [0, 0, 0])]))


@pytest.mark.parametrize("waits", [[(1, 2), (1, 0)], [(1, 0), (1, 2)], [(1, 0), (1, 0), (1, 2)]])
def test_a_moment_may_wait_for_one_that_was_recorded_later(waits: list[tuple[int, int]]):
    # the second span lasts 7: moment 2, recorded last, comes at 7, and moment 1, which waits for it and for the origin, 7 later
    spans = np.array([0, NEVER, 7])
    graph = wait_graph(np.array([0, 10, 20]), table([(2, 0, [2, 0, 0]), *((*pair, [2, 0, 0]) for pair in waits)]))
    assert moments(graph, spans)[graph.place].tolist() == [0, 14, 7]


def test_of_waits_that_end_together_the_first_of_the_table_is_the_cause():
    # moments 1 and 2 both come at 7, and 3 waits for both
    spans = np.array([0, NEVER, 7])
    for first, second in ((1, 2), (2, 1)):
        rows = [(1, 0, [2, 0, 0]), (2, 0, [2, 0, 0]), (3, first, [0, 0, 0]), (3, second, [0, 0, 0])]
        graph = wait_graph(np.arange(4), table(rows))
        assert wait_path(graph, spans, moments(graph, spans), int(graph.place[3])).moments.tolist() == [3, first]


def test_spans_are_numbered_block_by_block_behind_the_four_that_every_run_has():
    spans = SpanTable()
    assert spans.add("operation", np.array([5, 7])).tolist() == [4, 5]
    assert spans.add("call", np.array([9])).tolist() == [6]
    sort, number = spans.sorts(np.arange(7))
    assert [SORTS[place] for place in sort] == ["zero", "off", "possible", "likely", "operation", "operation", "call"]
    assert number.tolist() == [0, 0, 0, 0, 0, 1, 0]
    assert spans.joined().tolist() == [0, NEVER, NEVER, NEVER, 5, 7, 9]
    changed = spans.joined(possible=0, operation=np.array([1, 2]))
    assert changed.tolist() == [0, NEVER, 0, NEVER, 1, 2, 9] and (changed[POSSIBLE], changed[LIKELY]) == (0, NEVER)


def test_places_that_only_join_waits_are_no_moments():
    # moment 3 waits for three others: one place more than there are moments
    graph = wait_graph(np.arange(4), table([(1, 0, [0, 0, 0]), (2, 1, [0, 0, 0]), *((3, before, [0, 0, 0]) for before in range(3))]))
    assert graph.moment.tolist() == [0, 1, 2, -1, 3] and graph.place.tolist() == [0, 1, 2, 4]


def test_what_was_recorded_before_the_origin_still_comes_after_it():
    # the profiler's clock put moment 1 before the origin, and moment 2 at the same time: the origin is the first all the same
    graph = wait_graph(np.array([5, 0, 5]), table([(1, 0, [2, 0, 0]), (2, 1, [3, 0, 0])]))
    assert graph.place.tolist() == [0, 1, 2] and graph.moment.tolist() == [0, 1, 2]
    assert moments(graph, np.array([0, NEVER, 10, 7], np.int64)).tolist() == [0, 10, 17]
