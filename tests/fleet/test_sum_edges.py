"""Sums of telemetry at their edges: a few rows whose answer is worked out by hand."""

from __future__ import annotations

import ibis
import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import T0, settled_table
from tests.fleet.test_windows import every, repeats, table
from ullage.sums import exact
from ullage.sums.devices import _measured, bucketed, device_sums, within
from ullage.sums.gauges import _bits
from ullage.sums.grouping import collapse
from ullage.sums.held import constant_of, same_everywhere
from ullage.sums.job_courses import job_course_sums
from ullage.sums.ledger import CODES, owner
from ullage.sums.ordering import device_codes, pack, whole
from ullage.sums.spans import cut_at_spans, joined_spans, samples_in_spans
from ullage.sums.windows import derive, merge

MINUTE = 60_000
NOON = T0 // MINUTE * MINUTE + MINUTE  # a whole minute


def words(*values):
    return pa.array(values, pa.string()).dictionary_encode()


def test_the_whole_gpu_comes_before_its_instances():
    codes = device_codes(words("b", "a", "a", "a"), words(None, "2g", None, "1g"))
    assert np.argsort(codes).tolist() == [2, 3, 1, 0] and len(set(codes.tolist())) == 4


def test_a_column_in_chunks_is_one_array_with_one_dictionary():
    chunks = pa.chunked_array([words("a", "b"), words("c", "a", None)])
    assert whole(chunks).to_pylist() == ["a", "b", "c", "a", None] and whole(chunks).dictionary.to_pylist() == ["a", "b", "c"]
    assert whole(pa.chunked_array([[1], [2, None]])).to_pylist() == [1, 2, None]
    assert whole(pa.chunked_array([], pa.int8())).type == pa.int8()


def test_no_instance_is_the_same_whether_the_dictionary_or_the_index_says_so():
    told = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int32()), pa.array([None, "1g"], pa.string()))
    whole, also, instance = device_codes(words("a", "a", "a"), told).tolist()
    assert 0 <= whole == also < instance


@pytest.mark.parametrize("low", [2**40, 2**61])  # ms: 35 years; and times that no clock shows, with which 2**30 devices need 91 bits
def test_pairs_sort_as_one_number_however_far_apart_their_parts(low):
    high, low = np.array([2**30, 0, 2**30, 1]), np.array([-low, low, low, 0])
    key = pack(high, low)
    assert np.argsort(key).tolist() == [1, 3, 0, 2] and (key >= 0).all()


def test_rows_from_elsewhere_keep_what_was_said_of_them():
    # nothing was said of the one before: the next one repeats it for the first time
    said = derive(merge(table(every(30, [0.5125]))))
    assert repeats(derive(merge(table([{"gpu": "a", "time": 60_000, "tensor_active": 0.5125}])), before=said)) == ["R"]
    # five that differ, and one that repeats the last of them: a first repeat, too
    said = derive(merge(table(every(30, [0.5125, 0.6125, 0.7125, 0.8125, 0.9125]))))
    assert repeats(derive(merge(table([{"gpu": "a", "time": 180_000, "tensor_active": 0.9125}])), before=said)) == ["R"]


def test_conditions_are_bits_of_a_number_whether_a_column_or_always_true():
    rows = ibis.memtable(pa.table({"x": [True, True, False, False], "y": [True, False, True, False]}))
    both = _bits({1: rows.x, 2: rows.y, 4: True, 8: False})
    assert rows.mutate(bits=both).to_pyarrow()["bits"].to_pylist() == [7, 5, 6, 4]
    assert rows.mutate(bits=_bits({1: rows.x, 2: rows.y})).to_pyarrow()["bits"].to_pylist() == [3, 1, 2, 0]
    assert rows.mutate(bits=_bits({4: True, 8: True})).to_pyarrow()["bits"].to_pylist() == [12] * 4


def test_what_is_known_of_each_sample_is_known_of_columns_that_always_have_a_value():
    always = pa.schema([pa.field(name, pa.float64(), nullable=False) for name in ("tensor_active", "sm_clock", "sm_active")])
    rows = ibis.memtable(pa.Table.from_arrays([pa.array([0.5, 0.5])] * 3, schema=always)).mutate(gr_active=ibis.null("float64"))
    for name in ("tensor_cycles_delta", "sm_cycles_delta"):
        rows = rows.mutate(**{name: ibis.null("int64")})
    assert rows.mutate(known=_measured(rows)).to_pyarrow()["known"].to_pylist() == [3, 3]  # 1 for OFU, 2 for SM activity


def test_names_are_widened_to_the_largest_whatever_arrow_holds_them_as():
    sums = pa.table({"gpu": words("a", "a"), "job": words("7", "8"), "user": pa.nulls(2), "span_ms": [1, 2]})
    assert collapse(sums, ["gpu"]).to_pylist() == [{"gpu": "a", "job": "8", "user": None, "span_ms": 3}]


def test_a_column_is_constant_where_its_expression_says_so():
    rows = ibis.memtable(pa.table({"x": [1, 2]})).mutate(three=ibis.literal(3), none=ibis.null("int64"))
    assert [constant_of(rows, name) for name in ("x", "three", "none")] == [None, 3, None]
    assert [same_everywhere(rows, name) for name in ("x", "three", "none")] == [False, True, True]


@pytest.mark.parametrize(
    ("held", "several", "idle", "unsliced", "whose"),
    [
        (True, False, False, False, "job"),
        (True, False, True, False, "held_idle"),
        (True, True, True, False, "shared"),
        (False, False, True, False, "free"),
        (False, False, False, False, "unknown"),
        (False, True, True, True, "not_sliced"),
    ],
)
def test_an_owner_is_told_of_conditions_that_hold_for_every_sample(held, several, idle, unsliced, whose):
    assert owner(held, several, idle, unsliced) == CODES[whose]


def test_spans_are_joined_to_the_longest_of_those_that_they_touch():
    assert joined_spans([(0, 2), (5, 30), (6, 7)]) == ((0, 2), (5, 30))


def test_nothing_is_cut_where_no_span_is_given():
    rows = ibis.memtable(settled_table([{"job": "7"}]))
    assert cut_at_spans(rows, {}, "inside").count().to_pyarrow().as_py() == 0


@pytest.mark.parametrize(
    ("step", "most", "least"),  # what the largest reading adds in a millisecond, and what a small one adds in a second
    [
        (exact.ACTIVITY_STEP, 300, 0.01 * 1000),
        (exact.POWER_STEP, 400e3, 50 * 1000),
        (exact.POWER_SQUARE_STEP, 40e3**2, 50**2 * 1000),
        (exact.CLOCK_STEP, 100e9, 100e6 * 1000),
    ],
)
def test_steps_leave_room_for_the_largest_reading_of_a_day_and_resolve_the_smallest_of_a_second(step, most, least):
    assert most * 86_400_000 / step < 2**63 and step / least < 1e-8


def test_a_span_of_one_device_is_not_that_of_another_on_its_gpu():
    rows = [
        {"job": "7", "time": NOON, "mig": mig, "gpu": gpu}
        for gpu, mig in (("a", None), ("a", "1g.10gb/7"), ("a", "1g.10gb/8"), ("b", None))
    ]
    spans = {("a", "1g.10gb/7"): [(NOON - 10_000, NOON)], ("b", None): [(NOON - 20_000, NOON)]}
    found = cut_at_spans(ibis.memtable(settled_table(rows)), spans, "inside").to_pyarrow().to_pylist()
    inside = sorted((row["gpu"], row["mig"] or "", row["span_ms"]) for row in found if row["inside"])
    assert inside == [("a", "1g.10gb/7", 10_000), ("b", "", 20_000)]
    assert sum(row["span_ms"] for row in found) == 4 * 30_000


def sample(end, span=30_000, **more):
    return {"time": end, "span_ms": span, "job": "7", "tensor_active": 0.5, "sm_active": 0.5, "gr_active": 0.5, "sm_clock": 1e9} | more


def test_a_sample_that_ends_with_a_bucket_lies_in_no_other():
    found = bucketed(ibis.memtable(settled_table([sample(NOON)])), MINUTE).to_pyarrow()
    assert [(row["bucket"], row["span_ms"]) for row in found.to_pylist()] == [(NOON - MINUTE, 30_000)]
    # one that reaches over two edges: 10 s before, a minute, 20 s behind
    found = bucketed(ibis.memtable(settled_table([sample(NOON + 20_000, 90_000)])), MINUTE).order_by("bucket").to_pyarrow()
    assert [(row["bucket"] - NOON, row["span_ms"]) for row in found.to_pylist()] == [(-2 * MINUTE, 10_000), (-MINUTE, MINUTE), (0, 20_000)]


def test_time_without_any_gauge_is_dark_and_not_idle():
    nothing = dict.fromkeys(("tensor_active", "sm_active", "gr_active"))
    rows = [sample(NOON, **nothing), sample(NOON + 30_000, tensor_active=0.0, sm_active=0.0, gr_active=0.0), sample(NOON + 60_000)]
    found = device_sums(ibis.memtable(settled_table(rows))).to_pyarrow()
    assert [sum(int(value) for value in found[name].to_pylist()) for name in ("dark_ms", "idle_ms", "span_ms")] == [30_000, 30_000, 90_000]


def test_a_window_may_be_open_on_either_side():
    rows = ibis.memtable(settled_table([sample(NOON), sample(NOON + 30_000)]))
    edges = [(None, None), (NOON + 10_000, None), (None, NOON - 10_000), (NOON - 5_000, NOON + 5_000)]
    spans = [sorted(within(rows, *edge).to_pyarrow()["span_ms"].to_pylist()) for edge in edges]
    assert spans == [[30_000, 30_000], [20_000], [20_000], [5_000, 5_000]]


def test_samples_are_given_inside_of_spans_or_outside():
    rows = ibis.memtable(settled_table([sample(NOON), sample(NOON, gpu="GPU-1")]))
    spans = {"GPU-0": [(NOON - 10_000, NOON)]}
    found = [samples_in_spans(rows, spans, inside=inside).to_pyarrow()["span_ms"].to_pylist() for inside in (True, False)]
    assert [sorted(each) for each in found] == [[10_000, 30_000], [20_000, 30_000]]  # nothing is said of the other GPU
    assert sorted(samples_in_spans(rows, spans).to_pyarrow()["span_ms"].to_pylist()) == sorted(found[0])


def test_ofu_is_known_where_cycles_always_are():
    always = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("tensor_cycles_delta", "sm_cycles_delta")])
    rows = ibis.memtable(pa.Table.from_arrays([pa.array([5, 5])] * 2, schema=always))
    rows = rows.mutate(**{name: ibis.null("float64") for name in ("sm_active", "gr_active")}, tensor_active=rows.sm_cycles_delta.nullif(5))
    rows = rows.mutate(sm_clock=rows.tensor_active)
    assert rows.mutate(known=_measured(rows)).to_pyarrow()["known"].to_pylist() == [1, 1]


def test_what_memory_did_is_its_activity_at_its_clock():
    # half of 1.5 GHz for 30 s, a quarter of 1 GHz for 30 s; and a sample without a clock of memory tells nothing of it
    rows = [sample(NOON, dram_active=0.5, memory_clock=1.5e9), sample(NOON + 30_000, dram_active=0.25, memory_clock=1e9)]
    found = device_sums(ibis.memtable(settled_table([*rows, sample(NOON + 60_000, dram_active=0.5)]))).to_pyarrow()
    assert sum(found["memory_sum"].to_pylist()) == 30_000 * (0.5 * 1.5e9 + 0.25 * 1e9)
    assert sum(int(value) for value in found["memory_ms"].to_pylist()) == 60_000


def test_columns_that_always_have_a_value_are_added_up_like_those_that_may_lack_one():
    table = settled_table([sample(NOON), sample(NOON + 30_000, tensor_active=0.25)])
    names = ("tensor_active", "sm_clock")
    always = pa.schema([field.with_nullable(False) if field.name in names else field for field in table.schema])
    nothing = {name: ibis.null("int64") for name in ("tensor_cycles_delta", "sm_cycles_delta")}  # no cycle was counted
    sums = [device_sums(ibis.memtable(rows).mutate(**nothing)).to_pyarrow().to_pylist() for rows in (table, table.cast(always))]
    assert sums[0] == sums[1] and sum(row["ofu_sum"] for row in sums[0]) == 30_000 * (0.5 + 0.25) * 1e9


def test_a_window_takes_its_part_of_what_counters_grew():
    rows = ibis.memtable(settled_table([sample(NOON, energy_delta=3000), sample(NOON + 30_000)]))
    found = within(rows, NOON - 10_000, NOON).to_pyarrow().to_pylist()
    assert [(row["span_ms"], row["energy_delta"]) for row in found] == [(10_000, 1000.0)]


def test_devices_that_several_jobs_hold_and_those_that_none_holds_tell_of_no_job():
    rows = [sample(NOON), sample(NOON, gpu="GPU-1", job="7,8", sharers=2), sample(NOON, gpu="GPU-2", job=None)]
    found = job_course_sums(ibis.memtable(settled_table(rows)), bucket_ms=MINUTE).to_pylist()
    assert [(row["job"], int(row["span_ms"])) for row in found] == [("7", 30_000)]
