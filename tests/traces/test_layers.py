"""Layers as paths of what is open, and gradients that are followed back to their forward pass, at their edges."""

from __future__ import annotations

import numpy as np
import pytest

from tests.traces.test_lane_edges import call, capture, kernel, row
from ullage.sums.lanes.code.gradients import Gradients
from ullage.sums.lanes.code.levels import levels
from ullage.sums.lanes.gather import Capture
from ullage.sums.lanes.products import products
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.spans import spans


def layer(found: Capture, moment: int, thread: int = 7) -> str:
    level = levels(found)["annotation"]
    (code,) = level.around(np.array([1]), np.array([thread]), np.array([moment])).tolist()
    return level.names[code] if code >= 0 else ""


def test_of_a_path_the_eight_innermost_names_are_kept() -> None:
    nested = [row(depth, 100 - depth, "region", f"r{depth}", thread=7) for depth in range(9)]
    found = capture(call(0, 100), *nested)
    assert layer(found, 7) == "/".join(f"r{depth}" for depth in range(8))
    assert layer(found, 8) == "/".join(f"r{depth}" for depth in range(1, 9))
    assert layer(found, 100) == ""


def test_a_range_without_a_name_says_so_and_takes_no_other_s() -> None:
    first = row(0, 50, "region", "first", thread=7)  # the word of code 0
    found = capture(first, row(10, 20, "region", None, thread=7), row(30, 40, "module", None, thread=7), call(0, 100, None))
    assert found.words[0] == "first"
    assert [layer(found, moment) for moment in (5, 15, 35)] == ["first", "first/(unnamed)", "first/(unnamed)"]
    (process,) = reduce(found).processes
    assert {name: (region.start.tolist(), region.end.tolist()) for name, region in process.regions.items()} == {
        "first": ([0], [50]),
        "(unnamed)": ([10], [20]),
    }


def test_a_module_s_number_is_left_out_and_a_region_s_is_not() -> None:
    rows = (row(0, 50, "module", "Linear_12", thread=7), row(10, 20, "region", "stage_2", thread=7))
    assert layer(capture(call(0, 100), *rows), 15) == "Linear/stage_2"


@pytest.mark.parametrize(("links", "followed"), [(1, 1), (4, 4), (5, 4)])
def test_gradients_of_gradients_are_followed_back_four_times(links: int, followed: int) -> None:
    # thread n computes gradients, at 100 n + 50, of what thread n + 1 did at 100 n + 160
    rows = [
        each
        for n in range(links)
        for each in (
            row(100 * n, 100 * n + 90, "backward", thread=n, sequence=n + 1),
            row(100 * n + 150, 100 * n + 170, "forward", thread=n + 1, sequence=n + 1),
        )
    ]
    found = Gradients(capture(call(0, 1000), *rows).host).origin(np.array([1]), np.array([0]), np.array([50]))
    assert (found.gradients.tolist(), found.thread.tolist(), found.moment.tolist()) == ([True], [followed], [100 * (followed - 1) + 150])


def test_gradients_of_what_was_not_recorded_are_nobody_s_and_a_thread_without_any_borrows_none() -> None:
    rows = (
        row(0, 90, "backward", thread=0, sequence=3),
        row(0, 90, "backward", thread=1, sequence=4),
        row(0, 90, "backward", thread=3, sequence=9),
        row(200, 210, "forward", thread=5, sequence=4),
    )
    gradients = Gradients(capture(call(0, 1000), *rows).host)
    found = gradients.origin(np.ones(5, int), np.array([0, 1, 2, 1, 3]), np.array([50, 50, 50, 90, 50]))
    assert found.gradients.tolist() == [False, True, False, False, False]
    assert found.thread.tolist() == [0, 5, 2, 1, 3]


@pytest.mark.parametrize("wanted", [3, 8])
def test_kernels_are_added_up_by_what_they_are_and_the_rest_of_many_is_folded(wanted: int) -> None:
    chance = np.random.default_rng(wanted)
    ran: dict[tuple[str, int, int], list[int]] = {}
    rows = [call(0, 1, correlation=99)]
    for number in range(60):
        name, blocks, threads = f"k{chance.integers(3)}", int(chance.integers(1, 3)), int(chance.integers(1, 3)) * 32
        start, lasts = int(chance.integers(100)), int(chance.integers(1, 9))
        asked = f"p{blocks}" if number % 3 else None
        rows.append(kernel(start, start + lasts, name=name, product=asked, blocks=blocks, threads=threads, correlation=number))
        inside = min(start + lasts, 80) - max(start, 10)  # of one across an edge the time inside counts
        if inside > 0:
            what = (name, blocks, threads) if asked else (name, -1, -1)
            ran.setdefault(what, []).append(inside)
    found = products(capture(*rows), {0: spans((10, 80))}, wanted)
    every = products(capture(*rows), {0: spans((10, 80))})
    assert {(r.kernel, r.blocks, r.threads): (r.count, r.time) for r in every} == {what: (len(t), sum(t)) for what, t in ran.items()}
    assert {(r.product[0], r.blocks) for r in every if r.blocks > 0} == {("p", 1), ("p", 2)}
    assert [r.time for r in every] == sorted((r.time for r in every), reverse=True)
    assert found[:wanted] == every[:wanted]
    assert sum(r.time for r in found) == sum(r.time for r in every) and sum(r.count for r in found) == sum(r.count for r in every)


def test_gradients_count_for_the_module_of_their_forward_pass_though_it_is_the_first_of_all() -> None:
    rows = (
        row(0, 30, "module", "first", thread=7),
        row(10, 20, "forward", thread=7, sequence=1),
        row(40, 60, "backward", thread=8, sequence=1),
    )
    found = capture(*rows, row(40, 60, "region", "own", thread=8), call(0, 100))
    gradients, level, one = Gradients(found.host), levels(found)["annotation"], np.ones(2, int)
    thread, moment = np.array([8, 8]), np.array([50, 60])
    codes = gradients.layers(level, one, thread, moment, gradients.origin(one, thread, moment))
    assert [level.names[code] if code >= 0 else "" for code in codes.tolist()] == ["first", ""]
