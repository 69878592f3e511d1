"""Sums by device and job, the ledger, and what they are divided into."""

from __future__ import annotations

import random

import ibis
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import T0, settled_table
from tests.seeds import examples, some
from ullage.reports.fleet.rated import rate, tree_of
from ullage.sums.devices import device_sums, time_sums
from ullage.sums.gauges import device_and_gauge_sums, gauge_sums
from ullage.sums.grouping import collapse
from ullage.sums.ledger import OWNERS
from ullage.tables import Flag


def test_ofu_is_the_mean_of_products_not_the_product_of_means(settled):
    # half the time 0.8 at the tensor clock, half the time 0.2 at half of it: (0.8 + 0.1) / 2 = 0.45;
    # the product of the means would be 0.5 x 0.75 = 0.375
    samples = settled([{"tensor_active": 0.8, "sm_clock": 1830e6}, {"tensor_active": 0.2, "sm_clock": 915e6}])
    rated = rate(device_sums(samples).to_pyarrow())
    assert tree_of(rated).ofu == pytest.approx(0.45, rel=1e-6)


def test_a_sample_counts_for_the_time_it_stands_for(settled):
    # 0.5 for 10 s and 0.2 for 30 s: (5 + 6) / 40 = 0.275
    samples = settled([{"tensor_active": 0.5, "sm_clock": 1830e6, "span_ms": 10_000}, {"tensor_active": 0.2, "sm_clock": 1830e6}])
    assert tree_of(rate(device_sums(samples).to_pyarrow())).ofu == pytest.approx(0.275, rel=1e-6)


def test_missing_time_is_missing_not_zero(settled):
    # the second sample has no clock: OFU is that of the first, over the first's 30 s
    rated = rate(device_sums(settled([{"tensor_active": 0.5, "sm_clock": 1830e6}, {"tensor_active": 0.5}])).to_pyarrow())
    assert tree_of(rated).ofu == pytest.approx(0.5, rel=1e-6)
    assert rated.ofu_time.sum() == 30_000  # what is measured differs: they are two states of the GPU


@pytest.mark.parametrize("unit", [1, 132])
def test_cycle_counters_give_exact_ofu_whether_per_sm_or_summed(settled, unit):
    # 30 s at 1830 MHz are 54.9e9 cycles; tensor pipes active in a quarter of them; the clock sample lies (915 MHz)
    row = {"tensor_active": 0.25, "sm_clock": 915e6, "tensor_cycles_delta": 13_725_000_000 * unit, "sm_cycles_delta": 54_900_000_000 * unit}
    rated = rate(device_sums(settled([row, row])).to_pyarrow())
    assert rated.exact.all()
    assert tree_of(rated).ofu == pytest.approx(0.25, rel=1e-9)
    assert tree_of(rated).factor("clock") == pytest.approx(1.0, rel=1e-6)


def test_cycles_speak_for_the_time_in_which_they_were_counted_and_gauges_for_the_rest(settled):
    # counted in three of four samples of 30 s: 0.1; the gauges say 0.9 in the fourth: (3 x 0.1 + 0.9) / 4 = 0.3
    counted = {"tensor_active": 0.5, "sm_clock": 915e6, "tensor_cycles_delta": 5_490_000_000, "sm_cycles_delta": 54_900_000_000}
    rated = rate(device_sums(settled([counted] * 3 + [{"tensor_active": 0.9, "sm_clock": 1830e6}])).to_pyarrow())
    assert tree_of(rated).ofu == pytest.approx(0.3, rel=1e-6)
    assert rated.exact_time.sum() / rated.ofu_time.sum() == 0.75


@pytest.mark.parametrize(("counted", "exact"), [(7, True), (6, False)])
def test_a_device_is_exact_from_seven_tenths_of_the_time_on(settled, counted, exact):
    gauges = {"tensor_active": 0.5, "sm_clock": 1830e6}
    cycles = gauges | {"tensor_cycles_delta": 5_490_000_000, "sm_cycles_delta": 54_900_000_000}
    rated = rate(device_sums(settled([cycles] * counted + [gauges] * (10 - counted))).to_pyarrow())
    assert rated.exact.tolist() == [exact]


def test_the_tree_is_a_product_over_two_uneven_devices(settled):
    # G: 0.9 and 0.3, mean 0.6, most 0.9 -> load balance 2/3, activity 0.9; S mean 0.4 -> fill 2/3; T mean 0.2 -> issue 1/2
    rows = [
        {"gpu": "a", "gr_active": 0.9, "sm_active": 0.6, "tensor_active": 0.3, "sm_clock": 1830e6},
        {"gpu": "b", "gr_active": 0.3, "sm_active": 0.2, "tensor_active": 0.1, "sm_clock": 915e6},
    ]
    tree = tree_of(rate(device_sums(settled(rows)).to_pyarrow()))
    # OFU: (0.3 + 0.05) / 2 = 0.175
    expected = {"load_balance": 2 / 3, "activity": 0.9, "sm_fill": 2 / 3, "tensor_issue": 0.5, "clock": 0.875}
    assert {name: tree.factor(name) for name in expected} == pytest.approx(expected, rel=1e-6)
    assert np.prod([f.value for f in tree.factors]) == pytest.approx(tree.ofu, rel=1e-12)


def test_a_mig_instance_weighs_as_much_as_its_share_of_the_gpu(settled):
    # 3g.40gb is 3 of 7 slices, 1g.10gb one: (0.7 x 3 + 0.3 x 1) / 4 = 0.6
    rows = [
        {"mig": "3g.40gb/1", "tensor_active": 0.7, "sm_clock": 1830e6},
        {"mig": "1g.10gb/9", "tensor_active": 0.3, "sm_clock": 1830e6},
    ]
    assert tree_of(rate(device_sums(settled(rows)).to_pyarrow())).ofu == pytest.approx(0.6, rel=1e-6)


def test_flags_are_counted_by_device(settled):
    rows = [{"flags": int(Flag.SENTINEL | Flag.COPIED)}, {"flags": int(Flag.COPIED)}, {"flags": 0}]
    row = device_sums(settled(rows)).to_pyarrow().to_pylist()[0]
    assert (row["sentinel_rows"], row["copied_rows"], row["reset_rows"], row["rows"]) == (1, 2, 0, 3)


def test_the_observed_window_begins_where_the_first_sample_begins_to_speak(settled):
    row = device_sums(settled([{}, {}])).to_pyarrow().to_pylist()[0]
    assert (row["start_ms"], row["last_ms"]) == (T0, T0 + 60_000)


def test_hours_hold_the_time_before_the_sample(settled):
    # a sample at exactly one o'clock speaks for the hour before it
    rows = [{"time": T0 + 3_600_000}, {"time": T0 + 3_630_000}]
    assert sorted(device_sums(settled(rows), bucket_ms=3_600_000).to_pyarrow()["bucket"].to_pylist()) == [T0, T0 + 3_600_000]


def test_half_a_second_does_not_move_a_sample_to_another_bucket(settled):
    row = device_sums(settled([{"time": T0 + 3_599_900}]), bucket_ms=3_600_000).to_pyarrow()
    assert row["bucket"].to_pylist() == [T0]
    assert row["last_ms"].to_pylist() == [T0 + 3_599_900]


def test_collapsing_to_devices_adds_what_can_be_added(settled):
    sums = device_sums(settled([{"job": "1", "tensor_active": 0.5}, {"job": "2", "tensor_active": 0.1}])).to_pyarrow()
    row = collapse(sums, ["gpu", "mig"]).to_pylist()[0]
    assert row["span_ms"] == 60_000
    assert row["tensor_active_sum"] == pytest.approx(18_000)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.3, None]), st.integers(1, 60_000)), min_size=1, max_size=20))
@settings(max_examples=examples(8, 25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_millisecond_has_exactly_one_owner(settled, rows):
    # each row: how many jobs hold the device, how busy it is (None: no gauge), for how long
    samples = [
        {"time": T0 + 60_000 * n, "job": ",".join("ab"[:jobs]) or None, "sharers": jobs, "tensor_active": level, "span_ms": span}
        for n, (jobs, level, span) in enumerate(rows)
    ]
    found = device_sums(settled(samples)).to_pyarrow()
    times = dict.fromkeys(OWNERS, 0)
    for code, span in zip(found["owner"].to_pylist(), found["span_ms"].to_pylist(), strict=True):
        times[OWNERS[code]] += span
    expected = dict.fromkeys(OWNERS, 0)
    for jobs, level, span in rows:
        idle = level == 0.0
        owner = "shared" if jobs > 1 else ("held_idle" if idle else "job") if jobs else "free" if idle else "unknown"
        expected[owner] += span
    assert times == expected


def test_what_is_measured_of_a_sample_is_one_number_for_each_of_eight_cases(settled):
    # 1: a clock beside tensor activity, or cycles; 2: SM activity; 4: engine activity
    parts = ({"tensor_active": 0.5, "sm_clock": 1e9}, {"sm_active": 0.5}, {"gr_active": 0.5})
    rows = [
        {"gpu": str(n), "power": 1.0} | {k: v for bit, part in enumerate(parts) if n >> bit & 1 for k, v in part.items()} for n in range(8)
    ]
    rows += [
        {"gpu": "1", "tensor_cycles_delta": 1, "sm_cycles_delta": 4},
        {"gpu": "0", "tensor_cycles_delta": 1},
        {"gpu": "0", "sm_clock": 1e9},
    ]
    found = device_sums(settled(rows)).to_pyarrow()
    assert {(gpu, measured) for gpu, measured in zip(*(found[n].to_pylist() for n in ("gpu", "measured")), strict=True)} == {
        (str(n), n) for n in range(8)
    }


def test_a_reading_too_large_to_be_added_up_refuses_no_question(settled):
    # 2^62 cycles are counted in steps of 1/256, and 2^70 has no place in 63 bits; the other sample's 2^40 have
    rows = [{"gpu": gpu, "tensor_cycles_delta": cycles, "sm_cycles_delta": 2**50} for gpu, cycles in (("a", 2**62), ("b", 2**40))]
    found = device_sums(settled(rows)).to_pyarrow()
    assert found["tensor_cycles"].to_pylist() == [None, 2**40] and found["sm_cycles"].to_pylist() == [2**50] * 2


def test_cycles_of_a_sample_over_an_edge_are_parted_by_its_time(settled):
    # 40 s of which 10 lie before the edge of the minute: of 4e9 cycles 1e9, of 8e9 2e9; tensor pipes work in half of them
    row = {"time": T0 + 90_000, "span_ms": 40_000, "tensor_cycles_delta": 4 * 10**9, "sm_cycles_delta": 8 * 10**9}
    found = time_sums(settled([row]), bucket_ms=60_000).select(["bucket", "cycles_ms", "tensor_cycles", "sm_cycles", "cycles_tensor_sum"])
    assert [list(row.values()) for row in found.to_pylist()] == [
        [T0, 10_000, 1e9, 2e9, 5_000.0],
        [T0 + 60_000, 30_000, 3e9, 6e9, 15_000.0],
    ]


def test_sums_keep_the_smallest_step_and_hold_the_most_that_a_day_can_have(settled):
    smallest = {"gpu": "a", "span_ms": 1, "tensor_active": 2.0**-28, "power": 2.0**-18, "sm_clock": 1.0}
    largest = {"gpu": "b", "span_ms": 86_400_000, "tensor_active": 300.0, "power": 400e3, "sm_clock": 100e9 / 300}
    small, large = device_sums(settled([smallest, largest])).to_pyarrow().to_pylist()
    assert (small["tensor_active_sum"], small["power_sum"]) == (2.0**-28, 2.0**-18)
    assert (large["tensor_active_sum"], large["power_sum"]) == (86_400_000 * 300.0, 86_400_000 * 400e3)
    assert large["ofu_sum"] == pytest.approx(86_400_000 * 100e9, rel=1e-7)


def sometimes(rng):
    """For each column of a sample, how often it is known, and what it may be."""
    level, cycles = (0.0, 0.004, 0.3, 0.7), rng.choice((0.0, 0.6, 1.0))
    values = {
        **dict.fromkeys(("tensor_active", "sm_active", "gr_active", "gpu_util"), level), "sm_clock": (0.0, 5e8, 1.8e9),
        "power": (80.0, 400.0), "job": ("a", "b"), "mig": ("1g.10gb/7",),
    }  # fmt: skip
    counters = {"tensor_cycles_delta": (cycles, (0, 10**9)), "sm_cycles_delta": (cycles, (0, 4 * 10**9, 5 * 10**12))}
    return {name: (rng.choice((0.0, 0.6, 1.0)), some) for name, some in values.items()} | counters


def drawn_rows(rng, columns, spans=(10_000, 40_000)):
    return [
        {"time": T0 + 40_000 * n, "span_ms": rng.choice(spans)}
        | {name: rng.choice(some) for name, (often, some) in columns.items() if rng.random() < often}
        for n in range(40)
    ]


@pytest.mark.parametrize("seed", some(range(1000), 3))
def test_states_and_gauges_from_one_pass_are_those_of_one_pass_each(settled, seed):
    rng = random.Random(seed)
    flags = (0, Flag.GAP, Flag.FROZEN | Flag.REPEATED, Flag.GAUGE_FROZEN, Flag.IMPOSSIBLE)
    others = {"gpu": ("a", "b"), "host": ("n", "m"), "user": ("ada",), "index": (0, 1), "flags": flags, "energy_delta": (0, 3000, 20_000)}
    columns = sometimes(rng) | {name: (1.0 if name == "flags" else rng.choice((0.6, 1.0)), some) for name, some in others.items()}
    samples = settled(drawn_rows(rng, columns))
    states, gauges = device_and_gauge_sums(samples)
    # the same numbers in the same order; whole ones are 64 bits wide in one and 128 in the other
    assert states.to_pylist() == device_sums(samples).to_pyarrow().select(states.column_names).to_pylist()
    assert gauges.to_pylist() == gauge_sums(samples).to_pyarrow().select(gauges.column_names).to_pylist()


@pytest.mark.parametrize("seed", some(range(1000), 2))
def test_a_bucket_has_of_each_sample_the_time_that_lies_in_it(settled, seed):
    # a walk over samples and minutes: what a sample says, times the milliseconds of it that lie in the minute
    rng, minute = random.Random(seed), 60_000
    columns = {"tensor_active": (1.0, (0.0, 0.25, 0.5)), "sm_clock": (1.0, (1e9, 1.5e9)), "model": (1.0, ("x", "y"))}
    rows = drawn_rows(rng, columns, spans=(0, 1, 10_000, 59_999, 60_000, 60_001, 250_000))
    expected: dict[tuple[int, str], list[float]] = {}
    for row in rows:
        for bucket in range(T0 // minute * minute - 300_000, T0 + 1_800_000, minute):
            inside = min(row["time"], bucket + minute) - max(row["time"] - row["span_ms"], bucket)
            if inside > 0:
                own = expected.setdefault((bucket, row["model"]), [0, 0.0, 0.0])
                tensor = inside * row["tensor_active"]
                own[:] = [own[0] + inside, own[1] + tensor * row["sm_clock"], own[2] + tensor]
    sums = time_sums(settled(rows), bucket_ms=minute).select(["bucket", "model", "span_ms", "ofu_sum", "ofu_tensor_sum"])
    found = collapse(sums, ["bucket", "model"]).to_pylist()
    told = {(r["bucket"], r["model"]): [r["span_ms"], r["ofu_sum"], r["ofu_tensor_sum"]] for r in found if r["span_ms"]}
    assert told == {key: pytest.approx(own, rel=1e-12) for key, own in expected.items()}


def test_a_bucket_may_hold_more_than_64_bits_of_steps(settled):
    # each of four GPUs adds 8.64e18 Hz ms, half of it in each of two days; 2^63 is 9.2e18
    row = {"time": T0 // 86_400_000 * 86_400_000 + 43_200_000, "span_ms": 86_400_000, "tensor_active": 300.0, "sm_clock": 100e9 / 300}
    found = time_sums(settled([row | {"gpu": gpu} for gpu in "abcd"]), bucket_ms=86_400_000)
    assert found["ofu_sum"].to_pylist() == pytest.approx([2 * 8.64e18] * 2, rel=1e-7)


@pytest.mark.parametrize("seed", [*some(range(3), 1), "always", "never"])
def test_what_is_known_of_columns_beforehand_changes_no_sum(in_engine, seed):
    # each column is null in all rows, in some or in none; the second table says so in its expressions, the first says nothing
    rng = random.Random(seed)
    columns = sometimes(rng)
    if isinstance(seed, str):
        columns = {name: (1.0 if seed == "always" else 0.0, some) for name, (_, some) in columns.items()}
    plain = in_engine(settled_table(drawn_rows(rng, columns)))
    nothing = {name: ibis.null(plain[name].type()) for name, (often, _) in columns.items() if often == 0}
    every = {name: plain[name].cast(plain[name].type().copy(nullable=False)) for name, (often, _) in columns.items() if often == 1}
    said = plain.mutate(**nothing, **every)
    for sums in (device_sums, gauge_sums):
        assert numbers_of(sums(said).to_pyarrow()) == numbers_of(sums(plain).to_pyarrow())
    course = [collapse(time_sums(table, bucket_ms=60_000), ["bucket", "mig"]) for table in (said, plain)]
    assert numbers_of(course[0]) == numbers_of(course[1])


def numbers_of(table):
    """Rows as dicts, in an order of their own; a sum of nothing is 0."""
    rows = [{name: 0 if value is None else value for name, value in row.items()} for row in table.to_pylist()]
    return sorted(rows, key=repr)
