"""`ullage cupti chips`, `metrics`, `describe` and `plan`: the answer first, one sentence for what is wrong."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.cupti.cupti_counting import SHARE, real
from ullage.cli import cli
from ullage.cupti.counters import catalogue
from ullage.errors import UllageError
from ullage.reports.counters.counters import chip_code


def told(*arguments, library=True):
    path = ["--cupti", str(real().path)] if library else []
    done = CliRunner().invoke(cli, ["cupti", *arguments, *path])
    if isinstance(done.exception, UllageError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def refused(*arguments):
    with pytest.raises(UllageError) as caught:
        told(*arguments)
    return caught.value


@pytest.fixture
def without(monkeypatch):
    """A machine without libcupti."""

    def none(_path):
        raise UllageError("there is no libcupti on this machine", "install it")

    monkeypatch.setattr(catalogue, "find", none)


def test_chips_come_with_the_gpus_that_have_them():
    lines = told("chips").splitlines()
    assert lines[0].startswith("30 chips can be counted on, asked of CUPTI 13.1 (")
    assert next(line for line in lines if line.startswith("GA107")) == "GA107  NVIDIA A2, NVIDIA A16"
    by_chip = {row["chip"]: row["gpus"] for row in json.loads(told("chips", "--json"))["chips"]}
    assert "NVIDIA H200" in by_chip["GH100"]
    assert by_chip["TU117"] == []


def test_metrics_are_counted_and_cut_at_the_limit():
    lines = told("metrics", "H200", "dram*", "--limit", "2").splitlines()
    assert lines[0] == "GH100 has 3,389 counters, 205 ratios, 56 throughputs: 16 match 'dram*'"
    assert lines[3].split() == ["dram__bytes", "counter", "bytes", "#", "of", "bytes", "accessed", "in", "DRAM"]
    assert lines[5] == "… 14 more; give a pattern, or --limit 0"


def test_a_kind_is_listed_by_itself():
    found = json.loads(told("metrics", "GH100", "--kind", "throughput", "--json"))
    assert found["counts"] == {"counter": 3389, "ratio": 205, "throughput": 56}
    assert len(found["metrics"]) == found["matching"] == 56
    assert {metric["kind"] for metric in found["metrics"]} == {"throughput"}


def test_names_that_people_use_come_before_families_of_one_pass():
    names = [metric["name"] for metric in json.loads(told("metrics", "GH100", "cycles_active", "--json"))["metrics"]]
    assert names == sorted(names, key=lambda name: ("." in name, name))
    assert any("." in name for name in names)


def test_a_metric_is_described_with_its_passes_and_its_twin():
    text = told("describe", "h200", "sm__cycles_active")
    lines = text.splitlines()
    assert lines[0] == "sm__cycles_active: a counter of GH100, counted by sm, in gpc_cycles"
    assert lines[3] == "collected in  1 pass by ranges, 1 pass by PM sampling"
    assert ".avg .max .min .sum, each alone or with .peak_sustained" in lines[4]
    assert "field 1002 (sm_active)" in text
    (record,) = json.loads(told("describe", "h200", "sm__cycles_active", "--json"))["metrics"]
    assert (record["unit"], record["passes"], record["dcgm"]["dcgm"]) == ("gpc_cycles", {"range": 1, "pm": 1}, 1002)
    assert len(record["submetrics"]) == 44


def test_a_ratio_has_endings_of_its_own_and_no_unit():
    text = told("describe", "GH100", "l1tex__t_sector_hit_rate")
    assert "counted by l1tex, without a unit" in text
    assert "as            .max_rate .pct .ratio" in text


SEVEN = [
    *(f"{name}{SHARE}" for name in ("sm__cycles_active", "sm__warps_active", "sm__pipe_tensor_cycles_active", "dram__cycles_active")),
    "sm__inst_executed_pipe_tensor.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
]  # fmt: skip


def test_a_plan_begins_with_its_answer():
    lines = told("plan", "GH100", *SEVEN).splitlines()
    assert lines[0] == "7 metrics on GH100: 1 pass by ranges, 3 by PM sampling"
    assert "a single pass by PM sampling holds 6 of them, without sm__inst_executed_pipe_tensor.sum" in lines
    assert "cheaper under other names for the same: 2 passes by PM sampling" in lines
    assert "note: at most this many of the hardware's counters fit a pass: 88 by ranges, 248 by PM sampling" in lines


def test_a_plan_for_programs_has_groups_and_what_to_leave_out():
    found = json.loads(told("plan", "GH100", *SEVEN, "--json"))
    assert found["modes"]["range"]["groups"] == [SEVEN]
    assert found["modes"]["pm"]["left_out"] == ["sm__inst_executed_pipe_tensor.sum"]
    assert found["cheaper"]["pm"]["passes"] == 2


def test_a_name_without_roll_up_is_completed_and_the_plan_says_so():
    text = told("plan", "B200", "sm__throughput", "--mode", "range")
    assert text.startswith("1 metric on GB100: 8 passes by ranges\n")
    assert f"note: sm__throughput was taken as sm__throughput{SHARE}" in text
    assert "no single pass by ranges holds it" in text


def test_ullages_own_counters_of_a_device_are_one_pass():
    assert told("plan", "H200", "--set", "device").startswith("8 metrics on GH100: 1 pass by ranges, 1 by PM sampling\n")


def test_what_sampling_lacks_is_named_in_the_answer():
    name = "sm__ops_path_tensor_src_fp64.sum"
    assert told("plan", "GH100", name, "--mode", "pm").startswith("1 metric on GH100: not to be had by PM sampling\n")
    both = told("plan", "GH100", name, "sm__cycles_active.sum")
    assert f"1 by PM sampling without {name}, which it doesn't have" in both.splitlines()[0]


@pytest.mark.parametrize("name", ["sm__cycles_active.foo", "l1tex__t_sector_hit_rate.sum", "sm__throughput.sum"])
def test_an_ending_that_a_metric_does_not_take_is_refused_and_not_called_uncollectable(name):
    error = refused("plan", "GH100", "dram__bytes_read", name)
    assert error.problem == f"GH100 has no metric '{name}'" and "`ullage cupti describe GH100 NAME`" in error.hint


@pytest.mark.parametrize("pattern", [r"(\w+)+!", "(a*)*b!", "((a?){99}){9}!", "a" * 10_000])
def test_no_pattern_keeps_the_machine_busy(pattern):
    assert "0 match" in told("metrics", "GH100", pattern).splitlines()[0]


@pytest.mark.parametrize("pattern", ["(", "(?=a)", "a{1,5000}", "\x1b[31m", "\udcff"])
def test_what_is_no_pattern_is_said_without_reaching_the_terminal(pattern):
    error = refused("metrics", "GH100", pattern)
    assert "is no pattern: " in error.problem and error.problem.isprintable()


def test_where_nothing_matches_the_nearest_are_named():
    assert "did you mean 'sm__cycles_active'" in told("metrics", "GH100", "sm_cycles__active")


def test_a_part_that_there_is_not_reaches_no_terminal():
    done = CliRunner().invoke(cli, ["cupti", "\x1b[31m" + "x" * 10_000])
    assert done.exit_code == 2 and "\x1b" not in done.output and len(done.output) < 200


def test_chips_of_other_releases_are_named_beside_those_of_the_library():
    text = " ".join(told("chips").split())
    assert "note: metrics of GB10C, GM200, GM204, GM206, GM20B, GR100, GV100, GV11B are known too" in text
    assert json.loads(told("chips", "--json"))["others"][0] == "GB10C"
    assert max(len(line) for line in told("chips").splitlines()[1:] if not line.startswith("note")) <= 110


def test_no_colour_leaves_no_escape(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    done = CliRunner().invoke(cli, ["cupti", "metrics", "GH100", "dram", "--cupti", str(real().path)], color=True)
    assert "# of bytes" in done.output and "\x1b" not in done.output


def test_an_unknown_chip_or_metric_brings_the_nearest():
    assert "did you mean 'GH100'" in refused("metrics", "GH10").hint
    assert "'sm__cycles_active'" in refused("plan", "GH100", "sm__cycle_active.sum").hint
    assert refused("metrics", "GH100", "[").problem.startswith("'[' is no pattern")
    assert "AMD Instinct MI300X" in refused("plan", "MI300X", "--set", "device").problem


def test_without_a_library_names_come_from_the_dictionary_and_plans_are_refused(without):
    assert "from the dictionary that comes with Ullage" in told("chips", library=False)
    assert "GH100 has" in told("metrics", "H200", "sm__cycles", library=False)
    described = told("describe", "H200", "sm__cycles_active", library=False)
    assert "collected in" not in described and "note: what NVIDIA says of a metric, its endings and its passes come from" in described
    with pytest.raises(UllageError, match="passes are counted by NVIDIA's library, and there is no libcupti"):
        told("plan", "H200", "--set", "device", library=False)


def test_a_named_library_that_is_not_there_is_an_error(tmp_path):
    done = CliRunner().invoke(cli, ["cupti", "chips", "--cupti", str(tmp_path / "nothing.so")])
    assert isinstance(done.exception, UllageError)


@pytest.mark.parametrize(("arguments", "words"), [(["plan", "H200"], "--set"), (["chipz"], "did you mean 'chips'")])
def test_what_is_missing_on_the_command_line_is_said(arguments, words):
    done = CliRunner().invoke(cli, ["cupti", *arguments])
    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        *(("gh100", "GH100"), ("NVIDIA H200", "GH100"), ("V100", "GV100"), ("rtx 5090", "GB202"), ("B300", "GB110"), ("Orin", "GA10B")),
        *(("Tesla T4", "TU104"), ("Quadro RTX 8000", "TU102"), ("A2", "GA107"), ("A4000", "GA104"), ("RTX 4080", "AD103")),
        *(("RTX 5080", "GB203"), ("GB10", "GB20B"), ("Jetson Thor", "GB10B"), ("H100 NVL MIG 1g.12gb", "GH100")),
    ],
)
def test_a_chip_goes_by_its_own_name_and_by_any_gpus(name, chip):
    assert chip_code(name) == chip


@pytest.mark.parametrize("part", ["chips", "metrics", "describe", "plan"])
def test_every_part_shows_examples(part):
    assert f"ullage cupti {part}" in CliRunner().invoke(cli, ["cupti", part, "--help"]).output
