"""The algebra of spans, held against sets of whole numbers: a span [a, b) is the numbers a, a + 1, …, b − 1."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.sums.lanes.spans import BLOCK, NONE, Spans, clip, gaps, intersect, join, spans, subtract, union, within

moments = st.integers(-20, 20)
# also empty ones (5, 5) and ones that end before they start (7, 3)
pairs = st.lists(st.tuples(moments, moments), max_size=12)


def made(intervals: list[tuple[int, int]]) -> Spans:
    return union(np.array([a for a, _ in intervals]), np.array([b for _, b in intervals]))


def numbers(intervals: list[tuple[int, int]]) -> set[int]:
    return {n for a, b in intervals for n in range(a, b)}


def pieces(s: Spans) -> list[tuple[int, int]]:
    return list(zip(s.start.tolist(), s.end.tolist(), strict=True))


def assert_is(s: Spans, expected: set[int]) -> None:
    """The spans hold these numbers, and are sorted, disjoint, not empty, not touching."""
    assert numbers(pieces(s)) == expected
    assert s.total == len(expected)
    assert all(a < b for a, b in pieces(s))
    assert all(before < after for before, after in zip(s.end[:-1].tolist(), s.start[1:].tolist(), strict=True))
    assert s.start.dtype == s.end.dtype == np.int64


@given(pairs)
def test_a_union_holds_what_any_interval_holds(a: list[tuple[int, int]]) -> None:
    assert_is(made(a), numbers(a))


@given(pairs, pairs)
def test_sets_are_joined_intersected_and_subtracted_as_sets_of_numbers_are(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    assert_is(join(made(a), made(b)), numbers(a) | numbers(b))
    assert_is(intersect(made(a), made(b)), numbers(a) & numbers(b))
    assert_is(subtract(made(a), made(b)), numbers(a) - numbers(b))


@given(pairs, moments, moments)
def test_gaps_and_clips_part_a_window(a: list[tuple[int, int]], low: int, high: int) -> None:
    window = set(range(low, high))
    assert_is(clip(made(a), low, high), numbers(a) & window)
    assert_is(gaps(made(a), low, high), window - numbers(a))


@given(pairs, st.lists(st.tuples(moments, moments).map(sorted), min_size=1, max_size=6))
def test_time_within_windows_is_counted_window_by_window(a: list[tuple[int, int]], windows: list[list[int]]) -> None:
    found = within(made(a), np.array([w[0] for w in windows]), np.array([w[1] for w in windows]))
    assert found.tolist() == [len(numbers(a) & set(range(low, high))) for low, high in windows]


@given(st.lists(pairs, max_size=4))
def test_several_sets_join_as_one(sets: list[list[tuple[int, int]]]) -> None:
    assert_is(join(*map(made, sets)), set().union(*map(numbers, sets)))


@given(pairs, st.randoms(use_true_random=False), moments)
def test_neither_order_nor_repetition_nor_cutting_changes_a_union(a: list[tuple[int, int]], chance: random.Random, cut: int) -> None:
    shuffled = a + chance.choices(a, k=3) if a else []
    chance.shuffle(shuffled)
    in_two = [half for x, y in a for half in ([(x, cut), (cut, y)] if x < cut < y else [(x, y)])]
    assert pieces(made(shuffled)) == pieces(made(in_two)) == pieces(made(a))


@pytest.mark.parametrize("offset", [0, 1_767_225_600_000_000_000, 2**62])
def test_nanoseconds_since_1970_are_exact(offset: int) -> None:
    # a float64 near 1.8e18 is a multiple of 256: the 1 ns gap and the 3 ns span would be gone
    s = spans((offset, offset + 10), (offset + 11, offset + 14))
    assert s.pieces == 2
    assert s.total == 13
    assert gaps(s, offset, offset + 14).total == 1
    assert within(s, s.start, s.end).tolist() == [10, 3]


def test_the_total_of_many_long_spans_does_not_run_over() -> None:
    # 100 spans that begin near 1.8e18: their starts add up to 1.8e20, past 2^63 = 9.2e18, their lengths to 5000
    start = 1_800_000_000_000_000_000 + 100 * np.arange(100)
    assert union(start, start + 50).total == 5000


def test_nothing_has_no_pieces_and_no_time() -> None:
    assert (NONE.pieces, NONE.total) == (0, 0)
    assert join() is NONE


@pytest.mark.parametrize("count", [BLOCK, BLOCK + 1, BLOCK + 2, 2 * BLOCK + 1, 3 * BLOCK + 7])
def test_a_union_of_more_intervals_than_a_block_is_no_other(count: int) -> None:
    # an interval every 10 ns: of 9 ns each they leave 1 ns between them, of 10 ns they touch and are one, of 11 ns they overlap
    start = 10 * np.random.default_rng(1).permutation(count)
    assert (union(start, start + 9).pieces, union(start, start + 9).total) == (count, 9 * count)
    assert pieces(union(start, start + 10)) == [(0, 10 * count)]
    assert pieces(union(start, start + 11)) == [(0, 10 * count + 1)]
