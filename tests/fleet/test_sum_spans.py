"""Samples cut at the edges of spans: what lies inside and what lies outside add up to the whole."""

from __future__ import annotations

import random

import ibis
import pyarrow as pa
import pytest

from tests.conftest import T0, settled_table
from tests.fleet.fleet_generator import random_fleet
from tests.fleet.test_fleet_property import settled
from tests.seeds import some
from ullage.sums.devices import device_sums, within
from ullage.sums.spans import cut_at_spans, joined_spans, length

ADDED = ("span_ms", "idle_ms", "dark_ms", "ofu_ms", "ofu_sum", "cycles_ms", "tensor_cycles", "sm_active_sum", "gr_active_ms", "power_sum")


def totals(table):
    sums = device_sums(table).to_pyarrow()
    return {name: float(sum(value or 0 for value in sums[name].to_pylist())) for name in ADDED}


@pytest.mark.parametrize("seed", some(range(12), 2))
def test_what_lies_inside_and_outside_adds_up_and_so_do_windows(seed):
    rng = random.Random(seed)
    rows = settled(random_fleet(seed))
    gpus = sorted(set(rows["gpu"].to_pylist()))
    times = rows["time"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    first, last = min(times), max(times)
    spans = {gpu: [tuple(sorted((rng.randint(first - 9, last + 9), rng.randint(first, last)))) for _ in range(3)] for gpu in gpus}
    table = ibis.memtable(rows)
    cut = cut_at_spans(table, spans, "marked")
    inside, outside = (totals(part.drop("marked")) for part in (cut.filter(cut.marked), cut.filter(~cut.marked)))
    whole = totals(table)
    assert {name: inside[name] + outside[name] for name in ADDED} == pytest.approx(whole, rel=1e-9)
    # the time inside, second by second of each sample
    expected = sum(
        length([(max(start, time - span), min(end, time)) for start, end in spans[gpu]])
        for gpu, time, span in zip(rows["gpu"].to_pylist(), times, rows["span_ms"].to_pylist(), strict=True)
    )
    assert inside["span_ms"] == expected
    middle = (first + last) // 2
    halves = [cut_at_spans(within(table, since, until), spans, "marked") for since, until in ((None, middle), (middle, None))]
    added = [totals(half.filter(half.marked).drop("marked")) for half in halves]
    assert {name: added[0][name] + added[1][name] for name in ADDED} == pytest.approx(inside, rel=1e-9)


def test_only_the_gpus_that_spans_name_are_cut():
    rows = settled(random_fleet(3))
    gpu = rows["gpu"][0].as_py()
    assert set(cut_at_spans(ibis.memtable(rows), {gpu: []}, "marked").to_pyarrow()["gpu"].to_pylist()) == {gpu}


def test_spans_that_touch_become_one_and_those_of_no_time_none():
    assert joined_spans([(5, 5)]) == () and joined_spans([(7, 6)]) == ()
    assert joined_spans([(0, 2), (2, 4), (5, 6)]) == ((0, 4), (5, 6))
    assert joined_spans([(0, 2), (4, 6), (9, 10)], apart=2) == ((0, 6), (9, 10))
    assert joined_spans([(0, 9), (1, 2), (9, 11)]) == ((0, 11),)
    assert length([(0, 9), (1, 2), (8, 11), (20, 21)]) == 12


def test_a_span_that_ends_where_a_sample_begins_has_no_part_of_it():
    # a sample of 30 s that ends at the minute, in spans before it, up to its middle, within it, and after it
    sample = settled_table([{"time": T0 + 60_000, "power": 1.0}])
    for span, parts in {
        (0, 30_000): [(30_000, 60_000, False)],
        (0, 45_000): [(15_000, 45_000, True), (15_000, 60_000, False)],
        (40_000, 45_000): [(10_000, 40_000, False), (5_000, 45_000, True), (15_000, 60_000, False)],
        (60_000, 90_000): [(30_000, 60_000, False)],
        (30_000, 60_000): [(30_000, 60_000, True)],
    }.items():
        spans = {"GPU-0": [(T0 + span[0], T0 + span[1])]}
        found = cut_at_spans(ibis.memtable(sample), spans, "inside").order_by("time").to_pyarrow()
        times = found["time"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
        assert list(zip(found["span_ms"].to_pylist(), [time - T0 for time in times], found["inside"].to_pylist(), strict=True)) == parts
