"""Thresholds at both edges: what lies exactly on one, and what lies just beyond. Nothing here reads a file."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import FrozenInstanceError
from types import SimpleNamespace

import numpy as np
import pytest

from tests.conftest import T0
from tests.traces.test_collectives import Did, rank, run_of
from ullage.audit.trust import GaugeEvidence, SeriesFault, Verdict, allowed_gap, verdict
from ullage.reports.fleet.rated import rate
from ullage.sums.devices import device_sums, time_sums
from ullage.sums.gauges import gauge_sums, util_sums
from ullage.sums.lanes.code.account import CodeAccount, merge_code
from ullage.sums.lanes.code.times import CodeRow, CodeTimes, code_times, merge_code_times
from ullage.sums.lanes.collectives.alignment import line
from ullage.sums.lanes.collectives.exchanges import ENDS_AGREE, _ending_together
from ullage.sums.lanes.collectives.matching import _named_points
from ullage.sums.lanes.collectives.moved import _plain
from ullage.sums.lanes.collectives.shifts import _by_far, shift
from ullage.sums.lanes.collectives.transfer import split, transfer_notes
from ullage.sums.lanes.common import _unequal
from ullage.sums.lanes.events_before_sums import median_with_histogram
from ullage.sums.lanes.kernels import Kernels, merge_kernels
from ullage.sums.lanes.queues import _most, quantile
from ullage.sums.lanes.spans import spans
from ullage.sums.ledger import CODES
from ullage.sums.windows import unequal
from ullage.tables import Flag

FLAGGED = ("impossible", "frozen", "repeated", "sentinel", "unit_guessed", "copied", "conflict")
HOUR, MINUTE = 3_600_000, 60_000
WATTS, HERTZ = 700.0, 2e9  # of the GPU: half its power is 350 W, a fifth 140 W, and 0.3 of its highest clock 600 MHz


def of_rows(span: float = HOUR, rows: int = 1000, stuck: float = 0, **flagged: int) -> SeriesFault:
    """Return the verdict on a device of which so many readings are flagged."""
    counts = {f"{name}_rows": flagged.get(name, 0) for name in FLAGGED}
    return verdict({"rows": rows, "span_ms": span, "stuck_ms": stuck, "gap_rows": 0} | counts)


def seen(span: float = HOUR, spans=None, lasted=None, **sums: float) -> SeriesFault:
    """Return the verdict on a device with such evidence of its gauges over an hour, in 1,000 readings."""
    nothing = {f"{kind}_{what}": 0.0 for kind in ("util", "hard", "zero", "low", "energy") for what in ("ms", "rows", "sum", "power_sum")}
    nothing |= {"util_gap_sum": 0.0, "low_clock_sum": 0.0, "energy_power_squares": 0.0}
    row = {"rows": 1000, "span_ms": span, "stuck_ms": 0, "gap_rows": 0} | {f"{name}_rows": 0 for name in FLAGGED}
    evidence = GaugeEvidence(nothing | sums, spans or {}, lasted=lasted or {})
    return verdict(row, evidence, stated_power=WATTS, highest_clock=HERTZ)


@pytest.mark.parametrize(
    ("flag", "most", "word"),
    [
        *(("impossible", 10, "impossible"), ("conflict", 10, "impossible"), ("sentinel", 500, "sentinel")),
        *(("unit_guessed", 10, "wrong unit"), ("copied", 10, "duplicated"), ("repeated", 400, "duplicated")),
    ],
)
def test_readings_are_flagged_beyond_their_share(flag, most, word):
    assert of_rows(**{flag: most}).verdict == "ok"
    found = of_rows(**{flag: most + 1})
    assert found.verdict == word
    assert f"{most + 1:,} of 1,000 readings" in found.evidence or flag == "repeated"


def test_few_values_that_mean_none_are_left_out_and_said():
    assert of_rows(sentinel=10).evidence == ""
    assert of_rows(sentinel=11).evidence == "11 of 1,000 readings hold a 'no value' number; left out"


def test_copies_are_told_with_how_many_disagree_and_before_what_only_repeats():
    assert of_rows(copied=11, conflict=3).evidence == "11 of 1,000 readings came more than once, 3 of them disagreeing; counted once"
    assert of_rows(copied=11, repeated=900).evidence == "11 of 1,000 readings came more than once; counted once"


def test_an_interval_is_slow_beyond_thirty_seconds_and_a_scrapes_jitter():
    assert of_rows(span=31_500_000).verdict == "ok"
    found = of_rows(span=31_501_000)
    assert (found.verdict, found.evidence) == ("slow interval", "32 s between readings; DCGM averages over at most 30 s")
    assert of_rows(span=10**9).evidence.startswith("1,000 s between")


def test_a_device_without_readings_is_no_division_by_zero():
    assert of_rows(rows=0, span=0).verdict == "ok"
    assert of_rows(rows=1, span=30_000, sentinel=1).verdict == "sentinel"
    assert of_rows(rows=0, span=0, frozen=0.1).verdict == of_rows(rows=1, span=1, frozen=0.1).verdict == "ok"


def test_times_are_told_in_minutes():
    assert of_rows(span=4 * 10**9, rows=133_334, stuck=60_000 * MINUTE).evidence.startswith("activity reads 0 for 60,000 min")


@pytest.mark.parametrize(("span", "most"), [(HOUR, 600_000), (100 * HOUR, 7_200_000)])
def test_zeros_under_load_are_stuck_beyond_ten_minutes_and_a_fiftieth_of_the_time(span, most):
    assert of_rows(span=span, rows=span // 30_000, stuck=most).verdict == "ok"
    assert of_rows(span=span, rows=span // 30_000, stuck=most + 1).verdict == "stuck at zero"


def test_repeated_readings_are_stale_beyond_a_tenth():
    assert of_rows(frozen=100).verdict == "ok"
    found = of_rows(frozen=101)
    assert (found.verdict, found.evidence) == ("stale", "101 of 1,000 readings repeat the ones before to the last digit")


KINDS = {"no_clock": "impossible", "disorder": "contradictory", "stuck": "stuck at zero", "frozen": "stale", "gauge_frozen": "stale"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_lasts_five_minutes_is_a_fault(kind):
    assert seen(spans={kind: ((0, 299_999),)}).verdict == "ok"
    found = seen(spans={kind: ((0, 300_000),)})
    assert found.verdict == "faulty in part" and found.evidence.startswith(f"{KINDS[kind]}: ") and found.spans == ((0, 300_000),)
    assert "for 5 min" in found.evidence or kind in ("gauge_frozen", "stuck", "no_clock")
    assert found.share == pytest.approx(300_000 / HOUR)


def test_time_that_nobody_dated_counts_with_what_is_dated():
    assert seen(lasted={"frozen": 100_000}, spans={"frozen": ((0, 199_999),)}).verdict == "ok"
    assert seen(lasted={"frozen": 100_000}, spans={"frozen": ((0, 200_000),)}).verdict == "faulty in part"


def test_an_undated_fault_spoils_the_rest_beyond_a_tenth_of_the_time():
    assert seen(lasted={"frozen": HOUR // 10}).verdict == "faulty in part"
    assert seen(lasted={"frozen": HOUR // 10 + 1}).verdict == "stale"


def test_undated_faults_count_together():
    tenth = HOUR // 10  # 360 s
    assert seen(span=2 * HOUR, lasted={"frozen": tenth, "stuck": tenth}).verdict == "faulty in part"
    assert seen(span=2 * HOUR, lasted={"frozen": tenth, "stuck": tenth + 1}).verdict == "stuck at zero"


def test_a_dated_fault_is_left_out_up_to_half_of_the_time():
    assert seen(spans={"disorder": ((0, HOUR // 2),)}).verdict == "faulty in part"
    assert seen(spans={"disorder": ((0, HOUR // 2 + 1),)}).verdict == "contradictory"


def test_an_undated_view_of_a_dated_fault_tells_of_the_same_time():
    # activity reads 0 at high power for 20 min, undated, and is stuck at 0 for as long, dated: one fault, of a third of the time
    zero = {"zero_ms": 20 * MINUTE, "zero_power_sum": 20 * MINUTE * 351}
    assert seen(**zero).verdict == "stuck at zero"
    assert seen(spans={"stuck": ((0, 20 * MINUTE),)}, **zero).verdict == "faulty in part"
    assert seen(spans={"stuck": ((0, 14 * MINUTE - 1),)}, **zero).verdict == "stuck at zero"
    assert seen(spans={"stuck": ((0, 14 * MINUTE),)}, **zero).verdict == "faulty in part"


def test_an_undated_view_of_little_of_a_fault_takes_nothing_from_the_others():
    # at zero for 10 min of 60, dated, and 5 of them seen undated too; beside it 5 and 5 min of two other faults: together a sixth
    dated = {"spans": {"stuck": ((MINUTE, 11 * MINUTE),)}, "zero_ms": 5 * MINUTE, "zero_power_sum": 5 * MINUTE * 400.0}
    hard = {"hard_ms": 5 * MINUTE, "hard_power_sum": 5 * MINUTE * 90.0}
    assert seen(**dated, **hard).verdict == "faulty in part"
    assert seen(lasted={"frozen": 5 * MINUTE}, **dated, **hard).verdict == "contradictory"


def test_a_dated_fault_lasts_from_its_begin_to_its_end():
    assert seen(spans={"stuck": ((10 * HOUR, 10 * HOUR + 299_999),)}).verdict == "ok"
    assert seen(spans={"stuck": ((10 * HOUR, 10 * HOUR + 300_000),)}).share == pytest.approx(1 / 12)


@pytest.mark.parametrize("span", [0, 1])
def test_shares_of_no_time_are_those_of_a_millisecond(span):
    for kind, watts in (("hard", 90.0), ("zero", 400.0), ("low", 400.0)):
        assert seen(span=span, **{f"{kind}_ms": 300_000, f"{kind}_power_sum": 300_000 * watts}).share == 300_000, kind
    assert seen(span=span, lasted={"frozen": 300_000}).share == 300_000
    zero = {"zero_ms": 300_000, "zero_power_sum": 300_000 * 400.0}
    assert "GPU utilization" in seen(span=span, spans={"stuck": ((5, 300_005),)}, **zero).evidence


@pytest.mark.parametrize(("apart", "left_out"), [(300_000, 900_000), (300_001, 600_000)])
def test_between_two_faults_less_than_five_minutes_apart_nothing_is_believed(apart, left_out):
    found = seen(spans={"frozen": ((0, 300_000), (300_000 + apart, 600_000 + apart))})
    assert sum(end - start for start, end in found.spans) == left_out


def test_the_worst_verdict_is_the_series_own():
    assert of_rows(impossible=11, sentinel=501, frozen=101).verdict == "impossible"
    assert of_rows(sentinel=501, frozen=101).verdict == "stale"
    assert (
        verdict({"rows": 10, "span_ms": 1e5, "stuck_ms": 0} | {f"{f}_rows": 0 for f in FLAGGED}, same_device=False).verdict == "impossible"
    )


def test_findings_stay_as_they_were_found():
    assert of_rows(impossible=11).share == 1.0
    for found in (of_rows(), Verdict("g", "ok", "", 1.0), GaugeEvidence({})):
        with pytest.raises(FrozenInstanceError):
            found.evidence = found.sums = "other"


def test_what_counts_in_the_totals():
    assert [Verdict("g", word, "", 1.0, spans=((0, 1),)).left_out for word in ("faulty in part", "stale")] == [((0, 1),), ()]
    assert [Verdict("g", word, "", 1.0).trusted for word in ("sentinel", "wrong unit")] == [False, True]


# --- beside power and "GPU utilization" ---


def test_activity_is_above_gpu_utilization_beyond_what_chance_allows():
    limit = allowed_gap(400)
    assert limit == pytest.approx(0.1 + 4 * 0.5 / 20)
    known = {"util_ms": float(HOUR), "util_rows": 400}
    assert seen(util_gap_sum=HOUR * (limit - 1e-9), **known).verdict == "ok"
    found = seen(util_gap_sum=HOUR * (limit + 1e-9), **known)
    assert (found.verdict, found.evidence) == ("contradictory", "activity is 20 points above GPU utilization, which counts every kernel")
    assert allowed_gap(0) == allowed_gap(1) == 2.1
    assert seen(util_gap_sum=0.6 * HOUR, **known).evidence.startswith("activity is 60 points above")


def test_activity_just_as_far_above_gpu_utilization_as_chance_allows_is_no_fault():
    time = 2**19  # ms; so that the mean is the limit itself
    assert seen(util_gap_sum=allowed_gap(400) * time, util_ms=time, util_rows=400).verdict == "ok"
    for enough, word in ((300_000, "contradictory"), (299_999, "ok")):
        assert seen(util_gap_sum=0.5 * enough, util_ms=enough, util_rows=400).verdict == word


@pytest.mark.parametrize(
    ("kind", "watts", "word"),
    [("hard", 139.9, "contradictory"), ("hard", 140, "ok"), ("zero", 350, "ok"), ("zero", 350.1, "stuck at zero")],
)
def test_power_that_activity_cannot_have(kind, watts, word):
    assert seen(**{f"{kind}_ms": HOUR, f"{kind}_power_sum": HOUR * watts}).verdict == word
    assert seen(**{f"{kind}_ms": 300_000, f"{kind}_power_sum": 300_000 * watts}).verdict == ("ok" if word == "ok" else "faulty in part")
    assert seen(**{f"{kind}_ms": 299_999, f"{kind}_power_sum": 299_999 * watts}).verdict == "ok"


@pytest.mark.parametrize(("clock", "watts", "word"), [(599e6, 351, "contradictory"), (600e6, 351, "ok"), (599e6, 350, "ok")])
def test_an_idle_clock_at_high_power(clock, watts, word):
    assert seen(low_ms=HOUR, low_power_sum=HOUR * watts, low_clock_sum=HOUR * clock).verdict == word
    known = {"low_ms": 299_999, "low_power_sum": 299_999 * watts, "low_clock_sum": 299_999 * clock}
    assert seen(**known).verdict == "ok"
    known = {"low_ms": 300_000, "low_power_sum": 300_000 * watts, "low_clock_sum": 300_000 * clock}
    assert seen(**known).verdict == ("ok" if word == "ok" else "faulty in part")


def test_the_evidence_of_power_says_numbers():
    assert seen(hard_ms=HOUR, hard_power_sum=HOUR * 90.0).evidence == (
        "tensor activity of 30 % or more at 90 W for 60 min: a GPU of 700 W at rest"
    )
    assert seen(zero_ms=HOUR, zero_power_sum=HOUR * 400.0).evidence == "activity reads 0 for 60 min while the GPU draws 400 W"
    assert seen(low_ms=HOUR, low_power_sum=HOUR * 400.0, low_clock_sum=HOUR * 500.4996e6).evidence == (
        "an SM clock of 500 MHz at 400 W for 60 min: no GPU draws that at an idle clock"
    )
    assert seen(low_ms=HOUR, low_power_sum=HOUR * 400.0, low_clock_sum=HOUR * 500.5004e6).evidence.startswith("an SM clock of 501 MHz")


def test_without_the_gpus_own_figures_power_proves_nothing():
    row = {"rows": 1000, "span_ms": HOUR, "stuck_ms": 0, "gap_rows": 0} | {f"{name}_rows": 0 for name in FLAGGED}
    nothing = {f"{kind}_{what}": 0.0 for kind in ("util", "hard", "zero", "low", "energy") for what in ("ms", "rows", "sum", "power_sum")}
    low = nothing | {"util_gap_sum": 0.0, "low_ms": HOUR, "low_power_sum": HOUR * 400.0, "low_clock_sum": HOUR * 5e8}
    assert verdict(row, GaugeEvidence(low), stated_power=WATTS).verdict == "ok"
    assert verdict(row, GaugeEvidence(low), highest_clock=HERTZ).verdict == "ok"
    assert verdict(row, GaugeEvidence(low), stated_power=WATTS, highest_clock=HERTZ).verdict == "contradictory"
    with pytest.raises(TypeError):
        verdict(row, None, False)


@pytest.mark.parametrize(("sampled", "word"), [(440.0, "ok"), (440.1, "locked"), (360.0, "ok"), (359.9, "locked")])
def test_steady_power_beside_the_energy_counter(sampled, word):
    def known(time: float) -> dict[str, float]:
        return {
            "energy_ms": time, "energy_rows": 100, "energy_sum": time * 400,
            "energy_power_sum": time * sampled, "energy_power_squares": time * sampled**2,
        }  # fmt: skip

    found = seen(**known(HOUR))
    assert found.verdict == word
    assert word == "ok" or f"come to {sampled:,.0f} W where the energy counter gives 400 W" in found.evidence
    assert seen(**known(300_000)).verdict == word
    assert seen(**known(299_999)).verdict == "ok"


def test_scattered_power_may_be_four_standard_errors_off():
    # 100 samples with a standard deviation of 50 W: a standard error of 5 W, so that 40 + 20 W are allowed
    for off, word in ((59.9, "ok"), (60.1, "locked")):
        sampled = 400 + off
        sums = {"energy_sum": HOUR * 400, "energy_power_sum": HOUR * sampled, "energy_power_squares": HOUR * (sampled**2 + 50**2)}
        assert seen(energy_ms=HOUR, energy_rows=100, **sums).verdict == word


def test_power_that_rounding_makes_steadier_than_steady_is_no_error():
    sums = {"energy_sum": HOUR * 400.0, "energy_power_sum": HOUR * 400.0, "energy_power_squares": HOUR * (400.0**2 - 0.25)}
    assert seen(energy_ms=HOUR, energy_rows=100, **sums).verdict == "ok"
    # 10 % and not a watt more, though one sample more or less would weigh
    sums = {"energy_sum": HOUR * 400.0, "energy_power_sum": HOUR * 440.1, "energy_power_squares": HOUR * (440.1**2 - 0.25)}
    assert seen(energy_ms=HOUR, energy_rows=100, **sums).verdict == "locked"


def test_no_lock_without_energy_or_where_cycles_are_counted():
    sums = {"energy_ms": HOUR, "energy_rows": 100.0, "energy_power_sum": HOUR * 700.0, "energy_power_squares": HOUR * 490_000.0}
    assert seen(energy_sum=0.0, **sums).verdict == "ok"
    assert seen(energy_sum=1.0, **sums).verdict == "locked"


# --- sums ---


def test_copies_of_one_reading_may_differ_by_a_millionth():
    ones = np.array([1.0, 1.0, 1000.0, 1000.0, -1.0, 0.0])
    others = np.array([1 + 0.9e-6, 1 + 1.1e-6, 1000.0009, 1000.0011, -1 - 1.1e-6, 0.0])
    assert unequal(ones, others).tolist() == [False, True, False, True, True, False]
    assert unequal(others, ones).tolist() == [False, True, False, True, True, False]
    assert unequal(np.array([10**12]), np.array([10**12 + 1])).tolist() == [True]


def test_time_of_which_no_gauge_tells_is_neither_idle_nor_work(settled):
    gauge = {"gr_active": 0.0, "sm_active": 0.0, "tensor_active": 0.0, "gpu_util": 0.0}
    dark = dict.fromkeys(gauge)
    rows = [*[{**gauge, "job": "a"}] * 2, *[{**dark, "job": "a"}] * 3, *[gauge] * 4, *[dark] * 5, {**dark, "gpu_util": 0.0, "job": "a"}]
    held: Counter[int] = Counter()
    for row in device_sums(settled(rows)).to_pyarrow().to_pylist():
        held[row["owner"]] += row["span_ms"] // 30_000
        held[-1] += row["dark_ms"] // 30_000
    # of one job 2 idle samples and one that "GPU utilization" calls idle, and 3 dark; of nobody 4 idle and 5 dark
    assert held == {CODES["held_idle"]: 3, CODES["job"]: 3, CODES["free"]: 4, CODES["unknown"]: 5, -1: 8}
    assert rate(device_sums(settled(rows)).to_pyarrow()).ofu_time.sum() == 0


@pytest.mark.parametrize(("inner", "outer", "disordered"), [(0.5, 0.44999, 1), (0.5, 0.45001, 0)])
def test_gauges_contradict_each_other_beyond_five_points(settled, inner, outer, disordered):
    (row,) = gauge_sums(settled([{"tensor_active": inner, "sm_active": outer}])).to_pyarrow().to_pylist()
    assert row["disorder_ms"] == 30_000 * disordered


def test_a_level_is_tensor_activity_in_tenths_and_unknown_without_it(settled):
    rows = gauge_sums(settled([{"tensor_active": value, "gpu_util": 1.0} for value in (0.0999, 0.1, 0.95, 1.0)])).to_pyarrow()
    assert rows["level"].to_pylist() == [0, 1, 9, 10]
    assert gauge_sums(settled([{"gpu_util": 1.0}])).to_pyarrow()["level"].to_pylist() == [None]


ENGINE = {"gr_active": 0.5}
EDGES = {  # of each kind of sum: a sample that just counts, and samples that miss it by one condition
    "stuck_ms": ({"gr_active": 0.0, "gpu_util": 0.5}, {"gpu_util": 0.4999}, {"gr_active": 1e-6}, {"gr_active": None}),
    "frozen_ms": ({"gr_active": 0.0101, "flags": int(Flag.FROZEN)}, {"gr_active": 0.0099}, {"flags": int(Flag.REPEATED)}),
    "gauge_frozen_ms": ({"flags": int(Flag.GAUGE_FROZEN)}, {"flags": int(Flag.GAUGE_FROZEN | Flag.FROZEN)}, {"flags": 0}),
    "no_clock_ms": ({**ENGINE, "sm_clock": 99_999_992.0}, {"sm_clock": 100e6}, {"gr_active": 0.4999}, {"sm_clock": None}),
    "impossible_ms": ({"flags": int(Flag.IMPOSSIBLE)}, {"flags": int(Flag.SENTINEL)}),
    "util_ms": ({**ENGINE, "gpu_util": 0.0}, {"gpu_util": None}, {"gr_active": None}),
    "hard_ms": ({"tensor_active": 0.3, "power": 90.0}, {"tensor_active": 0.2999}, {"power": None}, {"tensor_active": None}),
    "zero_ms": ({"sm_active": 0.0, "power": 90.0}, {"sm_active": 1e-6}, {"power": None}, {"sm_active": None}),
    # the float32 before 600 MHz is 64 Hz below
    "low_ms": (
        {**ENGINE, "sm_clock": 600e6 - 64, "power": 90.0},
        *({"sm_clock": 600e6}, {"sm_clock": 99_999_992.0}, {"gr_active": 0.4999}, {"power": None}, {"sm_clock": None}),
    ),
    "energy_ms": ({"power": 90.0, "energy_delta": 0}, {"power": None}, {"energy_delta": None}),
    "clock_ms": (
        {"tensor_active": 0.0, "sm_clock": 100e6},
        *({"sm_clock": 99_999_992.0}, {"tensor_active": None}, {"sm_cycles_delta": 0, "tensor_cycles_delta": 0}),
    ),
}


def test_each_sum_of_the_gauges_counts_from_its_edge_on(settled):
    cases = [(kind, number, {**least, **other}) for kind, (least, *others) in EDGES.items() for number, other in enumerate([{}, *others])]
    rows = [{"gpu": f"{kind} {number}", **row} for kind, number, row in cases]
    found = gauge_sums(settled(rows)).to_pyarrow().to_pylist()
    counted = {row["gpu"]: row[row["gpu"].split()[0]] for row in found}
    assert counted == {f"{kind} {number}": 0 if number else 30_000 for kind, number, _ in cases}


def test_utilization_is_compared_hour_by_hour_where_both_are_known(settled):
    # an hour holds the sample that ends with it; the last two samples lack one of the two
    told = [(HOUR, 0.5, 0.25), (HOUR + 1, 0.5, 1.0), (HOUR + MINUTE, None, 1.0), (HOUR + 2 * MINUTE, 0.5, None)]
    rows = [{"time": T0 + time, "gr_active": engine, "gpu_util": util} for time, engine, util in told]
    found = util_sums(settled(rows)).to_pyarrow().to_pylist()
    assert [(row["hour"], row["util_ms"], row["util_rows"], row["util_gap_sum"]) for row in found] == [
        (T0 // HOUR, 30_000, 1, 7_500.0),
        (T0 // HOUR + 1, 30_000, 1, -15_000.0),
    ]


def test_a_gauge_that_contradicts_another_counts_where_only_one_pair_is_known(settled):
    pairs = (("tensor_active", "sm_active"), ("sm_active", "gr_active"), ("tensor_active", "gr_active"))
    rows = [{"gpu": f"{inner} {outer}", inner: 0.5001, outer: 0.45} for inner, outer in pairs]
    rows += [{"gpu": "one alone", "tensor_active": 1.0}, {"gpu": "the other way", "tensor_active": 0.1, "sm_active": 0.9}]
    found = gauge_sums(settled(rows)).to_pyarrow().to_pylist()
    assert {row["gpu"] for row in found if row["disorder_ms"]} == {f"{inner} {outer}" for inner, outer in pairs}


def test_the_sums_of_gauges_are_integrals_over_the_time_of_their_condition(settled):
    # 30 s at 0.5 and 400 W, at 500 MHz; 10 s at 0 and 80 W; the energy counter gives 12 kJ and 1 kJ
    rows = [
        {"tensor_active": 0.5, "gpu_util": 0.25, "sm_clock": 500e6, "power": 400.0, "energy_delta": 12_000},
        {"tensor_active": 0.0, "gpu_util": 0.25, "sm_clock": 1e9, "power": 80.0, "energy_delta": 1_000, "span_ms": 10_000},
    ]
    idle, busy = gauge_sums(settled(rows)).to_pyarrow().to_pylist()
    assert (idle["level"], busy["level"]) == (0, 5)
    assert (busy["util_gap_sum"], idle["util_gap_sum"]) == (30_000 * 0.25, -10_000 * 0.25)
    assert (busy["hard_power_sum"], idle["hard_power_sum"]) == (30_000 * 400.0, 0)
    assert (busy["zero_power_sum"], idle["zero_power_sum"]) == (0, 10_000 * 80.0)
    assert (busy["low_power_sum"], busy["low_clock_sum"], idle["low_clock_sum"]) == (30_000 * 400.0, 30_000 * 500e6, 0)
    assert (busy["energy_sum"], idle["energy_sum"]) == (12_000_000, 1_000_000)  # J in W x ms
    assert (busy["energy_power_sum"], busy["energy_power_squares"]) == (30_000 * 400.0, 30_000 * 400.0**2)
    assert (busy["clock_tensor_sum"], idle["clock_tensor_sum"]) == (30_000 * 0.5, 0)
    assert [(row["util_rows"], row["energy_rows"]) for row in (idle, busy)] == [(1, 1), (1, 1)]
    assert [(row["lowest_clock"], row["highest_clock"]) for row in (idle, busy)] == [(1e9, 1e9), (500e6, 500e6)]


@pytest.mark.parametrize("span", [10_000, 10_001, 70_000, 70_001, 130_000])
def test_a_sample_counts_in_each_bucket_by_the_time_that_it_has_there(settled, span):
    # a sample that ends 10 s after a full minute lies in one minute, two or three
    end, minute = T0 + 130_000, 60_000
    found = time_sums(settled([{"time": end, "span_ms": span, "tensor_active": 0.5, "sm_clock": 1e9}]), bucket_ms=minute).to_pylist()
    expected = overlaps(end - span, end, minute)
    assert {row["bucket"]: row["ofu_ms"] for row in found if row["ofu_ms"]} == expected


def overlaps(start: int, end: int, size: int) -> dict[int, int]:
    """Return how much of a span lies in each bucket, one millisecond after the other."""
    return dict(Counter(moment // size * size for moment in range(start, end)))


# --- lanes ---


def test_a_rank_that_left_before_the_last_came_waits_to_its_own_end_and_no_longer():
    # clocks agree by the ends of four collectives; in the fifth one rank's kernel is over before the other's begins
    steady = [Did(1000 * n, 1000 * n + 100) for n in range(4)]
    _, matched = run_of(rank(0, [*steady, Did(5000, 5050)]), rank(1, [*steady, Did(5070, 5100)]))
    parts = split(matched)
    waits = {int(lane): (int(start), int(moving), int(end)) for lane, start, moving, end in zip(
        parts.lane[-2:], parts.start[-2:], parts.moving[-2:], parts.end[-2:], strict=True)}  # fmt: skip
    assert waits[0][1] == waits[0][2] and waits[1][0] == waits[1][1]
    assert bool(np.all((parts.start <= parts.moving) & (parts.moving <= parts.end)))
    assert math.isclose(waits[0][2] - waits[0][0], 50)


@pytest.mark.parametrize(("common", "aligned"), [(2, False), (3, True)])
def test_clocks_with_fewer_than_three_common_collectives_are_said_not_to_be_aligned(common, aligned):
    steady = [Did(1000 * n, 1000 * n + 100) for n in range(common)]
    notes = transfer_notes(*run_of(rank(0, steady), rank(1, steady, offset=10_000_000)))
    assert any("could not be aligned" in note for note in notes) != aligned


@pytest.mark.parametrize(("points", "drift"), [(8, 0.0), (9, 0.001)])
def test_a_drift_needs_nine_common_ends(points, drift):
    # 1 ns every µs; around the middle of the differences an offset of 5 s
    found = line(np.arange(points) * 1000, np.arange(points) + 5_000_000_000)
    assert found.drift == drift
    # 0 … 7 has the median 3.5, which is rounded to 4: the farthest is 4 off; with a drift nothing is
    assert (found.offset, found.worst) == ((5_000_000_004, 4.0) if points == 8 else (5_000_000_004, 0.0))


@pytest.mark.parametrize(("rise", "drift"), [(24, 0.0), (25, 25 / 6000)])
def test_a_drift_must_rise_by_more_than_four_times_the_scatter(rise, drift):
    # 6 µs from the middle of the first third to that of the last; half of the ends are 6 ns above or below the line, or on it
    time = np.arange(9) * 1000
    scatter = np.array([0, 6, -6, 0, 6, -6, 0, 6, -6])
    difference = np.rint(time * rise / 6000).astype(np.int64) + scatter
    assert line(time, difference).drift == pytest.approx(drift)


def test_ends_at_one_moment_have_no_drift():
    assert line(np.full(9, 7), np.arange(9)).drift == 0.0


@pytest.mark.parametrize(
    ("length", "common", "found"), [(6, 3, 3), (6, 2, None), (7, 3, None), (7, 4, 3), (3, 3, 0), (2, 1, None), (5, 3, 2), (5, 2, None)]
)
def test_a_shift_needs_an_agreement_of_three_and_of_half(length, common, found):
    # every operation differs, so the two sequences agree only where one has the end and the other the beginning
    reference, other = np.arange(length), np.arange(length) + length - common
    ends = np.arange(length) * 1000
    assert shift(reference, other, ends, ends, same_clock=False) == found
    back = None if found is None else -found
    assert shift(other, reference, ends, ends, same_clock=False) == back


@pytest.mark.parametrize(("second", "found"), [(4.0, None), (4.0001, 1)])
def test_the_best_of_several_shifts_must_be_better_by_four_times(second, found):
    assert _by_far(np.array([second, 1.0, 9.0])) == found
    assert _by_far(np.array([0.0, 0.0])) is None


@pytest.mark.parametrize(("times", "histogram", "longest", "median"), [
    ([], (), 100, 0),
    ([], (0, 0), 100, 0),
    ([], (1,), 100, 24),  # less than 32 ns: three quarters of that
    ([], (0, 0, 5), 100, 96),
    ([], (0, 0, 5), 90, 90),  # and no more than the longest
    ([10, 20], (0, 0, 2), 1000, 20),  # 10, 20, 96, 96: the lower of the two in the middle
    ([10, 20], (0, 0, 3), 1000, 96),
    ([30, 10], (2,), 1000, 24),  # 10, 24, 24, 30
])  # fmt: skip
def test_the_median_of_calls_some_of_which_are_only_counted(times, histogram, longest, median):
    assert median_with_histogram(np.array(times, np.int64), histogram, longest) == median


def test_time_by_code_counts_gaps_and_folds_what_is_too_much():
    # "a" has 5 + 3 of gap 0 and 4 of gap 1, 3 of it on gradients; "b" has 2 of gap 0
    columns = (np.array(values) for values in ([0, 1, 0, 0], [0, 0, 0, 1], [5, 2, 3, 4]))
    found = code_times(["a", "b"], *columns, outside=7, backward=np.array([1, 0, 0, 2]))
    assert found == CodeTimes((CodeRow("a", 2, 12, 8, 3), CodeRow("b", 1, 2, 2)), 7)
    assert merge_code_times([found, found], most=1) == CodeTimes((CodeRow("a", 4, 24, 8, 6), CodeRow("(others)", 2, 4, 2)), 14)
    assert merge_code_times([CodeTimes((CodeRow("(others)", 3, 9, 5),)), found], most=1).rows[1] == CodeRow("(others)", 4, 11, 5)
    nothing = np.zeros(0, np.int64)
    assert code_times([], nothing, nothing, nothing, outside=0) == merge_code_times([]) == CodeTimes()
    assert (CodeTimes().outside, merge_code([]).charged, merge_code([CodeAccount(), CodeAccount()]).charged) == (0, 0, 0)


@pytest.mark.parametrize(("shorter", "common", "unequal"), [(990, None, False), (989, None, True), (989, (0, 1), False)])
def test_ranks_were_recorded_for_unequal_times_below_ninety_nine_hundredths(shorter, common, unequal):
    processes = [SimpleNamespace(label=str(n), known=None, window=(5, 5 + length)) for n, length in enumerate((1000, shorter))]
    assert _unequal(SimpleNamespace(common=common, processes=processes)) is unequal


def test_a_quantile_is_the_least_time_that_enough_do_not_exceed():
    times = np.array([40, 10, 30, 20])
    assert [quantile(times, share) for share in (0.25, 0.26, 0.5, 0.75, 0.76, 1.0)] == [10, 20, 20, 30, 40, 40]
    assert quantile(np.array([7]), 0.5) == 7 and quantile(np.zeros(0, np.int64), 0.5) is None


def test_the_most_waits_at_once_are_counted_while_they_are_looked_at():
    # calls at 0, 1, 2 and 8, whose work begins at 5, 3, 6 and 9: three wait from 2 to 3
    called, begun = np.array([0, 1, 2, 8]), np.array([5, 3, 6, 9])
    assert [_most(called, begun, spans(*seen)) for seen in (((0, 10),), ((3, 10),), ((5, 7),), ((6, 10),), ((6, 8),), ())] == [
        3,
        2,
        1,
        1,
        0,
        0,
    ]
    nothing = np.zeros(0, np.int64)
    assert _most(nothing, nothing, spans((0, 10))) == 0


def test_kernels_of_several_captures_stand_in_the_order_of_their_time():
    parts = [Kernels((("a", "kernel", 5, 4, 1, 10), ("b", "kernel", 1, 3, 3, 0))), Kernels((("b", "kernel", 1, 2, 2, 7),), folded=2)]
    assert merge_kernels(parts) == Kernels((("b", "kernel", 2, 5, 3, 7), ("a", "kernel", 5, 4, 1, 10)), 2)
    # one name is kept: the other is folded, with what was folded before
    folded = merge_kernels([*parts, Kernels((("(others)", "kernel", 1, 9, 9, 1),), folded=1)], most=1)
    assert folded == Kernels((("b", "kernel", 2, 5, 3, 7), ("(others)", "kernel", 6, 13, 9, 11)), 4)


def test_which_sends_and_receives_of_a_named_group_meet_is_known_only_of_two():
    columns = ((-2, 0, 2), (-2, 0, 3), (-2, 0, -1), (-2, -1, 3), (5, 0, 3))  # kind (-2: point to point), group, members
    kind, group, members = np.array(columns).T
    assert _named_points(SimpleNamespace(kind=kind, group=group, members=members)).tolist() == [False, True, True, False, False]


@pytest.mark.parametrize(("apart", "lasted", "exchanged"), [(50, 100, True), (51, 101, False), (52, 104, True), (50, 99, False)])
def test_an_exchange_ends_on_all_ranks_within_half_of_the_longest(apart, lasted, exchanged):
    # three ranks, the first the longest
    end, lane = np.array([1000, 1000 + apart, 1010]), np.array([0, 1, 2])
    found = _ending_together(end, lane, np.array([lasted, 3, 3]), 3)
    assert found.tolist() == ([0, 0, 0] if exchanged else [-1, -1, -1])


def test_an_exchange_ends_on_all_ranks_within_what_clocks_allow():
    end, lane, long = np.array([0, 0, ENDS_AGREE]), np.array([0, 1, 2]), np.full(3, 10 * ENDS_AGREE)
    assert _ending_together(end, lane, long, 3).tolist() == [0, 0, 0]
    assert _ending_together(end + np.array([0, 0, 1]), lane, long, 3).tolist() == [-1, -1, -1]
    # two exchanges one after the other, and a rank that is twice in a row between them
    twice = _ending_together(np.array([0, 1, 2, 3, 4, 5, 6]), np.array([0, 1, 2, 2, 0, 1, 2]), np.full(7, 100), 3)
    assert twice.tolist() == [0, 0, 0, 1, 1, 1, -1]


def test_a_send_and_a_receive_are_one_where_their_word_is_known():
    rows = SimpleNamespace(operation=np.array([0, 1, 2, 3]))
    assert _plain(rows, ("send", "recv", "sendrecv", "allreduce")).tolist() == [2, 2, 2, 3]
    assert _plain(rows, ("send", "recv", "barrier", "allreduce")).tolist() == [0, 1, 2, 3]
