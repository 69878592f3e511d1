"""Collectives across ranks at their edges: one alone, chains that fit and chains that don't, what notes say of how many."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.traces.drawn_runs import made
from tests.traces.test_collectives import MS, Did, late_by, rank, run_of
from ullage.sums.lanes.collectives.alignment import AlignedClock, ClockLine
from ullage.sums.lanes.collectives.exchanges import _ending_together
from ullage.sums.lanes.collectives.moved import moved
from ullage.sums.lanes.collectives.transfer import transfer_notes
from ullage.sums.lanes.common import with_common
from ullage.sums.lanes.spans import NONE
from ullage.sums.pipeline import numbered
from ullage.sums.what_if import _lower_median, _median


def test_a_single_collective_lasts_from_when_the_last_rank_comes() -> None:
    # rank 1 comes 3 ms after rank 0, and data moves for 1 ms
    first, second = ([replace(d, members=2, bytes=4096) for d in done] for done in late_by(3 * MS))
    run, matched = run_of(rank(0, first, clock="utc", host="n"), rank(1, second, clock="utc", host="n"))
    (row,) = moved(run.captures, matched)
    assert (row.count, row.bytes, row.time, row.members, row.least, row.most, row.waiting, row.hosts) == (
        1,
        4096,
        MS,
        2,
        4096,
        4096,
        False,
        1,
    )
    # rank 1 comes 100 ns late and leaves 1 µs late: it lasts as long as there, though it was shorter on the other
    first, second = ([replace(d, members=2, bytes=4096) for d in done] for done in late_by(100))
    second = [replace(d, end=d.end + 1000) for d in second]
    run, matched = run_of(rank(0, first, clock="utc", host="n"), rank(1, second, clock="utc", host="n"))
    assert [row.time for row in moved(run.captures, matched)] == [MS + 1000]


def test_collectives_of_named_groups_need_no_word_on_streams() -> None:
    bare = [[replace(d, sequence=None) for d in done] for done in late_by(MS, 2 * MS, 3 * MS)]
    _, matched = run_of(rank(0, bare[0]), rank(1, bare[1], 77))
    assert matched.count == 3 and not any("no process groups" in note for note in matched.notes)


def test_a_stream_that_fits_nowhere_keeps_no_other_from_being_matched() -> None:
    # on streams 20 and 22 all fits; on 21 rank 1 does other things
    def lane(late: int, other: str) -> list[Did]:
        done = []
        for number in range(4):
            for stream, operation in ((20, "allreduce"), (21, other), (22, "allgather")):
                at = MS * (40 * number + stream)
                done.append(Did(at + late, at + 2 * MS, operation=operation, group=None, stream=stream, bytes=stream << number))
        return done

    _, matched = run_of(*(rank(n, lane(n * 1000, word), clock="utc", host="n") for n, word in enumerate(("allreduce", "broadcast"))))
    assert matched.count == 8
    assert sorted({matched.words[code] for code in matched.rows.operation.tolist()}) == ["allgather", "allreduce"]


def test_what_contradicts_is_counted_and_the_rest_is_matched() -> None:
    first, second = late_by(*[MS] * 5)
    second[1], second[3] = (replace(second[n], operation="allgather") for n in (1, 3))
    _, matched = run_of(rank(0, first), rank(1, second))
    assert matched.count == 3 and [note for note in matched.notes if note.startswith("2 collectives are not matched: ranks do different")]
    first, second = late_by(*[MS] * 3)
    _, matched = run_of(rank(0, first), rank(1, second))
    assert matched.count == 3 and matched.notes == ()


def test_notes_say_how_well_clocks_agree_and_how_much_could_be_matched() -> None:
    # clocks 5 s apart, whose ends differ by 0, 0, 0, 0 and 9.996 µs
    first, second = late_by(*[MS] * 5)
    second[4] = replace(second[4], end=second[4].end + 9_996)
    run, matched = run_of(rank(0, first), rank(1, second, 5_000_000_000))
    assert "clocks were aligned by the ends of collectives: residual 0 µs (median), 10 µs (most)" in transfer_notes(run, matched)
    # of 5 collectives of 2 ms on the first rank, 3 are known to the second: 60 % of its time
    first, second = late_by(*[MS] * 5)
    run, matched = run_of(rank(0, first, clock="utc", host="n"), rank(1, second[:3], clock="utc", host="n"))
    (note,) = [note for note in transfer_notes(run, matched) if "could be matched" in note]
    assert note.endswith("on 1 of 2 devices only 60 % of their time could be matched")


def test_exchanges_that_end_together_share_no_row() -> None:
    end, lasted = np.array([10, 11, 12, 13, 40]), np.full(5, 100)
    assert _ending_together(end, np.array([0, 1, 0, 1, 0]), lasted, 2).tolist() == [0, 0, 1, 1, -1]
    # the second could be with the first or with the third: it is with the first, and the third is left
    assert _ending_together(end[:3], np.array([0, 1, 0]), lasted[:3], 2).tolist() == [0, 0, -1]
    # half of what the longest lasts is allowed between the first and the last
    assert _ending_together(np.array([10, 15]), np.array([0, 1]), np.array([3, 10]), 2).tolist() == [0, 0]
    assert _ending_together(np.array([10, 16]), np.array([0, 1]), np.array([3, 10]), 2).tolist() == [-1, -1]


@pytest.mark.parametrize("ahead", [0, 1000, -1000])
def test_the_common_window_is_that_of_one_clock(ahead: int) -> None:
    # by the first rank's clock it was recorded from 0 to 50 ms, the second from 5 to 60; the second's clock is ahead
    run = made(2, NONE, 60 * MS)
    lives = ((0, 50 * MS), (5 * MS + ahead, 60 * MS + ahead))
    processes = tuple(replace(p, window=life, known=life) for p, life in zip(run.processes, lives, strict=True))
    clocks = [AlignedClock(n, 9, ClockLine(0, offset, 0.0, 0.0, 0.0)) for n, offset in enumerate((0, ahead))]
    found = with_common(replace(run, processes=processes), clocks)
    assert (found.shared, found.recorded) == ((5 * MS, 50 * MS), (0, 60 * MS))
    assert found.limits == {"rank0.json": (5 * MS, 50 * MS), "rank1.json": (5 * MS + ahead, 50 * MS + ahead)}
    assert found.common is not None
    looked = {key[0]: (seen.start.tolist(), seen.end.tolist()) for key, seen in found.common.items()}
    assert looked == {place: ([low], [high]) for place, (low, high) in found.limits.items()}


@pytest.mark.parametrize("seed", range(3))
def test_numbers_and_medians_by_key_are_those_of_a_loop(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        many = chance.randrange(1, 30)
        keys = [np.array([chance.randrange(-2, 4) for _ in range(many)]) for _ in range(chance.randrange(1, 4))]
        rows = list(zip(*(key.tolist() for key in keys), strict=True))
        ranked = sorted(set(rows))
        number = numbered(*keys)
        assert number.tolist() == [ranked.index(row) for row in rows]
        values = np.array([chance.randrange(100) for _ in range(many)], np.float64)
        each = [sorted(v for v, n in zip(values.tolist(), number.tolist(), strict=True) if n == of) for of in range(len(ranked))]
        assert _lower_median(values, number).tolist() == [own[(len(own) - 1) // 2] for own in each]
        assert _median(values, number).tolist() == [float(np.median(own)) for own in each]
