"""Bandwidth of collectives: bytes over time, NCCL's factors, and the link's rate, against brute force over drawn runs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.render.forms import plain
from tests.seeds import some
from tests.traces.kineto_events import call, kernel, written
from tests.traces.test_collectives import MS, Did, late_by, rank
from ullage.metrics.collectives import crossings
from ullage.render.trace import view
from ullage.render.trace_json import record
from ullage.reports.trace.links import bandwidths
from ullage.simulate.traces import kineto
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.sums.lanes.collectives.matching import match
from ullage.sums.lanes.collectives.moved import MovedBytes, moved
from ullage.sums.lanes.reduce import Reduced
from ullage.sums.lanes.run import merge
from ullage.traced import read_trace
from ullage.views.html import html

# nccl-tests, doc/PERFORMANCE.md: bus over algorithm bandwidth
PRINTED = {
    "allreduce": lambda n: 2 * (n - 1) / n,
    "reducescatter": lambda n: (n - 1) / n,
    "allgather": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1,
    "reduce": lambda n: 1,
}
OPERATIONS = ("allreduce", "reducescatter", "allgather", "alltoall")


@pytest.mark.parametrize("ranks", [2, 3, 8, 72])
@pytest.mark.parametrize("operation", PRINTED)
def test_factors_are_those_of_nccls_tests(operation: str, ranks: int) -> None:
    assert crossings(operation, ranks) == PRINTED[operation](ranks)


def test_what_has_no_factor_has_no_bandwidth() -> None:
    assert crossings("barrier", 8) is None and crossings("allreduce", 1) is None and crossings("gather", 8) is None


def found(*captures: Reduced) -> tuple[MovedBytes, ...]:
    run = merge(captures)
    return moved(run.captures, match(run.captures))


def drawn(seed: int) -> tuple[list[list[Did]], dict[tuple[str, str, int], list[tuple[int, int]]]]:
    """Each rank's collectives in a run of 2 to 4, and by operation, group and power of two the size and the time of each."""
    chance = random.Random(seed)
    ranks = chance.randrange(2, 5)
    done: list[list[Did]] = [[] for _ in range(ranks)]
    answer: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for number in range(24):
        name, group, size = chance.choice(OPERATIONS), chance.choice("ab"), chance.randrange(1, 1 << chance.randrange(1, 30))
        arrived = [10 * MS * (number + 1) + chance.randrange(MS) for _ in range(ranks)]
        end = max(arrived) + chance.randrange(1_000, MS)
        for lane, at in zip(done, arrived, strict=True):
            lane.append(Did(at, end, number, operation=name, group=group, members=ranks, bytes=size))
        power = next(n for n in range(64) if 2**n <= size < 2 ** (n + 1))
        answer.setdefault((name, group, power), []).append((size, end - max(arrived)))
    return done, answer


@pytest.mark.parametrize("seed", some(range(1000), 20))
def test_bytes_and_times_are_what_brute_force_says(seed: int) -> None:
    done, answer = drawn(seed)
    offsets = random.Random(-seed).choices(range(-(10**12), 10**12), k=len(done))
    rows = found(*(rank(n, lane, offset) for n, (lane, offset) in enumerate(zip(done, offsets, strict=True))))
    assert len(rows) == len(answer) and not any(row.waiting for row in rows)
    for row in rows:
        each = answer[row.operation, row.group, row.least.bit_length() - 1]
        sizes, times = [size for size, _ in each], [time for _, time in each]
        assert (row.count, row.bytes, row.time) == (len(each), sum(sizes), sum(times))
        assert (row.least, row.most, row.members) == (min(sizes), max(sizes), len(done))


def test_time_of_a_rank_alone_holds_its_waiting() -> None:
    # rank 0 waits for 2, 3 and 5 ms and then moves 8 MB for 1 ms, three times: 13 ms in all
    alone = [replace(d, members=2, bytes=8_000_000) for d in late_by(2 * MS, 3 * MS, 5 * MS)[0]]
    (row,) = found(rank(0, alone))
    assert (row.count, row.bytes, row.time, row.waiting, row.hosts) == (3, 24_000_000, 13 * MS, True, None)


def test_collectives_at_an_edge_that_one_rank_lacks_are_left_out() -> None:
    first, second = ([replace(d, members=2, bytes=1000) for d in lane] for lane in late_by(*[2 * MS] * 5))
    (row,) = found(rank(0, first), rank(1, second[:4]))
    assert (row.count, row.time, row.waiting) == (4, 4 * MS, False)


def test_where_arrivals_cannot_be_compared_the_shortest_duration_counts() -> None:
    first, second = ([replace(d, members=2, bytes=1000) for d in lane] for lane in late_by(2 * MS, 3 * MS))
    (row,) = found(rank(0, first), rank(1, second, 1_000_000_000))  # two are too few for a clock
    assert (row.count, row.time, row.waiting) == (2, 2 * MS, False)


@pytest.mark.parametrize(("size", "members"), [(None, 2), (0, 2), (1000, 1), (1000, None)])
def test_without_a_size_and_ranks_there_is_no_bandwidth(size: int | None, members: int | None) -> None:
    assert found(rank(0, [replace(d, members=members, bytes=size) for d in late_by(MS, MS, MS)[0]])) == ()


def test_ranks_that_are_all_there_tell_how_many_a_group_has() -> None:
    done = [[replace(d, bytes=1000) for d in lane] for lane in late_by(MS, MS, MS)]
    (row,) = found(*(rank(n, lane, ranks=2, host="a") for n, lane in enumerate(done)))
    assert (row.members, row.hosts) == (2, 1)


def test_an_uneven_exchange_is_as_large_as_its_largest_part() -> None:
    done = [
        [replace(d, members=2, bytes=size, operation="alltoall") for d in lane]
        for size, lane in zip((100, 900), late_by(MS, MS, MS), strict=True)
    ]
    (row,) = found(*(rank(n, lane) for n, lane in enumerate(done)))
    assert (row.least, row.most, row.bytes) == (900, 900, 2700)


@pytest.mark.parametrize(("hosts", "given", "rate"), [("aa", None, 450e9), ("ab", None, None), ("ab", 50e9, 50e9), ("aa", 50e9, 450e9)])
def test_a_group_is_held_against_the_link_that_it_is_on(hosts: str, given: float | None, rate: float | None) -> None:
    # 90 MB in 1 ms, all-reduced among 2: 90 GB/s
    done = [[replace(d, members=2, bytes=90_000_000) for d in lane] for lane in late_by(MS, MS, MS)]
    run = merge([rank(n, lane, host=host, model="NVIDIA H100 80GB HBM3") for n, (lane, host) in enumerate(zip(done, hosts, strict=True))])
    (row,) = bandwidths(run, match(run.captures), given)
    assert (row.algorithm, row.bus, row.rate) == (90e9, 90e9, rate)
    assert row.share == (None if rate is None else pytest.approx(90e9 / rate))


@pytest.mark.parametrize(("boots", "hosts"), [("ab", 2), ("aa", 1)])
def test_containers_are_on_one_host_if_they_are_of_one_boot(boots: str, hosts: int) -> None:
    done = [[replace(d, members=2, bytes=1000) for d in lane] for lane in late_by(MS, MS, MS)]
    (row,) = found(*(rank(n, lane, host="modal", boot=boot) for n, (lane, boot) in enumerate(zip(done, boots, strict=True))))
    assert row.hosts == hosts


@pytest.mark.parametrize("offset", [-(10**12), 1, 10**9])
def test_moving_every_clock_changes_nothing(offset: int) -> None:
    done, _ = drawn(offset % 7)
    moved_by = [rank(n, lane, offset * n) for n, lane in enumerate(done)]
    assert found(*moved_by) == found(*(rank(n, lane) for n, lane in enumerate(done)))


def test_text_page_and_data_tell_the_simulated_bandwidth(tmp_path) -> None:
    # the simulated network moves 3 layers of 8 MiB in 120 us: 209.7 GB/s, among 3 ranks 4/3 as much on each link, of NVLink's 450
    report = read_trace(kineto.write(training(TrainingPlan(ranks=3, steps=3, layers=3)), tmp_path)).report()
    (row,) = record(report)["bandwidths"]
    assert row["algorithm"] == pytest.approx(3 * (8 << 20) / 120e-6) and row["bus"] == pytest.approx(row["algorithm"] * 4 / 3)
    assert row["share"] == pytest.approx(row["bus"] / 450e9)
    line = next(line for line in str(report).splitlines() if line.startswith("all-reduce"))
    assert " ".join(line.split()) == "all-reduce default_pg 3 25.17 MB 3 120.0 µs 209.7 GB/s 279.6 GB/s 62 %"
    page = plain(str(html(view(report))))
    assert all(cell in page for cell in ("all-reduce", "25.17 MB", "209.7 GB/s", "279.6 GB/s", "62 %"))


def test_elements_and_types_of_a_profile_tell_the_size(tmp_path) -> None:
    # 1,000 elements of 2 bytes on each of 4 ranks are gathered into 4,000: 8,000 B, in 20 us, of which 3/4 cross each link
    told = {"Collective name": "_allgather_base", "In msg nelems": 1000, "Out msg nelems": 4000, "dtype": "BFloat16", "Group size": 4}
    events = [call(0.0, 5.0), kernel(10.0, 20.0, "ncclDevKernel_AllGather_RING_LL(...)", **told)]
    (row,) = read_trace(written(tmp_path, *events)).report(link=1e9).bandwidths
    assert (row.bytes, row.time, row.waiting) == (8000, 20_000, True)
    assert (row.algorithm, row.bus, row.share) == pytest.approx((400e6, 300e6, 0.3))
