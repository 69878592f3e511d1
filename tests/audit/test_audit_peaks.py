"""The linter of peak tables: what is read (and never executed), each mistake, and the tables of the frameworks."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from click.testing import CliRunner

from ullage.audit.peak_tables import PeakRow, rows
from ullage.audit.peaks import MEANINGS, Kind, judge
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.reports.audit.peaks import audit_peaks

# verl's device table (verl/utils/flops_counter.py), its names and figures in TFLOP/s
VERL = [
    *("CPU=0.448", "GB200=2500", "B200=2250", "MI300X=1307", "MI350X=2300", "MI355X=2500", "H100=989", "H800=989", "H200=989"),
    *("A100=312", "A800=312", "L40S=362.05", "L40=181.05", "A40=149.7", "L20=119.5", "H20=148", "910B=354", "Ascend950DT=432"),
    "RTX 3070 Ti=21.75",
]


def one(text, **more):
    (judged,) = judge(rows([text]), **{"exact": True} | more)
    return judged


def kinds(given, **more):
    return {(j.row.name, j.precision): j.kind for j in judge(rows(given), **more)}


def table(tmp_path, text, name="peaks.py"):
    (tmp_path / name).write_text(text)
    return [str(tmp_path / name)]


def test_every_verdict_has_its_meaning():
    assert set(MEANINGS) == set(get_args(Kind))


@pytest.mark.parametrize(
    ("row", "kind", "of", "factor"),
    [
        ("H200=989.4", "right", "NVIDIA H200", 1.0),
        ("H200=2000", "sparse", "bf16 with sparsity", 0.4947),  # Lightning 2.6.6; 989.4 / 2000
        ("H100 NVL=1979", "sku", "NVIDIA H100 80GB HBM3 with sparsity", 0.4221),  # Lightning 2.6.6; 835.3 / 1979
        ("H100 NVL=1671", "sparse", "bf16 with sparsity", 0.4999),
        ("H100 PCIe=989", "sku", "NVIDIA H100 80GB HBM3", 0.7648),  # 756.4 / 989
        ("A100=156", "precision", "tf32 of NVIDIA A100-SXM4-80GB", 2.0),  # TF32 used for BF16
        ("MI300X=653.7", "precision", "tf32 of AMD Instinct MI300X", 2.0),
        ("T4=32.5", "half", "half of bf16", 2.0),
        ("H100=123", "unexplained", None, 8.044),
        ("L16=119.5", "unknown", None, None),
        ("L20=119.5", "right", "NVIDIA L20", 1.0),
        ("MI250X=383", "sku", "AMD Instinct MI250X module", 0.5),  # the module's peak for a device, one of its two dies: 191.5
        ("A10G=125", "sku", "NVIDIA A10", 0.56),
        ("H200=312", "sku", "NVIDIA A100-SXM4-80GB", 3.171),  # copied from another family: 989.4 / 312
        ("H200=313.5", "sku", "NVIDIA A100-SXM4-80GB", 3.156),  # 0.48 % beside it
        ("H200=314", "unexplained", None, 3.151),  # 0.64 %: of a hundred GPUs one is near, which explains nothing
        ("T4=65", "right", "Tesla T4", 1.0),  # no BF16: its FP16
        ("V100=125", "ambiguous", "Tesla V100-PCIE-32GB", None),  # 125 is the SXM2 board's, 113 the PCIe board's
    ],
)
def test_each_mistake_is_known_by_its_number(row, kind, of, factor):
    judged = one(row)
    assert judged.kind == kind
    assert of is None or of in judged.of
    assert factor is None or judged.factor == pytest.approx(factor, rel=0.01)
    assert judged.wrong == (kind not in ("right", "unknown"))


def test_a_figure_with_sparsity_may_as_well_be_that_of_half_the_width():
    # 1978.9 is 2 x 989.4 and the FP8 peak: both are said
    assert one("H100=1978.9").of == ("bf16 with sparsity", "fp8 of NVIDIA H100 80GB HBM3")


@pytest.mark.parametrize(("row", "kind"), [("V100 SXM2=250", "unexplained"), ("A100=624", "sparse"), ("MI250X=766", "unexplained")])
def test_twice_the_peak_is_sparsity_only_where_a_gpu_has_it(row, kind):
    assert one(row).kind == kind


@pytest.mark.parametrize("number", ["inf", "0", "-1", "nan", "none"])
def test_what_is_no_peak_is_a_fallback(number):
    assert one(f"H100={number}").kind == "fallback"


@pytest.mark.parametrize("name", ["default", "unknown", "*"])
def test_what_every_unknown_gpu_gets_is_a_fallback(name):
    judged = one(f"{name}=312")
    assert judged.kind == "fallback" and judged.value == 312e12


@pytest.mark.parametrize("text", ["989.4", "9.894e14", "989400", "0.9894", "989.4 TFLOP/s", "989.4 TFLOPS", "0.9894 PFLOP/s", "989_400"])
def test_the_unit_is_told_by_magnitude(text):
    assert one(f"H100 SXM={text}").kind == "right"


def test_a_row_in_another_unit_than_the_others_is_told():
    found = kinds(["A100=312", "H100=989", "H200=989.4e12"], exact=True)
    assert found["H200", "bf16"] == "unit"


def test_fp64_of_few_teraflops_is_not_taken_for_petaflops(tmp_path):
    given = table(tmp_path, '{"V100 SXM": {"fp16": 125}, "H100": {"bf16": 989, "fp64": 66.9}, "T4": {"fp64": 0.25}}', "a.json")
    assert kinds(given, exact=True)["H100", "fp64"] == "right"


@pytest.mark.parametrize(
    ("key", "caught"),
    [
        ("L20=119.5", {"NVIDIA L20X"}),
        ("H100=989", {"NVIDIA H100 PCIe", "NVIDIA H100 NVL"}),
        ("A40=149.7", {"NVIDIA RTX A4000", "NVIDIA RTX A400"}),
        ("B200=2250", {"NVIDIA GB200"}),
        ("L4=121", {"NVIDIA L40", "NVIDIA L40S"}),
    ],
)
def test_a_name_that_is_part_of_another_is_a_trap(key, caught):
    judged = one(key, exact=False)
    assert {trap.gpu for trap in judged.traps} == caught and judged.wrong
    assert not one(key, exact=True).traps


def test_a_longer_name_of_the_table_takes_its_gpu_out_of_the_trap():
    found = judge(rows(["H100=989", "H100 PCIe=756", "H100 NVL=835"]))
    assert not any(j.wrong for j in found)
    assert [trap.gpu for trap in judge(rows(["H100=989", "H100 PCIe=756"]))[0].traps] == ["NVIDIA H100 NVL"]


def test_boards_with_the_same_peak_are_no_trap():
    assert not one("GH200 96GB=989", exact=False).traps
    assert {trap.gpu for trap in one("H200=989", exact=False).traps} == {"NVIDIA H200 NVL"}  # GH200 has H200's peak


def test_verls_table_is_right_but_for_one_consumer_board_and_catches_boards_by_accident():
    report = audit_peaks(VERL)
    found = {j.row.name: j for j in report.rows}
    assert {name for name, j in found.items() if j.kind == "unknown"} == {"CPU", "910B", "Ascend950DT"}
    # 21.75 is its FP32 rate, and that of TF32: half of 48 SMs × 512 × 1.77 GHz = 43.5
    assert {name: j.kind for name, j in found.items() if j.kind not in ("right", "unknown")} == {"RTX 3070 Ti": "precision"}
    caught = {(name, trap.gpu) for name, j in found.items() for trap in j.traps}
    assert {("L20", "NVIDIA L20X"), ("A40", "NVIDIA RTX A4000"), ("H100", "NVIDIA H100 PCIe"), ("H100", "NVIDIA H100 NVL")} <= caught
    assert ("A100", "NVIDIA A100-SXM-64GB") in caught  # 124 SMs, not 108
    assert not any(trap.gpu == "NVIDIA L40S" for trap in found["L40"].traps)  # the table has L40S itself


def test_python_is_read_as_a_tree_and_nothing_is_executed(tmp_path):
    given = table(
        tmp_path,
        """
import torch
raise SystemExit("executed")
TERA = 10**12
PEAKS = {
    "h100 nvl": {torch.float64: 60e12, torch.float32: 60e12, torch.bfloat16: 1979e12, "int8": 2 * 835.3 * TERA},
    "H200": {torch.bfloat16: 2000e12},
    ("A100", "bf16"): 312 * TERA,
    "H100": open("/etc/passwd").read(),
}
MEMORY_BANDWIDTH = {"H100": 3.35e12}
COLOURS = {"red": 1, "green": 2}
BF16_PEAKS = {"B200": 2250e12, "weird": [1], **PEAKS}
total_flops = 0
promised_flops = float("inf")
def find(name):
    return PEAKS.get(name, -1)
""",
    )
    assert kinds(given, exact=True) == {
        ("h100 nvl", "fp64"): "right",
        ("h100 nvl", "fp32"): "unjudged",
        ("h100 nvl", "bf16"): "sku",
        ("h100 nvl", "int8"): "right",
        ("H200", "bf16"): "sparse",
        ("A100", "bf16"): "right",
        ("B200", "bf16"): "right",
        ("PEAKS.get(…)", "bf16"): "fallback",
        ("promised_flops = inf", "bf16"): "fallback",
    }
    assert {j.row.where for j in judge(rows(given)) if j.row.name == "H200"} == {"line 7"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"bf16": {"H100": 989.4, "H200": 1979}, "fp8": {"H100": 1978.9}}'),
        ("a.json", '{"H100": {"bf16_tflops": 989.4, "fp8": 1978.9, "sms": 132, "memory": 80}, "H200": {"peak": {"bf16": 1979}}}'),
        (
            "a.json",
            '[{"name": "H100", "dtype": "bf16", "peak_tflops": 989.4, "memory_gb": 80}, {"gpu": "H200", "bf16": 1979},'
            ' {"gpu": "H100", "fp8": 1978.9}]',
        ),
        ("a.yaml", "# peaks\nbf16:\n  H100: 989.4   # SXM\n  'H200': 1979\nfp8:\n  H100: 1978.9\n"),
        ("a.txt", "H100 bf16=989.4\nH200 bf16 = 1979\nH100 fp8=1978.9 TFLOP/s\n"),
    ],
)
def test_tables_nested_either_way_say_the_same(tmp_path, name, text):
    if name == "a.txt":  # a name of two words is looked up whole
        text = text.replace("H100 bf16", "H100").replace("H200 bf16", "H200").replace("H100 fp8=1978.9 TFLOP/s", "")
        assert kinds(table(tmp_path, text, name), exact=True) == {("H100", "bf16"): "right", ("H200", "bf16"): "sparse"}
        return
    expected = {("H100", "bf16"): "right", ("H200", "bf16"): "sparse", ("H100", "fp8"): "right"}
    assert kinds(table(tmp_path, text, name), exact=True) == expected


def test_figures_said_to_be_sparse_are_left_alone(tmp_path):
    given = table(tmp_path, '{"H100": {"dense": {"bf16": 989}, "sparse": {"bf16": 1979}}}', "a.json")
    assert [(r.name, r.number) for r in rows(given)] == [("H100", 989.0)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "X = {'red': 1}"),
        ("a.py", "x = ("),
        ("a.py", "PEAKS = {'H100': 1\x00}"),
        ("a.py", "x = " + "(" * 5000 + ")" * 5000),
        ("a.json", "[" * 100_000),
        ("a.json", "{}"),
        ("a.txt", "hello\n"),
        ("a.txt", "a" + " " * 100_000 + "\n"),
    ],
)
def test_what_holds_no_table_says_so(tmp_path, name, text):
    with pytest.raises(UllageError, match=r"a\.(py|json|txt)"):
        rows(table(tmp_path, text, name))


def test_arithmetic_without_end_is_refused(tmp_path):
    given = table(tmp_path, "P = {'H100': 9**9**9**9, 'H200': 10**400 * 1.0, 'A100': 1/0, 'B200': 2250}")
    assert [(r.name, r.number) for r in rows(given) if r.number < 1e30] == [("B200", 2250.0)]


@pytest.mark.parametrize("text", ["none.py", "H100=fast", "=", "H100"])
def test_what_is_neither_file_nor_row_is_refused(text):
    with pytest.raises(UllageError):
        rows([text])


def test_a_huge_file_is_refused(tmp_path):
    with pytest.raises(UllageError, match="larger than"):
        rows(table(tmp_path, " " * (5 << 20)))


def test_rows_without_a_name_of_the_table_are_no_names():
    judged = judge([PeakRow("x.get(…)", 0.0, key=False), PeakRow("H100", 989.0)], exact=True)
    assert [j.kind for j in judged] == ["fallback", "right"]


def test_the_command_prints_the_verdict_first_and_exits_with_3():
    result = CliRunner().invoke(cli, ["audit", "peaks", "H200=2000", "H100 PCIe=989", "GB300=2500"])
    assert result.exit_code == 3
    assert result.output == (
        "2 of 3 rows wrong: 1 sparse, 1 sku, 1 that match other GPUs\n"
        "\n"
        "name       precision  verdict  TFLOP/s  right  MFU ×  what it is\n"
        "H200       bf16       sparse     2,000  989.4  0.495  bf16 with sparsity; or fp8 of NVIDIA H200\n"
        "H100 PCIe  bf16       sku          989  756.4  0.765  of NVIDIA H100 80GB HBM3\n"
        "GB300      bf16       right      2,500  2,500      –\n"
        "\n"
        "name  also matches     precision  gives it, TFLOP/s  its own\n"
        "H200  NVIDIA H200 NVL  bf16                   2,000    835.3\n"
        "\n"
        "note: rows that name no precision are taken as dense bf16 (--precision)\n"
        "note: names are taken to be searched for in the driver's name, as most tables are; --exact where they are compared whole\n"
    )


def test_the_command_exits_with_0_where_nothing_is_wrong():
    result = CliRunner().invoke(cli, ["audit", "peaks", "H200=989", "--exact"])
    assert result.exit_code == 0 and result.output.startswith("nothing wrong in 1 row: 1 right, 0 not known\n")


def test_json_holds_the_same(tmp_path):
    result = CliRunner().invoke(cli, ["audit", "peaks", "H200=2000", "X=inf", "--json"])
    told = json.loads(result.stdout)
    assert result.exit_code == 3 and told["wrong"] == 2
    row = told["rows"][0]
    assert (row["verdict"], row["value"], row["wrong"]) == ("sparse", 2e15, True)
    assert row["right"] == pytest.approx(989.4e12, rel=1e-3) and row["mfu_factor"] == pytest.approx(0.4947, rel=1e-3)
    assert row["also_matches"][0]["gpu"] == "NVIDIA H200 NVL"
    assert told["rows"][1]["value"] is None


@pytest.mark.parametrize("name", ["peaks.py", "peaks.json", "peaks.txt"])
def test_a_table_of_thousands_of_rows_is_refused_before_they_are_looked_up(tmp_path, name):
    members = [(f"GPU {i}", "1e12") for i in range(5_000)]
    told = "\n".join(f"{k}={v}" for k, v in members) if name.endswith("txt") else "{" + ",".join(f'"{k}": {v}' for k, v in members) + "}"
    with pytest.raises(UllageError, match="more than 2,000 rows"):
        rows(table(tmp_path, ("P = " if name.endswith("py") else "") + told, name))
