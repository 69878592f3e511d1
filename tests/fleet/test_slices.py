"""Sliced GPUs, millisecond by millisecond: which instances reported when, what they leave, and when nobody spoke for the whole GPU."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.seeds import some
from ullage.sums.slices import _covered, _fill_clock, _rest, _scrape_before


def milliseconds(start, end):
    return set(range(start, end))


@pytest.mark.parametrize("seed", some(range(1000), 20))
def test_what_others_cover_of_a_span_is_counted_once(seed):
    rng = random.Random(seed)
    others = [(start, start + rng.randint(0, 9)) for start in (rng.randint(0, 40) for _ in range(rng.randint(0, 6)))]
    asked = [(start, start + rng.randint(0, 20)) for start in (rng.randint(0, 40) for _ in range(4))]
    union = set().union(*(milliseconds(*other) for other in others))
    (first, last), (starts, ends) = (np.array(list(zip(*spans, strict=True)) or [[], []], np.int64) for spans in (asked, others))
    assert _covered(first, last, starts, ends).tolist() == [len(union & milliseconds(*span)) for span in asked]


@pytest.mark.parametrize("seed", some(range(1000), 20))
def test_what_instances_leave_of_a_gpu_is_not_sliced_while_any_is_there(seed):
    rng = random.Random(seed)
    sevenths = [rng.choice((1, 2, 3, 4, 7)) for _ in range(rng.randint(1, 5))]
    spans = [(start, start + rng.randint(1, 9)) for start in (rng.randint(0, 25) for _ in sevenths)]
    starts, ends = (np.array(edge, np.int64) for edge in zip(*spans, strict=True))
    own = np.arange(100, 100 + len(spans))
    found = {}
    for witness, start, end, share in zip(*_rest(own, starts, ends, np.array(sevenths) / 7), strict=True):
        assert witness in own and start < end
        # where the GPU was then tells an instance that reports at the end of the span, or the next one
        assert ends[witness - 100] == min(e for e in ends if e >= end)
        found |= dict.fromkeys(range(start, end), share)
    expected = {}
    for moment in range(60):
        there = [part for part, span in zip(sevenths, spans, strict=True) if moment in milliseconds(*span)]
        if there and sum(there) < 7:
            expected[moment] = (7 - sum(there)) / 7
    assert found == pytest.approx(expected)


def test_the_smallest_rest_of_a_gpu_counts_and_none_does_not():
    # of 28 parts 27 are taken, and then all: quarters and sevenths together leave a 28th
    one, all_of_it = np.array([0]), np.array([1.0])
    _, start, end, share = _rest(one, np.array([0]), np.array([5]), np.array([27 / 28]))
    assert (start.tolist(), end.tolist(), share.tolist()) == ([0], [5], [1 / 28])
    assert _rest(one, np.array([0]), np.array([5]), all_of_it)[1].tolist() == []


def test_rows_within_half_a_span_are_of_one_reading():
    # read at 0 and 3, then at 30 and 33, spans of 30 each: 15 apart are still one reading, 16 are two
    before = _scrape_before(np.array([0, 3, 30, 33]), np.full(4, 30))
    assert before.tolist()[2:] == [3, 3] and max(before[:2]) < -(10**15)
    assert _scrape_before(np.array([0, 15]), np.full(2, 30))[1] < 0
    assert _scrape_before(np.array([0, 16]), np.full(2, 30))[1] == 0


def test_an_instance_without_a_clock_has_that_of_its_gpu_where_that_speaks_for_its_time():
    # the GPU's samples end at 30 and 60 and stand for 20 each: (10, 30] and (40, 60]
    times, spans = np.array([30, 60, 10, 11, 30, 31, 40, 41, 60, 61]), np.array([20, 20, *[5] * 8])
    clock = np.array([1e9, 2e9, *[np.nan] * 7, 7e8])
    _fill_clock(clock, np.arange(2, 10), np.array([1, 0]), times, spans)  # in no order
    none = np.nan
    assert clock[2:].tolist() == pytest.approx([none, 1e9, 1e9, none, none, 2e9, 2e9, 7e8], nan_ok=True)
    alone = np.array([1e9, np.nan])
    _fill_clock(alone, np.array([1]), np.array([], np.int64), np.array([30, 30]), np.array([20, 20]))
    assert np.isnan(alone[1])  # no whole GPU reported
