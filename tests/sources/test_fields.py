"""What exporters call things, and what is done to their numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.problems import Problems
from ullage.sources.naming.fields import Alias, clean, is_sentinel, known, possible
from ullage.sources.naming.names import _LABELLED, _NAMES
from ullage.tables import FIELDS, Flag
from ullage.units import TO_SI


def cleaned(name, values):
    alias = known(name)
    problems = Problems()
    result, flags = clean(alias, np.array(values, float), problems, "here")
    return [None if np.isnan(v) else float(v) for v in result], flags.tolist(), problems


def test_every_name_means_a_field_in_a_unit_of_its_dimension():
    for name, alias in _NAMES.items():
        assert alias.name == name and alias.field in FIELDS and alias.unit in TO_SI
        assert (alias.unit == "mask") == (FIELDS[alias.field].unit == "mask")
    for _, meanings in _LABELLED.values():
        assert all(field in FIELDS and unit in TO_SI for field, unit in meanings.values())


def test_every_field_can_be_reported_by_some_exporter():
    assert {alias.field for alias in _NAMES.values()} == set(FIELDS)


@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        # the same reading under the classic and the base-unit name: MHz and Hz, % and 1, mJ and J, MiB and B
        ("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK_HERTZ", 1755, 1.755e9),
        ("DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", 2619, 2.619e9),
        ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", 58, 0.58),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 5_000_000, 5000),
        ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES", 512, 512 * 1024 * 1024),
        ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS", 612.5, 612.5),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO", 0.93, 0.93),
    ],
)
def test_old_and_new_dcgm_names_give_the_same_number(old, new, before, after):
    assert known(old).field == known(new).field
    assert cleaned(old, [before])[0] == pytest.approx(cleaned(new, [after])[0])


def test_cycle_counters_have_their_fields():
    # dcgm_fields.py: 1084 SM cycles elapsed, 1085 SM cycles active, 1086 any MMA pipe active; 1088 is HMMA alone
    assert known("DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL").field == "sm_cycles"
    assert known("DCGM_FI_PROF_SM_CYCLES_ACTIVE_TOTAL").field == "sm_active_cycles"
    assert known("DCGM_FI_PROF_MMA_CYCLES_ACTIVE_TOTAL").field == "tensor_cycles"
    assert known("DCGM_FI_PROF_HMMA_CYCLES_ACTIVE_TOTAL") is None


def test_a_clock_of_amd_needs_its_label():
    assert known("gpu_clock") is None and possible("gpu_clock") and possible("amd_gpu_clock")
    assert known("gpu_clock", {"clock_type": "GPU_CLOCK_TYPE_SYSTEM"}).field == "sm_clock"
    assert known("gpu_clock", {"clock_type": "memory"}).field == "memory_clock"
    assert known("gpu_clock", {"clock_type": "video"}) is None
    assert known("nvidia_gpu_clock", {"type": "sm"}).unit == "MHz"


@pytest.mark.parametrize(
    ("name", "field", "unit"),
    [
        ("DCGM_FI_DEV_BOARD_POWER_MILLIWATTS", "power", "mW"),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE_PERCENT", "tensor_active", "%"),
        ("nvidia_smi_memory_used_bytes", "memory_used", "B"),
        ("accelerator_sm_clock_mhz", "sm_clock", "MHz"),
    ],
)
def test_a_renamed_field_is_understood_by_its_stem_and_unit(name, field, unit):
    assert known(name) == Alias(name, field, unit)


@pytest.mark.parametrize(
    "name",
    [
        "DCGM_FI_DEV_SM_MAX_CLOCK_HERTZ",  # not the clock at which it runs
        "DCGM_FI_DEV_FB_USED_RATIO",  # a share of memory, not bytes
        "DCGM_FI_DEV_MEMORY_UTIL_RATIO",
        "DCGM_FI_DEV_BOARD_POWER_LIMIT_MAX_WATTS",
        "node_cpu_frequency_hertz",
        "process_memory_used_bytes",
        "DCGM_FI_DEV_MEMORY_TEMP",
    ],
)
def test_a_name_that_is_near_a_field_but_means_something_else_is_no_field(name):
    assert known(name) is None


def test_megahertz_beyond_reason_are_hertz_and_each_number_says_so_itself():
    # one column, an old exporter (1410 MHz) and a new one (1.41e9 Hz under the old name)
    values, flags, problems = cleaned("DCGM_FI_DEV_SM_CLOCK", [1410, 1.41e9, 0])
    assert values == [1.41e9, 1.41e9, 0]
    assert flags == [0, Flag.UNIT_GUESSED, 0]
    assert "1 values of DCGM_FI_DEV_SM_CLOCK are not in MHz as the name says" in problems.lines()[0]


def test_hertz_that_are_megahertz_are_put_right():
    assert cleaned("DCGM_FI_DEV_SM_CLOCK_HERTZ", [1410, 0])[:2] == ([1.41e9, 0], [Flag.UNIT_GUESSED, 0])


@pytest.mark.parametrize(
    ("name", "mhz", "factor"),
    [("DCGM_FI_DEV_SM_CLOCK", 1980, 1), ("DCGM_FI_DEV_SM_CLOCK", 1980, 1e-3), ("DCGM_FI_DEV_SM_CLOCK", 345, 1e-3),
     ("DCGM_FI_DEV_SM_CLOCK", 345, 1e3), ("DCGM_FI_DEV_SM_CLOCK", 1980, 1e3), ("DCGM_FI_DEV_SM_CLOCK", 135, 1e6),
     ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1980, 1e-3), ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1980, 1e3), ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1980, 1e6),
     ("DCGM_FI_DEV_MEM_CLOCK", 14001, 1), ("DCGM_FI_DEV_MEM_CLOCK", 14001, 1e-3), ("DCGM_FI_DEV_MEM_CLOCK", 96, 1e3)],
)  # fmt: skip
def test_a_clock_is_read_in_the_one_unit_in_which_a_chip_can_run(name, mhz, factor):
    # GHz, kHz and Hz under a name of MHz or Hz
    values, flags, _ = cleaned(name, [mhz * factor])
    assert values == [pytest.approx(mhz * 1e6)]
    as_named = factor == (1e6 if name.endswith("HERTZ") else 1)
    assert flags == [0 if as_named or "MEM" in name else Flag.UNIT_GUESSED]


@pytest.mark.parametrize(
    ("mhz", "expected", "flag"),
    [
        (10.0, 10e6, 0),  # a chip that dozes; the reading fits its name
        (9.9, 9.9e6, 0),  # still: 9.9 GHz is none
        (5.0, 5e9, Flag.UNIT_GUESSED),
        (0.1, 1e8, Flag.UNIT_GUESSED),
        (0.0999, None, Flag.IMPOSSIBLE),  # neither 99.9 MHz in GHz nor 99.9 kHz is an SM clock
        (5000.0, 5e9, 0),
        (5001.0, None, Flag.IMPOSSIBLE),
        (0.0, 0.0, 0),  # whether that can be is settled with the other gauges
    ],
)
def test_where_a_clock_fits_its_name(mhz, expected, flag):
    assert cleaned("DCGM_FI_DEV_SM_CLOCK", [mhz])[:2] == ([expected], [flag])


def test_what_has_the_name_of_a_ratio_passes_until_its_exporter_is_known():
    values, flags, problems = cleaned("DCGM_FI_PROF_SM_ACTIVE", [0.9, 58.0, 1.3, 110.0, 111.0])
    assert values == [0.9, 58.0, 1.3, 110.0, None] and flags == [*[Flag.NAMED_RATIO] * 4, Flag.IMPOSSIBLE]
    assert problems.lines() == ["1 impossible values of sm_active left out (first: here DCGM_FI_PROF_SM_ACTIVE)"]
    assert cleaned("DCGM_FI_DEV_GPU_UTIL_RATIO", [58])[1] == [Flag.UTILIZATION_NAMED_RATIO]


def test_what_has_the_name_of_percent_is_percent():
    # DCGM_FI_DEV_GPU_UTIL and AMD's and NVML's activities; 0.5 is half a percent
    assert cleaned("DCGM_FI_DEV_GPU_UTIL", [58, 0.5, 1])[:2] == ([0.58, 0.005, 0.01], [0, 0, 0])
    assert cleaned("gpu_prof_tensor_active_percent", [0.5])[:2] == ([0.005], [0])


def test_milliwatts_and_bytes_are_seen():
    assert cleaned("DCGM_FI_DEV_POWER_USAGE", [612_000, 612])[0] == [612, 612]
    # 40 GiB in bytes under a MiB name, beside a moment when 3 MiB were in use, which alone would pass for MiB
    assert cleaned("DCGM_FI_DEV_FB_USED", [40 * 2**30, 3 * 2**20])[0] == [40 * 2**30, 3 * 2**20]


@pytest.mark.parametrize(
    "blank", [2147483632, 2147483635, 9223372036854775794, 140737488355328, 140737488355330, 1.40737488355328e16, 4294967295]
)
@pytest.mark.parametrize("name", ["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_FB_USED"])
def test_no_value_numbers_become_missing(name, blank):
    values, flags, problems = cleaned(name, [blank, 0.5 if "PROF" in name else 50])
    assert values[0] is None and values[1] is not None
    # only what OFU rests on is flagged: trust is about the activity gauges
    assert flags == [0 if "FB_USED" in name else Flag.SENTINEL, Flag.NAMED_RATIO if "TENSOR" in name else 0]
    assert problems.lines() == [f"1 'no value' numbers of the exporter (sentinels) left out (first: here {name})"]


def test_counters_pass_through_every_number_but_the_wide_blanks():
    counts = [2147483632, 4294967295, 140737488355327, 140737488355332, 2.0**53]
    assert cleaned("DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL", counts)[0] == counts
    assert cleaned("DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL", [9223372036854775792, 140737488355328])[0] == [None, None]


def test_bytes_may_be_two_gibibytes_less_sixteen():
    assert cleaned("DCGM_FI_DEV_FB_USED_BYTES", [2147483632])[0] == [2147483632]
    assert cleaned("DCGM_FI_DEV_FB_USED", [65535])[0] == [65535 * 2**20]


def test_infinities_are_missing_and_impossible_numbers_are_counted():
    values, flags, problems = cleaned("DCGM_FI_DEV_GPU_UTIL", [np.inf, -np.inf, np.nan, 999, 51])
    assert values == [None, None, None, None, 0.51]
    assert flags == [0, 0, 0, Flag.IMPOSSIBLE, 0]
    assert problems.dropped == {"impossible values of gpu_util": 1, "infinite readings": 2}


def test_the_column_that_is_cleaned_is_not_changed():
    column = np.array([1410.0, 2147483632.0])
    clean(known("DCGM_FI_DEV_SM_CLOCK"), column, Problems())
    assert column.tolist() == [1410.0, 2147483632.0]


def test_an_empty_column_is_no_matter():
    assert clean(known("power"), np.zeros(0), Problems())[0].tolist() == []


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40), st.sampled_from(sorted(_NAMES)))
def test_whatever_comes_in_what_goes_out_is_missing_or_within_range(values, name):
    alias = known(name)
    field = FIELDS[alias.field]
    result, flags = clean(alias, np.array(values, float), Problems())
    kept = result[~np.isnan(result)]
    highest = field.highest * (100 if alias.unit == "1" and field.kind == "ratio" else 1)  # a ratio may still be percent
    assert ((kept >= field.lowest) & (kept <= highest)).all()
    assert len(result) == len(flags) == len(values)


def test_a_value_that_is_no_sentinel_is_none():
    assert not is_sentinel(np.array([0.0, 1.0, 2147483631.0, np.nan, -1.0])).any()
