"""Sums of kernels by name over drawn captures, cut to what is looked at, folded and merged: against loops."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pytest

from tests.traces.test_lane_edges import call, capture, row
from ullage.sums.lanes.code.idle import Charge, idle_by_code
from ullage.sums.lanes.code.levels import CodeLevel, levels
from ullage.sums.lanes.gather import Capture, LaneRows
from ullage.sums.lanes.kernels import Kernels, kernels, merge_kernels
from ullage.sums.lanes.residency import residency
from ullage.sums.lanes.spans import spans

Sums = dict[tuple[str, str], list[int]]


def drawn(chance: random.Random) -> tuple[Capture, Sums]:
    """Return a capture whose device is looked at from 10 to 40 and from 60 to 80, and what ran there: count, time, longest and bytes."""
    rows, found = [call(0, 100, correlation=999)], defaultdict[tuple[str, str], list[int]](lambda: [0, 0, 0, 0])
    for _ in range(40):
        name, kind = chance.choice((None, "a", "b", "c")), chance.choice(("kernel", "collective", "memcpy", "memset", "lost"))
        start = chance.randrange(95)
        end = start + (0 if kind == "lost" else chance.randrange(0, 30))
        size = chance.choice((None, 0, 8, 512))
        rows.append(row(start, end, kind, name, device=0, bytes=size))
        inside = sum(max(min(end, b) - max(start, a), 0) for a, b in ((10, 40), (60, 80)))
        moment = start == end and any(a <= start < b for a, b in ((10, 40), (60, 80)))
        if kind != "lost" and (inside or moment):
            sums = found[name or "", kind]
            sums[:] = sums[0] + 1, sums[1] + inside, max(sums[2], inside), sums[3] + (size or 0)
    return capture(*rows), dict(found)


def as_sums(found: Kernels) -> Sums:
    return {(name, kind): list(sums) for name, kind, *sums in found.rows}


def plus(one: list[int], other: list[int]) -> list[int]:
    return [one[0] + other[0], one[1] + other[1], max(one[2], other[2]), one[3] + other[3]]


@pytest.mark.parametrize("seed", range(3))
def test_kernels_by_name_are_those_of_a_loop_whole_folded_and_merged(seed: int) -> None:
    chance, looked = random.Random(seed), {0: spans((10, 40), (60, 80))}
    for _ in range(12):
        (one, first), (other, second) = drawn(chance), drawn(chance)
        found = kernels(one, looked)
        assert as_sums(found) == first and found.folded == 0
        assert [each[3] for each in found.rows] == sorted((each[3] for each in found.rows), reverse=True)
        few = kernels(one, looked, most=3)
        assert few.rows[:3] == found.rows[:3] and few.folded == max(len(first) - 3, 0)
        rest: Sums = {}
        for name, kind, *sums in found.rows[3:]:
            del name
            rest["(others)", kind] = plus(rest.get(("(others)", kind), [0, 0, 0, 0]), list(sums))
        assert {(name, kind): list(sums) for name, kind, *sums in few.rows[3:]} == rest
        both = {key: plus(first.get(key, [0, 0, 0, 0]), second.get(key, [0, 0, 0, 0])) for key in {*first, *second}}
        merged = merge_kernels([found, kernels(other, looked)])
        assert as_sums(merged) == both and [each[3] for each in merged.rows] == sorted((each[3] for each in merged.rows), reverse=True)
        folded = merge_kernels([found, kernels(other, looked)], most=2)
        assert folded.rows[:2] == merged.rows[:2] and folded.folded == max(len(both) - 2, 0)
        total = [sum(each[n] for each in folded.rows) for n in (2, 3, 5)]
        assert total == [sum(sums[n] for sums in both.values()) for n in (0, 1, 3)]


def test_idle_time_of_a_thread_without_ranges_is_outside_of_all() -> None:
    named = levels(capture(call(0, 1), row(0, 50, "operator", "aten::mm", thread=7)))["operator"]
    charges = [Charge(1, thread, spans((at, at + 20)), np.array([at])) for thread, at in ((9, 0), (7, 10), (7, 40))]
    found = idle_by_code(charges, named)
    assert [(each.name, each.count, each.time, each.longest) for each in found.rows] == [("aten::mm", 2, 30, 20)]
    assert found.outside == 20 + 10


@pytest.mark.parametrize("seed", range(3))
def test_ranges_in_any_order_name_what_is_innermost(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        begins = chance.sample(range(0, 100, 10), chance.randrange(1, 8))
        start = np.array(begins)
        rows = LaneRows(start, start + np.array([chance.randrange(1, 10) for _ in begins]), name=np.arange(len(begins), dtype=np.int32))
        level = CodeLevel({(1, 7): rows}, [], borrows=False)
        moments = np.array([chance.randrange(110) for _ in range(20)])
        open_ = [np.flatnonzero((rows.start <= at) & (at < rows.end)) for at in moments.tolist()]
        expected = [int(places[0]) if len(places) else -1 for places in open_]
        assert level.around(np.ones(20, int), np.full(20, 7), moments).tolist() == expected


@pytest.mark.parametrize(("blocks", "share"), [(0, 1.0), (-1, 1.0), (1, 0.1), (10, 1.0), (40, 1.0)])
def test_a_kernel_of_unknown_size_may_be_on_all_sms(blocks: int, share: float) -> None:
    one = {"blocks": blocks, "threads": 128, "registers": 32, "shared": 0}
    rows = LaneRows(np.array([0]), np.array([100]), kind=np.array([0], np.int8), **{name: np.array([value]) for name, value in one.items()})
    found = residency(rows, 10)
    assert (found.computing, found.most_computed) == (100, pytest.approx(100 * share))
