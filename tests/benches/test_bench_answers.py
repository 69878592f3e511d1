"""What the check `benches` judges: throughput at the clock that was measured, bandwidth, latencies; each threshold on both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu.bench_answers import answers, contradictions
from gpu.check import CHECKS, checks

from tests.gpu.gpu_double import World
from ullage.gpus.chip import find

checks()
H100 = find("H100")  # 132 SMs, 4096 FLOP a cycle in BF16; peaks at 1,830 MHz, SM clock up to 1,980 MHz


def recorded(bench, change, quick=False):
    """Return what a bench of a simulated H100 recorded, its rows changed by a function of their case."""
    world = World()
    world.suite.change = lambda name, case: change(case) if name == bench else {}
    return list(world.suite([bench], index=0, quick=quick, budget=1, silence=1))


def products(share, data, clock=1.35e9, source="kernel"):
    """Return wgmma whose throughput on such data is a share of what 132 SMs issue at a clock."""

    def change(case):
        if case.data != data or case.precision not in H100.flops_per_cycle:
            return {}
        return {"throughput": share * 132 * H100.flops_per_cycle[case.precision] * clock}

    found = recorded("wgmma", change)
    stamped = [
        replace(result, rows=tuple(replace(row, stamp=replace(row.stamp, sm_clock=clock, clock_from=source)) for row in result.rows))
        for result in found
    ]
    return answers(stamped, H100), list(contradictions(answers(stamped, H100), H100, stamped))


@pytest.mark.parametrize(("share", "wrong"), [(0.965, True), (0.972, False), (1.0, False), (1.018, False), (1.022, True)])
def test_wgmma_on_zeros_must_issue_97_percent_of_the_cycles_at_the_clock_that_it_had(share, wrong):
    told, said = products(share, "zero")
    assert told["wgmma_zero_issue_share"] == pytest.approx(share)
    assert bool(said) is wrong
    if share < 0.97:
        assert "wgmma in bf16 issues 96.5% of what the SMs can at the clock that it had, on zeros, where at least 97% are expected" in said


def test_a_board_that_power_caps_on_zeros_is_no_contradiction():
    # 1,640 of 1,830 MHz: 0.98 × 0.896 is 87.8 % of the stated peak
    told, said = products(0.98, "zero", clock=1.64e9)
    assert told["wgmma_zero_share"] == pytest.approx(0.98 * 1640 / 1830)
    assert said == []


@pytest.mark.parametrize(("share", "wrong"), [(0.5, False), (1.018, False), (1.022, True)])
def test_random_data_may_issue_less_but_never_more_than_its_clock_allows(share, wrong):
    told, said = products(share, "random")
    assert told["wgmma_random_issue_share"] == pytest.approx(share)
    assert bool(said) is wrong


def test_a_clock_that_only_the_driver_sampled_judges_nothing():
    told, said = products(0.5, "zero", source="driver")
    assert told["wgmma_zero_issue_share"] is None
    assert said == []


@pytest.mark.parametrize("bench", ["wgmma", "mma", "best-gemm"])
@pytest.mark.parametrize(("share", "wrong"), [(1.09, False), (1.11, True)])
def test_no_product_passes_the_peak_at_the_highest_clock(bench, share, wrong):
    # 1980 / 1830 is 1.082, and 2 % for what clocks and timers are apart
    found = recorded(bench, lambda case: {"throughput": share * H100.peak(case.precision)} if case.precision and not case.sparse else {})
    fast = [
        replace(result, rows=tuple(replace(row, stamp=replace(row.stamp, sm_clock=1.83e9 * share)) for row in result.rows))
        for result in found
    ]
    said = [line for line in contradictions(answers(fast, H100), H100, fast) if "stated peak" in line]
    assert bool(said) is wrong
    if wrong:
        assert said[0].startswith(f"{bench} in ") and "reaches 111.0% of the stated peak, and 110.2% is the most" in said[0]


@pytest.mark.parametrize(("share", "wrong"), [(0.849, True), (0.851, False), (0.999, False), (1.001, True)])
def test_global_memory_reaches_85_to_100_percent_of_the_stated_bandwidth(share, wrong):
    change = {"bandwidth": share * H100.bandwidth}
    found = recorded("memory-bandwidth", lambda case: change if case.labels["level"] == "global memory" else {})
    assert bool(list(contradictions(answers(found, H100), H100, found))) is wrong


@pytest.mark.parametrize(
    ("level", "cycles", "wrong"),
    [("L2 cache", 263 * 0.849, True), ("L2 cache", 263 * 0.851, False), ("L2 cache", 263 * 1.149, False), ("L2 cache", 263 * 1.151, True),
     ("shared memory", 29 * 0.749, True), ("shared memory", 29 * 0.751, False), ("shared memory", 29 * 1.069, False),
     ("shared memory", 29 * 1.071, True)],
)  # fmt: skip
def test_latencies_lie_near_those_published_of_the_same_generation(level, cycles, wrong):
    found = recorded("memory-latency", lambda case: {"latency": cycles} if case.labels["level"] == level else {})
    assert bool(list(contradictions(answers(found, H100), H100, found))) is wrong


# --- what is sustained, and what power costs


def suite(change):
    """Return what wgmma, sustained-ceilings and the power curve recorded, rows changed by a function of bench and case."""
    world = World()
    world.suite.change = change
    return list(world.suite(["wgmma", "sustained-ceilings", "power-curve"], index=0, quick=False, budget=1, silence=1))


def throughput(share, case, clock=1.35e9):
    return {"throughput": share * 132 * H100.flops_per_cycle[case.precision] * clock}


@pytest.mark.parametrize(("ratio", "wrong"), [(0.8, False), (1.02, False), (1.04, True)])
def test_what_is_sustained_is_told_and_may_not_pass_the_bursts(ratio, wrong):
    found = suite(lambda bench, case: throughput(0.98 * ratio, case) if bench == "sustained-ceilings" and case.precision == "bf16" else {})
    told = answers(found, H100)
    # 0.98 of the cycles at 1,350 of 1,830 MHz
    assert told["sustained_share"] == pytest.approx(0.98 * ratio * 1350 / 1830)
    assert told["sustained_over_burst"] == pytest.approx(ratio)
    assert (told["sustained_clock"], told["sustained_power"]) == (1.35e9, 500.0)
    assert any("bursts are timed before the clock" in line for line in contradictions(told, H100, found)) is wrong


def limited(found, limit):
    return [replace(result, machine={**result.machine, "power_limit": limit}) for result in found]


@pytest.mark.parametrize(("watts", "wrong"), [(700.0, False), (734.0, False), (736.0, True)])
def test_no_board_draws_more_than_its_limit_for_seconds(watts, wrong):
    found = limited(suite(lambda bench, case: {"power": watts} if bench == "power-curve" and case.labels["SMs"] == 132 else {}), 700.0)
    told = answers(found, H100)
    assert (told["idle_power"], told["highest_power"], told["power_limit"]) == (500.0, watts, 700.0)
    assert any("at a limit of 700 W" in line for line in contradictions(told, H100, found)) is wrong


def test_the_cost_of_the_limit_is_an_answer_and_stands_in_the_notes():
    def change(bench, case):
        full = bench == "power-curve" and case.labels["SMs"] == 132 and case.data == "random" and case.precision
        return {"throughput": 0.7 * 132 * 4096 * 1.35e9} if full else {}

    found = limited(suite(change), 700.0)
    told = answers(found, H100)
    # 0.7 of the cycles on random data, 0.98 on zeros and on few SMs
    assert told["power_cost"] == pytest.approx(1 - 0.7 / 0.98)
    assert told["free_clock"] == 1.35e9
    world = World()
    world.suite.change = change
    assert any("BF16 wgmma does" in note for note in CHECKS["ceilings"].function(world.machine()).notes)


def test_nothing_is_told_of_what_was_not_measured():
    found = recorded("memory-latency", lambda case: {})
    told = answers(found, H100)
    names = ("sustained_share", "sustained_over_burst", "sustained_clock", "idle_power", "highest_power", "power_limit", "power_cost")
    assert {told[name] for name in names} == {None}
    assert list(contradictions(told, H100, found)) == []
