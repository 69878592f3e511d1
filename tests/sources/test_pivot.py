"""Readings to wide rows, checked against dictionaries."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ullage.problems import Problems
from ullage.sources.rows.pivot import FieldReadings, Identities, batch, pivot
from ullage.tables import SAMPLES, Flag


def column(field: str, readings: list[tuple[int, int, float]], flags: int = 0) -> FieldReadings:
    who, time, values = zip(*readings, strict=True) if readings else ((), (), ())
    return FieldReadings(
        field, np.array(who, np.int64), np.array(time, np.int64), np.array(values, np.float64), np.full(len(who), flags, np.uint16)
    )


def test_no_readings_are_no_rows() -> None:
    assert len(pivot([]).time) == len(pivot([column("power", [])]).time) == 0


def test_copies_count_once_and_are_flagged() -> None:
    # the same reading under two jobs, and once with another value
    wide = pivot([column("sm_active", [(0, 10, 0.5), (0, 10, 0.5), (0, 20, 0.5), (0, 20, 0.75), (0, 30, 0.5)])])
    assert wide.fields["sm_active"].tolist() == [0.5, 0.5, 0.5]
    assert wide.flags.tolist() == [Flag.COPIED, Flag.COPIED | Flag.CONFLICT, 0]
    assert wide.copies == 2


def test_a_missing_copy_gives_way_to_one_that_is_there() -> None:
    wide = pivot([column("power", [(0, 10, math.nan), (0, 10, 300.0)])])
    assert (wide.fields["power"].tolist(), wide.flags.tolist()) == ([300.0], [Flag.COPIED])


def test_a_second_name_of_a_field_fills_what_the_first_left_open() -> None:
    wide = pivot([column("throttle", [(0, 10, 4.0)]), column("throttle", [(0, 10, 8.0), (0, 20, 16.0)])])
    assert (wide.fields["throttle"].tolist(), wide.flags.tolist()) == ([4.0, 16.0], [0, 0])


def test_flags_of_all_readings_meet_in_the_row() -> None:
    wide = pivot([column("power", [(0, 10, math.nan)], Flag.SENTINEL), column("sm_active", [(0, 10, 0.5)], Flag.UNIT_GUESSED)])
    assert wide.flags.tolist() == [Flag.SENTINEL | Flag.UNIT_GUESSED]


def test_rows_that_say_nothing_are_left_out_and_counted() -> None:
    devices, problems = Identities(), Problems()
    devices.code({"gpu": "GPU-1", "index": 3})
    found = batch(pivot([column("power", [(0, 10, math.nan), (0, 20, 300.0)])]), devices, problems)
    assert found.schema == SAMPLES
    assert (found["power"].to_pylist(), found["gpu"].to_pylist(), found["index"].to_pylist()) == ([300.0], ["GPU-1"], [3])
    assert problems.lines() == ["1 rows without any value left out"]


def test_a_batch_carries_only_the_words_that_it_uses() -> None:
    devices = Identities()
    codes = [devices.code({"gpu": f"GPU-{n}", "host": "n1" if n % 2 else None}) for n in range(100)]
    columns = devices.columns(np.array([codes[7], codes[8], codes[7]]))
    assert columns["gpu"].dictionary.to_pylist() == ["GPU-7", "GPU-8"]
    assert columns["gpu"].to_pylist() == ["GPU-7", "GPU-8", "GPU-7"]
    assert columns["host"].to_pylist() == ["n1", None, "n1"]


_moments = st.one_of(st.integers(0, 5), st.integers(-(2**50), 2**50))
_values = st.one_of(st.just(math.nan), st.integers(0, 3).map(float))
_columns = st.lists(
    st.tuples(st.sampled_from(["power", "sm_active"]), st.lists(st.tuples(st.integers(0, 10**6), _moments, _values))), max_size=4
)


@given(_columns)
def test_every_first_reading_is_found_in_its_row(columns: list[tuple[str, list[tuple[int, int, float]]]]) -> None:
    wide = pivot([column(name, readings) for name, readings in columns])
    expected: dict[tuple[int, int], dict[str, float]] = {}
    for name, readings in columns:
        for who, when, value in readings:
            row = expected.setdefault((who, when), {})
            if not math.isnan(value):
                row.setdefault(name, value)
    assert list(zip(wide.who.tolist(), wide.time.tolist(), strict=True)) == sorted(expected)
    for name, values in wide.fields.items():
        wanted = [expected[key].get(name, math.nan) for key in sorted(expected)]
        assert np.array_equal(values, wanted, equal_nan=True)
