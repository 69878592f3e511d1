"""Which series can be believed: each verdict on both sides of its threshold, and planted faults over many seeds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import T0
from tests.seeds import some
from ullage.audit.trust import VERDICTS, Verdict
from ullage.metrics.clocks import sampled_ofu_bounds
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.groups import marked_sums, state_sums
from ullage.reports.fleet.rated import rate
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.fleet.series import gauge_evidence
from ullage.reports.fleet.trusted import bounds_note, judge
from ullage.sums.devices import device_sums
from ullage.sums.gauges import gauge_sums
from ullage.sums.grouping import collapse
from ullage.tables import Flag

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MINUTE = 60_000
A_SAMPLE = {
    "tensor_active": 0.4, "sm_active": 0.6, "gr_active": 0.8, "gpu_util": 1.0, "sm_clock": 1372.5e6, "power": 450.0,
    "energy_delta": 450 * 30,
}  # fmt: skip


def series(count: int = 720, **changes) -> list[dict]:
    """Six hours at 30 s by default; a change is a value, or (value, first, last) for samples from `first` up to `last`."""
    rows = [dict(A_SAMPLE) for _ in range(count)]
    for name, change in changes.items():
        value, first, last = change if isinstance(change, tuple) else (change, 0, count)
        for row in rows[first:last]:
            row[name] = value
    return rows


def verdict_of(settled, rows) -> Verdict:
    samples = settled(rows)
    devices = rate(collapse(device_sums(samples).to_pyarrow(), ["gpu", "mig"]))
    (verdict,) = judge(devices, gauge_evidence(samples, gauge_sums(samples).to_pyarrow())).values()
    return verdict


def alternating(name: str, one: float, other: float, count: int = 720) -> list[dict]:
    rows = series(count)
    for number, row in enumerate(rows):
        row[name] = one if number % 2 else other
    return rows


def test_a_plain_series_is_ok_and_has_a_place(settled):
    verdict = verdict_of(settled, [row | {"host": "node-7", "index": 3} for row in series()])
    assert (verdict.verdict, verdict.evidence, verdict.host, verdict.index, verdict.spans) == ("ok", "", "node-7", 3, ())


# --- what a GPU can't read ---


@pytest.mark.parametrize(("clock", "word"), [(0, "impossible"), (1.755e6, "impossible"), (99e6, "impossible"), (101e6, "ok")])
def test_a_gpu_that_computes_has_a_clock(settled, clock, word):
    # 0, kHz or GHz read as MHz; low power, so that 101 MHz is only slow
    assert verdict_of(settled, series(sm_clock=clock, power=200.0, energy_delta=6000)).verdict == word


@pytest.mark.parametrize(("activity", "word"), [(0.49, "ok"), (0.51, "impossible")])
def test_a_gpu_that_rests_may_read_no_clock(settled, activity, word):
    assert verdict_of(settled, series(sm_clock=0, gr_active=activity, sm_active=0.3, tensor_active=0.1)).verdict == word


@pytest.mark.parametrize(("clock", "power", "word"), [(345e6, 351, "contradictory"), (345e6, 349, "ok"), (595e6, 351, "ok")])
def test_an_idle_clock_at_more_than_half_the_power_is_contradictory(settled, clock, power, word):
    # an H100 has 700 W and 1,980 MHz: half is 350 W, and 0.3 of the clock 594 MHz
    verdict = verdict_of(settled, series(sm_clock=clock, power=power, energy_delta=power * 30))
    assert verdict.verdict == word
    assert word == "ok" or verdict.evidence == "an SM clock of 345 MHz at 351 W for 360 min: no GPU draws that at an idle clock"


@pytest.mark.parametrize(("tensor", "sm", "engine", "word"), [
    (0.66, 0.6, 0.8, "contradictory"), (0.64, 0.6, 0.8, "ok"), (0.4, 0.86, 0.8, "contradictory"), (0.4, 0.84, 0.8, "ok"),
    (0.86, None, 0.8, "contradictory"), (0.84, None, 0.8, "ok"),
])  # fmt: skip
def test_tensor_is_at_most_sm_and_sm_at_most_engine_activity(settled, tensor, sm, engine, word):
    assert verdict_of(settled, series(tensor_active=tensor, sm_active=sm, gr_active=engine)).verdict == word


@pytest.mark.parametrize(("util", "word"), [(0.60, "contradictory"), (0.64, "ok")])
def test_activity_far_above_gpu_utilization_is_contradictory(settled, util, word):
    # 720 samples: 0.1 + 4 x 0.5 / sqrt(720) = 0.1745 below an engine activity of 0.8
    verdict = verdict_of(settled, series(gpu_util=util))
    assert verdict.verdict == word
    assert word == "ok" or verdict.evidence == "activity is 20 points above GPU utilization, which counts every kernel"


def test_another_level_of_activity_does_not_hide_the_gap(settled):
    # half of the time 0.8 beside 0.5; half of the time 0.5 beside 1: no gap in the mean
    assert (
        verdict_of(settled, series(gpu_util=(0.5, 0, 360), tensor_active=(0.2, 360, 720), gr_active=(0.6, 360, 720))).verdict
        == "contradictory"
    )


def test_a_few_samples_of_gpu_utilization_prove_less(settled):
    # 20 samples: 0.1 + 4 x 0.5 / sqrt(20) = 0.55
    assert verdict_of(settled, series(20, gpu_util=0.26)).verdict == "ok"
    assert verdict_of(settled, series(20, gpu_util=0.24)).verdict == "contradictory"


@pytest.mark.parametrize(("power", "word"), [(139, "contradictory"), (141, "ok")])
def test_tensor_activity_at_the_power_of_a_gpu_at_rest_is_contradictory(settled, power, word):
    # a fifth of 700 W
    assert verdict_of(settled, series(power=power, energy_delta=power * 30)).verdict == word


@pytest.mark.parametrize(("power", "word"), [(351, "stuck at zero"), (349, "ok")])
def test_no_activity_at_all_at_more_than_half_the_power_is_stuck_without_gpu_utilization(settled, power, word):
    rows = series(gr_active=0.0, sm_active=0.0, tensor_active=0.0, gpu_util=None, power=power, energy_delta=power * 30)
    assert verdict_of(settled, rows).verdict == word


@pytest.mark.parametrize(("conflicts", "word"), [(7, "duplicated"), (8, "impossible")])
def test_readings_of_one_time_that_disagree_are_two_devices(settled, conflicts, word):
    # of 720 readings 1 % are 7.2
    rows = series(flags=int(Flag.COPIED))
    for row in rows[:conflicts]:
        row["flags"] = int(Flag.COPIED | Flag.CONFLICT)
    verdict = verdict_of(settled, rows)
    assert verdict.verdict == word and verdict.trusted is (word == "duplicated")


# --- for a part of the time ---


def test_a_series_at_fault_for_a_tenth_of_the_time_counts_and_says_when(settled):
    # 72 of 720 samples are a tenth
    zeros = dict.fromkeys(("gr_active", "sm_active", "tensor_active"), (0.0, 100, 172))
    verdict = verdict_of(settled, series(**zeros, power=(300.0, 100, 172), energy_delta=(9000, 100, 172)))
    assert (verdict.verdict, verdict.trusted) == ("faulty in part", True)
    assert verdict.evidence == "stuck at zero: activity reads 0 for 36 min while GPU utilization is 50 % or more"
    assert verdict.spans == ((T0 + 50 * MINUTE, T0 + 86 * MINUTE),)


@pytest.mark.parametrize(("count", "word"), [(360, "faulty in part"), (361, "stuck at zero")])
def test_beyond_half_of_the_time_the_rest_is_not_believed_either(settled, count, word):
    # 360 of 720 samples are a half
    zeros = dict.fromkeys(("gr_active", "sm_active", "tensor_active"), (0.0, 100, 100 + count))
    verdict = verdict_of(settled, series(**zeros))
    assert (verdict.verdict, verdict.trusted) == (word, word == "faulty in part")
    assert verdict.spans == ((T0 + 50 * MINUTE, T0 + 50 * MINUTE + count * MINUTE // 2),)
    assert verdict.left_out == (verdict.spans if verdict.trusted else ())


def test_only_the_faulty_part_of_a_series_is_left_out(settled):
    # 240 of 720 samples read 0, a third of the six hours; the rest is as in a series without a fault
    zeros = dict.fromkeys(("gr_active", "sm_active", "tensor_active"), (0.0, 100, 340))
    sound, faulty = (fleet(settled(rows), None, FleetRequest(by="hour")) for rows in (series(), series(**zeros)))
    assert faulty.ofu == pytest.approx(sound.ofu) and faulty.ofu_all < sound.ofu
    assert faulty.gpu_hours == pytest.approx(sound.gpu_hours) and faulty.trusted_share == pytest.approx(2 / 3)
    assert faulty.counted_hours == pytest.approx(sound.counted_hours * 2 / 3)
    assert faulty.ullage == pytest.approx(sound.ullage * 2 / 3)
    assert sum(group.counted_hours for group in faulty.groups) == pytest.approx(faulty.counted_hours)
    assert sum(group.gpu_hours for group in faulty.groups) == pytest.approx(faulty.gpu_hours)
    assert sum(point.gpu_hours for point in faulty.course) == pytest.approx(faulty.counted_hours)
    assert {round(point.ofu, 9) for point in faulty.course} == {round(sound.ofu, 9)}


def test_what_counts_and_what_is_left_out_add_up_to_all(settled):
    rows = settled(series(flags=(int(Flag.FROZEN), 100, 200), tensor_active=(0.1, 50, 130)))
    sums = state_sums(rows, [])
    marked = marked_sums(sums, rows, {sums["gpu"][0].as_py(): [(T0 + 1234, T0 + 50 * MINUTE + 7), (T0 + 99 * MINUTE, T0 + 100 * MINUTE)]})
    assert set(marked["faulty"].to_pylist()) == {False, True}
    for name in ("span_ms", "idle_ms", "ofu_ms", "ofu_sum", "tensor_active_sum", "sm_active_sum", "power_sum"):
        assert sum(marked[name].to_pylist()) == pytest.approx(sum(sums[name].to_pylist())), name


def test_between_two_faults_a_moment_is_no_evidence_of_health(settled):
    rows = series(flags=(int(Flag.FROZEN | Flag.REPEATED), 100, 200))
    rows[150]["flags"] = 0
    assert verdict_of(settled, rows).left_out == ((T0 + 50 * MINUTE, T0 + 100 * MINUTE),)


def test_impossible_readings_for_a_part_of_the_time_leave_out_that_part(settled):
    # 20 of 720 samples are ten minutes of six hours
    verdict = verdict_of(settled, series(flags=(int(Flag.IMPOSSIBLE), 100, 120)))
    assert (verdict.verdict, verdict.trusted) == ("faulty in part", True)
    assert verdict.evidence == "impossible: 20 of 720 readings are outside what a device can give"
    assert verdict.left_out == ((T0 + 50 * MINUTE, T0 + 60 * MINUTE),)


@pytest.mark.parametrize(("scattered", "word"), [(7, "faulty in part"), (8, "impossible")])
def test_impossible_readings_here_and_there_spoil_all_of_a_series(settled, scattered, word):
    # beside ten minutes in one go; of 720 readings 1 % are 7.2
    rows = series(flags=(int(Flag.IMPOSSIBLE), 100, 120))
    for row in rows[200 : 200 + 10 * scattered : 10]:
        row["flags"] = int(Flag.IMPOSSIBLE)
    assert verdict_of(settled, rows).verdict == word


def test_impossible_readings_for_more_than_half_of_the_time_spoil_the_rest(settled):
    assert verdict_of(settled, series(flags=(int(Flag.IMPOSSIBLE), 100, 460))).verdict == "faulty in part"
    assert verdict_of(settled, series(flags=(int(Flag.IMPOSSIBLE), 100, 461))).verdict == "impossible"


def phases(step: float, count: int = 720) -> list[dict]:
    """A job whose steps (s) compute in their first half only, read every 30 s: activity of 30 s, "GPU utilization" of an instant."""

    def busy(second: float) -> float:
        return second // step * step / 2 + min(second % step, step / 2)

    share = [(busy(30 * (n + 1)) - busy(30 * n)) / 30 for n in range(count)]
    works = [30 * (n + 1) % step < step / 2 for n in range(count)]
    return [
        row
        | {"tensor_active": 0.8 * part, "sm_active": 0.9 * part, "gr_active": part, "gpu_util": float(on)}
        | {"power": 650.0 if on else 200.0, "energy_delta": int(30 * (200 + 450 * part))}
        for row, part, on in zip(series(count), share, works, strict=True)
    ]


@pytest.mark.parametrize("step", [1.03, 7.31, 29.2, 30.3, 31.8, 47.0, 1800.0])
def test_a_job_that_pauses_in_every_step_is_no_contradiction(settled, step):
    # the phase of the step decides how much of the scrape was busy and whether the instant at its end was
    assert verdict_of(settled, phases(step)).verdict == "ok"


def test_utilization_that_says_nothing_for_some_hours_contradicts_activity(settled):
    rows = series(gpu_util=(0.0, 200, 330), tensor_active=(0.2, 200, 330))
    verdict = verdict_of(settled, rows)
    assert verdict.verdict == "contradictory" and verdict.evidence.endswith("above GPU utilization, which counts every kernel")


def test_two_faults_that_come_to_more_than_half_leave_a_series_out(settled):
    zeros = dict.fromkeys(("gr_active", "sm_active", "tensor_active"), (0.0, 100, 300))
    assert verdict_of(settled, series(**zeros)).verdict == "faulty in part"
    assert verdict_of(settled, series(**zeros, flags=(int(Flag.FROZEN | Flag.REPEATED), 400, 600))).verdict == "stuck at zero"


@pytest.mark.parametrize(("count", "word"), [(9, "ok"), (10, "faulty in part")])
def test_what_lasts_less_than_five_minutes_may_be_an_accident(settled, count, word):
    assert verdict_of(settled, series(flags=(int(Flag.FROZEN), 200, 200 + count))).verdict == word


def test_short_accidents_don_t_add_up(settled):
    rows = series()
    for number in range(0, 720, 8):
        for row in rows[number : number + 4]:
            row["flags"] = int(Flag.FROZEN)
    assert verdict_of(settled, rows).verdict == "ok"


def test_two_samples_however_far_apart_are_no_run(settled):
    rows = [row | {"span_ms": 4 * MINUTE, "time": T0 + 4 * MINUTE * (n + 1), "energy_delta": 450 * 240} for n, row in enumerate(series(90))]
    for row in rows[10:12]:
        row["flags"] = int(Flag.FROZEN)
    assert verdict_of(settled, rows).verdict == "slow interval"
    rows[12]["flags"] = int(Flag.FROZEN)
    assert verdict_of(settled, rows).verdict == "faulty in part"


def test_one_gauge_that_stands_still_while_others_move_is_stale(settled):
    verdict = verdict_of(settled, series(flags=(int(Flag.GAUGE_FROZEN), 100, 700)))
    assert (verdict.verdict, verdict.trusted) == ("stale", False)
    assert verdict.evidence == "one gauge of activity repeats to the last digit for 300 min while others move"


@pytest.mark.parametrize(("activity", "util", "word"), [(0.009, 0.4, "ok"), (0.011, 0.4, "stale"), (0.009, 0.5, "stale")])
def test_an_idle_gpu_may_repeat_itself(settled, activity, util, word):
    rows = series(gr_active=activity, sm_active=0.005, tensor_active=0.0, gpu_util=util, flags=int(Flag.FROZEN))
    assert verdict_of(settled, rows).verdict == word


# --- locks and walks ---


def walking(step: float, count: int = 2880) -> list[dict]:
    """A step of which half computes at 1,350 MHz and 700 W, and half waits at 1,980 MHz and 100 W, scraped every 30 s."""
    rows = series(count)
    for number, row in enumerate(rows):
        busy = (30 * number % step) / step < 0.5
        row |= {"sm_clock": 1350e6 if busy else 1980e6, "power": 700.0 if busy else 100.0, "energy_delta": 400 * 30}
    return rows


@pytest.mark.parametrize("step", [31.8, 30.3, 7.31, 1.03, 1800])
def test_a_clock_that_walks_through_the_step_is_ok(settled, step):
    assert verdict_of(settled, walking(step)).verdict == "ok"


def test_a_scrape_that_meets_always_the_same_phase_is_locked(settled):
    verdict = verdict_of(settled, walking(30.0))
    assert (verdict.verdict, verdict.trusted) == ("locked", False)
    assert "samples of power come to 700 W where the energy counter gives 400 W" in verdict.evidence


def test_a_lock_does_no_harm_where_cycles_are_counted(settled):
    rows = [row | {"tensor_cycles_delta": int(0.3 * 1830e6 * 30), "sm_cycles_delta": int(1600e6 * 30)} for row in walking(30.0)]
    verdict = verdict_of(settled, rows)
    assert verdict.verdict == "ok" and verdict.ofu_bounds is None


@pytest.mark.parametrize(("power", "word"), [(439, "ok"), (441, "locked")])
def test_power_and_energy_may_differ_by_a_tenth(settled, power, word):
    assert verdict_of(settled, series(power=power, energy_delta=400 * 30)).verdict == word


def test_scattered_power_proves_a_lock_only_when_it_is_too_far_for_chance(settled):
    # mean 550 W, standard deviation 150 W over 60 samples: 4 standard errors are 77 W; 10 % of what the counter gives come on top
    assert verdict_of(settled, alternating("power", 700.0, 400.0, 60)).verdict == "ok"  # 450 W: 100 W off, 45 + 77 allowed
    rows = [row | {"energy_delta": 420 * 30} for row in alternating("power", 700.0, 400.0, 60)]
    assert verdict_of(settled, rows).verdict == "locked"  # 130 W off, 42 + 77 allowed


def test_the_clocks_seen_at_each_level_bound_ofu(settled):
    # activity 0.4 in every sample, clocks 1,350 and 1,980 MHz, tensor clock 1,830 MHz
    verdict = verdict_of(settled, walking(31.8))
    assert verdict.ofu_bounds == pytest.approx((0.4 * 1350 / 1830, 0.4 * 1980 / 1830), rel=1e-6)
    # what runs at another activity has bounds of its own: idle at boost does not widen those of work
    rows = series(tensor_active=(0.0, 0, 360), sm_clock=(1980e6, 0, 360))
    assert verdict_of(settled, rows).ofu_bounds == pytest.approx((0.15, 0.15), rel=1e-6)


def test_bounds_are_told_only_when_they_are_wide():
    assert bounds_note(None) is None and bounds_note((0.271, 0.3)) is None
    note = bounds_note((0.269, 0.3))
    assert note is not None and "26.9 % to 30.0 %" in note and "cycle counters" in note


def test_the_bounds_hold_a_truth_that_the_sampled_product_misses():
    # half of each scrape at 1.2 GHz and activity 0.8, half at 1.8 GHz and 0: truth 0.4 x 1.2, sampled 0.4 x 1.5 (tensor clock 1 GHz)
    low, high = sampled_ofu_bounds(np.array([0.4]), np.array([1.0]), np.array([1.2]), np.array([1.8]), 1.0)
    assert low == pytest.approx(0.48) and high == pytest.approx(0.72) and low <= 0.48 <= 0.6 <= high


# --- many seeds ---


def benchmark():
    spec = importlib.util.spec_from_file_location("trust_faults", BENCHMARKS / "trust_faults.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["trust_faults"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def found_over(seeds: range):
    module = benchmark()
    score = module.Score()
    for seed in seeds:
        module.add_fleet(score, seed)
    assert set(module.HEALTHY) <= set(score.given)
    assert set(score.due.values()) == set(VERDICTS)
    return {kind: dict(given) for kind, given in score.given.items() if set(given) != {score.due[kind]}}


@pytest.mark.parametrize("seeds", some([range(1), range(1, 3)], 1))
def test_every_planted_fault_has_its_verdict_and_nothing_else_is_accused(seeds):
    assert found_over(seeds) == {}


@pytest.mark.full
def test_over_two_hundred_seeds_planted_faults_have_their_verdict_and_nothing_else_is_accused():
    # 5 of 183 GPUs in percent below 1 pass: they are so for an hour of six, and GPU utilization is sampled
    missed = found_over(range(200))
    assert set(missed) <= {"faint_percent"}
    assert set(missed.get("faint_percent", {})) <= {"contradictory", "ok"} and missed.get("faint_percent", {}).get("ok", 0) <= 5


def test_a_report_counts_a_walking_series(settled):
    report = fleet(settled([row | {"job": "a"} for row in walking(31.8, 720)]), None, FleetRequest())
    assert report.trusted_share == 1 and list(report.verdicts) == ["ok"]
