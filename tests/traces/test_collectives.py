"""Collectives matched across ranks: clocks, shifts, transfer and waiting, stragglers. All times are worked out by hand."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.seeds import some
from tests.traces.kineto_events import BASE, call, kernel, written
from ullage.recording import Device, Process, Recording
from ullage.sums.lanes.collectives.collectives import _within, operation
from ullage.sums.lanes.collectives.matched import Matched
from ullage.sums.lanes.collectives.matching import match
from ullage.sums.lanes.collectives.transfer import skew, stragglers, transfer_notes, with_transfer
from ullage.sums.lanes.gather import LaneRows, gather
from ullage.sums.lanes.reduce import Reduced, reduce
from ullage.sums.lanes.run import Run, device_parts, device_totals, merge
from ullage.tables import intervals
from ullage.traced import read_trace

MS = 1_000_000  # ns


@dataclass(frozen=True)
class Did:
    """One collective on one rank by the common clock, in ns; `sequence` None: the source numbers nothing."""

    start: int
    end: int
    sequence: int | None = None
    operation: str | None = "allreduce"
    group: str | None = "0"
    members: int | None = None
    bytes: int | None = None
    stream: int = 20
    name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def rank(
    number: int,
    done: list[Did],
    offset: int = 0,
    drift: float = 0.0,
    clock: str = "own",
    ranks: int | None = None,
    host: str = "",
    uuid: str = "",
    model: str = "G",
    boot: str = "",
) -> Reduced:
    """A capture of one rank with one device of a `model` (`uuid`, or its own); its clock shows `offset` + `drift` × time more than the
    common one."""

    def shown(time: int) -> int:
        return time + offset + round(drift * time)

    recording = Recording(f"rank{number}.json", rank=number, ranks=ranks, clock=clock, host=host, boot=boot)  # type: ignore[arg-type]
    recording.processes[1] = Process(rank=number)
    recording.devices[0] = Device(model, uuid or f"GPU-{number}")
    columns = {
        "start": [shown(d.start) for d in done] + [shown(0)],
        "end": [shown(d.end) for d in done] + [shown(1)],
        "kind": ["collective"] * len(done) + ["kernel"],
        "process": [1] * (len(done) + 1),
        "device": [0] * (len(done) + 1),
    }
    for name in ("stream", "operation", "group", "sequence", "members", "bytes", "name"):
        columns[name] = [*(getattr(d, name) for d in done), None]
    return reduce(gather([intervals(columns)], recording))


def run_of(*captures: Reduced) -> tuple[Run, Matched]:
    """Return the run with its transfer, and what was matched."""
    run = merge(captures)
    matched = match(run.captures)
    return with_transfer(run, matched), matched


def transfers(run: Run) -> list[int | None]:
    """Return each device's transfer time in ns."""
    return [None if d.transfer is None else d.transfer.total for d in run.devices]


def late_by(*late: int) -> list[list[Did]]:
    """Two ranks, a collective every 10 ms that moves data for 1 ms; the second rank comes late by so many ns each time."""
    every = 10 * MS
    return [
        [Did(every * (n + 1), every * (n + 1) + wait + MS, n) for n, wait in enumerate(late)],
        [Did(every * (n + 1) + wait, every * (n + 1) + wait + MS, n) for n, wait in enumerate(late)],
    ]


def test_an_early_rank_waits_and_only_then_moves_data() -> None:
    # rank 0 is in its three collectives for 3 + 4 + 6 ms, of which it waits 2 + 3 + 5; rank 1 is always last and moves data for 3 × 1 ms
    first, second = late_by(2 * MS, 3 * MS, 5 * MS)
    run, matched = run_of(rank(0, first, clock="utc"), rank(1, second, clock="utc"))
    assert matched.count == 3
    assert [d.collective.total for d in run.devices] == [13 * MS, 3 * MS]
    assert transfers(run) == [3 * MS, 3 * MS]
    totals = device_totals(device_parts(run), run.elapsed())
    assert totals is not None
    # each device computes for 1 ns; max (K + transfer) = 1 + 3 ms, max (K + C) = 1 + 13 ms
    assert (totals.max_kernel_transfer_time, totals.max_kernel_collective_time) == (3 * MS + 1, 13 * MS + 1)


@pytest.mark.parametrize("offset", [0, 7_000_000_000, -3_600_000_000_123])
def test_clocks_that_differ_by_seconds_change_nothing(offset: int) -> None:
    first, second = late_by(2 * MS, 3 * MS, 5 * MS)
    run, matched = run_of(rank(0, first), rank(1, second, offset))
    assert transfers(run) == [3 * MS, 3 * MS]
    assert [clock.line.offset for clock in matched.clocks if clock.line] == [0, offset]
    assert [clock.line.residual for clock in matched.clocks if clock.line] == [0, 0]


def test_a_clock_that_drifts_is_followed() -> None:
    # 50 ppm over 300 collectives, 3 s: the clocks part by 150 µs, more than the 100 µs by which rank 1 comes late
    first, second = late_by(*[100_000] * 300)
    run, matched = run_of(rank(0, first), rank(1, second, 5_000_000_000, 50e-6))
    clock = matched.clocks[1]
    assert clock.line is not None
    assert clock.line.drift == pytest.approx(50e-6, rel=1e-3)
    assert clock.line.worst <= 2
    assert transfers(run) == pytest.approx([300 * MS, 300 * MS], rel=1e-4)


@pytest.mark.parametrize("first", [0, 1])
def test_a_device_that_two_ranks_share_waits_while_either_does(first: int) -> None:
    done = late_by(5 * MS, 5 * MS, 5 * MS)
    ranks = [rank(number, done[abs(number - first)], ranks=2, uuid="GPU-0", clock="utc") for number in (0, 1)]
    run, _ = run_of(*ranks)
    assert transfers(run) == [3 * MS] and run.devices[0].collective.total == 18 * MS


def test_with_fewer_than_three_in_common_the_shortest_duration_is_the_transfer() -> None:
    # two collectives of 3 and 4 ms on rank 0, 1 ms each on rank 1
    first, second = late_by(2 * MS, 3 * MS)
    run, matched = run_of(rank(0, first), rank(1, second, 1_000_000_000))
    assert matched.clocks[1].line is None
    assert transfers(run) == [2 * MS, 2 * MS]
    assert run.devices[0].transfer is not None
    assert run.devices[0].transfer.end.tolist() == run.devices[0].collective.end.tolist()  # at the end of each
    assert stragglers(matched) == ()
    assert skew(matched) is None
    assert any("shortest duration" in note for note in transfer_notes(run, matched))


def test_a_rank_alone_has_no_transfer() -> None:
    run, matched = run_of(rank(0, late_by(1, 2, 3)[0]))
    assert matched.count == 0
    assert transfers(run) == [None]
    assert matched.clocks[0].reference


def test_a_capture_without_collectives_matches_nothing() -> None:
    run, matched = run_of(rank(0, []), rank(1, []))
    assert (matched.count, transfers(run)) == (0, [None, None])


def test_numbers_match_what_both_captures_have() -> None:
    # rank 1's recording began after the first two and lacks the fourth: 2, 4 and 5 are common, 3 of 6 on rank 0
    first, second = late_by(*[MS] * 6)
    run, matched = run_of(rank(0, first), rank(1, [second[n] for n in (2, 4, 5)], 1_000))
    assert matched.count == 3
    assert transfers(run) == [None, 3 * MS]  # half of rank 0's collective time is not matched: not split
    assert any("50 % of their time" in note for note in transfer_notes(run, matched))


def unnumbered(done: list[Did], sizes: list[int]) -> list[Did]:
    return [replace(d, sequence=None, bytes=size) for d, size in zip(done, sizes, strict=True)]


def test_without_numbers_the_sizes_tell_the_shift() -> None:
    first, second = late_by(*[MS] * 8)
    sizes = [5, 1, 4, 1, 5, 9, 2, 6]
    first, second = unnumbered(first, sizes), unnumbered(second, sizes)
    _, matched = run_of(rank(0, first), rank(1, second[2:], 9_000_000_000))
    assert matched.count == 6
    assert matched.clocks[1].line is not None
    assert matched.clocks[1].line.offset == 9_000_000_000


def test_steps_that_never_last_equally_long_tell_the_shift_of_a_loop() -> None:
    # the same two sizes at every step, so all shifts by a whole number of steps agree; only one makes the ends' difference constant
    generator = np.random.default_rng(5)
    first, second = late_by(*generator.integers(0, 3 * MS, 40).tolist())
    first, second = unnumbered(first, [1, 2] * 20), unnumbered(second, [1, 2] * 20)
    _, matched = run_of(rank(0, first), rank(1, second[6:], 12_345))
    assert matched.count == 34
    assert matched.clocks[1].line is not None
    assert matched.clocks[1].line.offset == 12_345


def test_a_thousand_equal_collectives_are_shifted_right_by_their_rhythm() -> None:
    # nothing but all-reduces of unknown size; rank 1's recording began 300 later, its clock drifts by 20 ppm
    gaps = np.random.default_rng(3).integers(MS // 2, 3 * MS, 1000).cumsum().tolist()
    done = [[Did(g + late, g + MS // 10, group=None) for g in gaps] for late in (0, 40_000)]
    run, matched = run_of(rank(0, done[0]), rank(1, done[1][300:], 10**15, 20e-6))
    assert matched.count == 700
    assert matched.clocks[1].line is not None
    assert matched.clocks[1].line.drift == pytest.approx(20e-6, rel=1e-3)
    # rank 1's 700 are all matched, and it is always last: 60 µs each; of rank 0's 1000 a part is not
    assert run.devices[0].transfer is None
    assert run.devices[1].transfer is not None
    assert run.devices[1].transfer.total == pytest.approx(700 * 60_000, rel=1e-3)


def test_a_loop_like_clockwork_is_not_matched_without_a_common_clock() -> None:
    first, second = late_by(*[MS] * 40)
    first, second = unnumbered(first, [1, 2] * 20), unnumbered(second, [1, 2] * 20)
    run, matched = run_of(rank(0, first), rank(1, second[6:], 12_345))
    assert (matched.count, transfers(run)) == (0, [None, None])
    assert any("in no way, or in several" in note for note in matched.notes)
    _, told = run_of(rank(0, first, clock="utc"), rank(1, second[6:], 12_345, clock="utc"))
    assert told.count == 34  # clocks that count from 1970 are at most milliseconds apart


def test_sequences_that_contradict_are_not_matched() -> None:
    first, second = late_by(*[MS] * 6)
    _, matched = run_of(rank(0, unnumbered(first, [1, 2, 3, 4, 5, 6])), rank(1, unnumbered(second, [1, 2, 3, 9, 5, 6])))
    assert matched.count == 0


def test_without_groups_the_streams_order_counts() -> None:
    first, second = late_by(MS, 2 * MS, 3 * MS)
    bare = [[replace(d, sequence=None, group=None, operation=None) for d in done] for done in (first, second)]
    run, matched = run_of(rank(0, bare[0]), rank(1, bare[1], 77))
    assert transfers(run) == [3 * MS, 3 * MS]
    assert any("no process groups are recorded" in note for note in matched.notes)


def test_different_operations_under_one_number_are_not_matched() -> None:
    first, second = late_by(MS, MS, MS, MS)
    second[1] = replace(second[1], operation="allgather")
    _, matched = run_of(rank(0, first), rank(1, second))
    assert matched.count == 3
    assert any("different operations" in note for note in matched.notes)


def test_a_group_name_that_more_ranks_know_than_are_members_is_refused() -> None:
    pairs = [[replace(d, members=2) for d in done] for done in late_by(MS, MS, MS)]
    run, matched = run_of(*(rank(n, pairs[n % 2]) for n in range(4)))
    assert (matched.count, transfers(run)) == (0, [None] * 4)
    assert any("than it has members" in note for note in matched.notes)


def test_collectives_of_which_a_rank_is_missing_are_not_split() -> None:
    done = [[replace(d, members=3) for d in lane] for lane in late_by(MS, MS, MS)]
    run, matched = run_of(rank(0, done[0]), rank(1, done[1], 5))
    assert matched.count == 3  # good for the clocks
    assert matched.clocks[1].line is not None
    assert matched.clocks[1].line.offset == 5
    assert transfers(run) == [None, None]
    assert any("not all ranks" in note for note in matched.notes)


def test_a_broadcast_holds_no_rank_so_only_durations_are_compared() -> None:
    # the root leaves before the other comes: by arrivals it would only wait
    first = [Did(10 * MS * n, 10 * MS * n + MS, n, "broadcast") for n in range(1, 5)]
    second = [Did(10 * MS * n + 5 * MS, 10 * MS * n + 7 * MS, n, "broadcast") for n in range(1, 5)]
    run, _ = run_of(rank(0, first, clock="utc"), rank(1, second, clock="utc"))
    assert transfers(run) == [4 * MS, 4 * MS]


def test_sends_and_receives_of_many_are_left_alone() -> None:
    done = [[replace(d, operation="send", members=4) for d in lane] for lane in late_by(MS, MS, MS)]
    _, matched = run_of(rank(0, done[0]), rank(1, done[1]))
    assert matched.count == 0
    assert any("sends and receives" in note for note in matched.notes)


def test_several_kernels_with_one_number_are_one_collective() -> None:
    # rank 0 runs each as two kernels one after the other, rank 1 as one
    first, second = late_by(2 * MS, 2 * MS, 2 * MS)
    halves = [replace(d, end=d.start + MS) for d in first] + [replace(d, start=d.start + MS) for d in first]
    run, matched = run_of(rank(0, halves), rank(1, second, 3))
    assert matched.count == 3
    assert transfers(run) == [3 * MS, 3 * MS]


def test_a_number_that_comes_again_is_another_collective() -> None:
    first, second = late_by(*[MS] * 6)
    again = [[replace(d, sequence=n % 3) for n, d in enumerate(lane)] for lane in (first, second)]
    _, matched = run_of(rank(0, again[0]), rank(1, again[1]))
    assert matched.count == 6


def test_data_that_moves_for_one_collective_is_transfer_though_another_waits() -> None:
    # rank 0 waits in group 0 from 10 to 14 ms; meanwhile group 1 moves data from 11 to 13 ms on another stream
    first, second = late_by(4 * MS, 4 * MS, 4 * MS)
    beside = [Did(10 * MS * n + MS, 10 * MS * n + 3 * MS, n, group="1", stream=21) for n in range(1, 4)]
    run, _ = run_of(rank(0, first + beside), rank(1, second + beside, 11))
    # of 5 ms each time rank 0 waits 2 ms for sure; rank 1 is in group 1 alone for 2 ms and then moves data for 1 ms
    assert transfers(run) == [9 * MS, 9 * MS]


def test_stragglers_are_those_that_others_wait_for() -> None:
    # three ranks arrive at 0, 1 and 4 ms three times, and once at 3, 1 and 0 ms: rank 2 costs 3 × 3 ms, rank 0 costs 2 ms
    arrivals = [(0, 1, 4)] * 3 + [(3, 1, 0)]
    done = [[Did(20 * MS * n + a[lane] * MS, 20 * MS * n + (max(a) + 1) * MS, n) for n, a in enumerate(arrivals, 1)] for lane in range(3)]
    run, matched = run_of(*(rank(n, lane, 1_000_000_000 * n) for n, lane in enumerate(done)))
    found = {s.rank: (s.last, s.lost, s.waited) for s in stragglers(matched)}
    assert found == {2: (3, 9 * MS, 3 * MS), 0: (1, 2 * MS, 12 * MS), 1: (0, 0, 11 * MS)}
    assert [s.rank for s in stragglers(matched)] == [2, 0, 1]
    apart = skew(matched)
    assert apart is not None
    assert (apart.collectives, apart.median, apart.worst) == (4, 4 * MS, 4 * MS)
    assert transfers(run) == [4 * MS] * 3


def test_clocks_are_reached_through_others() -> None:
    # ranks 0 and 1 meet in group a, ranks 1 and 2 in group b: rank 2's clock is known through rank 1's
    pair = [[replace(d, members=2) for d in done] for done in late_by(MS, 2 * MS, 3 * MS)]
    first = [replace(d, group="a") for d in pair[0]]
    middle = [replace(d, group="a") for d in pair[1]] + [replace(d, group="b", stream=21) for d in pair[0]]
    last = [replace(d, group="b") for d in pair[1]]
    _, matched = run_of(rank(0, first, 100), rank(1, middle, 20), rank(2, last, 3))
    # rank 1 took part in most, so its clock is the reference
    assert [clock.line.offset for clock in matched.clocks if clock.line] == [80, 0, -17]
    assert [s.rank for s in stragglers(matched)] == [1, 2, 0]


def test_the_collectives_of_hosts_are_taken_where_devices_have_none() -> None:
    # two MPI processes; a call that comes back at once holds nobody, neighbours wait for neighbours alone, and a point-to-point call is no
    # collective
    mpi = [
        ("MPI_Allreduce", 10, 30), ("MPI_Iallreduce", 31, 32), ("MPI_Send", 33, 34), ("MPI_Barrier", 40, 60),
        ("MPI_Allreduce_init", 61, 62), ("MPI_Neighbor_alltoall", 63, 69), ("MPI_Alltoall", 70, 90),
    ]  # fmt: skip
    columns = {
        "start": [start + 5 * process for process in (0, 1) for _, start, _ in mpi],
        "end": [end for _ in (0, 1) for _, _, end in mpi],
        "kind": ["mpi"] * 2 * len(mpi),
        "name": [name for _ in (0, 1) for name, _, _ in mpi],
        "process": [process for process in (0, 1) for _ in mpi],
        "thread": [process for process in (0, 1) for _ in mpi],
    }
    recording = Recording("mpi.prv", clock="own")
    recording.processes = {0: Process(rank=0), 1: Process(rank=1)}
    _, matched = run_of(reduce(gather([intervals(columns)], recording)))
    assert matched.count == 3
    assert [(s.rank, s.last, s.lost) for s in stragglers(matched)] == [(1, 3, 15), (0, 0, 0)]


def test_two_devices_of_one_capture_are_two_lanes() -> None:
    first, second = late_by(MS, 2 * MS, 3 * MS)
    recording = Recording("both.sqlite", clock="utc")
    recording.devices = {0: Device("G", "a"), 1: Device("G", "b")}
    both = [(0, d) for d in first] + [(1, d) for d in second]
    columns = {
        "start": [d.start for _, d in both],
        "end": [d.end for _, d in both],
        "kind": ["collective"] * 6,
        "device": [lane for lane, _ in both],
        "process": [lane for lane, _ in both],
        "stream": [7] * 6,
        "name": [d.name for _, d in both],
    }
    run, matched = run_of(reduce(gather([intervals(columns)], recording)))
    assert matched.count == 3
    assert transfers(run) == [3 * MS, 3 * MS]


def test_streams_whose_collectives_end_apart_are_no_common_collectives() -> None:
    # two ranks that have nothing to do with one another, on one clock: their collectives end 4 ms apart at random
    generator = np.random.default_rng(1)
    done = [
        [Did(10 * MS * n + int(j), 10 * MS * n + int(j) + 1000, group=None) for n, j in enumerate(generator.integers(0, 8 * MS, 30), 1)]
        for _ in range(2)
    ]
    run, matched = run_of(rank(0, done[0]), rank(1, done[1]))
    assert (matched.count, transfers(run)) == (0, [None, None])
    assert any("same moment" in note for note in matched.notes)


@pytest.mark.parametrize(
    ("word", "means"),
    [
        ("_reduce_scatter_base", "reducescatter"),
        ("allreduce_coalesced", "allreduce"),
        ("all_to_allv", "alltoall"),
        ("broadcast_oop", "broadcast"),
        ("MPI_Sendrecv", "sendrecv"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", "allgather"),
        ("void vllm::cross_device_reduce_2stage<__half, 8>(...)", "allreduce"),
        ("ncclDevKernel_Generic", ""),
    ],
)
def test_an_operation_is_known_by_what_libraries_call_it(word: str, means: str) -> None:
    assert operation(word) == means


@given(
    late=st.lists(st.tuples(st.integers(0, 5 * MS), st.integers(0, 5 * MS), st.integers(0, 5 * MS)), min_size=3, max_size=12),
    offsets=st.tuples(*[st.integers(-(10**12), 10**12)] * 3),
    order=st.randoms(use_true_random=False),
)
def test_waiting_is_what_brute_force_says(late: list[tuple[int, ...]], offsets: tuple[int, ...], order: object) -> None:
    done = [[Did(20 * MS * n + a[lane], 20 * MS * n + max(a) + MS, n) for n, a in enumerate(late, 1)] for lane in range(3)]
    for lane in done:
        order.shuffle(lane)  # type: ignore[attr-defined]
    run, matched = run_of(*(rank(n, lane, offset) for n, (lane, offset) in enumerate(zip(done, offsets, strict=True))))
    waited = {s.rank: s.waited for s in stragglers(matched)}
    assert waited == {lane: sum(max(a) - a[lane] for a in late) for lane in range(3)}
    assert transfers(run) == [len(late) * MS] * 3


def crowded(seed: int) -> tuple[list[list[Did]], list[int]]:
    """Four ranks of one host with two processors, and how often each is truly last of twenty: two of them see each end up to 2 ms late."""
    chance = random.Random(seed)
    ranks: list[list[Did]] = [[], [], [], []]
    last = [0, 0, 0, 0]
    for number in range(20):
        begin = [10 * MS * (number + 1) + chance.randrange(MS) for _ in range(4)]
        last[begin.index(max(begin))] += 1
        for each, at in zip(ranks, begin, strict=True):
            late = chance.randrange(2 * MS) if each in ranks[2:] else chance.randrange(10_000)
            each.append(Did(at, max(begin) + MS + late, number))
    return ranks, last


@pytest.mark.parametrize("seed", some(range(1000), 30))
def test_ranks_of_one_host_are_never_shifted_against_one_another(seed: int) -> None:
    ranks, last = crowded(seed)
    _, matched = run_of(*(rank(n, done, clock="utc", host="node-1") for n, done in enumerate(ranks)))
    found = {s.label: s.last for s in stragglers(matched)}
    assert [found[f"rank {n}"] for n in range(4)] == last


@pytest.mark.parametrize(("offset", "shifted"), [(0, False), (1000, False), (1001, True), (7_000_000, True)])
def test_hosts_are_aligned_only_by_more_than_their_ends_scatter(offset: int, shifted: bool) -> None:
    # the ends of the second host's five collectives lie at -2, -1, 0, 1 and 2 us from the offset: half of them within 1 us
    first, second = late_by(*[MS] * 5)
    second = [replace(d, end=d.end + move) for d, move in zip(second, (-2000, -1000, 0, 1000, 2000), strict=True)]
    _, matched = run_of(rank(0, first, clock="utc", host="a"), rank(1, second, offset, clock="utc", host="b"))
    line = matched.clocks[1].line
    assert line is not None and line.residual == 1000
    assert line.offset == (offset if shifted else 0)


@pytest.mark.parametrize("clocks", [("utc", "own"), ("own", "utc"), ("own", "own")])
def test_a_clock_of_its_own_is_aligned_by_whatever_its_ends_differ(clocks: tuple[str, str]) -> None:
    first, second = late_by(*[MS] * 5)
    second = [replace(d, end=d.end + move) for d, move in zip(second, (-2000, -1000, 0, 1000, 2000), strict=True)]
    _, matched = run_of(*(rank(n, (first, second)[n], 5 * n, clock=clocks[n], host="ab"[n]) for n in (0, 1)))
    line = matched.clocks[1].line
    assert line is not None and (line.offset, line.residual) == (5, 1000)


@pytest.mark.parametrize("seed", range(10))
def test_containers_of_one_boot_are_never_shifted_whatever_they_are_called(seed: int) -> None:
    ranks, last = crowded(seed)
    _, matched = run_of(*(rank(n, done, clock="utc", host=f"container-{n}", boot="b") for n, done in enumerate(ranks)))
    found = {s.label: s.last for s in stragglers(matched)}
    assert [found[f"rank {n}"] for n in range(4)] == last
    assert all(clock.line is not None and clock.line.offset == 0 for clock in matched.clocks)


@pytest.mark.parametrize(("boots", "offset"), [(("a", "b"), 7 * MS), (("a", "a"), 0), (("", ""), 0), (("a", ""), 7 * MS)])
def test_containers_of_one_name_share_a_clock_only_by_their_boot(boots: tuple[str, str], offset: int) -> None:
    # both are called "modal"; the second's clock shows 7 ms more
    first, second = late_by(*[MS] * 5)
    ranks = (rank(n, done, 7 * MS * n, clock="utc", host="modal", boot=boots[n]) for n, done in enumerate((first, second)))
    _, matched = run_of(*ranks)
    assert [clock.line.offset for clock in matched.clocks if clock.line] == ([0, offset] if offset else [0, 0][: len(matched.clocks)])


def test_a_host_of_several_ranks_is_aligned_as_one() -> None:
    # host b's clock is 5 s ahead; rank 2 has no collective in common with rank 0, but its host's clock is known
    first, second = late_by(*[MS] * 5)
    captures = (rank(0, first, clock="utc", host="a"), rank(1, second, 5 * 10**9, clock="utc", host="b"))
    _, matched = run_of(*captures, rank(2, second[:1], 5 * 10**9, clock="utc", host="b"))
    assert [clock.line.offset for clock in matched.clocks if clock.line] == [0, 5 * 10**9, 5 * 10**9]


def exchanges(apart: int) -> list[list[Did]]:
    """Four ranks that exchange eight times, known by the kernel's name alone; rank 3 comes 2 ms after the others, the ends lie `apart` ns
    apart."""
    name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    return [
        [
            Did(10 * MS * (n + 1) + (2 * MS if number == 3 else number * 1000), 10 * MS * (n + 1) + 3 * MS + apart * number // 3,
                operation=None, group=None, name=name)
            for n in range(8)
        ]
        for number in range(4)
    ]  # fmt: skip


@pytest.mark.parametrize(("apart", "told"), [(3000, True), (10_000, True), (10_001, False), (500_000, False)])
def test_an_exchange_that_ends_on_all_ranks_together_is_a_collective(apart: int, told: bool) -> None:
    # rank 3 is last 8 of 8 times and costs the others 2 ms less the 2 us by which rank 2 comes after the first
    _, matched = run_of(*(rank(n, done, clock="utc", host="node-1", ranks=4) for n, done in enumerate(exchanges(apart))))
    assert matched.count == 8
    found = stragglers(matched)
    assert bool(found) == told
    if told:
        assert (found[0].label, found[0].last, found[0].lost) == ("rank 3", 8, 8 * (2 * MS - 2000))


def test_exchanges_alone_align_clocks_that_differ_if_they_end_together() -> None:
    done = exchanges(0)
    _, matched = run_of(*(rank(n, one, 5 * 10**9 * n, ranks=4) for n, one in enumerate(done)))
    assert [clock.line.offset for clock in matched.clocks if clock.line] == [0, 5 * 10**9, 10**10, 15 * 10**9]
    assert stragglers(matched)[0].label == "rank 3"


def test_what_pairs_exchange_is_no_collective() -> None:
    # ranks 0 and 1 end 1 ms before ranks 2 and 3, every time
    done = [[replace(d, end=d.end + (MS if number > 1 else 0)) for d in one] for number, one in enumerate(exchanges(0))]
    _, matched = run_of(*(rank(n, one, clock="utc", host="node-1", ranks=4) for n, one in enumerate(done)))
    assert stragglers(matched) == ()


@pytest.mark.parametrize(("ranks", "told"), [(2, False), (3, True)])
def test_an_exchange_of_two_says_nothing(ranks: int, told: bool) -> None:
    done = exchanges(0)[-ranks:]
    _, matched = run_of(*(rank(n, one, clock="utc", host="node-1", ranks=ranks) for n, one in enumerate(done)))
    assert matched.count == 8 and bool(stragglers(matched)) == told


@pytest.mark.parametrize(("apart", "told"), [(3000, True), (3003, False)])
def test_a_short_exchange_must_end_together_for_its_length(apart: int, told: bool) -> None:
    # 6,000 ns long on the rank that ends last by 3,000: half its length; or 6,003 by 3,003
    begins = [d.start // MS * MS for d in exchanges(0)[0]]
    name = exchanges(0)[0][0].name
    done = [
        [Did(at + number % 3, at + 3000 + apart * (number == 3), operation=None, group=None, name=name) for at in begins]
        for number in range(4)
    ]
    _, matched = run_of(*(rank(n, one, clock="utc", host="node-1", ranks=4) for n, one in enumerate(done)))
    assert bool(stragglers(matched)) == told


def grouped(done: list[list[Did]], members: int | None = 4) -> list[list[Did]]:
    return [[replace(d, group="3", members=members) for d in one] for one in done]


def pair(ranks: tuple[int, int], at: int, end: int) -> list[list[Did]]:
    """What four ranks do where two of them tell each other something."""
    name = exchanges(0)[0][0].name
    return [[Did(at, end, operation=None, group=None, name=name)] if number in ranks else [] for number in range(4)]


def beside(*runs: list[list[Did]]) -> list[list[Did]]:
    """What ranks do in several runs, in the order of their starts."""
    return [sorted((d for one in lanes for d in one), key=lambda d: d.start) for lanes in zip(*runs, strict=True)]


@pytest.mark.parametrize(("apart", "told"), [(3000, True), (10_000, True), (10_001, False), (500_000, False)])
@pytest.mark.parametrize("members", [4, None])
def test_an_exchange_of_a_named_group_that_ends_on_all_of_its_ranks_together_is_a_collective(
    members: int | None, apart: int, told: bool
) -> None:
    done = grouped(exchanges(apart), members)
    _, matched = run_of(*(rank(n, one, clock="utc", host="node-1", ranks=4) for n, one in enumerate(done)))
    found = stragglers(matched)
    assert (matched.count, bool(found)) == ((8, True) if told else (0, False))
    assert any("32 sends and receives in group '3' are not matched" in note for note in matched.notes) == (not told)
    if told:
        assert (found[0].label, found[0].last, found[0].lost) == ("rank 3", 8, 8 * (2 * MS - 2000))


@pytest.mark.parametrize("offset", [0, 5 * 10**9])
def test_pairs_of_a_group_are_no_collective_though_others_of_it_are(offset: int) -> None:
    # between the eight all-to-alls, ranks 0 and 1 and, 20 us later, 2 and 3 tell each other something: 4 x 4 rows; clocks are told by
    # the all-reduces of all
    pairs = [
        pair(ranks, 10 * MS * n + 5 * MS + late, 10 * MS * n + 6 * MS + late)
        for n in range(4)
        for ranks, late in (((0, 1), 0), ((2, 3), 20_000))
    ]
    reductions = [
        [Did(10 * MS * n + 4 * MS, 10 * MS * n + 4 * MS + 500_000, n, group="all", stream=21) for n in range(1, 5)] for _ in range(4)
    ]
    done = beside(grouped(beside(exchanges(0), *pairs)), reductions)
    _, matched = run_of(*(rank(n, one, offset * n, ranks=4) for n, one in enumerate(done)))
    assert matched.count == 8 + 4
    found = {s.rank: s.last for s in stragglers(matched)}
    assert found == {3: 8, 0: 0, 1: 0, 2: 0}
    assert any("16 sends and receives in group '3' are not matched" in note for note in matched.notes)


def test_a_ring_of_pairs_that_end_apart_is_no_collective() -> None:
    ring = [pair((n % 4, (n + 1) % 4), MS * n, MS * n + 100_000) for n in range(1, 17)]
    _, matched = run_of(*(rank(n, one, clock="utc", host="node-1", ranks=4) for n, one in enumerate(grouped(beside(*ring)))))
    assert matched.count == 0 and stragglers(matched) == ()


def test_a_group_of_some_ranks_has_collectives_of_its_own() -> None:
    # ranks 1 to 3 exchange; rank 0 is in another group and does nothing of it
    done = grouped(exchanges(0), 3)
    _, matched = run_of(*(rank(n, one if n else [], clock="utc", host="node-1", ranks=4) for n, one in enumerate(done)))
    assert matched.count == 8 and stragglers(matched)[0].label == "rank 3"


@pytest.mark.parametrize(("ranks", "count"), [(2, 0), (3, 8)])
def test_an_exchange_of_a_named_group_of_two_says_nothing(ranks: int, count: int) -> None:
    done = grouped(exchanges(0), None)[-ranks:]
    _, matched = run_of(*(rank(n, one, clock="utc", host="node-1", ranks=ranks) for n, one in enumerate(done)))
    assert (matched.count, bool(stragglers(matched))) == (count, count > 0)


def test_exchanges_of_groups_that_share_a_name_are_left_alone() -> None:
    done = grouped(exchanges(0), 3)  # four ranks know a group of three
    _, matched = run_of(*(rank(n, one, clock="utc", host="node-1", ranks=4) for n, one in enumerate(done)))
    assert matched.count == 0


def test_exchanges_of_a_named_group_alone_align_clocks_that_differ() -> None:
    done = grouped(exchanges(0))
    _, matched = run_of(*(rank(n, one, 5 * 10**9 * n, ranks=4) for n, one in enumerate(done)))
    assert [clock.line.offset for clock in matched.clocks if clock.line] == [0, 5 * 10**9, 10**10, 15 * 10**9]
    assert stragglers(matched)[0].label == "rank 3"


def test_profiles_that_name_the_group_of_an_exchange_tell_who_is_last(tmp_path: Path) -> None:
    for number, done in enumerate(exchanges(0)):
        said = {"stream": 20, "Process Group Name": "3", "Group size": 4}
        events = [kernel(d.start / 1000, (d.end - d.start) / 1000, name=d.name, **said) for d in done]
        run = {"host_name": "node-1", "distributedInfo": {"rank": number, "world_size": 4}, "baseTimeNanoseconds": BASE}
        written(tmp_path, call(0, 9), *events, name=f"r{number}.json", **run)
    late = read_trace(tmp_path).report().late
    assert late is not None
    assert (late.collectives, late.stragglers[0].label, late.stragglers[0].last) == (8, "rank 3", 8)


def mixed(seed: int) -> tuple[list[list[Did]], list[int]]:
    """Four ranks that tell each other something in pairs and all together, at random, and how often each is last of all together."""
    chance, last = random.Random(seed), [0, 0, 0, 0]
    runs = []
    for number in range(1, 41):
        begin = [20 * MS * number + chance.randrange(MS) for _ in range(4)]
        if chance.random() < 0.5:
            last[begin.index(max(begin))] += 1
            end = max(begin) + chance.randrange(100_000, MS)
            runs.append([[replace(exchanges(0)[0][0], start=at, end=end + chance.randrange(3000))] for at in begin])
        else:  # 100 us or more from one pair's end to the other's
            first, second = chance.sample(((0, 1), (2, 3)), 2)
            runs += [pair(first, begin[0], begin[0] + MS), pair(second, begin[1], begin[0] + MS + chance.randrange(100_000, MS))]
    return grouped(beside(*runs)), last


@pytest.mark.parametrize("seed", some(range(200), 10))
def test_who_is_last_of_all_together_is_found_among_pairs(seed: int) -> None:
    done, last = mixed(seed)
    _, matched = run_of(*(rank(n, one, clock="utc", host="node-1", ranks=4) for n, one in enumerate(done)))
    found = {s.rank: s.last for s in stragglers(matched)}
    assert matched.count == sum(last) and [found[n] for n in range(4)] == last


def test_a_collective_counts_while_it_shares_time_with_the_window():
    # the window lasts from 10 to 20: who ends as it begins or begins as it ends is outside; of who ends before it began nothing is known
    start, end = np.array([5, 5, 19, 20, 12, 15]), np.array([10, 11, 30, 30, 12, 14])
    assert _within(LaneRows(start, end), (10, 20)).start.tolist() == [5, 19, 12]
