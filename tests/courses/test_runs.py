"""Runs beside earlier runs of their kind."""

from __future__ import annotations

import math

import pytest

from ullage.courses.runs import APART, SURE, changed_runs


def first_limit() -> float:
    """How far (as a ratio) the second run of a kind must fall to be told: both are drawn from what runs of one kind differ by."""
    return math.exp(-SURE * APART * math.sqrt(2))


def test_the_second_run_must_lie_far_from_the_first() -> None:
    limit = first_limit()  # 0.571
    assert changed_runs([0.4, 0.4 * limit * 1.001]) == []
    (one,) = changed_runs([0.4, 0.4 * limit * 0.999])
    assert (one.run, one.earlier, one.until) == (1, 1, None)
    assert one.deviations == pytest.approx(SURE, rel=1e-2)


def test_runs_that_are_alike_make_the_next_one_told_sooner() -> None:
    alike = [0.40, 0.41, 0.40, 0.39, 0.40, 0.41, 0.39, 0.40, 0.40, 0.41]
    assert changed_runs([*alike, 0.40 * 0.87]) == []
    assert [one.run for one in changed_runs([*alike, 0.40 * 0.78])] == [10]


def test_runs_that_differ_by_a_half_tell_nothing_of_one_that_does() -> None:
    assert changed_runs([0.2, 0.3, 0.22, 0.31, 0.19, 0.3, 0.2]) == []


def test_it_is_over_with_the_first_run_that_is_as_usual() -> None:
    (one,) = changed_runs([0.30, 0.31, 0.12, 0.11, 0.30])
    assert (one.run, one.until, one.usual, one.earlier) == (2, 4, pytest.approx(0.305), 2)


def test_three_runs_in_a_row_are_how_it_is_from_then_on() -> None:
    (one, back) = changed_runs([0.30, 0.31, 0.12, 0.12, 0.12, 0.12, 0.30, 0.30])
    assert (one.run, one.until) == (2, None)
    assert (back.run, back.usual) == (6, pytest.approx(0.12))


def test_a_rise_after_a_fall_is_another_change() -> None:
    assert [(one.run, one.until) for one in changed_runs([0.30, 0.30, 0.12, 0.80])] == [(2, 3), (3, None)]


@pytest.mark.parametrize("levels", [[], [0.3], [0.0, 0.0]])
def test_nothing_to_compare_with_tells_nothing(levels: list[float]) -> None:
    assert changed_runs(levels) == []
