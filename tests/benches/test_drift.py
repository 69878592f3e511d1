"""What a move between two suites speaks of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benches.bench_results import of_bench, result, row, slower, stamp
from ullage.errors import UllageError
from ullage.render.drift import record, view
from ullage.reports.bench.drift import drift_report
from ullage.views.json_text import json_text
from ullage.views.text import text

LATENCY, BANDWIDTH, PRODUCT = (of_bench(name, quick=True) for name in ("memory-latency", "memory-bandwidth", "wgmma"))
SUITE = [LATENCY, BANDWIDTH, PRODUCT]


def causes(report, bench=None):
    return {row.cause for row in report.rows if bench in (None, row.bench)}


def test_a_suite_beside_itself_has_not_moved():
    report = drift_report(SUITE, SUITE)
    assert report.moved == () and causes(report) == {"unchanged"}
    assert {row.change for row in report.rows} == {0.0}


def test_cycles_that_move_speak_of_memory_or_firmware():
    report = drift_report([slower(LATENCY, 1.1, ("latency",))], [LATENCY])  # a tenth more cycles at the same clock
    assert causes(report) == {"memory or firmware"} and len(report.moved) == 4
    assert report.rows[0].change == pytest.approx(0.1)


def test_rates_that_move_as_the_clock_did_speak_of_power_or_clock():
    report = drift_report([slower(PRODUCT, 0.9, clock=0.9)], [PRODUCT])
    assert {row.cause for row in report.moved} == {"power or clock"}
    assert report.rows[0].beyond_clock == pytest.approx(0.0)  # 0.9 of the rate at 0.9 of the clock


def test_rates_that_move_at_the_same_clock_speak_of_something_else():
    report = drift_report([slower(PRODUCT, 0.9)], [PRODUCT])
    assert {row.cause for row in report.moved} == {"memory or firmware"}
    assert report.rows[0].beyond_clock == pytest.approx(-0.1)


def test_the_bandwidth_of_device_memory_follows_no_sm_clock_and_that_of_the_l2_does():
    moved = {row.labels["level"]: row.cause for row in drift_report([slower(BANDWIDTH, 0.9, clock=0.9)], [BANDWIDTH]).moved}
    assert moved == {"global memory": "the memory's own rate", "L2 cache": "power or clock"}


def test_cycles_beyond_the_sms_may_follow_the_clock_and_those_inside_may_not():
    # at 0.9 of the clock a fixed time is 0.9 of the cycles; L1 and shared memory are clocked with the SM
    moved = {row.labels["level"]: row.cause for row in drift_report([slower(LATENCY, 0.93, ("latency",), clock=0.9)], [LATENCY]).moved}
    assert moved["global memory"] == moved["L2 cache"] == "power or clock"
    assert moved["L1 cache"] == moved["shared memory"] == "memory or firmware"


def test_more_cycles_at_a_lower_clock_are_not_the_clocks():
    moved = {row.labels["level"]: row.cause for row in drift_report([slower(LATENCY, 1.1, ("latency",), clock=0.9)], [LATENCY]).moved}
    assert set(moved.values()) == {"memory or firmware"}


def test_without_a_clock_a_rate_is_put_down_to_it():
    blind = replace(PRODUCT, rows=tuple(replace(one, stamp=None) for one in PRODUCT.rows))
    report = drift_report([slower(blind, 0.9)], [blind])
    assert {row.cause for row in report.moved} == {"power or clock"} and report.rows[0].beyond_clock is None


def test_a_change_within_the_limit_does_not_count():
    now = [slower(LATENCY, 1.029, ("latency",))]
    assert drift_report(now, [LATENCY]).moved == ()  # 2.9 % of 3 %
    assert len(drift_report(now, [LATENCY], limit=0.02).moved) == 4


@given(st.floats(0.5, 2.0), st.floats(0.001, 0.4))
def test_a_number_counts_as_moved_exactly_when_it_moved_by_more_than_the_limit(factor, limit):
    before, now = (result("memory-latency", row({"level": "L1 cache"}, {"latency": amount})) for amount in (100.0, 100.0 * factor))
    report = drift_report([now], [before], limit)
    assert bool(report.moved) == (abs(report.rows[0].change) > limit)
    assert report.rows[0].change == pytest.approx(factor - 1, abs=1e-9)


def test_a_case_that_fails_now_counts_and_comes_first():
    broken = of_bench("memory-latency", quick=True, problems={2: "the result is wrong: 3 of 128 differ"})
    report = drift_report([broken, slower(PRODUCT, 0.5)], [LATENCY, PRODUCT])
    assert report.rows[0].cause == "fails now" and report.rows[0].labels == {"level": "L2 cache"}


def test_a_case_for_which_there_was_no_time_is_not_compared():
    late = of_bench("memory-latency", quick=True, problems={2: "not run: the time was up", 3: "not run: the time was up"})
    report = drift_report([late], [LATENCY])
    assert report.moved == ()
    assert "the baseline has 2 numbers more: not compared" in report.notes


def test_a_baseline_may_hold_more_benches_than_the_check():
    report = drift_report([LATENCY], [*SUITE, of_bench("mma")])
    assert report.moved == () and causes(report, "memory-latency") == {"unchanged"} and causes(report, "mma") == {"not compared"}
    assert "this time there is 1 number more: not compared" not in report.notes


def test_another_device_driver_or_power_limit_is_said():
    other = {"uuid_hash": "GPU-other", "driver": "590.1", "power_limit": None}
    report = drift_report([of_bench("memory-latency", quick=True, machine=other)], [LATENCY])
    assert report.notes == (
        "driver 580.95.05 then, 590.1 now",
        "power limit 700.0 then, not known now",
        "the baseline is of another device of this model",
    )


@pytest.mark.parametrize(
    ("now", "before", "problem"),
    [
        ([], [LATENCY], "nothing to compare"),
        ([LATENCY], [], "nothing to compare"),
        ([LATENCY], [of_bench("memory-latency", machine={"gpu": "NVIDIA B200"})], "several GPUs: 'NVIDIA B200', 'NVIDIA H200'"),
        ([LATENCY], [PRODUCT], "no number in common"),
    ],
)
def test_what_cannot_be_compared_is_refused(now, before, problem):
    with pytest.raises(UllageError, match=problem):
        drift_report(now, before)


def test_the_report_reads_so():
    now = [result("memory-latency", row({"level": "L1 cache"}, {"latency": 44.0}), row({"level": "L2 cache"}, {"latency": 263.0}))]
    before = [result("memory-latency", row({"level": "L1 cache"}, {"latency": 40.0}), row({"level": "L2 cache"}, {"latency": 263.0}))]
    assert text(view(drift_report(now, before))) == (
        "NVIDIA H200: 1 of 2 numbers moved by more than 3 % since 2026-08-10\n"
        "\n"
        "bench           case              before   now   change  speaks of\n"
        "memory-latency  L1 cache  cycles    40.0  44.0  +10.0 %  memory or firmware\n"
    )


def test_a_steady_gpu_is_said_to_be_steady_with_what_moved_most():
    written = text(view(drift_report(SUITE, SUITE)))
    assert written.startswith("NVIDIA H200: none of 15 numbers moved by more than 3 % since 2026-08-10\n")
    assert len(written.splitlines()) == 3 + 5


def test_the_json_tells_programs_whether_it_is_well():
    data = record(drift_report([slower(PRODUCT, 0.9, clock=0.9)], [PRODUCT]))
    assert data["ok"] is False and data["rows"][0]["cause"] == "power or clock"
    assert json_text(data) and record(drift_report(SUITE, SUITE))["ok"] is True


def test_foreign_words_cannot_reach_the_terminal():
    evil = [result("memory-latency", row({"level": "\x1b[31m"}, {"latency": 1.0}, stamped=stamp()), machine={"driver": "\x1b[2J"})]
    other = [replace(evil[0], machine={**evil[0].machine, "driver": "\x9b"})]
    assert "\x1b" not in text(view(drift_report(evil, other))) and "\x9b" not in text(view(drift_report(evil, other)))
