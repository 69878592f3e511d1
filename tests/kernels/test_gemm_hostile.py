"""Hostile questions to `ullage gemm` and `ullage flops --tiles`: an answer that adds up, or one clear error."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import ullage
from tests.models.certified_configs import CONFIGS
from ullage.asking.step import step_question
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.kernels.gemms.gemm import decode
from ullage.kernels.gemms.legacy import impossible_on
from ullage.kernels.prediction import machine, suited
from ullage.kernels.tiling import TiledProduct
from ullage.models.config import Config
from ullage.models.formula import compiled
from ullage.models.gemms import Sharding, gemms
from ullage.models.passes import Training
from ullage.models.shapes import Shapes, step
from ullage.reports.flops import flops
from ullage.reports.gemms.ledger import expected

NVJET = "nvjet_sm90_hsh_256x160_64x4_2x1"
TENSILE = "Cijk_Alik_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_GSU1_ISA942"
KEYS = {
    "theoretical_flops": int,
    "executed_flops": int,
    "overhead": float,
    "tile_efficiency": float,
    "tile": list,
    "cluster": list,
    "source": str,
}
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 1000, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


def run(*words: object):
    return CliRunner().invoke(cli, ["gemm", *map(str, words)])


@pytest.mark.parametrize(
    "size",
    ["0", "-1", "1000000000000", "1e12", "4096.5", "4096x", "", " 64", "6_4", "+64", "٤٠٩٦", "²", "1:10:0", "1:10:-1", "10:1", ":", "1::3",
     "0:5", "1:2:3:4", "1:10000000000", "9" * 5000, "nan", "0x40", "64\x1b[31m"],
)  # fmt: skip
def test_what_is_no_size_is_one_short_error(size):
    error = run("--", size, 64, 64).exception
    assert isinstance(error, UllageError) and error.hint
    assert len(error.problem) < 120


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--kernel", NVJET, "--tile", "256x160x32"], "--tile's step in K 32 contradicts the kernel's name, which says 64"),
        (["--kernel", NVJET, "--cluster", "1x2"], "--cluster 1x2 contradicts the kernel's name, which says 2x1"),
        (["--kernel", TENSILE, "--split-k", "2"], "--split-k 2 contradicts the kernel's name, which says 1"),
        (["--kernel", NVJET, "--gpu", "A100"], "uses wgmma, which sm_80 has not (NVIDIA A100-SXM4-80GB)"),
        (["--kernel", NVJET, "--gpu", "B200"], "uses wgmma, which sm_100 has not"),
        (["--kernel", NVJET, "--gpu", "MI300X"], "is for sm90, not for gfx942"),
        (["--kernel", TENSILE, "--gpu", "H100"], "is for gfx942, not for sm_90"),
        (["--tile", "128x128", "--cluster", "20x10"], "a cluster of 20x10 blocks can't be"),
        (["--tile", "128x128", "--cluster", "2x0"], "a cluster of 0 can't be"),
        (["--tile", "99999x99999"], "no thread block has a tile of 99999x99999"),
        (["--tile", "64x64", "--split-k", "0"], "split-K of 0 can't be"),
        (["--tile", "64x64x32", "--split-k", "3"], "K of 64 has 2 steps and can't be cut into 3 slices"),
        (["--dtype", "fp4", "--gpu", "A100"], "has no fp4 peak"),
        (["--gpu", "H100 \x1b[31m\n"], "no GPU is called 'H100 \\x1b[31m\\n'"),
        (["--kernel", "<script>alert(1)</script>"], "is no GEMM kernel"),
        (["--kernel", "a" * 10**6], "is no GEMM kernel"),
    ],
)
def test_contradictions_are_refused_in_one_sentence(words, problem):
    error = run("64", *words).exception
    assert isinstance(error, UllageError)
    assert problem in error.problem and len(error.problem) < 300 and error.hint


@pytest.mark.parametrize(
    "words", [["--cluster", "2"], ["--ofu", "x"], ["--tile", "axb"], ["--tile", "١٢٨x128"], ["--foo"], ["--heuristics", "x"], ["1"]]
)
def test_a_command_line_that_cannot_be_is_usage(words):
    assert run("64", *words).exit_code == 2


@pytest.mark.parametrize(
    ("name", "architecture", "runs"),
    [
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x5_tn_align8", "9.0", True),  # mma runs on all later GPUs
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x5_tn_align8", "7.5", False),
        ("ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn", "7.0", False),
        ("nvjet_tst_128x256_64x4_2x1_2cta_v_bz_TNT", "10.3", True),  # tcgen05, no architecture in the name
        ("nvjet_tst_128x256_64x4_2x1_2cta_v_bz_TNT", "12.0", False),
        (TENSILE, "gfx942", True),
        (TENSILE, "gfx950", False),
        ("_gemm_a16_w16_kernel_BLOCK_SIZE_M_64_BLOCK_SIZE_N_128_BLOCK_SIZE_K_256", "gfx942", True),  # Triton is for both
    ],
)
def test_a_kernel_runs_where_its_instructions_are(name, architecture, runs):
    assert (impossible_on(decode(name), architecture) is None) == runs


def test_a_type_without_tensor_cores_keeps_its_name_and_has_no_ceiling():
    # 64 x 64 x 64 in FP32: 2 * 64^3 FLOP over 3 * 64 * 64 * 4 B
    report = ullage.gemm(64, 64, 64, kernel="volta_sgemm_128x32_sliced1x4_tn", gpu="H100 SXM")
    assert (report.dtype, report.mfu_ceiling, report.memory_bound) == ("fp32", None, None)
    assert report.intensity == pytest.approx(2 * 64**3 / (3 * 64 * 64 * 4))
    assert "no peak" in report.notes[0]


def test_fp64_and_rows_that_tma_does_not_fetch_get_the_tiles_of_mma():
    assert machine("9.0", 132, 256, "fp64").unit == "mma"
    on = machine("9.0", 132, 4096)
    # 16 bytes are 8 elements of BF16; the rows of N lie in no matrix of a linear layer
    assert [suited(on, TiledProduct(*sizes), "bf16").unit for sizes in ((64, 64, 64), (63, 64, 64), (64, 63, 64), (64, 64, 63))] == [
        "wgmma", "mma", "wgmma", "mma",
    ]  # fmt: skip
    assert "16 bytes" in ullage.gemm(50257, 4096, 768, gpu="H100 SXM").notes[0]


@pytest.mark.parametrize("tile", ["128x128x1x1", (128.5, 128), (True, 128), (128,), [1, 2, 3, 4], 5, ("a", "b")])
def test_python_refuses_a_tile_that_is_none(tile):
    with pytest.raises(UllageError, match="a tile of"):
        ullage.gemm(64, 64, 64, tile=tile)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 2**31 - 1)] * 3), batch=st.integers(1, 2**31 - 1), tile=st.tuples(*[st.integers(1, 4096)] * 3),
    cluster=st.sampled_from([(1, 1), (2, 1), (1, 2), (4, 4)]),
)  # fmt: skip
def test_json_has_the_promised_keys_and_covers_the_product(sizes, batch, tile, cluster):
    words = [*sizes, "--batch", batch, "--tile", "x".join(map(str, tile)), "--cluster", "x".join(map(str, cluster)), "--json"]
    data = json.loads(run(*words).stdout)
    assert {key: type(data[key]) for key in KEYS} == KEYS
    assert data["theoretical_flops"] == 2 * batch * sizes[0] * sizes[1] * sizes[2] <= data["executed_flops"]
    assert data["tile_efficiency"] == pytest.approx(1 / (1 + data["overhead"]))


def test_a_name_with_markup_and_escapes_is_harmless_in_every_form(tmp_path):
    name = NVJET + " <script>&\"'\x1b[31m\udcff"
    for form in (".svg", ".txt", ".json"):
        out = tmp_path / f"report{form}"
        assert run("64", "--kernel", name, "--out", out).exit_code == 0
        written = out.read_bytes()
        assert b"\x1b" not in written
        if form == ".svg":
            assert b"<script" not in written
            ElementTree.fromstring(written)
    assert json.loads(run("64", "--kernel", name, "--json").stdout)["source_detail"] == name


@pytest.mark.parametrize("place", ["none/report.svg", "folder.svg", "report.pdf", "report"])
def test_a_place_that_takes_no_report_is_refused_before_the_work(tmp_path, place):
    (tmp_path / "folder.svg").mkdir()
    error = run("64", "--out", tmp_path / place).exception
    assert isinstance(error, UllageError) and error.hint


def test_the_products_of_every_known_model_are_its_ledgers_flops_to_the_integer():
    shapes = ({"seq": 64}, {"latent_tokens": 64, "prompt_tokens": 8})
    checked = 0
    for config in (Config(values) for configs in CONFIGS.values() for values in configs):
        for words in shapes:
            question = step_question(gpu="H100 SXM", **({"batch": 2} | words))
            try:
                report = flops(config, question)
            except UllageError:
                continue  # a model of other shapes
            sums: dict = {}
            for row in expected(config, question, report).rows:
                sums[row.gemm.name, row.gemm.pass_] = sums.get((row.gemm.name, row.gemm.pass_), 0) + row.gemm.flops
            booked = report.ledger.by("name", "pass_")
            assert sums == {key: booked[key] for key in sums}
            checked += 1
            break
    assert checked > 100


def test_tokens_are_spread_over_experts_as_whole_tokens():
    # 77 tokens to 2 of 8 experts: 154 rows, two experts of 20 and six of 19; over three layers
    formula = compiled(Config(MIXTRAL))
    described, _ = step(Shapes(batch=1, seq=77), formula, "causal")
    found = [g for g in gemms(formula, described, Training()) if (g.name, g.pass_) == ("moe.experts.down", "forward")]
    assert [(g.n, g.count) for g in found] == [(20, 2 * 3), (19, 6 * 3)]
    # one token keeps two experts busy, and the other six not at all
    described, _ = step(Shapes(batch=1, seq=1), formula, "causal")
    found = [g for g in gemms(formula, described, Training()) if (g.name, g.pass_) == ("moe.experts.down", "forward")]
    assert [(g.n, g.count) for g in found] == [(1, 2 * 3)]


@pytest.mark.parametrize(
    ("cut", "problem"),
    [
        (Sharding(data=10**6), "the step has 64 rows"),
        (Sharding(tensor=10**6), "can't be shared by 1,000,000 ranks"),
        (Sharding(expert=16), "16 ranks can't share 8 experts"),
    ],
)
def test_more_ranks_than_there_is_to_share_is_an_error(cut, problem):
    formula = compiled(Config(MIXTRAL))
    described, _ = step(Shapes(batch=1, seq=64), formula, "causal")
    with pytest.raises(UllageError, match=problem):
        gemms(formula, described, Training(), None, cut)


def test_a_step_beyond_any_library_names_the_product(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(MIXTRAL))
    words = ["flops", str(path), "--batch", "1000000000", "--seq", "1000000", "--tiles"]
    error = CliRunner().invoke(cli, words).exception
    assert isinstance(error, UllageError)
    assert error.problem.startswith("attention.q is 512 × 1,000,000,000,000,000 × 512") and "--accumulation" in error.hint
