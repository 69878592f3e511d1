"""Chips, their names, peaks and MIG shares."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ullage.cli.gpus import command
from ullage.errors import UllageError
from ullage.gpus import mig, names
from ullage.gpus.chip import CHIPS, Chip, all_names, chip, find, peak, tensor_clock
from ullage.gpus.precision import PRECISIONS, canonical
from ullage.metrics import peaks as equations

SHARED = Path(__file__).parents[2] / "shared" / "data" / "gpu_specs.csv"
EVERY = CHIPS.values()
NOTHING: dict[str, str] = {}


# --- peaks


@pytest.mark.parametrize(
    ("name", "precision", "teraflops", "megahertz"),
    [
        # the OFU paper, IV-D: SMs × FLOPs per cycle and SM × clock
        ("H100 SXM", "fp16", 989.4, 1830),  # 132 × 4096 × 1.830e9
        ("H100 SXM", "bf16", 989.4, 1830),
        ("H100 SXM", "fp8", 1978.9, 1830),  # 132 × 8192 × 1.830e9
        ("H100 SXM", "tf32", 494.7, 1830),  # 132 × 2048 × 1.830e9
        ("H100 SXM", "fp64", 66.9, 1980),  # 132 × 256 × 1.980e9: FP64 runs at the SM clock
        ("GB200", "bf16", 2500.0, 2062),  # 148 × 8192 × 2.062e9
        ("H100 PCIe", "bf16", 756.4, 1620),  # 114 × 4096 × 1.620e9
        ("H200 NVL", "bf16", 835.3, 1545),  # 132 × 4096 × 1.545e9
    ],
)
def test_the_peaks_of_the_paper_come_out_to_its_last_digit(name, precision, teraflops, megahertz):
    assert round(peak(name, precision, environment=NOTHING) / 1e12, 1) == teraflops
    assert find(name, NOTHING).clock(precision) == megahertz * 1e6


@pytest.mark.parametrize("member", EVERY, ids=lambda c: c.name)
def test_every_derived_peak_is_the_makers_within_one_and_a_half_percent_or_the_note_says_why(member):
    for precision in member.flops_per_cycle:
        assert precision in member.stated, "a rate per cycle without a stated peak cannot be checked"
        gap = abs(member.peak(precision) / member.stated[precision] - 1)
        assert gap <= 0.015 or "disagree" in member.note


@pytest.mark.parametrize("member", EVERY, ids=lambda c: c.name)
def test_a_chips_peak_is_the_metric_of_that_name(member):
    for precision, rate in member.flops_per_cycle.items():
        assert member.peak(precision) == equations.peak(member.sms, rate, member.clock(precision))


@pytest.mark.parametrize("member", EVERY, ids=lambda c: c.name)
def test_every_chip_has_a_source_a_makers_figure_and_sane_numbers(member):
    assert member.source and member.stated and member.flops_per_cycle
    assert member.confidence == "low" or member.checked, "confirmed by what?"
    assert 40 <= member.sms <= 400 and 1e9 < member.tensor_clock < 3e9
    assert member.sm_clock is None or member.tensor_clock <= member.sm_clock, "the tensor clock is never above the SM clock"
    assert 0.1e12 < member.bandwidth < 20e12 and 8e9 < member.memory < 500e9 and 50 < member.power < 2000


def test_dense_rates_double_as_the_precision_halves_in_the_data_centre():
    # a sparse figure taken for a dense one would break the ratio 1 : 2 : 4
    for name in ("H100", "B200", "GB200", "MI300X"):
        rate = find(name, NOTHING).flops_per_cycle
        assert rate["fp8"] == 2 * rate["bf16"] == 4 * rate["tf32"]


def test_a_precision_that_the_chip_lacks_names_those_it_has():
    with pytest.raises(UllageError) as raised:
        peak("Tesla V100-SXM2-16GB", "bf16", environment=NOTHING)
    assert str(raised.value) == "Tesla V100-SXM2-16GB has no bf16 peak\n  it has fp16"


def test_where_no_rate_is_documented_the_stated_peak_is_the_peak():
    assert peak("H800", "fp64", environment=NOTHING) == 1e12
    assert peak("B300", "int8", environment=NOTHING) == 150e12


@pytest.mark.parametrize("word", ["bfloat16", "BF16", " fp16 ", "half", "e4m3", "nvfp4", "MXFP4", "float64", "tf32", "int8"])
def test_precisions_go_by_the_names_that_people_use(word):
    assert canonical(word) in PRECISIONS


def test_an_unknown_precision_is_an_error_with_a_suggestion():
    with pytest.raises(UllageError, match="no precision is called 'fp17'") as raised:
        canonical("fp17")
    assert "did you mean 'fp16'" in raised.value.hint


def test_mixed_precision_weighs_the_peaks_by_time_and_not_by_flops():
    # 60 % of the FLOPs at 989.4, 40 % at 1978.8: 0.6/989.4 + 0.4/1978.8 = 0.8/989.4, so the peak is 989.4/0.8 = 1236.75
    assert equations.effective_peak({"bf16": 0.6, "fp8": 0.4}, {"bf16": 989.4, "fp8": 1978.8}) == pytest.approx(1236.75)


def test_a_run_without_flops_has_no_effective_peak():
    assert equations.effective_peak({}, {}) is None
    assert equations.effective_peak({"bf16": 0}, {"bf16": 2}) is None


@given(st.dictionaries(st.sampled_from(PRECISIONS), st.tuples(st.floats(1, 1e20), st.floats(1e12, 1e16)), min_size=1))
def test_an_effective_peak_lies_between_the_peaks(mix):
    flops = {p: f for p, (f, _) in mix.items()}
    peaks = {p: c for p, (_, c) in mix.items()}
    assert min(peaks.values()) * (1 - 1e-9) <= equations.effective_peak(flops, peaks) <= max(peaks.values()) * (1 + 1e-9)


# --- against the research table


# column of the table → what our chip says, in the table's unit
COLUMNS = {
    "sm_or_cu": lambda c: c.sms,
    "max_sm_clock_mhz": lambda c: c.sm_clock and c.sm_clock / 1e6,
    "tensor_clock_mhz": lambda c: c.tensor_clock / 1e6,
    "fpc_fp16bf16_dense": lambda c: c.flops_per_cycle.get("fp16"),
    "fpc_tf32_dense": lambda c: c.flops_per_cycle.get("tf32"),
    "fpc_fp8_dense": lambda c: c.flops_per_cycle.get("fp8"),
    "fpc_int8_dense": lambda c: c.flops_per_cycle.get("int8"),
    "fpc_fp4_dense": lambda c: c.flops_per_cycle.get("fp4"),
    "fpc_fp64_tensor": lambda c: c.flops_per_cycle.get("fp64"),
    "pub_fp16bf16_tflops": lambda c: c.stated["fp16"] / 1e12,
    "pub_tf32_tflops": lambda c: c.stated.get("tf32", 0) / 1e12 or None,
    "pub_fp8_tflops": lambda c: c.stated.get("fp8", 0) / 1e12 or None,
    "pub_int8_tops": lambda c: c.stated.get("int8", 0) / 1e12 or None,
    "pub_fp4_tflops": lambda c: c.stated.get("fp4", 0) / 1e12 or None,
    "pub_fp64_tensor_tflops": lambda c: c.stated.get("fp64", 0) / 1e12 or None,
    "mem_bw_gbs": lambda c: c.bandwidth / 1e9,
    "tdp_w": lambda c: c.power,
}
A10G = "the rate per cycle is inferred from the stated peak and confirmed by a measured GEMM (69.5 TFLOP/s)"
H20 = "a quarter of an H100's rate is assumed, and the clock derived from the stated peak; a measured GEMM reaches 142"
ULTRA = "INT8 is cut on Ultra: 0.15 and 0.165 POP/s dense"
CORRECTED = {
    **{("A10G", column): A10G for column in ("tensor_clock_mhz", "fpc_fp16bf16_dense", "fpc_tf32_dense", "fpc_int8_dense")},
    **{("H20", f"fpc_{p}_dense"): H20 for p in ("fp16bf16", "tf32", "fp8", "int8")},
    ("H20", "tensor_clock_mhz"): H20,
    ("B100", "tensor_clock_mhz"): "derived from the stated peak: 1750e12 / (148 × 8192)",
    ("B300 SXM (HGX/DGX)", "pub_int8_tops"): ULTRA,
    ("GB300 (per GPU)", "pub_int8_tops"): ULTRA,
    ("GB300 (per GPU)", "max_sm_clock_mhz"): "the driver of a GB300 allows 2070 MHz",
    ("GH200", "mem_bw_gbs"): "the table holds both memories in one row, 4000/4900",
    ("GH200", "tdp_w"): "the table holds a range; the chip its upper end",
}
AS_WE_SAY = {
    "V100-SXM2": "V100 SXM2", "V100-PCIe": "V100 PCIe", "B200 SXM (HGX/DGX)": "B200", "GB200 (per GPU)": "GB200",
    "B300 SXM (HGX/DGX)": "B300", "GB300 (per GPU)": "GB300", "MI250X (2 GCD)": "MI250X",
}  # fmt: skip


def research_rows():
    if not SHARED.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"the research table {SHARED.name} is not here"))]
    with SHARED.open(newline="", encoding="utf-8") as file:
        return [pytest.param(row, id=row["sku"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("row", research_rows())
def test_every_row_of_the_research_table_is_here_and_agrees_unless_we_corrected_it(row):
    member = find(AS_WE_SAY.get(row["sku"], row["sku"]), NOTHING)
    for column, ours in COLUMNS.items():
        value, theirs = ours(member), row[column]
        agrees = (
            (value is None)
            if theirs == ""
            else value is not None and theirs.replace(".", "").isdigit() and value == pytest.approx(float(theirs))
        )
        assert agrees or (row["sku"], column) in CORRECTED, f"{row['sku']} {column}: the table says {theirs!r}, we say {value!r}"
        assert not agrees or (row["sku"], column) not in CORRECTED, f"{row['sku']} {column} needs no correction"


# --- names


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("H100 SXM", "NVIDIA H100 80GB HBM3"),
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA-H100-80GB-HBM3", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA-H100-80GB-HBM3-SHARED", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me", "NVIDIA H100 80GB HBM3"),
        ("H100 PCIe", "NVIDIA H100 PCIe"),
        ("NVIDIA_H100_NVL", "NVIDIA H100 NVL"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA H200 NVL", "NVIDIA H200 NVL"),
        ("Tesla V100-SXM2-32GB", "Tesla V100-SXM2-32GB"),
        ("V100 SXM2 16 GB", "Tesla V100-SXM2-16GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("A100-SXM-80GB", "NVIDIA A100-SXM4-80GB"),
        ("A100", "NVIDIA A100-SXM4-80GB"),  # four boards, one peak
        ("NVIDIA GH200 480GB", "NVIDIA GH200 480GB"),
        ("NVIDIA GB200", "NVIDIA GB200"),
        ("NVIDIA B200", "NVIDIA B200"),
        ("NVIDIA B300 SXM6 AC", "NVIDIA B300 SXM6 AC"),
        ("AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("AMD Instinct(TM) MI300X", "AMD Instinct MI300X"),
        ("AMD_Instinct™_MI300X_OAM", "AMD Instinct MI300X"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("Tesla T4", "Tesla T4"),
        ("NVIDIA T4", "Tesla T4"),
        ("L40S", "NVIDIA L40S"),
        ("L40", "NVIDIA L40"),
        ("L4", "NVIDIA L4"),
        ("A10G", "NVIDIA A10G"),
        ("A10", "NVIDIA A10"),
        ("H20", "NVIDIA H20"),
    ],
)
def test_a_chip_is_found_by_the_names_that_are_written_for_it(written, meant):
    assert find(written, NOTHING).name == meant


@pytest.mark.parametrize(
    "stranger",
    [
        "", " ", "NVIDIA", "Tesla", "GPU", "H1000", "H10", "A10 0", "A1000", "H2", "L40SX", "H20-3e", "H20 0", "L4 0", "NVIDIA L20X",
        "NVIDIA A100-SXM-64GB", "NVIDIA A100-SXM4-40G", "Tesla V100S-PCIE-32GB", "Tesla V100-SXM3-32GB", "NVIDIA H800 NVL",
        "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "Quadro RTX 6000",
        "AMD Instinct MI250X / MI250",
        "AMD H100", "NVIDIA MI300X", "NVIDIA AMD H100", "H100!", "Ｈ100", "A١٠٠", "NVIDIA H100 80GB HBM3" * 1000, "\x1b[31mH100",
    ],
)  # fmt: skip
def test_a_stranger_is_never_taken_for_a_chip_that_resembles_it(stranger):
    with pytest.raises(UllageError, match="no GPU is called") as raised:
        find(stranger, NOTHING)
    assert "\x1b" not in str(raised.value) and len(str(raised.value)) < 600


def test_an_unknown_name_comes_with_the_nearest_known_one():
    with pytest.raises(UllageError) as raised:
        find("NVIDIA A100-SXM4-40G", NOTHING)
    assert raised.value.problem == "no GPU is called 'NVIDIA A100-SXM4-40G'"
    assert "'NVIDIA A100-SXM4-40GB'" in raised.value.hint and "`ullage gpus` lists all" in raised.value.hint


def test_a_name_of_two_chips_with_different_peaks_names_them_both():
    with pytest.raises(UllageError) as raised:
        find("RTX 6000", NOTHING)
    assert str(raised.value) == (
        "'RTX 6000' may be any of 2 GPUs with different peaks\n"
        "  say which: 'NVIDIA RTX 6000 Ada Generation', 'NVIDIA RTX PRO 6000 Blackwell Workstation Edition'"
    )
    for name in ("V100", "H100 80GB"):
        with pytest.raises(UllageError, match="with different peaks"):
            find(name, NOTHING)


@pytest.mark.parametrize("member", EVERY, ids=lambda c: c.name)
def test_every_chip_is_found_by_its_name_and_by_each_alias(member):
    for name in (member.name, *member.aliases):
        assert find(name, NOTHING) is member


def test_no_two_chips_answer_to_one_name():
    owners: dict[names.Folded, set[str]] = {}
    for member in EVERY:
        for name in (member.name, *member.aliases):
            owners.setdefault(names.fold(name), set()).add(member.name)
    assert not {name: chips for name, chips in owners.items() if len(chips) > 1}


def test_a_second_chip_under_a_taken_name_is_refused():
    a30 = find("A30", NOTHING)
    with pytest.raises(ValueError, match="belongs to another GPU"):
        chip("Board 30", aliases=("a-30",), **{f: getattr(a30, f) for f in Chip.__dataclass_fields__ if f not in ("name", "aliases")})
    assert "Board 30" not in CHIPS


def is_a_name_of(member, name):
    plain, _ = mig.split(name)
    return names.fold(plain) in {names.fold(n) for n in (member.name, *member.aliases, *member.shared_names)}


@given(st.text(max_size=40))
def test_garbage_finds_nothing_but_by_the_folded_name(name):
    try:
        member = find(name, NOTHING)
    except UllageError:
        return
    assert is_a_name_of(member, name)


@given(st.sampled_from(list(all_names())), st.integers(0, 60), st.text("0123456789SXGLab -_", max_size=3), st.booleans())
def test_a_name_that_is_changed_a_little_finds_nothing_else(name, at, inserted, drop):
    changed = name[:at] + inserted + name[at + drop :]
    try:
        member = find(changed, NOTHING)
    except UllageError:
        return
    assert is_a_name_of(member, changed)


@given(st.sampled_from(list(all_names())), st.sampled_from([" ", "-", "_", "  "]), st.sampled_from([str.upper, str.lower, str.title]))
def test_case_and_separators_do_not_matter(name, separator, case):
    written = separator.join(case(name).replace("-", " ").replace("_", " ").split())
    assert find(written, NOTHING) is find(name, NOTHING)


# --- what the user says against the tables


def test_a_relabelled_board_is_named_by_the_environment():
    environment = {"ULLAGE_GPU_ALIAS": "L20X=H200 SXM, NVIDIA Mystery = A30"}
    assert find("NVIDIA L20X", environment) is find("H200", NOTHING)
    assert find("L20X MIG 1g.18gb", environment) is find("H200", NOTHING)
    assert find("mystery", environment) is find("A30", NOTHING)
    assert tensor_clock("L20X", environment) == 1.83e9


@pytest.mark.parametrize("text", ["L20X", "L20X=", "=H200", "a=b=c", "L20X=H200,L20X=H100", ","])
def test_a_malformed_alias_is_an_error_that_shows_the_form(text):
    with pytest.raises(UllageError) as raised:
        find("H200", {"ULLAGE_GPU_ALIAS": text})
    assert "ULLAGE_GPU_ALIAS='L20X=H200 SXM'" in raised.value.hint


def test_an_alias_of_an_unknown_chip_is_an_error():
    with pytest.raises(UllageError, match="no GPU is called 'H201'"):
        find("L20X", {"ULLAGE_GPU_ALIAS": "L20X=H201"})


def test_a_plain_peak_holds_for_the_two_sixteen_bit_precisions_only():
    environment = {"ULLAGE_PEAK_TFLOPS": "1000"}
    assert peak("H100", "bf16", environment=environment) == peak("L20X", "fp16", environment=environment) == 1e15
    assert peak("H100", "fp8", environment=environment) == peak("H100", "fp8", environment=NOTHING)


def test_a_peak_given_by_argument_goes_before_the_environment():
    environment = {"ULLAGE_PEAK_TFLOPS": "1000"}
    assert peak("H100", "bf16", override="bf16=989.4,fp8=1978.9", environment=environment) == 989.4e12
    assert peak("H100", "nvfp4", override="fp4=10000", environment=environment) == 10e15


@pytest.mark.parametrize(
    "text", ["many", "-5", "0", "nan", "inf", "989.4e12", "bf16=", "bf16=1,bf16=2", "989,fp16=5", "fp99=4", "989,,", "="]
)
def test_a_malformed_peak_is_an_error(text):
    with pytest.raises(UllageError):
        peak("H100", "bf16", environment={"ULLAGE_PEAK_TFLOPS": text})


def test_an_empty_override_is_no_override():
    assert peak("H100", "bf16", environment={"ULLAGE_PEAK_TFLOPS": " "}) == peak("H100", "bf16", environment=NOTHING)


# --- what a report must say


@pytest.mark.parametrize("name", ["A10G", "H20", "B100", "H100 NVL", "H200 NVL", "B200", "B300", "GB300"])
def test_a_tensor_clock_that_nobody_documents_carries_a_warning(name):
    assert "not documented" in find(name, NOTHING).warning


@pytest.mark.parametrize("name", ["A30", "H20", "B100"])
def test_figures_that_nobody_confirmed_carry_a_warning(name):
    assert "are not confirmed" in find(name, NOTHING).warning


@pytest.mark.parametrize("name", ["H100", "A100", "H200", "MI300X", "GB200"])
def test_a_well_known_chip_carries_none(name):
    assert find(name, NOTHING).warning == ""


# --- MIG


@pytest.mark.parametrize(
    ("profile", "name", "share"),
    [
        ("1g.10gb", "H100", 1 / 7),
        ("MIG 3g.40gb", "A100", 3 / 7),
        ("1g.10gb+me", "H100", 1 / 7),
        ("1c.3g.40gb", "A100", 1 / 7),  # one of the three slices of its GPU instance
        ("7g.80gb", "H100", 1.0),
        ("mig-1g.10gb.me", "H100", 1 / 7),
        ("1g.10gb/7", "H100", 1 / 7),  # as in the samples table: profile and instance id
        ("1g.6gb", "A30", 1 / 4),
        ("2g.48gb", "RTX PRO 6000 Blackwell WS", 2 / 4),
        ("1g.24gb-me", "RTX PRO 6000 Blackwell WS", 1 / 4),
    ],
)
def test_a_mig_instance_holds_its_slices_share_of_the_chip(profile, name, share):
    assert mig.mig_share(profile, find(name, NOTHING)) == share


def test_the_instances_that_fill_a_chip_hold_all_of_it():
    h100 = find("H100", NOTHING)
    assert mig.mig_share("4g.40gb", h100) + mig.mig_share("2g.20gb", h100) + mig.mig_share("1g.10gb", h100) == pytest.approx(1)


@pytest.mark.parametrize("text", ["", "g.10gb", "1g", "1g.10", "10gb", "0g.5gb", "1g.10gb; drop", "2c.1g.10gb", "1g.10gb" * 99])
def test_what_is_no_profile_is_an_error(text):
    with pytest.raises(UllageError, match="MIG profile"):
        mig.mig_share(text, None)


def test_a_profile_that_the_chip_cannot_have_is_an_error():
    with pytest.raises(UllageError, match="more slices than the GPU's 4"):
        mig.mig_share("7g.80gb", find("A30", NOTHING))
    with pytest.raises(UllageError, match="Tesla T4 cannot be cut into MIG instances"):
        mig.mig_share("1g.5gb", find("T4", NOTHING))


@given(st.text(max_size=30))
def test_splitting_a_name_never_fails_and_invents_nothing(name):
    plain, profile = mig.split(name)
    assert plain in name and (profile is None or profile in name)


# --- the command


def run(*arguments, **environment):
    result = CliRunner(env={"ULLAGE_PEAK_TFLOPS": None, "ULLAGE_GPU_ALIAS": None, **environment}).invoke(command, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_the_command_shows_one_chip_in_full():
    assert run("GB200") == (
        "NVIDIA GB200: 2,500 TFLOP/s dense BF16 at 2,062 MHz\n"
        "\n"
        "architecture      NVIDIA Blackwell, 10.0\n"
        "SMs               148\n"
        "highest SM clock  2,062 MHz\n"
        "tensor clock      2,062 MHz (boost clock)\n"
        "memory            186 GB, 8.00 TB/s\n"
        "power             1,200 W\n"
        "MIG               7 slices\n"
        "also called       -\n"
        "\n"
        "precision  FLOPs/cycle/SM     MHz   TFLOP/s    stated\n"
        "fp64                    -       -        40        40\n"
        "tf32                4,096   2,062     1,250     1,250\n"
        "bf16                8,192   2,062     2,500     2,500\n"
        "fp16                8,192   2,062     2,500     2,500\n"
        "fp8                16,384   2,062     5,000     5,000\n"
        "int8               16,384   2,062     5,000     5,000\n"
        "fp4                32,768   2,062    10,000    10,000\n"
        "\n"
        f"source: {CHIPS['NVIDIA GB200'].source}\n"
        f"checked: {CHIPS['NVIDIA GB200'].checked}\n"
        "confidence: medium\n"
        f"note: {CHIPS['NVIDIA GB200'].note}\n"
    )


def test_the_command_lists_every_chip_once_on_a_line_of_its_own():
    lines = run().splitlines()
    assert lines[0] == f"{len(CHIPS)} GPUs; peaks are dense, in TFLOP/s"
    for name in CHIPS:
        assert sum(line.startswith(f"{name}  ") for line in lines) == 1
    assert not any("\x1b" in line or line != line.rstrip() for line in lines)


def test_the_command_gives_one_figure_with_what_must_be_said_about_it():
    first, *rest = run("H20", "-p", "bfloat16").splitlines()
    assert first == "148 TFLOP/s dense BF16, NVIDIA H20"
    assert rest == [f"note: {CHIPS['NVIDIA H20'].warning}"]


def test_the_command_says_when_the_environment_overrules_the_table():
    assert run("H100", "-p", "bf16", ULLAGE_PEAK_TFLOPS="1000").splitlines()[1] == (
        "note: ULLAGE_PEAK_TFLOPS is set: reports take bf16 1,000, fp16 1,000 TFLOP/s for every GPU, whatever stands here"
    )


def test_the_commands_json_is_a_list_of_chips_in_si_units():
    everything = json.loads(run("--json"))
    assert [c["name"] for c in everything if c["name"] == "NVIDIA H200"] == ["NVIDIA H200"] and len(everything) == len(CHIPS)
    (h100,) = json.loads(run("h100", "--json"))
    assert h100["tensor_clock"] == 1.83e9 and round(h100["peak"]["fp8"] / 1e12, 1) == 1978.9 and h100["warning"] is None


def test_the_command_for_a_precision_shows_only_chips_that_have_it_fastest_last():
    lines = run("--precision", "nvfp4").splitlines()
    assert lines[0].startswith("8 GPUs with FP4") and lines[-1].startswith("NVIDIA GB300 ")
    assert not any("H100" in line for line in lines)


def test_the_commands_help_ends_with_examples():
    assert "ullage gpus 'H100 SXM'" in run("--help")


def test_knowing_a_chip_needs_the_standard_library_only():
    program = (
        "import sys; from ullage.gpus.chip import peak; peak('H100', 'bf16');"
        "print(*sorted({'numpy', 'pyarrow', 'duckdb', 'rich', 'click', 'urllib3', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
