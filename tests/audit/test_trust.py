"""Which series can be believed: each verdict on both sides of its threshold, and planted faults over many seeds."""

from __future__ import annotations

import importlib.util
import itertools
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
    (verdict,) = verdicts_of(settled, rows)
    return verdict


def verdicts_of(settled, *devices) -> list[Verdict]:
    """The verdicts on several devices, from one question: asking costs a fifth of a second, however many they are."""
    named = [
        [{"time": T0 + 30_000 * (n + 1), "gpu": f"GPU-{number}"} | row for n, row in enumerate(rows)] for number, rows in enumerate(devices)
    ]
    samples = settled(list(itertools.chain.from_iterable(named)))
    sums = rate(collapse(device_sums(samples).to_pyarrow(), ["gpu", "mig"]))
    given = {verdict.gpu: verdict for verdict in judge(sums, gauge_evidence(samples, gauge_sums(samples).to_pyarrow())).values()}
    assert len(given) == len(devices)
    return [given[f"GPU-{number}"] for number in range(len(devices))]


def words_of(settled, *devices) -> list[str]:
    return [verdict.verdict for verdict in verdicts_of(settled, *devices)]


def alternating(name: str, one: float, other: float, count: int = 720) -> list[dict]:
    rows = series(count)
    for number, row in enumerate(rows):
        row[name] = one if number % 2 else other
    return rows


def test_a_plain_series_is_ok_and_has_a_place(settled):
    verdict = verdict_of(settled, [row | {"host": "node-7", "index": 3} for row in series()])
    assert (verdict.verdict, verdict.evidence, verdict.host, verdict.index, verdict.spans) == ("ok", "", "node-7", 3, ())


# --- what a GPU can't read ---


def test_a_gpu_that_computes_has_a_clock(settled):
    # 0, kHz or GHz read as MHz; low power, so that 101 MHz is only slow
    clocks = (0, 1.755e6, 99e6, 101e6)
    found = words_of(settled, *(series(sm_clock=clock, power=200.0, energy_delta=6000) for clock in clocks))
    assert found == ["impossible", "impossible", "impossible", "ok"]


def test_a_gpu_that_rests_may_read_no_clock(settled):
    found = words_of(settled, *(series(sm_clock=0, gr_active=share, sm_active=0.3, tensor_active=0.1) for share in (0.49, 0.51)))
    assert found == ["ok", "impossible"]


def test_an_idle_clock_at_more_than_half_the_power_is_contradictory(settled):
    # an H100 has 700 W and 1,980 MHz: half is 350 W, and 0.3 of the clock 594 MHz
    given = ((345e6, 351), (345e6, 349), (595e6, 351))
    found = verdicts_of(settled, *(series(sm_clock=clock, power=power, energy_delta=power * 30) for clock, power in given))
    assert [verdict.verdict for verdict in found] == ["contradictory", "ok", "ok"]
    assert found[0].evidence == "an SM clock of 345 MHz at 351 W for 360 min: no GPU draws that at an idle clock"


@pytest.mark.parametrize("given", [
    [(0.66, 0.6, "contradictory"), (0.64, 0.6, "ok"), (0.4, 0.86, "contradictory"), (0.4, 0.84, "ok")],
    [(0.86, None, "contradictory"), (0.84, None, "ok")],
])  # fmt: skip
def test_tensor_is_at_most_sm_and_sm_at_most_engine_activity(settled, given):
    found = words_of(settled, *(series(tensor_active=tensor, sm_active=sm, gr_active=0.8) for tensor, sm, _ in given))
    assert found == [word for _, _, word in given]


def test_activity_far_above_gpu_utilization_is_contradictory(settled):
    # 720 samples: 0.1 + 4 x 0.5 / sqrt(720) = 0.1745 below an engine activity of 0.8
    above, below = verdicts_of(settled, series(gpu_util=0.60), series(gpu_util=0.64))
    assert (above.verdict, below.verdict) == ("contradictory", "ok")
    assert above.evidence == "activity is 20 points above GPU utilization, which counts every kernel"


def test_another_level_of_activity_does_not_hide_the_gap(settled):
    # half of the time 0.8 beside 0.5; half of the time 0.5 beside 1: no gap in the mean
    assert (
        verdict_of(settled, series(gpu_util=(0.5, 0, 360), tensor_active=(0.2, 360, 720), gr_active=(0.6, 360, 720))).verdict
        == "contradictory"
    )


def test_a_few_samples_of_gpu_utilization_prove_less(settled):
    # 20 samples: 0.1 + 4 x 0.5 / sqrt(20) = 0.55
    assert words_of(settled, series(20, gpu_util=0.26), series(20, gpu_util=0.24)) == ["ok", "contradictory"]


def test_tensor_activity_at_the_power_of_a_gpu_at_rest_is_contradictory(settled):
    # a fifth of 700 W
    found = words_of(settled, *(series(power=power, energy_delta=power * 30) for power in (139, 141)))
    assert found == ["contradictory", "ok"]


def test_no_activity_at_all_at_more_than_half_the_power_is_stuck_without_gpu_utilization(settled):
    zeros = dict.fromkeys(("gr_active", "sm_active", "tensor_active"), 0.0)
    found = words_of(settled, *(series(**zeros, gpu_util=None, power=power, energy_delta=power * 30) for power in (351, 349)))
    assert found == ["stuck at zero", "ok"]


def test_readings_of_one_time_that_disagree_are_two_devices(settled):
    # of 720 readings 1 % are 7.2
    def disagreeing(conflicts):
        rows = series(flags=int(Flag.COPIED))
        for row in rows[:conflicts]:
            row["flags"] = int(Flag.COPIED | Flag.CONFLICT)
        return rows

    found = verdicts_of(settled, disagreeing(7), disagreeing(8))
    assert [(verdict.verdict, verdict.trusted) for verdict in found] == [("duplicated", True), ("impossible", False)]


# --- for a part of the time ---


def test_a_series_at_fault_for_a_tenth_of_the_time_counts_and_says_when(settled):
    # 72 of 720 samples are a tenth
    zeros = dict.fromkeys(("gr_active", "sm_active", "tensor_active"), (0.0, 100, 172))
    verdict = verdict_of(settled, series(**zeros, power=(300.0, 100, 172), energy_delta=(9000, 100, 172)))
    assert (verdict.verdict, verdict.trusted) == ("faulty in part", True)
    assert verdict.evidence == "stuck at zero: activity reads 0 for 36 min while GPU utilization is 50 % or more"
    assert verdict.spans == ((T0 + 50 * MINUTE, T0 + 86 * MINUTE),)


def test_beyond_half_of_the_time_the_rest_is_not_believed_either(settled):
    # 360 of 720 samples are a half
    counts = (360, 361)
    activity = ("gr_active", "sm_active", "tensor_active")
    found = verdicts_of(settled, *(series(**dict.fromkeys(activity, (0.0, 100, 100 + count))) for count in counts))
    assert [(verdict.verdict, verdict.trusted) for verdict in found] == [("faulty in part", True), ("stuck at zero", False)]
    for count, verdict in zip(counts, found, strict=True):
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


def test_impossible_readings_here_and_there_spoil_all_of_a_series(settled):
    # beside ten minutes in one go; of 720 readings 1 % are 7.2
    def scattered(count):
        rows = series(flags=(int(Flag.IMPOSSIBLE), 100, 120))
        for row in rows[200 : 200 + 10 * count : 10]:
            row["flags"] = int(Flag.IMPOSSIBLE)
        return rows

    assert words_of(settled, scattered(7), scattered(8)) == ["faulty in part", "impossible"]


def test_impossible_readings_for_more_than_half_of_the_time_spoil_the_rest(settled):
    found = words_of(settled, *(series(flags=(int(Flag.IMPOSSIBLE), 100, end)) for end in (460, 461)))
    assert found == ["faulty in part", "impossible"]


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


def test_a_job_that_pauses_in_every_step_is_no_contradiction(settled):
    # the phase of the step decides how much of the scrape was busy and whether the instant at its end was
    steps = (1.03, 7.31, 29.2, 30.3, 31.8, 47.0, 1800.0)
    assert dict(zip(steps, words_of(settled, *map(phases, steps)), strict=True)) == dict.fromkeys(steps, "ok")


def test_utilization_that_says_nothing_for_some_hours_contradicts_activity(settled):
    rows = series(gpu_util=(0.0, 200, 330), tensor_active=(0.2, 200, 330))
    verdict = verdict_of(settled, rows)
    assert verdict.verdict == "contradictory" and verdict.evidence.endswith("above GPU utilization, which counts every kernel")


def test_two_faults_that_come_to_more_than_half_leave_a_series_out(settled):
    zeros = dict.fromkeys(("gr_active", "sm_active", "tensor_active"), (0.0, 100, 300))
    assert verdict_of(settled, series(**zeros)).verdict == "faulty in part"
    assert verdict_of(settled, series(**zeros, flags=(int(Flag.FROZEN | Flag.REPEATED), 400, 600))).verdict == "stuck at zero"


def test_what_lasts_less_than_five_minutes_may_be_an_accident(settled):
    found = words_of(settled, *(series(flags=(int(Flag.FROZEN), 200, 200 + count)) for count in (9, 10)))
    assert found == ["ok", "faulty in part"]


def test_short_accidents_don_t_add_up(settled):
    rows = series()
    for number in range(0, 720, 8):
        for row in rows[number : number + 4]:
            row["flags"] = int(Flag.FROZEN)
    assert verdict_of(settled, rows).verdict == "ok"


def test_two_samples_however_far_apart_are_no_run(settled):
    def slow(frozen):
        rows = series(90, flags=(int(Flag.FROZEN), 10, 10 + frozen))
        return [row | {"span_ms": 4 * MINUTE, "time": T0 + 4 * MINUTE * (n + 1), "energy_delta": 450 * 240} for n, row in enumerate(rows)]

    assert words_of(settled, slow(2), slow(3)) == ["slow interval", "faulty in part"]


def test_one_gauge_that_stands_still_while_others_move_is_stale(settled):
    verdict = verdict_of(settled, series(flags=(int(Flag.GAUGE_FROZEN), 100, 700)))
    assert (verdict.verdict, verdict.trusted) == ("stale", False)
    assert verdict.evidence == "one gauge of activity repeats to the last digit for 300 min while others move"


def test_an_idle_gpu_may_repeat_itself(settled):
    frozen = {"sm_active": 0.005, "tensor_active": 0.0, "flags": int(Flag.FROZEN)}
    given = ((0.009, 0.4), (0.011, 0.4), (0.009, 0.5))
    found = words_of(settled, *(series(gr_active=activity, gpu_util=util, **frozen) for activity, util in given))
    assert found == ["ok", "stale", "stale"]


# --- locks and walks ---


def walking(step: float, count: int = 2880) -> list[dict]:
    """A step of which half computes at 1,350 MHz and 700 W, and half waits at 1,980 MHz and 100 W, scraped every 30 s."""
    rows = series(count)
    for number, row in enumerate(rows):
        busy = (30 * number % step) / step < 0.5
        row |= {"sm_clock": 1350e6 if busy else 1980e6, "power": 700.0 if busy else 100.0, "energy_delta": 400 * 30}
    return rows


def test_a_clock_that_walks_through_the_step_is_ok(settled):
    steps = (31.8, 30.3, 7.31, 1.03, 1800)
    assert dict(zip(steps, words_of(settled, *map(walking, steps)), strict=True)) == dict.fromkeys(steps, "ok")


def test_a_scrape_that_meets_always_the_same_phase_is_locked(settled):
    verdict = verdict_of(settled, walking(30.0))
    assert (verdict.verdict, verdict.trusted) == ("locked", False)
    assert "samples of power come to 700 W where the energy counter gives 400 W" in verdict.evidence


def test_a_lock_does_no_harm_where_cycles_are_counted(settled):
    rows = [row | {"tensor_cycles_delta": int(0.3 * 1830e6 * 30), "sm_cycles_delta": int(1600e6 * 30)} for row in walking(30.0)]
    verdict = verdict_of(settled, rows)
    assert verdict.verdict == "ok" and verdict.ofu_bounds is None


def test_power_and_energy_may_differ_by_a_tenth(settled):
    assert words_of(settled, *(series(power=power, energy_delta=400 * 30) for power in (439, 441))) == ["ok", "locked"]


def test_scattered_power_proves_a_lock_only_when_it_is_too_far_for_chance(settled):
    # mean 550 W, standard deviation 150 W over 60 samples: 4 standard errors are 77 W; 10 % of what the counter gives come on top
    rows = alternating("power", 700.0, 400.0, 60)
    found = words_of(settled, rows, [row | {"energy_delta": 420 * 30} for row in rows])
    assert found == ["ok", "locked"]  # 450 W: 100 W off, 45 + 77 allowed; 420 W: 130 W off, 42 + 77 allowed


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
