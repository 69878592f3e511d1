"""What a sample stands for, checked on cases worked by hand and against a plain loop over rows."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.sums.ordering import take
from ullage.sums.windows import ACTIVITY, derive, merge, settle
from ullage.tables import COUNTERS, FIELDS, SAMPLES, SETTLED, Flag, samples

ARRIVAL = Flag.REORDERED | Flag.COPIED


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as dicts with `time` in ms; what is not given is null."""
    names = {name for row in rows for name in row} | {"time", "gpu"}
    columns = {name: [row.get(name, 0 if name == "flags" else None) for row in rows] for name in names}
    return pa.Table.from_batches([samples({name: pa.array(values, plain(name)) for name, values in columns.items()})])


def plain(name: str) -> pa.DataType:
    kind = SAMPLES.field(name).type
    return pa.string() if pa.types.is_dictionary(kind) else pa.int64() if name == "time" else kind


def rows_of(settled: pa.Table) -> list[dict[str, Any]]:
    assert settled.schema.equals(SETTLED)
    return settled.set_column(0, "time", settled["time"].cast(pa.int64())).to_pylist()


def column(settled: pa.Table, name: str) -> list[Any]:
    return settled[name].to_pylist()


def flags(settled: pa.Table) -> list[Flag]:
    return [Flag(f) for f in column(settled, "flags")]


def every(interval_s: float, values: list[float], name: str = "tensor_active", gpu: str = "a") -> list[dict[str, Any]]:
    return [{"gpu": gpu, "time": round(interval_s * 1000 * (i + 1)), name: value} for i, value in enumerate(values)]


# --- one row per device and time ---


def test_partial_rows_of_one_device_and_time_become_one_row() -> None:
    parts = [{"gpu": "a", "time": 1, "tensor_active": 0.5}, {"gpu": "a", "time": 1, "sm_clock": 1.4e9, "host": "n1"}]
    (row,) = rows_of(settle(table(parts)))
    assert (row["tensor_active"], row["sm_clock"], row["host"], row["flags"]) == (0.5, np.float32(1.4e9), "n1", 0)


def test_copies_count_once_and_say_so() -> None:
    copies = [{"gpu": "a", "time": 1, "power": 300.0, "job": job} for job in ("b", "a", "b")]
    (row,) = rows_of(settle(table(copies)))
    assert (row["power"], row["job"], row["sharers"], row["flags"]) == (300.0, "a,b", 2, Flag.COPIED)


def test_the_first_copy_wins_and_a_disagreement_is_flagged() -> None:
    (row,) = rows_of(settle(table([{"gpu": "a", "time": 1, "power": p} for p in (300.0, 310.0)])))
    assert (row["power"], row["flags"]) == (300.0, Flag.COPIED | Flag.CONFLICT)


def test_a_difference_of_rounding_is_no_conflict_but_counters_are_exact() -> None:
    gauge = settle(table([{"gpu": "a", "time": 1, "power": p} for p in (300.0, 300.0001)]))
    counter = settle(table([{"gpu": "a", "time": 1, "energy": e} for e in (10**12, 10**12 + 1)]))
    assert flags(gauge) == [Flag.COPIED]
    assert flags(counter) == [Flag.COPIED | Flag.CONFLICT]


def test_two_models_under_one_device_and_time_are_a_conflict() -> None:
    (flag,) = flags(settle(table([{"gpu": "a", "time": 1, "model": m} for m in ("H100", "A100")])))
    assert flag == Flag.CONFLICT


def test_jobs_already_joined_are_taken_apart_and_joined_again() -> None:
    rows = [
        {"gpu": "a", "time": 1, "job": "c,a"},
        {"gpu": "a", "time": 1, "job": "b"},
        {"gpu": "a", "time": 2, "job": "z"},
        {"gpu": "a", "time": 3},
    ]
    settled = settle(table(rows))
    assert column(settled, "job") == ["a,b,c", "z", None]
    assert column(settled, "sharers") == [3, 1, 0]


def test_rows_are_sorted_by_device_mig_and_time_with_whole_gpus_first() -> None:
    rows = [("b", None, 1), ("a", "1g/2", 1), ("a", None, 2), ("a", "1g/1", 5), ("a", None, 1)]
    settled = rows_of(settle(table([{"gpu": g, "mig": m, "time": t} for g, m, t in rows])))
    assert [(r["gpu"], r["mig"], r["time"]) for r in settled] == [
        ("a", None, 1),
        ("a", None, 2),
        ("a", "1g/1", 5),
        ("a", "1g/2", 1),
        ("b", None, 1),
    ]


def test_a_sample_that_arrives_after_a_later_one_of_its_device_is_reordered() -> None:
    rows = [("a", 1), ("a", 3), ("b", 2), ("a", 2), ("a", 4)]
    settled = settle(table([{"gpu": g, "time": t} for g, t in rows]))
    assert [bool(f & Flag.REORDERED) for f in flags(settled)] == [False, True, False, False, False]


def test_a_second_part_of_a_sample_that_was_there_in_time_is_not_reordered() -> None:
    # metric by metric: all times of one field, then all times of the next
    rows = every(30, [0.5, 0.6]) + every(30, [1e9, 1.1e9], "sm_clock")
    assert flags(settle(table(rows))) == [Flag(0), Flag(0)]


def test_not_a_number_is_missing() -> None:
    batch = pa.Table.from_batches([samples({"time": [1, 2], "gpu": ["a", "a"], "power": pa.array([float("nan"), 1.0], pa.float32())})])
    assert column(settle(batch), "power") == [None, 1.0]


def test_nothing_settles_to_nothing() -> None:
    assert settle(SAMPLES.empty_table()).equals(SETTLED.empty_table())


# --- spans ---


def test_a_sample_stands_for_the_time_since_the_one_before() -> None:
    # 15 s, 30 s, 30 s apart: the median interval is 30, which the first stands for
    settled = settle(table([{"gpu": "a", "time": t * 1000} for t in (100, 115, 145, 175)]))
    assert column(settled, "span_ms") == [30_000, 15_000, 30_000, 30_000]


def test_time_beyond_the_gap_limit_is_nobodys() -> None:
    # 30 s apart, then 10 min of silence: the sample after it speaks for the 60 s that a gap may last at most
    settled = settle(table([{"gpu": "a", "time": t * 1000} for t in (30, 60, 90, 690, 720)]))
    assert column(settled, "span_ms") == [30_000, 30_000, 30_000, 60_000, 30_000]
    assert flags(settled) == [Flag(0), Flag(0), Flag(0), Flag.GAP, Flag(0)]


def test_the_gap_limit_follows_slow_devices_and_can_be_set() -> None:
    slow = table([{"gpu": "a", "time": t * 1000} for t in (300, 600, 900, 1500)])  # 5 min apart, once 10
    assert column(settle(slow), "span_ms") == [300_000, 300_000, 300_000, 600_000]
    assert column(settle(slow, gap_ms=90_000), "span_ms") == [90_000] * 4


@pytest.mark.parametrize(("usual", "longest"), [(10_000, 60_000), (30_000, 60_000), (30_001, 60_002), (40_000, 80_000)])
def test_a_sample_speaks_for_sixty_seconds_or_two_usual_intervals_and_no_millisecond_more(usual: int, longest: int) -> None:
    for last, gap in ((longest, Flag(0)), (longest + 1, Flag.GAP)):
        times = [0, usual, 2 * usual, 3 * usual, 3 * usual + last]
        settled = settle(table([{"gpu": "a", "time": t} for t in times]))
        assert column(settled, "span_ms") == [usual] * 4 + [longest]
        assert flags(settled)[-1] == gap


def test_the_usual_interval_is_the_middle_one_or_the_mean_of_the_two_in_the_middle() -> None:
    # intervals of 10, 20, 41 and 50 s: 30.5 s; without the last, 20 s; of the other device, 7 s
    times = [0, 10_000, 30_000, 71_000, 121_000]
    rows = (
        [{"gpu": "a", "time": t} for t in times]
        + [{"gpu": "b", "time": t} for t in times[:-1]]
        + [{"gpu": "c", "time": t} for t in (5, 7_005)]
    )
    settled = rows_of(settle(table(rows)))
    assert [row["span_ms"] for row in settled if row["time"] in (0, 5)] == [30_500, 20_000, 7_000]


def test_the_only_sample_of_a_device_stands_for_30_seconds() -> None:
    assert column(settle(table([{"gpu": "a", "time": 1}])), "span_ms") == [30_000]


def test_after_a_day_of_silence_a_device_begins_anew() -> None:
    day = 86_400_000
    settled = settle(table([{"gpu": "a", "time": t, "energy": 5} for t in (0, 30_000, 30_001 + day)]))
    assert column(settled, "span_ms") == [30_000, 30_000, 30_000]
    assert column(settled, "energy_delta") == [None, 0, None]
    assert flags(settled)[2] == Flag(0)


def test_a_silence_of_a_day_is_a_gap_and_a_longer_one_a_new_beginning() -> None:
    day = 86_400_000
    for silence, flag in ((day, Flag.GAP), (day + 1, Flag(0))):
        settled = settle(table([{"gpu": "a", "time": t} for t in (0, 30_000, 60_000, 60_000 + silence)]))
        assert (column(settled, "span_ms")[-1], flags(settled)[-1]) == (60_000 if flag else 30_000, flag)


def test_a_stored_predecessor_gives_the_span_and_the_growth_of_the_next_batch() -> None:
    whole = table([{"gpu": "a", "time": t * 1000, "energy": t} for t in (30, 60, 90, 120)])
    head = settle(whole.slice(0, 2))
    tail = settle(whole.slice(2), before=head)
    assert pa.concat_tables([head, tail]).equals(settle(whole))


# --- counters ---


def test_a_counter_grows_since_the_row_before() -> None:
    settled = settle(table(every(30, [100, 130, 130, 200], "tensor_cycles")))
    assert column(settled, "tensor_cycles_delta") == [None, 30, 0, 70]


def test_a_counter_that_goes_backwards_is_a_reset_and_has_no_growth() -> None:
    settled = settle(table(every(30, [100, 130, 5, 20], "tensor_cycles")))
    assert column(settled, "tensor_cycles_delta") == [None, 30, None, 15]
    assert flags(settled) == [Flag(0), Flag(0), Flag.RESET, Flag(0)]


def test_growth_belongs_to_one_span_only() -> None:
    # the second row lacks the counter, the fourth comes after a gap: neither may credit other rows' time
    rows = [{"gpu": "a", "time": t * 1000, "energy": e} for t, e in ((30, 10), (60, None), (90, 30), (690, 99), (720, 100))]
    assert column(settle(table(rows)), "energy_delta") == [None, None, None, None, 1]


def test_counters_near_the_top_of_64_bits_are_exact() -> None:
    settled = settle(table(every(30, [2**62 + 1, 2**62 + 4], "sm_cycles")))
    assert column(settled, "sm_cycles_delta") == [None, 3]


# --- what repeats ---


def repeats(settled: pa.Table) -> list[str]:
    return ["F" if f & Flag.FROZEN else "R" if f & Flag.REPEATED else "-" for f in flags(settled)]


def test_activity_that_reads_exactly_as_before_is_repeated_and_frozen_from_the_fifth_time() -> None:
    assert repeats(settle(table(every(30, [0.5125] * 8 + [0.6])))) == list("-RRRRFFF-")


def test_zeros_are_idle_not_repeated() -> None:
    assert repeats(settle(table(every(30, [0.0] * 7)))) == ["-"] * 7


def test_whole_percent_repeats_by_nature() -> None:
    assert repeats(settle(table(every(30, [0.31] * 7)))) == ["-"] * 7


@pytest.mark.parametrize(("reading", "percent"), [(0.310009, True), (0.309991, True), (0.310011, False), (0.309989, False)])
def test_a_reading_within_a_thousandth_of_a_whole_percentage_is_one(reading: float, percent: bool) -> None:
    assert repeats(settle(table(every(30, [reading] * 7)))) == (["-"] * 7 if percent else list("-RRRRFF"))


def test_every_activity_field_must_repeat_but_gpu_utilization_does_not_count() -> None:
    rows = [
        {"gpu": "a", "time": i, "tensor_active": 0.5125, "sm_active": s, "gpu_util": u}
        for i, (s, u) in enumerate([(0.7, 1.0), (0.7, 0.9), (0.8, 0.9)])
    ]
    assert repeats(settle(table(rows))) == list("-R-")


def test_a_run_of_repeats_goes_on_across_batches_and_not_across_devices() -> None:
    whole = table(every(30, [0.5125] * 9) + every(30, [0.5125] * 3, gpu="b"))
    ours = derive(merge(whole.slice(7)), before=derive(merge(whole.slice(0, 7))).slice(2))  # the five last rows
    assert repeats(ours) == list("FF") + list("-RR")


def still(settled: pa.Table) -> str:
    return "".join("G" if f & Flag.GAUGE_FROZEN else "-" for f in flags(settled))


def test_one_gauge_that_reads_the_same_while_its_neighbour_moves_is_frozen_from_the_fifth_time() -> None:
    rows = [
        {"gpu": "a", "time": 30_000 * i, "tensor_active": t, "sm_active": 0.5 + i / 1000}
        for i, t in enumerate([0.4125] * 8 + [0.5, 0.4125])
    ]
    assert still(settle(table(rows))) == "-----GGG--"
    ours = derive(merge(table(rows).slice(6)), before=derive(merge(table(rows).slice(0, 6))).slice(1))  # the five last rows
    assert still(ours) == "GG--"


@pytest.mark.parametrize(("value", "flagged"), [(0.0, False), (0.31, False), (1.0, False), (0.0099, False), (0.0101, True)])
def test_a_gauge_that_repeats_at_a_whole_percentage_or_below_one_percent_is_not_frozen(value: float, flagged: bool) -> None:
    rows = [{"gpu": "a", "time": 30_000 * i, "tensor_active": value, "sm_active": 0.5 + i / 1000} for i in range(8)]
    assert ("G" in still(settle(table(rows)))) is flagged


# --- against a plain loop ---


def reference(rows: list[dict[str, Any]], gap_ms: int | None) -> list[dict[str, Any]]:
    """What `settle` promises, row by row."""
    by_device: dict[tuple[str, str], dict[int, dict[str, Any]]] = defaultdict(dict)
    latest: dict[tuple[str, str], int] = {}
    for row in rows:
        device = (row["gpu"], row.get("mig") or "")
        merged = by_device[device].get(row["time"])
        if merged is None:
            late = row["time"] < latest.get(device, -1)
            merged = by_device[device][row["time"]] = {"flags": Flag.REORDERED if late else Flag(0), "jobs": set()}
        latest[device] = max(latest.get(device, -1), row["time"])
        merge_row(merged, row)
    return [row for device in sorted(by_device) for row in derived(by_device[device], gap_ms)]


def merge_row(merged: dict[str, Any], row: dict[str, Any]) -> None:
    merged["flags"] |= Flag(row.get("flags", 0))
    merged["jobs"] |= {row["job"]} if row.get("job") else set()
    for name, value in row.items():
        if value is None or name in ("flags", "job"):
            continue
        if name in FIELDS and merged.get(name) is not None:
            merged["flags"] |= Flag.COPIED
            exact = FIELDS[name].kind in ("counter", "mask")
            if abs(merged[name] - value) > (0 if exact else 1e-6 * max(abs(merged[name]), abs(value))):
                merged["flags"] |= Flag.CONFLICT
        else:
            merged.setdefault(name, value)


def fine(ratio: float | None) -> bool:
    return bool(ratio) and abs(ratio * 100 - round(ratio * 100)) > 1e-3


def derived(samples_by_time: dict[int, dict[str, Any]], gap_ms: int | None) -> list[dict[str, Any]]:
    times = sorted(samples_by_time)
    intervals = [b - a for a, b in pairwise(times)]
    usual = int(median(intervals)) if intervals else 30_000
    limit = gap_ms if gap_ms is not None else max(60_000, 2 * usual)
    before: dict[str, Any] | None = None
    run = 0
    runs: dict[str, int] = {}
    out = []
    for time in times:
        row = samples_by_time[time]
        interval = usual if before is None else time - before["time"]
        row["span_ms"] = min(interval, limit)
        gap = before is not None and interval > limit
        row["flags"] |= Flag.GAP if gap else Flag(0)
        for counter in COUNTERS:
            row[f"{counter}_delta"] = grown(counter, row, before) if before and not gap else None
            if (row[f"{counter}_delta"] or 0) < 0:
                row[f"{counter}_delta"], row["flags"] = None, row["flags"] | Flag.RESET
        same = before is not None and all(row.get(a) == before.get(a) for a in ACTIVITY) and any(fine(row.get(a)) for a in ACTIVITY)
        run = run + 1 if same else 0
        row["flags"] |= (Flag.REPEATED if same else Flag(0)) | (Flag.FROZEN if run >= 5 else Flag(0))
        for gauge in ("tensor_active", "sm_active", "gr_active"):
            value = row.get(gauge)
            same = before is not None and value == before.get(gauge) and fine(value) and value >= 0.01
            runs[gauge] = runs.get(gauge, 0) + 1 if same else 0
        row["flags"] |= Flag.GAUGE_FROZEN if max(runs.values()) >= 5 else Flag(0)
        before = row
        out.append(row)
    return out


def grown(counter: str, row: dict[str, Any], before: dict[str, Any]) -> int | None:
    return None if row.get(counter) is None or before.get(counter) is None else row[counter] - before[counter]


def sample_rows(values_repeat: bool) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows of a few devices and times, often the same key, with some of the fields."""
    few = st.sampled_from([0.0, 0.25, 0.5]) if values_repeat else st.floats(0, 1, width=32, allow_subnormal=False)
    row = st.fixed_dictionaries(
        {"gpu": st.sampled_from("abc"), "time": st.integers(0, 12).map(lambda n: 1_700_000_000_000 + n * 20_000)},
        optional={
            "mig": st.sampled_from(["1g/1", "1g/2"]),
            "job": st.sampled_from(["j1", "j2", "j3"]),
            "tensor_active": few,
            "sm_active": few,
            "energy": st.integers(0, 5),
            "tensor_cycles": st.integers(0, 2**62),
            "flags": st.sampled_from([0, int(Flag.SENTINEL)]),
        },
    )
    return st.lists(row, min_size=1, max_size=40)


@settings(max_examples=150, deadline=None)
@given(sample_rows(values_repeat=True), st.sampled_from([None, 30_000, 100_000]))
def test_settling_agrees_with_a_plain_loop_over_rows(rows: list[dict[str, Any]], gap_ms: int | None) -> None:
    expected = reference(rows, gap_ms)
    actual = rows_of(settle(table(rows), gap_ms=gap_ms))
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours["job"] or "").split(",") == sorted(theirs.pop("jobs")) or ours["job"] is None
        for name, value in theirs.items():
            assert ours[name] == value, name


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of which copies agree, and the same rows in another order, some of them several times."""
    truth: dict[tuple[str, int], dict[str, Any]] = {}
    rows = []
    for row in draw(sample_rows(values_repeat=False)):
        row.pop("mig", None)
        agreed = truth.setdefault((row["gpu"], row["time"]), {})
        rows.append({name: value if name == "job" else agreed.setdefault(name, value) for name, value in row.items()})
    copies = draw(st.lists(st.sampled_from(rows), max_size=20))
    return rows, draw(st.permutations(rows + copies))


@settings(max_examples=100, deadline=None)
@given(shuffled())
def test_no_order_and_no_copy_of_rows_changes_what_is_settled(pair: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    first, second = (rows_of(settle(table(rows))) for rows in pair)
    for row in (*first, *second):
        row["flags"] &= ~ARRIVAL
    assert first == second


@settings(max_examples=100, deadline=None)
@given(sample_rows(values_repeat=True), st.sampled_from([None, 30_000]))
def test_spans_never_overlap_and_never_exceed_the_window(rows: list[dict[str, Any]], gap_ms: int | None) -> None:
    by_device: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for row in rows_of(settle(table(rows), gap_ms=gap_ms)):
        by_device[row["gpu"], row["mig"]].append((row["time"], row["span_ms"]))
    for series in by_device.values():
        assert all(earlier <= later - span for (earlier, _), (later, span) in pairwise(series))
        assert sum(span for _, span in series) <= series[-1][0] - series[0][0] + series[0][1]


@settings(max_examples=60, deadline=None)
@given(sample_rows(values_repeat=False), st.data())
def test_settling_in_two_batches_gives_the_same_spans_as_in_one(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    cut = 1_700_000_000_000 + 20_000 * data.draw(st.integers(0, 12))
    early, late = [r for r in rows if r["time"] <= cut], [r for r in rows if r["time"] > cut]
    if not early or not late:
        return
    head = settle(table(early), gap_ms=90_000)
    tail = settle(table(late), gap_ms=90_000, before=head)
    # a device whose first batch had one sample could only guess the span of it
    whole = [r for r in rows_of(settle(table(rows), gap_ms=90_000)) if r["time"] > cut]
    again = [r for r in rows_of(tail) if any(e["gpu"] == r["gpu"] and e.get("mig") == r["mig"] for e in early)]
    seen = [r for r in whole if any(e["gpu"] == r["gpu"] and e.get("mig") == r["mig"] for e in early)]
    keys = ("gpu", "mig", "time", "span_ms", "energy_delta", "tensor_cycles_delta")
    assert [[r[k] for k in keys] for r in again] == [[r[k] for k in keys] for r in seen]


@pytest.mark.parametrize("times", [[0, 2**62], [-(2**61), 0, 2**61]])
def test_times_that_no_clock_shows_are_still_sorted(times: list[int]) -> None:
    settled = settle(table([{"gpu": g, "time": t} for t in times for g in ("b", "a")]))
    assert [r["time"] for r in rows_of(settled)] == times * 2


def test_as_many_jobs_share_a_sample_as_its_word_names_and_a_byte_holds():
    words = [",".join(f"j{n:03}" for n in range(count)) for count in (1, 2, 127, 128)]
    rows = [{"gpu": "a", "time": 30_000 * n, "job": word} for n, word in enumerate([*words, None])]
    assert column(settle(table(rows)), "sharers") == [1, 2, 127, 127, 0]


def test_users_of_one_job_are_no_two_and_those_of_several_jobs_are_joined():
    # at the first time two jobs share the GPU; at the second, copies of one job's sample name two users
    told = [(1, "b", "eve"), (1, "a", "bob"), (1, None, "eve"), (2, "a", "bob"), (2, "a", "eve"), (3, None, "eve"), (3, None, None)]
    rows = rows_of(settle(table([{"gpu": "g", "time": time, "job": job, "user": user} for time, job, user in told])))
    assert [(row["job"], row["user"], row["sharers"]) for row in rows] == [("a,b", "bob,eve", 2), ("a", "bob", 1), (None, "eve", 0)]


def test_what_is_told_of_a_sample_but_its_fields_and_model_can_disagree_without_a_conflict():
    rows = [{"gpu": "a", "time": 1, "power": 1.0, "host": "n1"}, {"gpu": "a", "time": 1, "host": "n2"}]
    (row,) = rows_of(settle(table(rows)))
    assert (row["host"], row["flags"]) == ("n1", 0)


def test_a_frozen_gauge_needs_a_reading_each_time_and_no_silence_between():
    rows = [{"gpu": "a", "time": 30_000 * n, "tensor_active": 0.4125, "sm_active": 0.5 + n / 1000} for n in range(10)]
    assert still(settle(table(rows))) == "-----GGGGG"
    lacking = [row if n != 3 else row | {"tensor_active": None} for n, row in enumerate(rows)]
    assert still(settle(table(lacking))) == "---------G"
    later = [row if n < 3 else row | {"time": row["time"] + 86_400_001} for n, row in enumerate(rows)]
    assert still(settle(table(later))) == "--------GG"


def test_a_comma_in_a_jobs_name_makes_no_sharer():
    rows = pa.Table.from_batches([samples({"time": [30_000, 60_000, 60_000], "gpu": ["G"] * 3, "job": [r"a\,b", r"a\,b", "c"]})])
    settled = settle(rows)
    assert settled["job"].to_pylist() == [r"a\,b", r"a\,b,c"]
    assert settled["sharers"].to_pylist() == [1, 2]


def test_rows_are_taken_by_number_and_none_is_null():
    column = pa.array([5, 6, 7])
    assert take(column, np.array([2, 0])).to_pylist() == [7, 5]
    assert take(column, np.array([0, -1, 1])).to_pylist() == [5, None, 6]
    assert take(column, np.zeros(0, np.int64)).to_pylist() == []
