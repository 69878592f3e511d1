"""What measured curves and bandwidths say: plateaus on curves made up here, and the paper's figures beside the paper."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.benches.bench import BENCHES, Plain, Target
from ullage.benches.memory_bandwidth import GLOBAL, MIXED, against_l2
from ullage.benches.memory_curve import footprints, levels
from ullage.benches.memory_latency import TABLE_4
from ullage.benches.memory_throughput import TABLE_5
from ullage.benches.plateaus import Plateau, plateaus
from ullage.benches.result import CaseRow, Value

PAPER = Path(__file__).parents[3] / "shared/seeds/hopper_benchmarks_paper.txt"
GPUS = ("NVIDIA GeForce RTX 4090", "NVIDIA A100-PCIE-40GB", "NVIDIA H800 PCIe")  # in the order of the paper's columns


def row(labels: dict[str, Plain], quantity: str, value: float) -> CaseRow:
    return CaseRow(labels, {quantity: Value(value, value, value, 5, "")}, None)


def cached(footprint: float, size: float, near: float, far: float) -> float:
    """Latency of random loads over a footprint of which a cache holds a part: that part at the cache's latency."""
    held = min(1.0, size / footprint)
    return held * near + (1 - held) * far


def test_three_levels_of_an_ideal_curve_are_found_with_their_sizes() -> None:
    # L1 of 128 KiB at 33 cycles, L2 of 32 MiB at 250, memory at 700; each beyond what the smaller one holds, sharply
    sizes = [8 * 1024 * 2**n for n in range(16)]  # 8 KiB to 256 MiB
    curve = [33.0 if size <= 128 * 1024 else 250.0 if size <= 32 * 2**20 else 700.0 for size in sizes]
    assert plateaus(sizes, curve) == [
        Plateau(33.0, 8 * 1024, 128 * 1024),
        Plateau(250.0, 256 * 1024, 32 * 2**20),
        Plateau(700.0, 64 * 2**20, 256 * 2**20),
    ]


def test_a_curve_that_mixes_levels_in_between_still_has_its_plateaus() -> None:
    # the L1 still answers a part of the loads beyond its size, so the curve rises slowly: half the loads at twice the size
    sizes = [8 * 1024 * 2 ** (n / 2) for n in range(26)]  # 8 KiB to 45 MiB
    found = plateaus(sizes, [cached(size, 128 * 1024, 33, 250) for size in sizes])
    # within 6 % of the greatest (249.4 cycles, at 45 MiB) the L1 holds at most 6.8 %: from 2 MiB on, ten points; the middle two
    # are 8 and 11.3 MiB, where it holds 1.6 and 1.1 %: 246.6 and 247.6 cycles
    assert [round(one.level, 1) for one in found] == [33.0, 247.1]
    assert (found[0].last, found[1].first) == (128 * 1024, 2 * 2**20)


def test_noise_within_the_tolerance_does_not_break_a_plateau() -> None:
    assert plateaus([1, 2, 3, 4, 5], [100, 102, 99, 103, 101]) == [Plateau(101, 1, 5)]


def test_a_curve_that_always_rises_has_no_plateau() -> None:
    assert plateaus([1, 2, 4, 8, 16], [10, 20, 40, 80, 160]) == []


def test_two_points_are_no_plateau_and_none_are_none() -> None:
    assert plateaus([1, 2], [5, 5]) == []
    assert plateaus([], []) == []


@given(st.lists(st.floats(1, 1e4), max_size=25), st.randoms())
def test_plateaus_are_flat_long_enough_apart_and_independent_of_order(values: list[float], random: object) -> None:
    points = list(enumerate(values))
    found = plateaus([place for place, _ in points], values)
    random.shuffle(points)  # type: ignore[attr-defined]
    assert plateaus([place for place, _ in points], [value for _, value in points]) == found
    for one in found:
        inside = values[int(one.first) : int(one.last) + 1]
        assert len(inside) >= 3
        assert max(inside) <= 1.06 * min(inside) * (1 + 1e-12)
        assert min(inside) <= one.level <= max(inside)
    assert all(one.last < other.first for one, other in pairwise(found))


def test_a_measured_curve_is_told_in_words_and_rows_without_a_number_are_left_out() -> None:
    rows = [row({"footprint": 8192 * 2**n}, "latency", 33.4 if n < 5 else 255.0) for n in range(10)]
    failed = CaseRow({"footprint": 8192 * 2**10}, {}, None, "the GPU ran out of memory")
    assert levels([*rows, failed]) == ("33 cycles from 8 KiB to 128 KiB", "255 cycles from 256 KiB to 4 MiB")
    assert levels([failed]) == ()


def test_footprints_stop_at_a_quarter_of_little_memory() -> None:
    found = footprints(Target("sm_90a", l2=50 * 2**20, memory=2**20), steps=2)
    assert found[-1] == 256 * 1024
    assert all(size % 128 == 0 for size in found)


def test_the_l2_is_compared_with_memory_only_when_both_are_measured() -> None:
    memory = row({"level": "global memory", "mix": MIXED}, "bandwidth", 2e12)
    l2 = row({"level": "L2 cache", "mix": "read"}, "bandwidth", 7e12)
    (said,) = against_l2([memory, l2])
    # 7 / 2
    assert said.startswith("the L2 gives 3.50 times the bandwidth of global memory")
    assert "4.23 on H800 PCIe" in said
    assert against_l2([memory]) == against_l2([l2]) == ()


def numbers(line: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.\d+", line)]


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not here")
def test_the_paper_s_latencies_stand_as_the_paper_prints_them() -> None:
    text = PAPER.read_text().split("TABLE IV: Latency clocks", 1)[1].splitlines()
    for level, line in enumerate(text[2:6]):  # L1, shared, L2, global
        assert numbers(line) == [TABLE_4[gpu][level] for gpu in GPUS]


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not here")
def test_the_paper_s_throughputs_stand_as_the_paper_prints_them() -> None:
    lines = PAPER.read_text().split("TABLE V: Throughput", 1)[1].splitlines()
    tables = [TABLE_5[gpu] for gpu in GPUS]
    assert numbers(lines[3]) == [value for table in tables for value in table["L1 cache"]]
    assert numbers(lines[5]) == [value for table in tables for value in table["L2 cache"]]
    assert numbers(lines[7]) == [table["shared memory"][0] for table in tables]
    assert [number * 1e9 for number in numbers(lines[9])] == [GLOBAL[gpu][0] for gpu in GPUS]
    assert numbers(lines[11]) == [GLOBAL[gpu][1] for gpu in GPUS]


def test_the_paper_s_l2_over_global_follows_from_its_own_table_for_the_a100() -> None:
    # 2,007.9 B a cycle at 1,410 MHz (its Table III) over 1,407.2 GB/s; the other two cards ran above their stated clock
    rate, times = GLOBAL["NVIDIA A100-PCIE-40GB"]
    assert TABLE_5["NVIDIA A100-PCIE-40GB"]["L2 cache"][2] * 1.410e9 / rate == pytest.approx(times, abs=0.005)


@pytest.mark.parametrize("family", ["memory-latency", "memory-throughput", "memory-bandwidth"])
def test_each_published_figure_belongs_to_a_case_that_measures_its_quantity(family: str) -> None:
    measured = {(*case.labels.items(), quantity) for case in BENCHES[family].cases(Target("sm_90a"), False) for quantity in case.quantities}
    figures = {(*figure.labels.items(), figure.quantity) for figure in BENCHES[family].figures}
    assert figures
    assert figures <= measured
